//! Makes links for the pool, and decides which callers share one.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};

use super::connector::Connector;
use super::login_shell::LoginShells;
use super::{Connect, HostBook, HostRef, Link};
use sshjobs_base::lock::lock;
use sshjobs_job::Caller;
use sshjobs_ssh::ConnectError;

/// Makes links: resolves a name, connects and logs in.
pub struct Linker {
    pub(super) book: Arc<HostBook>,
    pub(super) connector: Connector,
    shells: Arc<LoginShells>,
    logins: Mutex<LoginOwners>,
}

/// Which logins belong to a single caller.
#[derive(Default)]
struct LoginOwners {
    /// Hosts that refuse the operator's credentials.
    refused: HashSet<String>,
    /// Callers' own logins: the caller has answered prompts for the host, or may be asked.
    own: HashSet<HostRef>,
}

impl Linker {
    pub(super) fn new(book: Arc<HostBook>, connector: Connector) -> Self {
        Self {
            book,
            connector,
            shells: Arc::default(),
            logins: Mutex::default(),
        }
    }
}

impl Connect for Linker {
    type Connection = Arc<Link>;
    type Error = ConnectError;

    async fn connect(&self, host: &HostRef) -> Result<Arc<Link>, ConnectError> {
        let config = self.book.resolve(&host.name).await?;
        let connected = self.connector.connect(&host.caller, &config).await;
        // A corrected ssh_config must take effect immediately after a failure.
        let connection = connected.inspect_err(|_| self.book.forget(&host.name))?;
        tracing::info!(host = host.name, negotiated = ?connection.negotiated(), "connected");
        Ok(Arc::new(Link::new(connection, Arc::clone(&self.shells))))
    }

    /// Logins with the operator's own credentials are shared by all callers. Logins that a caller
    /// answers belong to that caller.
    fn shared(&self, host: &HostRef) -> HostRef {
        let mut logins = lock(&self.logins);
        // The operator's login is known to fail. Trying it again would be one more failed login.
        if logins.refused.contains(&host.name) && self.connector.can_ask(&host.caller) {
            logins.own.insert(host.clone());
        }
        if logins.own.contains(host) {
            return host.clone();
        }
        HostRef {
            caller: Caller::local(),
            name: host.name.clone(),
        }
    }

    fn separate(&self, host: &HostRef, error: &ConnectError) -> bool {
        if !error.is_refused_login() || host.caller == Caller::local() {
            return false;
        }
        let mut logins = lock(&self.logins);
        logins.refused.insert(host.name.clone());
        if !self.connector.can_ask(&host.caller) {
            return false;
        }
        // Also true if another call of this caller was first: both waited for the shared login.
        logins.own.insert(host.clone());
        true
    }
}
