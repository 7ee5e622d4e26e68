//! A host with durable jobs: their files, and the network to them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::dice::Dice;
use crate::hosts::{Connect, HostRef, Pooled};
use sshjobs_base::lock::lock;

/// A host that all processes of the simulation reach.
pub(super) struct SimulatedHost {
    state: Mutex<HostState>,
    /// Changes with every change of the state.
    changed: watch::Sender<()>,
}

struct HostState {
    jobs: BTreeMap<String, JobOnHost>,
    /// Jobs that a start has added to a running session, by the session's name.
    added: BTreeMap<String, BTreeSet<String>>,
    connections: Vec<Weak<HostConnection>>,
    refuses_until: Instant,
    frozen_until: Instant,
    has_scripts: bool,
}

/// The files of a job.
#[derive(Clone, Default)]
pub(super) struct JobOnHost {
    /// Its output on stdout and on stderr so far.
    pub(super) printed: [Vec<u8>; 2],
    /// Its exit status, once it has ended.
    pub(super) status: Option<u8>,
}

impl SimulatedHost {
    pub(super) fn new() -> Arc<Self> {
        let state = HostState {
            jobs: BTreeMap::new(),
            added: BTreeMap::new(),
            connections: Vec::new(),
            refuses_until: Instant::now(),
            frozen_until: Instant::now(),
            has_scripts: true,
        };
        Arc::new(Self {
            state: Mutex::new(state),
            changed: watch::Sender::new(()),
        })
    }

    /// Changes the state, and wakes everybody who waits for a change.
    fn change<T>(&self, change: impl FnOnce(&mut HostState) -> T) -> T {
        let result = change(&mut lock(&self.state));
        self.changed.send_replace(());
        result
    }

    pub(super) fn changes(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    /// Starts a job, and adds it to `session` if that runs. Returns whether it was added.
    pub(super) fn start(&self, job: &str, session: Option<&str>) -> bool {
        self.change(|state| {
            let before = state.jobs.insert(job.to_owned(), JobOnHost::default());
            assert!(before.is_none(), "{job} is started twice");
            let added = session.and_then(|session| state.added.get_mut(session));
            added.is_some_and(|added| added.insert(job.to_owned()))
        })
    }

    pub(super) fn print(&self, job: &str, stream: usize, bytes: &[u8]) {
        self.change(|state| {
            let job = state.jobs.get_mut(job).expect("a job that prints was started");
            job.printed[stream].extend_from_slice(bytes);
        });
    }

    pub(super) fn end(&self, job: &str, status: u8) {
        self.change(|state| {
            state.jobs.get_mut(job).expect("a job that ends was started").status = Some(status);
        });
    }

    pub(super) fn job(&self, job: &str) -> Option<JobOnHost> {
        lock(&self.state).jobs.get(job).cloned()
    }

    /// A session begins, to which starts can add jobs.
    pub(super) fn begin_session(&self, name: &str) {
        self.change(|state| drop(state.added.insert(name.to_owned(), BTreeSet::new())));
    }

    pub(super) fn end_session(&self, name: &str) {
        self.change(|state| drop(state.added.remove(name)));
    }

    /// The jobs that were added to a session since the last call.
    pub(super) fn take_added(&self, session: &str) -> BTreeSet<String> {
        lock(&self.state).added.get_mut(session).map(std::mem::take).unwrap_or_default()
    }

    /// Cuts all connections.
    pub(super) fn cut(&self) {
        self.change(|state| {
            for connection in state.connections.drain(..) {
                if let Some(connection) = connection.upgrade() {
                    connection.lost.cancel();
                }
            }
        });
    }

    /// Refuses connections for some time.
    pub(super) fn refuse_for(&self, time: Duration) {
        self.change(|state| state.refuses_until = Instant::now() + time);
    }

    /// Sends nothing for some time.
    pub(super) fn freeze_for(&self, time: Duration) {
        self.change(|state| state.frozen_until = Instant::now() + time);
    }

    pub(super) fn frozen_until(&self) -> Instant {
        lock(&self.state).frozen_until
    }

    /// Deletes the spool's scripts.
    pub(super) fn delete_scripts(&self) {
        self.change(|state| state.has_scripts = false);
    }

    pub(super) fn install_scripts(&self) {
        self.change(|state| state.has_scripts = true);
    }

    pub(super) fn has_scripts(&self) -> bool {
        lock(&self.state).has_scripts
    }
}

/// A connection to the host.
#[derive(Default)]
pub(super) struct HostConnection {
    pub(super) lost: CancellationToken,
}

impl Pooled for Arc<HostConnection> {
    fn is_closed(&self) -> bool {
        self.lost.is_cancelled()
    }

    fn is_heavy(&self) -> bool {
        false
    }

    fn is_worn_out(&self) -> bool {
        false
    }

    fn is_suspect(&self) -> bool {
        false
    }
}

/// The network between a process and the host.
pub(super) struct Network {
    pub(super) host: Arc<SimulatedHost>,
    pub(super) dice: Dice,
}

impl Connect for Network {
    type Connection = Arc<HostConnection>;
    type Error = &'static str;

    async fn connect(&self, _host: &HostRef) -> Result<Arc<HostConnection>, &'static str> {
        sleep(self.dice.millis(100)).await;
        self.host.change(|state| {
            if Instant::now() < state.refuses_until {
                return Err("refused");
            }
            let connection = Arc::new(HostConnection::default());
            state.connections.push(Arc::downgrade(&connection));
            Ok(connection)
        })
    }
}
