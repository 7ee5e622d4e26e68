//! Calls of the spool script on a host, which install it first if necessary.

use std::sync::Arc;
use std::time::Duration;

use secrecy::{ExposeSecret, SecretSlice, SecretString};

use crate::hosts::{CommandOutcome, Lease, Link, Script, SlotWait, is_refused, run_fed};
use crate::runner::state::RunnerState;
use sshjobs_job::LoginShell;
use sshjobs_job::spool::{self, Fence, SpoolReply};
use sshjobs_output::printable;
use sshjobs_ssh::ChannelError;

/// Time limit for an answer of the spool script.
const ANSWER: Duration = Duration::from_secs(15);

/// Longest input sent through the control shell, which reads it byte by byte.
const LONGEST_INPUT: usize = 4 << 10;
/// Why a host runs none of our scripts.
const NO_SHELL: &str = "its login shell does not run /bin/sh";
/// Lines of its stderr that are shown of a script that failed.
const SHOWN_COMPLAINTS: usize = 3;

/// Runs a command of the spool on a host. Installs the scripts first if they are missing.
pub(crate) async fn run_on(
    link: &Link,
    command: &str,
    input: &[u8],
) -> Result<SpoolReply, ChannelError> {
    run_within(link, command, input, ANSWER).await
}

/// Like [`run_on`], with a time limit for the answer.
async fn run_within(
    link: &Link,
    command: &str,
    input: &[u8],
    limit: Duration,
) -> Result<SpoolReply, ChannelError> {
    let answer = run(link, command, input.to_vec().into(), limit).await?;
    if answer != SpoolReply::Missing {
        return Ok(answer);
    }
    // A missing script has run nothing, so the command can be sent again.
    let installed = install(link).await?;
    if installed == SpoolReply::Done {
        run(link, command, input.to_vec().into(), limit).await
    } else {
        Ok(installed)
    }
}

/// A command of the spool as this process may give it to a host.
pub(crate) fn fenced(shared: &RunnerState, host: &str, command: String) -> String {
    match shared.storing.as_ref().and_then(|storing| storing.store.fence(host)) {
        Some((name, token)) => spool::fenced(&command, &Fence { name, token }),
        None => command,
    }
}

/// Starts a durable job by `command`. Starting it twice runs it once.
pub(crate) async fn start(
    link: &Link,
    command: &str,
    order: &SecretString,
) -> Result<SpoolReply, ChannelError> {
    // The host waits up to 30 s for a change of the user.
    let limit = ANSWER + Duration::from_secs(30);
    run_within(link, command, order.expose_secret().as_bytes(), limit).await
}

/// Notes in the pool that a connection has no room for another channel, so that the next attempt
/// uses another connection.
pub(crate) fn note_refusal(lease: Lease<Arc<Link>>, error: ChannelError) -> ChannelError {
    if matches!(error, ChannelError::OpenRefused) {
        lease.note_refusal();
    }
    error
}

/// Installs the scripts.
pub(crate) async fn install(link: &Link) -> Result<SpoolReply, ChannelError> {
    run(
        link,
        &spool::install(),
        spool::scripts().into_bytes().into(),
        ANSWER,
    )
    .await
}

async fn run(
    link: &Link,
    command: &str,
    input: SecretSlice<u8>,
    limit: Duration,
) -> Result<SpoolReply, ChannelError> {
    let mut wait = SlotWait::new();
    loop {
        let answer = run_once(link, command, &input, limit).await;
        if !is_refused(&answer) || !wait.pause().await {
            return answer;
        }
    }
}

async fn run_once(
    link: &Link,
    command: &str,
    input: &SecretSlice<u8>,
    limit: Duration,
) -> Result<SpoolReply, ChannelError> {
    // Input that is long, or not UTF-8, needs a channel of its own.
    let text = std::str::from_utf8(input.expose_secret())
        .ok()
        .filter(|text| text.len() <= LONGEST_INPUT);
    if let Some(text) = text {
        let script = Script {
            text: command.to_owned(),
            input: text.to_owned().into(),
        };
        let printed = link.run_script(script, limit).await?;
        if let Some(answer) = printed.and_then(|printed| final_answer(&printed)) {
            return Ok(answer);
        }
        // Once more, in a channel of its own, whose stderr has the reason. Each call may be repeated.
    }
    let channel = link.open().await?.channel;
    let input = if link.known_shell() == Some(LoginShell::Bare) {
        // It may have a password in it, which no other program may get. A start without an order does nothing.
        SecretSlice::from(Vec::new())
    } else {
        input.expose_secret().to_vec().into()
    };
    let printed = run_fed(channel, command, input, limit, has_answered).await?;
    Ok(final_answer(&printed.stdout)
        .unwrap_or_else(|| SpoolReply::Unsupported(why_no_answer(&printed))))
}

/// Describes a command that ended without an answer.
fn why_no_answer(printed: &CommandOutcome) -> String {
    let status = printed.status.map_or_else(
        || "no status".to_owned(),
        |status| format!("status {status}"),
    );
    let complaints: Vec<_> =
        printed.stderr.lines().filter(|line| !line.trim().is_empty()).collect();
    let last = &complaints[complaints.len().saturating_sub(SHOWN_COMPLAINTS)..];
    // Such as a limit of the account (ulimit), which keeps the shell from starting programs.
    if last.is_empty() {
        format!("{NO_SHELL}; it ended with {status}")
    } else {
        let words = printable(&last.join("; "));
        format!("the script for durable jobs did not run there and ended with {status}: {words}")
    }
}

/// The answer of a script that has got its input. `None` if there is none.
fn final_answer(printed: &str) -> Option<SpoolReply> {
    SpoolReply::parse(printed).filter(|answer| *answer != SpoolReply::Send)
}

/// Whether the script's answer is complete.
fn has_answered(printed: &str) -> bool {
    printed.ends_with('\n') && final_answer(printed).is_some()
}
