//! Runs a command for a notification.

use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use secrecy::{ExposeSecret, SecretString};
use tokio::io::AsyncWriteExt;
use tokio::process::Command;
use tokio::time::timeout;

use sshjobs_job::notify::{Delivery, DeliveryAttempt};

/// Time limit for a command.
const COMMAND_TIME: Duration = Duration::from_secs(30);

/// Runs a program with the body on its stdin. It has accepted the notification if it exits with 0.
pub(super) async fn run_command(
    words: &[SecretString],
    delivery: &Delivery,
    body: String,
) -> DeliveryAttempt {
    let Some((program, arguments)) = words.split_first() else {
        return DeliveryAttempt::Refused("the command is empty".to_owned());
    };
    let spawned = Command::new(program.expose_secret())
        .args(arguments.iter().map(ExposeSecret::expose_secret))
        .env("SSHJOBS_NOTIFICATION", &delivery.id)
        .env("SSHJOBS_JOB_ID", &delivery.message.job.job_id)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        // Its words may be secret, and callers read why an attempt failed.
        .stderr(Stdio::null())
        // Not that of a terminal, whose Ctrl-C is for the job.
        .process_group(0)
        .kill_on_drop(true)
        .spawn();
    let mut child = match spawned {
        Ok(child) => child,
        Err(error) => {
            return DeliveryAttempt::Failed(format!("the command can't be started: {error}"));
        }
    };
    // The child leads its group. Its id is known as long as it was not waited for.
    let group = child.id().and_then(|id| Pid::from_raw(id.cast_signed()));
    let mut stdin = child.stdin.take();
    let feeding = async {
        if let Some(stdin) = &mut stdin {
            // A command that does not read its stdin may succeed all the same.
            stdin.write_all(body.as_bytes()).await.ok();
        }
        drop(stdin);
    };
    let running = async { tokio::join!(feeding, child.wait()).1 };
    match timeout(COMMAND_TIME, running).await {
        Ok(Ok(status)) if status.success() => DeliveryAttempt::Accepted,
        Ok(Ok(status)) => {
            DeliveryAttempt::Failed(format!("the command ended with {}", in_words(status)))
        }
        Ok(Err(error)) => {
            DeliveryAttempt::Failed(format!("the command can't be waited for: {error}"))
        }
        Err(_) => {
            if let Some(group) = group {
                // It may have ended just now.
                kill_process_group(group, Signal::KILL).ok();
            }
            DeliveryAttempt::Failed(format!("the command takes longer than {COMMAND_TIME:?}"))
        }
    }
}

fn in_words(status: ExitStatus) -> String {
    match status.code() {
        Some(code) => format!("exit code {code}"),
        None => "a signal".to_owned(),
    }
}
