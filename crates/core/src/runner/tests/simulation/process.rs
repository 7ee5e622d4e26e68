//! A process of sshjobs, without its threads: each step that a thread would make is made by a task.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use secrecy::SecretString;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::dice::Dice;
use super::host::{Network, SimulatedHost};
use super::session::SimulatedSessions;
use crate::hosts::{Access, HostBook, HostRef, Hosts, Pool, PoolLimits};
use crate::keeping::{Storing, StoringRequests};
use crate::runner::api::sweep;
use crate::runner::durable::{follow_new, follower_of};
use crate::runner::foreign::adopt;
use crate::runner::state::{
    Followers, ForeignJobs, Limits, Observer, Registry, RunnerState, RunnerTasks, Screens,
    SecretReader,
};
use sshjobs_base::lock::lock;
use sshjobs_job::{Job, Outcome};
use sshjobs_ssh::Resolver;
use sshjobs_store::{Memory, Record, SharedValue, Store};

/// Longest pause between two steps of the thread that stores output, in milliseconds.
const STORE_PAUSE: u64 = 100;
/// Interval of the steps of the other threads.
const ROUND: Duration = Duration::from_secs(1);

/// A running process.
pub(super) struct SimulatedProcess {
    pub(super) shared: Arc<RunnerState>,
    pool: Arc<Pool<Network>>,
    dice: Dice,
    tasks: Arc<Mutex<JoinSet<()>>>,
    /// Until this moment its disk hangs.
    disk_hangs_until: Arc<Mutex<Instant>>,
}

/// Parameters of a process.
pub(super) struct ProcessStart<'a> {
    pub(super) host: &'a Arc<SimulatedHost>,
    pub(super) store: Memory,
    pub(super) ring_lines: usize,
    pub(super) dice: Dice,
}

impl SimulatedProcess {
    pub(super) fn start(start: ProcessStart<'_>) -> Self {
        let limits = Limits {
            ring_buffer_lines: start.ring_lines,
            ..Limits::default()
        };
        let pool = Arc::new(Pool::new(
            Network {
                host: Arc::clone(start.host),
                dice: start.dice.fork(),
            },
            PoolLimits {
                channels_per_connection: 2,
                connections_per_host: 2,
                idle: Duration::from_secs(60),
                queue: Duration::from_secs(10),
            },
        ));
        let store: Arc<dyn Store> = Arc::new(start.store);
        let queues = SharedValue::new("queues", Some(Ok(Arc::clone(&store))));
        let (storing, requests) = Storing::new(store, limits.log(), limits.stored());
        let sessions = SimulatedSessions {
            host: Arc::clone(start.host),
            pool: Arc::clone(&pool),
            dice: start.dice.fork(),
        };
        let tasks = Arc::new(Mutex::new(JoinSet::new()));
        let shared = Arc::new(RunnerState {
            hosts: Arc::new(no_hosts()),
            limits,
            registry: Mutex::new(Registry::new(storing.store.secret())),
            storing: Some(Arc::clone(&storing)),
            unstored: None,
            foreign_jobs: ForeignJobs::default(),
            sessions: Box::new(sessions),
            followers: Followers::default(),
            screens: Screens::default(),
            adopts: true,
            secrets: Arc::new(Nothing),
            observer: Box::new(Nothing),
            queues,
            queue_rules: BTreeMap::new(),
            stopping: CancellationToken::new(),
            ends: Default::default(),
            growth: Arc::default(),
            became_heavy: mpsc::channel(1).0,
            fleets: mpsc::channel(1).0,
            queued: mpsc::channel(1).0,
            tasks: RunnerTasks::of(&tasks),
        });
        let disk_hangs_until = Arc::new(Mutex::new(Instant::now()));
        shared.spawn_task(sweep(Arc::clone(&shared)));
        shared.spawn_task(adopt(Arc::clone(&shared)));
        shared.spawn_task(store_output(Disk {
            storing,
            requests,
            hangs_until: Arc::clone(&disk_hangs_until),
            dice: start.dice.fork(),
        }));
        Self {
            shared,
            pool,
            dice: start.dice,
            tasks,
            disk_hangs_until,
        }
    }

    /// Lets the disk hang for some time.
    pub(super) fn hang_disk_for(&self, time: Duration) {
        *lock(&self.disk_hangs_until) = Instant::now() + time;
    }

    /// Kills the process: nothing of it does anything from here on.
    pub(super) async fn kill(self) {
        let mut tasks = std::mem::take(&mut *lock(&self.tasks));
        tasks.shutdown().await;
        if let Some(storing) = &self.shared.storing {
            storing.stop();
        }
        assert_eq!(
            Arc::strong_count(&self.shared),
            1,
            "a killed process has left something that runs"
        );
    }

    /// Whether a channel to the host is in use.
    pub(super) fn has_session(&self) -> bool {
        self.pool.total_usage().channels_in_use > 0
    }

    /// Registers a job, and starts it on the host in a task, as `runner/start` does.
    pub(super) fn spawn(&self, host: &Arc<SimulatedHost>, job: &Arc<Job>) {
        let storing = self.shared.storing.as_ref().expect("the simulation stores output");
        let record = Record {
            owner: storing.store.own_name().to_owned(),
            ..Record::new(job, None, String::new())
        };
        storing.store.admit(&record).expect("memory takes all records");
        self.shared.registry().adopt(Arc::clone(job), None, None);
        storing.keep(job, record, None);
        self.shared.spawn_task(launch(
            Arc::clone(&self.shared),
            Arc::clone(host),
            Arc::clone(job),
            self.dice.fork(),
        ));
    }
}

async fn launch(shared: Arc<RunnerState>, host: Arc<SimulatedHost>, job: Arc<Job>, dice: Dice) {
    sleep(dice.millis(30)).await;
    let follower = follower_of(&shared, &HostRef::of(&job));
    let session = follower.session_name();
    let is_told = host.start(job.id.as_str(), session.as_deref());
    sleep(dice.millis(30)).await;
    let session = if is_told { session } else { None };
    follow_new(&shared, &job, &follower, session, None);
}

fn no_hosts() -> Hosts {
    let book = HostBook::new(Resolver::default(), Access::Listed);
    Hosts::new(book, Limits::default().pool(), Box::new(|_| None))
}

/// Has no secrets, and hears of nothing.
struct Nothing;

impl SecretReader for Nothing {
    fn read<'a>(&'a self, _name: &'a str) -> BoxFuture<'a, Result<SecretString, String>> {
        std::future::ready(Err("the simulation has no secrets".to_owned())).boxed()
    }
}

impl Observer for Nothing {
    fn note_begin(&self, _job: &Arc<Job>) {}

    fn note_end(&self, _job: &Job, _outcome: &Outcome) {}
}

/// The store's threads, and the disk that they write to.
struct Disk {
    storing: Arc<Storing>,
    requests: StoringRequests,
    hangs_until: Arc<Mutex<Instant>>,
    dice: Dice,
}

/// Makes the steps of the store's threads.
async fn store_output(disk: Disk) {
    let Disk {
        storing,
        requests,
        hangs_until,
        dice,
    } = disk;
    let mut round_at = Instant::now() + ROUND;
    loop {
        sleep(dice.millis(STORE_PAUSE)).await;
        let hangs = Instant::now() < *lock(&hangs_until);
        if !hangs {
            while requests.store_next_output(&storing) {}
        }
        if Instant::now() >= round_at {
            round_at = Instant::now() + ROUND;
            if !hangs && !dice.once_in(4) {
                requests.keep_records_once(&storing);
            }
            if !hangs && !dice.once_in(4) {
                storing.sync_all();
            }
            storing.show_overdue_or_store_again();
        }
    }
}
