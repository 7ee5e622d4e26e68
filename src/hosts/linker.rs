use std::sync::Arc;

use tokio::time::timeout;

use super::connector::Connector;
use super::login_shell::login_shell;
use super::{Connect, HostBook, HostRef, Link};
use crate::job::LoginShell;
use crate::ssh::ConnectError;

/// Makes links: resolve, connect, log in, find out about the login shell.
pub struct Linker {
    pub(super) book: Arc<HostBook>,
    pub(super) connector: Connector,
}

impl Connect for Linker {
    type Connection = Arc<Link>;
    type Error = ConnectError;

    async fn connect(&self, host: &HostRef) -> Result<Arc<Link>, ConnectError> {
        let config = self.book.resolve(&host.name).await?;
        let connected = self.connector.connect(&host.caller, &config).await;
        // Whoever corrects ssh_config after a failure need not wait.
        let connection = connected.inspect_err(|_| self.book.forget(&host.name))?;
        let limit = config.connect_timeout * 2;
        let (shell, machine) =
            timeout(limit, login_shell(&connection)).await.unwrap_or((LoginShell::Bare, None));
        tracing::info!(host = host.name, ?shell, negotiated = ?connection.negotiated(), "connected");
        Ok(Arc::new(Link::new(connection, shell, machine)))
    }
}
