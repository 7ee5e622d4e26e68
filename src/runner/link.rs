use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;

use super::Traffic;
use crate::job::{LoginShell, Nonce, shell_probes};
use crate::ssh::{
    ChannelError, ChannelEvent, Connect, ConnectError, Connection, Connector, HostConfig, Pooled,
};

/// A connection, and what its far end runs commands with.
pub struct Link {
    /// The connection.
    pub connection: Connection,
    /// What exec strings are for there.
    pub shell: LoginShell,
    /// How much comes over it.
    pub traffic: Traffic,
}

/// Tells how to reach a host by its name.
pub trait Directory: Send + Sync + 'static {
    /// Resolves `name`.
    fn host(&self, name: &str) -> impl Future<Output = Result<HostConfig, ConnectError>> + Send;
}

/// The most that is kept of what a short command prints.
const ANSWER_LIMIT: usize = 64 << 10;
const PROBE_TIMEOUT: Duration = Duration::from_secs(10);

impl Pooled for Link {
    fn is_closed(&self) -> bool {
        self.connection.is_closed()
    }

    fn is_heavy(&self) -> bool {
        self.traffic.is_heavy()
    }
}

/// Makes links: resolve, connect, log in, find out about the login shell.
pub(super) struct Linker<D> {
    pub(super) directory: D,
    pub(super) connector: Connector,
}

impl<D: Directory> Connect for Linker<D> {
    type Connection = Link;
    type Error = ConnectError;

    async fn connect(&self, host: &str) -> Result<Link, ConnectError> {
        let config = self.directory.host(host).await?;
        let connection = self.connector.connect(&config).await?;
        let shell = login_shell(&connection).await;
        tracing::info!(host, ?shell, negotiated = ?connection.negotiated(), "connected");
        Ok(Link { connection, shell, traffic: Traffic::default() })
    }
}

/// Asks what runs exec strings. A host that does not answer as a shell would is given bare commands only.
async fn login_shell(connection: &Connection) -> LoginShell {
    let nonce = Nonce::new();
    for (command, shell) in shell_probes(&nonce) {
        match ask(connection, &command, PROBE_TIMEOUT).await {
            Ok(answer) if answer.contains(nonce.as_str()) => return shell,
            Ok(_) => {}
            // A host that refuses the second probe after the first has no more to say.
            Err(error) => tracing::debug!(%error, "the login shell could not be asked"),
        }
    }
    LoginShell::Bare
}

/// Runs a short command of our own and returns what it printed, within `limit`.
pub(super) async fn ask(
    connection: &Connection,
    command: &str,
    limit: Duration,
) -> Result<String, ChannelError> {
    let (mut reader, writer) = connection.open().await?.exec(command).await?;
    writer.eof().await?;
    let mut answer = Vec::new();
    let reading = async {
        while let Some(event) = reader.next().await {
            if event == ChannelEvent::Close {
                break;
            }
            if let ChannelEvent::Data(bytes) = event
                && answer.len() < ANSWER_LIMIT
            {
                answer.extend_from_slice(&bytes);
            }
        }
    };
    let in_time = timeout(limit, reading).await;
    writer.close().await?;
    in_time.map_err(|_| ChannelError::TimedOut(limit))?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

impl<D: Directory> Directory for Arc<D> {
    async fn host(&self, name: &str) -> Result<HostConfig, ConnectError> {
        D::host(self, name).await
    }
}
