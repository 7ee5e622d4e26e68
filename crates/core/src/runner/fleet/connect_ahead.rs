//! Connects to the hosts of a fleet before it is their turn, so that a host that is slow or never answers keeps
//! no other waiting.
//!
//! A host passes two stages. First a TCP connection is opened, and its server is expected to speak. Then comes the
//! login, which takes processor time. Connections are opened for the hosts whose turn comes within some seconds at
//! the fleet's pace. A host that says nothing is known there, and logged in to at once, because all of its time is
//! spent waiting; others are logged in to in their order, a few hundred ahead of their turn.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use rustix::process::{Resource, getrlimit};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::task::{JoinError, JoinSet};
use tokio::time::Instant;

use super::recent_ends::RecentEnds;
use crate::hosts::{HostRef, Lease, Link, StreamReservation};
use crate::runner::state::{RunnerState, SpawnError};
use sshjobs_job::Job;

/// Maximum attempts of this process. At 600 hosts a second they reach [`OPENED_AHEAD`].
const MOST_ATTEMPTS: usize = 5000;
/// Attempts may use this part of the limit of open files.
const PART_OF_FILES: u64 = 4;
/// Time after which an attempt counts as slow, and time for a server to speak. One that has not spoken by then is
/// logged in to all the same, with the time limits of every login.
const SLOW_AFTER: Duration = Duration::from_secs(1);
/// Time after which a host is overtaken by those after it.
pub(super) const OVERTAKEN_AFTER: Duration = Duration::from_millis(200);
/// Connections are opened this long before a host's turn. Less than an opened connection is used after.
const OPENED_AHEAD: Duration = Duration::from_secs(8);
/// Maximum connected members that wait for their turn, plus logins that are not slow.
const MOST_AHEAD: usize = 256;
/// Maximum logins in progress. On a machine that is too busy all are slow, and more would make it busier.
const MOST_LOGINS: usize = 1024;

/// Slots for the attempts of all fleets.
static ATTEMPTS: LazyLock<Semaphore> = LazyLock::new(|| {
    let files = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let attempts = usize::try_from(files / PART_OF_FILES).unwrap_or(usize::MAX);
    Semaphore::new(attempts.clamp(1, MOST_ATTEMPTS))
});

/// A slot for an attempt, from the opening of its connection to the end of its login.
type AttemptSlot = SemaphorePermit<'static>;

/// A connection to a member's host, or why there is none.
pub(super) type MemberConnection = Result<Lease<Arc<Link>>, SpawnError>;

/// What connecting ahead has brought.
pub(super) enum AheadEvent {
    /// A connection was opened, or can't be: more may be started.
    Opened,
    /// The member with this index is connected, or can't be.
    Connected(usize, MemberConnection),
}

/// A member whose host may be logged in to. Both fields are held until its login has ended.
struct OpenedMember {
    _slot: AttemptSlot,
    /// `None` if the login has to open a connection itself.
    _stream: Option<StreamReservation>,
}

/// Makes the connections for a fleet's members, in their order.
pub(super) struct ConnectAhead {
    shared: Arc<RunnerState>,
    job: Arc<Job>,
    members: Arc<[String]>,
    /// How fast members end.
    ends: RecentEnds,
    /// Index of the first member whose attempt has not begun.
    next: usize,
    opening: JoinSet<(usize, OpenedMember)>,
    /// When each opening in progress began, by member.
    opening_began: HashMap<usize, Instant>,
    /// Members that wait for their logins.
    opened: BTreeMap<usize, OpenedMember>,
    logins: JoinSet<(usize, MemberConnection)>,
    /// When each attempt began whose login is in progress, by member.
    logins_began: HashMap<usize, Instant>,
}

impl ConnectAhead {
    pub(super) fn new(shared: &Arc<RunnerState>, job: &Arc<Job>, members: Arc<[String]>) -> Self {
        Self {
            shared: Arc::clone(shared),
            job: Arc::clone(job),
            members,
            ends: RecentEnds::default(),
            next: 0,
            opening: JoinSet::new(),
            opening_began: HashMap::new(),
            opened: BTreeMap::new(),
            logins: JoinSet::new(),
            logins_began: HashMap::new(),
        }
    }

    /// Notes that a member has ended.
    pub(super) fn note_end(&mut self) {
        self.ends.note();
    }

    /// Whether there are members whose login has not begun.
    pub(super) fn has_more(&self) -> bool {
        self.next < self.members.len() || !self.opening.is_empty() || !self.opened.is_empty()
    }

    /// Index of the first member that none after it may overtake: its host may still answer in time.
    pub(super) fn first_in_time(&self) -> Option<usize> {
        let began = self.opening_began.iter().chain(&self.logins_began);
        let in_time = began.filter(|(_, began)| began.elapsed() < OVERTAKEN_AFTER);
        in_time.map(|(index, _)| *index).min()
    }

    /// Starts more attempts, unless enough are in progress: `connected` members wait for their turn.
    pub(super) fn start_more(&mut self, connected: usize) {
        let in_time = |began: &&Instant| began.elapsed() < SLOW_AFTER;
        let in_time = self.logins_began.values().filter(in_time).count();
        let may_log_in = MOST_AHEAD.saturating_sub(connected + in_time).min(self.free_logins());
        for _ in 0..may_log_in {
            let Some((index, member)) = self.opened.pop_first() else { break };
            self.start_login(index, member, Instant::now());
        }
        let ahead = may_log_in.max(self.ends.within(OPENED_AHEAD));
        while self.opening.len() + self.opened.len() < ahead && self.next < self.members.len() {
            let Ok(slot) = ATTEMPTS.try_acquire() else { return };
            self.start_opening(slot);
        }
    }

    /// Number of logins that may begin.
    fn free_logins(&self) -> usize {
        MOST_LOGINS.saturating_sub(self.logins.len())
    }

    /// Opens a connection to the next member's host.
    fn start_opening(&mut self, slot: AttemptSlot) {
        let index = self.next;
        let host = self.host(index);
        let shared = Arc::clone(&self.shared);
        self.next += 1;
        self.opening_began.insert(index, Instant::now());
        self.opening.spawn(async move {
            let member = OpenedMember {
                _stream: shared.hosts.open_ahead(&host, SLOW_AFTER).await,
                _slot: slot,
            };
            (index, member)
        });
    }

    fn start_login(&mut self, index: usize, member: OpenedMember, began: Instant) {
        let host = self.host(index);
        let shared = Arc::clone(&self.shared);
        self.logins_began.insert(index, began);
        self.logins.spawn(async move {
            let leased = shared.hosts.pool().lease(&host).await;
            drop(member);
            (index, leased.map_err(SpawnError::from))
        });
    }

    fn host(&self, index: usize) -> HostRef {
        HostRef {
            caller: self.job.caller.clone(),
            name: self.members[index].clone(),
        }
    }

    /// Waits for the next stage that a member has reached. `None` if no attempt is in progress. Cancel safe.
    pub(super) async fn next_event(&mut self) -> Option<Result<AheadEvent, JoinError>> {
        tokio::select! {
            Some(opened) = self.opening.join_next() => Some(opened.map(|(index, member)| {
                self.take_opened(index, member);
                AheadEvent::Opened
            })),
            Some(connected) = self.logins.join_next() => Some(connected.map(|(index, connection)| {
                self.logins_began.remove(&index);
                AheadEvent::Connected(index, connection)
            })),
            else => None,
        }
    }

    fn take_opened(&mut self, index: usize, member: OpenedMember) {
        let began = self.opening_began.remove(&index);
        match began.filter(|began| began.elapsed() >= SLOW_AFTER) {
            // It has been overtaken, and counts as slow from the start of its login on.
            Some(began) if self.free_logins() > 0 => self.start_login(index, member, began),
            _ => {
                self.opened.insert(index, member);
            }
        }
    }
}
