use std::collections::HashSet;
use std::sync::{Arc, Mutex};

use tokio::time::timeout;

use super::connector::Connector;
use super::login_shell::login_shell;
use super::{Connect, HostBook, HostRef, Link};
use crate::job::{Caller, LoginShell};
use crate::lock::lock;
use crate::ssh::ConnectError;

/// Makes links: resolve, connect, log in, find out about the login shell.
pub struct Linker {
    pub(super) book: Arc<HostBook>,
    pub(super) connector: Connector,
    logins: Mutex<Logins>,
}

/// Which logins are a caller's own.
#[derive(Default)]
struct Logins {
    /// Hosts that do not let the operator in.
    refused: HashSet<String>,
    /// Hosts that a caller has answered for, or may.
    own: HashSet<HostRef>,
}

impl Linker {
    pub(super) fn new(book: Arc<HostBook>, connector: Connector) -> Self {
        Self { book, connector, logins: Mutex::default() }
    }
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

    /// What the operator's own credentials open is shared by all; what a caller has to answer for, is that caller's.
    fn shared(&self, host: &HostRef) -> HostRef {
        let mut logins = lock(&self.logins);
        if logins.refused.contains(&host.name) && self.connector.can_ask(&host.caller) {
            logins.own.insert(host.clone());
        }
        if logins.own.contains(host) {
            return host.clone();
        }
        HostRef { caller: Caller::local(), name: host.name.clone() }
    }

    fn separate(&self, host: &HostRef, error: &ConnectError) -> bool {
        if !error.is_refused_login() || host.caller == Caller::local() {
            return false;
        }
        let mut logins = lock(&self.logins);
        logins.refused.insert(host.name.clone());
        self.connector.can_ask(&host.caller) && logins.own.insert(host.clone())
    }
}
