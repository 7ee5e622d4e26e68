//! The login shell of a host: probed at most once for each connection, and only if the first
//! command did not reveal it.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Duration;

use tokio::time::Instant;

use super::run_short;
use sshjobs_base::lock::lock;
use sshjobs_job::{LoginShell, MachineId, Nonce, shell_probes};
use sshjobs_ssh::{Channel, ChannelError};

/// Time limit for a host to answer a probe.
const PROBE_TIMEOUT: Duration = Duration::from_secs(10);
/// Time for which a host counts as bare. No job would notice a change, so this expires.
const BARE_KEPT: Duration = Duration::from_secs(300);

/// Login shells of hosts that do not have a POSIX shell.
#[derive(Default)]
pub(super) struct LoginShells(Mutex<HashMap<String, (LoginShell, Instant)>>);

impl LoginShells {
    /// The remembered shell of a host; a POSIX shell by default.
    pub(super) fn of(&self, host: &str) -> LoginShell {
        match lock(&self.0).get(host) {
            Some((LoginShell::Bare, since)) if since.elapsed() > BARE_KEPT => LoginShell::Posix,
            Some((shell, _)) => *shell,
            None => LoginShell::Posix,
        }
    }

    /// Remembers the login shell of a host.
    pub(super) fn note(&self, host: &str, shell: LoginShell) {
        let mut known = lock(&self.0);
        if shell == LoginShell::Posix {
            known.remove(host);
        } else {
            known.insert(host.to_owned(), (shell, Instant::now()));
        }
    }
}

/// Result of a probe.
pub(super) struct AskedShell {
    pub(super) shell: LoginShell,
    pub(super) machine: Option<MachineId>,
    /// Whether the host answered every probe in time. Only then the result is worth remembering.
    pub(super) is_certain: bool,
}

/// Determines the login shell and the machine. Each probe takes a channel from `open`. A host that
/// does not answer as a shell would is [`LoginShell::Bare`]. The probe for a shell that is known to
/// have `refused` a command is skipped.
///
/// # Errors
/// If the host could not be probed.
pub(super) async fn ask_login_shell<F>(
    open: impl Fn() -> F,
    refused: Option<LoginShell>,
) -> Result<AskedShell, ChannelError>
where
    F: Future<Output = Result<Channel, ChannelError>>,
{
    let nonce = Nonce::new();
    let mut is_certain = true;
    for (command, shell) in shell_probes(&nonce) {
        if Some(shell) == refused {
            continue;
        }
        let channel = open().await?;
        match run_short(channel, &command, PROBE_TIMEOUT).await {
            Ok(answer) if answer.stdout.contains(nonce.as_str()) => {
                return Ok(AskedShell {
                    shell,
                    machine: MachineId::parse(&answer.stdout),
                    is_certain: true,
                });
            }
            // No shell of any kind: a startup file has ended it, or a silent forced command ran.
            Ok(answer) if answer.is_silent_success() => return Err(ChannelError::Silent),
            // Another shell would have failed, or complained: fish quotes a line that it can't parse
            // on stderr, and exits with 0. So a forced command ran, and must not run again.
            Ok(answer) if answer.status == Some(0) && !answer.repeats_our_command() => break,
            Ok(_) => {}
            // A forced command that waits for something, or a shell that takes very long to start.
            Err(ChannelError::TimedOut(_)) => is_certain = false,
            Err(error) => return Err(error),
        }
    }
    Ok(AskedShell {
        shell: LoginShell::Bare,
        machine: None,
        is_certain,
    })
}
