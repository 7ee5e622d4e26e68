//! Runs a command for a notification.

use std::process::Stdio;
use std::time::Duration;

use secrecy::{ExposeSecret, SecretString};
use tokio::io::AsyncWriteExt;
use tokio::process::Command;
use tokio::time::timeout;

use crate::notify::{Attempt, Delivery};

/// Time limit for a command.
const COMMAND_TIME: Duration = Duration::from_secs(30);
/// Bytes of a command's stderr that are kept as the reason of a failure.
const KEPT_OF_STDERR: usize = 200;

/// Runs a program with the body on its stdin. It has accepted the notification if it exits with 0.
pub(super) async fn run_command(
    words: &[SecretString],
    delivery: &Delivery,
    body: String,
) -> Attempt {
    let Some((program, arguments)) = words.split_first() else {
        return Attempt::Refused("the command is empty".to_owned());
    };
    let spawned = Command::new(program.expose_secret())
        .args(arguments.iter().map(ExposeSecret::expose_secret))
        .env("SSHJOBS_NOTIFICATION", &delivery.id)
        .env("SSHJOBS_JOB_ID", &delivery.message.job.job_id)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn();
    let mut child = match spawned {
        Ok(child) => child,
        Err(error) => return Attempt::Failed(format!("the command can't be started: {error}")),
    };
    let mut stdin = child.stdin.take();
    let running = async {
        if let Some(stdin) = &mut stdin {
            // A command that does not read its stdin may succeed all the same.
            stdin.write_all(body.as_bytes()).await.ok();
        }
        drop(stdin);
        child.wait_with_output().await
    };
    // Dropping the child kills it.
    match timeout(COMMAND_TIME, running).await {
        Ok(Ok(output)) if output.status.success() => Attempt::Accepted,
        Ok(Ok(output)) => Attempt::Failed(format!(
            "the command ended with {}: {}",
            output.status,
            end_of(&output.stderr)
        )),
        Ok(Err(error)) => Attempt::Failed(format!("the command can't be waited for: {error}")),
        Err(_) => Attempt::Failed(format!("the command takes longer than {COMMAND_TIME:?}")),
    }
}

/// The last line of a text, shortened, without control characters.
fn end_of(stderr: &[u8]) -> String {
    let text = String::from_utf8_lossy(stderr);
    let line = text.lines().rfind(|line| !line.trim().is_empty()).unwrap_or_default();
    let visible = line.chars().map(|c| if c.is_control() { ' ' } else { c });
    visible.take(KEPT_OF_STDERR).collect()
}
