//! [`Hosts`]: the names of hosts, and the connections to them.

use std::sync::Arc;
use std::time::Duration;

use secrecy::ExposeSecret;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::connector::{Connector, Prompters};
use super::{
    HostBook, HostRef, Lease, Link, Linker, Pool, PoolError, PoolLimits, Pooled, StreamReservation,
};
use sshjobs_job::Caller;
use sshjobs_ssh::{ConnectError, HostName, KnownHosts, LoginSecrets, PresentedKey, Question};

/// Hosts and the connections to them, for jobs, `trust` and probing.
pub struct Hosts {
    book: Arc<HostBook>,
    pool: Pool<Linker>,
}

/// Time limit to close connections at shutdown.
const GOODBYE: Duration = Duration::from_secs(2);

impl Hosts {
    /// Hosts without any connection yet.
    pub fn new(book: HostBook, limits: PoolLimits, prompters: Prompters) -> Self {
        let book = Arc::new(book);
        let linker = Linker::new(Arc::clone(&book), Connector::asking(prompters));
        Self {
            book,
            pool: Pool::new(linker, limits),
        }
    }

    /// The hosts by name.
    pub fn book(&self) -> &HostBook {
        &self.book
    }

    /// The connections.
    pub fn pool(&self) -> &Pool<Linker> {
        &self.pool
    }

    /// The secrets of a caller's logins.
    pub(super) fn secrets(&self, caller: &Caller) -> Arc<LoginSecrets> {
        self.pool.connect().connector.secrets(caller)
    }

    /// Whether a caller has a person who can answer questions now.
    pub fn can_ask(&self, caller: &Caller) -> bool {
        self.secrets(caller).can_ask()
    }

    /// Asks the person behind a caller whether something may be done, and returns whether the answer is
    /// "yes". `None` without an answer. Dropping the future withdraws the question.
    pub async fn confirm(&self, caller: &Caller, question: &Question) -> Option<bool> {
        let answer = self.secrets(caller).ask(question).await?;
        Some(answer.expose_secret().trim().eq_ignore_ascii_case("yes"))
    }

    /// Fingerprints of the keys that known_hosts has for a host and its jump hosts, as texts. An
    /// unreadable file is a text, too.
    pub async fn trusted_keys(&self, name: &str) -> Vec<String> {
        let Ok(host) = self.book.resolve(name).await else { return Vec::new() };
        let mut keys = Vec::new();
        let mut next = Some(&host);
        while let Some(host) = next {
            let name = HostName::of(host);
            match KnownHosts::load(&host.known_hosts, &name).await {
                Ok(known) => {
                    let of_host = known.fingerprints().into_iter();
                    keys.extend(of_host.map(|key| format!("{} {key}", name.as_str())));
                }
                Err(error) => keys.push(format!("{} {error}", name.as_str())),
            }
            next = host.jump.as_deref();
        }
        keys
    }

    /// A connection to `host` for probing. Connects if no existing connection answers.
    pub(crate) async fn probe(
        &self,
        host: &HostRef,
    ) -> Result<Lease<Arc<Link>>, PoolError<ConnectError>> {
        match self.live(host) {
            Some(lease) if lease.connection().answers().await => Ok(lease),
            _ => self.pool.lease(host).await,
        }
    }

    /// Opens a TCP connection to `host` for the next login there, which uses it unless the reservation was dropped.
    /// Waits for its server for at most `limit`, after the name was resolved. Does nothing if the pool has a
    /// connection.
    pub(crate) async fn open_ahead(
        &self,
        host: &HostRef,
        limit: Duration,
    ) -> Option<StreamReservation> {
        if self.live(host).is_some() {
            return None;
        }
        // The login reports the same error.
        let config = self.book.resolve(&host.name).await.ok()?;
        self.pool.connect().connector.open_ahead(&config, limit).await
    }

    /// A live connection to `host`, if there is one.
    pub fn live(&self, host: &HostRef) -> Option<Lease<Arc<Link>>> {
        self.pool.borrow(host, |_| true)
    }

    /// Asks a host for its key without logging in. Its jump hosts must be known, and are logged in
    /// to.
    pub(crate) async fn look_at_key(&self, host: &HostRef) -> Result<PresentedKey, ConnectError> {
        let config = self.book.resolve(&host.name).await?;
        let looked = self.pool.connect().connector.look_at_key(&host.caller, &config).await;
        // A corrected ssh_config must take effect immediately after a failure.
        looked.inspect_err(|_| self.book.forget(&host.name))
    }

    /// Closes connections that have been idle for too long.
    pub async fn expire(&self) {
        for lease in self.pool.expire() {
            lease.connection().connection.disconnect().await;
        }
    }

    /// Closes every connection, within two seconds.
    pub async fn disconnect(&self) {
        let mut goodbyes = JoinSet::new();
        // A host that does not answer reads no goodbye, and would only use up the time.
        for lease in self.pool.drain().into_iter().filter(|lease| !lease.connection().is_suspect())
        {
            goodbyes.spawn(async move { lease.connection().connection.disconnect().await });
        }
        drop(timeout(GOODBYE, goodbyes.join_all()).await);
    }
}
