//! Makes connections: jump hosts are shared, busy servers are retried, failing logins are
//! paused.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep};

use super::breaker::{Breaker, Paused};
use super::opened_streams::{OpenedStreams, StreamReservation};
use sshjobs_base::lock::lock;
use sshjobs_job::Caller;
use sshjobs_ssh::{ConnectError, Connection, HostConfig, LoginSecrets, PresentedKey, Prompter};

/// Maximum attempts with a server that hangs up before the handshake. The pause after the first
/// attempt is `FIRST_PAUSE`, and doubles after each further one.
const MOST_TRIES: u32 = 7;
const FIRST_PAUSE: Duration = Duration::from_millis(100);
/// Time limit for all attempts, in multiples of ConnectTimeout.
const TRIES_FACTOR: u32 = 3;

/// Maximum logins in progress at one server. sshd drops connections at random above MaxStartups.
const LOGINS_AT_A_TIME: usize = 32;

/// From this many servers on, those without logins are forgotten.
const MOST_SERVERS: usize = 1000;

/// Returns the prompter for a caller's logins, if any.
pub type Prompters = Box<dyn Fn(&Caller) -> Option<Arc<dyn Prompter>> + Send + Sync>;

/// Makes connections. Hosts behind the same jump host share one connection to it.
pub(super) struct Connector {
    secrets: Mutex<HashMap<Caller, Arc<LoginSecrets>>>,
    prompters: Prompters,
    breaker: Breaker,
    jumps: Mutex<HashMap<(Caller, HostConfig), Arc<JumpHost>>>,
    /// Slots for logins, by address and port of their server.
    login_slots: Mutex<HashMap<(String, u16), Weak<Semaphore>>>,
    opened: OpenedStreams,
}

/// A connection to a jump host while it is in use. Locked while connecting, so that one caller
/// connects for all.
type JumpHost = tokio::sync::Mutex<KnownShell>;

/// A connection to a jump host, or why it failed; callers that waited share the error.
type JumpHostResult = Result<Arc<Connection>, Arc<ConnectError>>;

#[derive(Default)]
struct KnownShell {
    connection: Weak<Connection>,
    /// Last failure, shared by callers that waited for that attempt.
    failure: Option<(Instant, Arc<ConnectError>)>,
}

impl KnownShell {
    fn is_live(&self) -> bool {
        self.connection.strong_count() > 0
    }
}

impl Connector {
    pub(super) fn asking(prompters: Prompters) -> Self {
        Self {
            secrets: Mutex::default(),
            prompters,
            breaker: Breaker::default(),
            jumps: Mutex::default(),
            login_slots: Mutex::default(),
            opened: OpenedStreams::default(),
        }
    }

    /// The secrets of a caller's logins.
    pub(super) fn secrets(&self, caller: &Caller) -> Arc<LoginSecrets> {
        let mut secrets = lock(&self.secrets);
        Arc::clone(
            secrets
                .entry(caller.clone())
                .or_insert_with(|| Arc::new(LoginSecrets::asking((self.prompters)(caller)))),
        )
    }

    /// Whether the caller has a person who can answer prompts.
    pub(super) fn can_ask(&self, caller: &Caller) -> bool {
        self.secrets(caller).can_ask()
    }

    /// Connects to the host, through its jump hosts, checks the key of each, and logs in.
    ///
    /// Each step has the host's own time limit; a login is never tried twice. Dropping the future
    /// closes everything.
    pub(super) async fn connect(
        &self,
        caller: &Caller,
        host: &HostConfig,
    ) -> Result<Connection, ConnectError> {
        let login_slots = self.login_slots(host);
        // Before the breaker is asked, which an earlier login may trip. A host behind a jump host or a command has
        // no slot: its jump host may need one at the same address.
        let _slot = if is_reached_directly(host) {
            login_slots.acquire().await.ok()
        } else {
            None
        };
        let route = host.route();
        self.breaker
            .check(&route)
            .map_err(|Paused { times, wait }| ConnectError::Paused {
                host: host.name.clone(),
                user: host.user.clone(),
                times,
                wait,
            })?;
        let connected = self.connect_patiently(caller, host).await;
        match &connected {
            Ok(_) => self.breaker.note(&route, true),
            // Only a refused login counts. A jump host's refusal is noted for its own route.
            Err(ConnectError::Auth { .. }) => self.breaker.note(&route, false),
            Err(_) => {}
        }
        connected
    }

    /// A server that is busy with other logins hangs up on new connections at random (MaxStartups).
    /// Nothing was sent to it then, so this tries again after a growing pause with a random part.
    async fn connect_patiently(
        &self,
        caller: &Caller,
        host: &HostConfig,
    ) -> Result<Connection, ConnectError> {
        let mut tries = 1;
        let began = Instant::now();
        let secrets = self.secrets(caller);
        loop {
            // In the loop, because the jump host may have been lost since the last attempt.
            let via = self.via(caller, host).await?;
            let connected = match self.connect_over_opened(host, &secrets).await {
                Some(connected) => connected,
                None => sshjobs_ssh::connect(host, via, &secrets).await,
            };
            match connected {
                Err(ConnectError::HungUp { .. })
                    if tries < MOST_TRIES
                        && began.elapsed() < host.connect_timeout * TRIES_FACTOR
                        // A ProxyCommand that fails looks the same, and would only be run again.
                        && host.proxy_command.is_none() =>
                {
                    let pause = FIRST_PAUSE * 2_u32.pow(tries - 1);
                    // Clients that the server turned away together must not return together.
                    sleep(pause.mul_f64(rand::random_range(0.5..1.5))).await;
                    tries += 1;
                }
                Err(ConnectError::HungUp { host, .. }) => {
                    return Err(ConnectError::HungUp { host, tries });
                }
                connected => return connected,
            }
        }
    }

    /// Connects over the stream that waits for this login. `None` if there is none, or the server has hung up on it
    /// while it waited.
    async fn connect_over_opened(
        &self,
        host: &HostConfig,
        secrets: &LoginSecrets,
    ) -> Option<Result<Connection, ConnectError>> {
        if !is_reached_directly(host) {
            return None;
        }
        let stream = self.opened.take(host)?;
        match sshjobs_ssh::connect_over(stream, host, secrets).await {
            Err(ConnectError::HungUp { .. }) => None,
            connected => Some(connected),
        }
    }

    /// Opens a TCP connection for the next login at a host, and waits until its server speaks or `limit` has
    /// passed. `None` if the connection fails or is not open within `limit`, the server has one already, its logins
    /// are paused, or the host is reached in another way.
    pub(super) async fn open_ahead(
        &self,
        host: &HostConfig,
        limit: Duration,
    ) -> Option<StreamReservation> {
        if !is_reached_directly(host) || self.breaker.check(&host.route()).is_err() {
            return None;
        }
        self.opened.open(host, limit).await
    }

    /// The slots for logins at a host's server.
    fn login_slots(&self, host: &HostConfig) -> Arc<Semaphore> {
        let mut all_slots = lock(&self.login_slots);
        let server = (host.address.clone(), host.port);
        if let Some(known) = all_slots.get(&server).and_then(Weak::upgrade) {
            return known;
        }
        if all_slots.len() >= MOST_SERVERS {
            all_slots.retain(|_, slots| slots.strong_count() > 0);
        }
        let new = Arc::new(Semaphore::new(LOGINS_AT_A_TIME));
        all_slots.insert(server, Arc::downgrade(&new));
        new
    }

    /// Asks a host for its key without logging in. Its jump hosts must be known, and are logged in
    /// to.
    pub(super) async fn look_at_key(
        &self,
        caller: &Caller,
        host: &HostConfig,
    ) -> Result<PresentedKey, ConnectError> {
        sshjobs_ssh::look_at_key(host, self.via(caller, host).await?).await
    }

    /// The host's jump host, if it has one.
    async fn via(
        &self,
        caller: &Caller,
        host: &HostConfig,
    ) -> Result<Option<Arc<Connection>>, ConnectError> {
        // Then the command makes the connection, and `sshjobs_ssh::connect` ignores jump hosts.
        if host.proxy_command.is_some() {
            return Ok(None);
        }
        let Some(jump) = host.jump.as_deref() else { return Ok(None) };
        self.jump_host(caller, jump)
            .await
            .map(Some)
            .map_err(|source| ConnectError::JumpHost {
                host: jump.name.clone(),
                source,
            })
    }

    /// A connection to a jump host: the existing one, or a new one.
    fn jump_host<'a>(
        &'a self,
        caller: &'a Caller,
        host: &'a HostConfig,
    ) -> Pin<Box<dyn Future<Output = JumpHostResult> + Send + 'a>> {
        // Boxed: a jump host may have a jump host itself, and `connect` then calls this again.
        Box::pin(async move {
            let entry = {
                let mut jumps = lock(&self.jumps);
                // Unused entries must not accumulate.
                jumps.retain(|_, entry| {
                    Arc::strong_count(entry) > 1
                        || entry.try_lock().is_ok_and(|known| known.is_live())
                });
                Arc::clone(jumps.entry((caller.clone(), host.clone())).or_default())
            };
            // Taken before the wait for the lock: only a failure during this wait is shared.
            let came = Instant::now();
            // Jump hosts nest these locks, without a cycle: a `HostConfig` owns its jump host.
            let mut known = entry.lock().await;
            if let Some((_, error)) = known.failure.as_ref().filter(|(when, _)| *when >= came) {
                return Err(Arc::clone(error));
            }
            if let Some(live) =
                known.connection.upgrade().filter(|connection| !connection.is_closed())
            {
                return Ok(live);
            }
            match self.connect(caller, host).await {
                Ok(connection) => {
                    tracing::info!(host = host.name, "connected to a jump host");
                    let connection = Arc::new(connection);
                    *known = KnownShell {
                        // Weak: it ends with the last connection through the jump host.
                        connection: Arc::downgrade(&connection),
                        failure: None,
                    };
                    Ok(connection)
                }
                Err(error) => {
                    let error = Arc::new(error);
                    known.failure = Some((Instant::now(), Arc::clone(&error)));
                    drop(known);
                    // Callers that wait have the entry already. Later callers try again.
                    lock(&self.jumps).remove(&(caller.clone(), host.clone()));
                    Err(error)
                }
            }
        })
    }
}

/// Whether connections to a host are made by TCP, without a jump host or a command between.
fn is_reached_directly(host: &HostConfig) -> bool {
    host.jump.is_none() && host.proxy_command.is_none()
}
