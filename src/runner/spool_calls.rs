use std::time::Duration;

use secrecy::SecretSlice;

use crate::hosts::{Link, run_fed};
use crate::spool::{self, Answer};
use crate::ssh::ChannelError;

/// Time limit for an answer of the spool's script.
const ANSWER: Duration = Duration::from_secs(15);

/// Runs a command of the spool's on a host; installs the scripts first where they are missing.
pub(super) async fn run_on(link: &Link, command: &str, input: &[u8]) -> Result<Answer, ChannelError> {
    let answer = run(link, command, input.to_vec().into()).await?;
    if answer != Answer::Missing {
        return Ok(answer);
    }
    let installed = install(link).await?;
    if installed == Answer::Done { run(link, command, input.to_vec().into()).await } else { Ok(installed) }
}

/// Installs the scripts.
pub(super) async fn install(link: &Link) -> Result<Answer, ChannelError> {
    run(link, &spool::install(), spool::scripts().into_bytes().into()).await
}

async fn run(link: &Link, command: &str, input: SecretSlice<u8>) -> Result<Answer, ChannelError> {
    let printed = run_fed(link.open().await?.channel, command, input, (ANSWER, has_answered)).await?;
    let nothing = || Answer::Unsupported("its login shell does not run /bin/sh".to_owned());
    Ok(Answer::parse(&printed).unwrap_or_else(nothing))
}

/// Whether the script has said all that it will say.
fn has_answered(printed: &str) -> bool {
    printed.ends_with('\n') && Answer::parse(printed).is_some_and(|answer| answer != Answer::Send)
}
