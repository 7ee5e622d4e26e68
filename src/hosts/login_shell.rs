use std::time::Duration;

use super::run_short;
use crate::job::{LoginShell, MachineId, Nonce, shell_probes};
use crate::ssh::Connection;

/// Time limit for a host to answer a probe.
const PROBE_TIMEOUT: Duration = Duration::from_secs(10);

/// Asks what runs exec strings, and on which machine. A host that does not answer as a shell would is given bare commands only.
pub(super) async fn login_shell(connection: &Connection) -> (LoginShell, Option<MachineId>) {
    let nonce = Nonce::new();
    for (command, shell) in shell_probes(&nonce) {
        let asked = async { run_short(connection.open().await?, &command, PROBE_TIMEOUT).await };
        match asked.await {
            Ok(answer) if answer.contains(nonce.as_str()) => return (shell, MachineId::parse(&answer)),
            Ok(_) => {}
            // A host that refuses the second probe after the first has no more to say.
            Err(error) => tracing::debug!(%error, "the login shell could not be asked"),
        }
    }
    (LoginShell::Bare, None)
}
