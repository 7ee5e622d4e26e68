use std::sync::Arc;
use std::time::Duration;

use secrecy::{ExposeSecret, SecretSlice, SecretString};
use tokio::time::sleep;

use crate::hosts::{Lease, Link, Printed, run_fed};
use crate::output::printable;
use crate::spool::{self, Answer};
use crate::ssh::ChannelError;

/// Time limit for an answer of the spool's script.
const ANSWER: Duration = Duration::from_secs(15);

/// Pauses in which a server takes note of the end of the command before, where a connection has few sessions.
const CLOSING: [Duration; 4] = [
    Duration::from_millis(10),
    Duration::from_millis(40),
    Duration::from_millis(160),
    Duration::from_millis(320),
];

/// Runs a command of the spool's on a host; installs the scripts first where they are missing.
pub(super) async fn run_on(link: &Link, command: &str, input: &[u8]) -> Result<Answer, ChannelError> {
    let answer = run(link, command, input.to_vec().into()).await?;
    if answer != Answer::Missing {
        return Ok(answer);
    }
    let installed = install(link).await?;
    if installed == Answer::Done { run(link, command, input.to_vec().into()).await } else { Ok(installed) }
}

/// Starts a durable job: by a shell that was begun ahead, if there is one. Whoever starts a job twice gets the first one.
pub(super) async fn start(link: &Link, order: &SecretString) -> Result<Answer, ChannelError> {
    let lines = order.expose_secret().as_bytes();
    if let Some(begun) = link.take_begun() {
        let printed = begun.feed(lines.to_vec().into(), (ANSWER, has_answered)).await;
        match printed.map(|printed| Answer::parse(&printed.stdout)) {
            Ok(Some(Answer::Done)) => return Ok(Answer::Done),
            // Its scripts may have been removed since. A shell that is begun now does what it did not, and nothing twice.
            Ok(answer) => tracing::debug!(?answer, "the shell that was begun ahead starts nothing"),
            Err(error @ ChannelError::TimedOut(_)) => return Err(error),
            Err(error) => tracing::debug!(%error, "the shell that was begun ahead is gone"),
        }
    }
    run_on(link, &spool::start(), lines).await
}

/// Tells the pool of a connection that has no place for another channel, so that whoever tries again gets a place on another one.
pub(super) fn note_refusal(lease: Lease<Arc<Link>>, error: ChannelError) -> ChannelError {
    if matches!(error, ChannelError::OpenRefused) {
        lease.refused();
    }
    error
}

/// Installs the scripts.
pub(super) async fn install(link: &Link) -> Result<Answer, ChannelError> {
    run(link, &spool::install(), spool::scripts().into_bytes().into()).await
}

async fn run(link: &Link, command: &str, input: SecretSlice<u8>) -> Result<Answer, ChannelError> {
    let mut opened = link.open().await;
    for pause in CLOSING {
        if !matches!(opened, Err(ChannelError::OpenRefused)) {
            break;
        }
        sleep(pause).await;
        opened = link.open().await;
    }
    let printed = run_fed(opened?.channel, command, input, (ANSWER, has_answered)).await?;
    Ok(Answer::parse(&printed.stdout).unwrap_or_else(|| Answer::Unsupported(silence(&printed))))
}

/// What is known of a command that ended without an answer.
fn silence(printed: &Printed) -> String {
    let status = printed.status.map_or_else(|| "no status".to_owned(), |status| format!("status {status}"));
    let complaint = printed.stderr.lines().rev().find(|line| !line.trim().is_empty());
    let complaint = complaint.map_or_else(String::new, |line| format!(": {}", printable(line)));
    format!("its login shell does not run /bin/sh; it ended with {status}{complaint}")
}

/// Whether the script has said all that it will say.
fn has_answered(printed: &str) -> bool {
    printed.ends_with('\n') && Answer::parse(printed).is_some_and(|answer| answer != Answer::Send)
}
