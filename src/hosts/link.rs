use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::begun_ahead::BegunAhead;
use super::spare_channel::Spare;
use super::{Begun, Opened, Pooled, Traffic};
use crate::job::{LoginShell, MachineId};
use crate::lock::lock;
use crate::ssh::{Channel, ChannelError, Connection};

/// A connection, and what its far end runs commands with.
pub struct Link {
    /// The connection.
    pub connection: Connection,
    /// What exec strings are for there.
    pub shell: LoginShell,
    /// Which machine that is, and which start of it, if the host tells.
    pub machine: Option<MachineId>,
    /// How much comes over it.
    pub traffic: Traffic,
    /// When it last did not answer.
    unanswered: Mutex<Option<Instant>>,
    spare: Spare,
    ahead: BegunAhead,
}

/// Pauses in which a server takes note of a channel's end.
const CLOSING: [Duration; 3] =
    [Duration::from_millis(5), Duration::from_millis(20), Duration::from_millis(80)];
/// Silence after which a connection is asked for a sign of life before it is used.
const SILENT: Duration = Duration::from_secs(5);

impl Link {
    pub(super) fn new(connection: Connection, shell: LoginShell, machine: Option<MachineId>) -> Self {
        let (traffic, unanswered, spare, ahead) = Default::default();
        Self { connection, shell, machine, traffic, unanswered, spare, ahead }
    }

    /// Whether it answers: it has been heard of lately, or is now, when asked. Takes two seconds at most.
    pub async fn answers(&self) -> bool {
        self.answers_after(SILENT).await
    }

    /// The same, asked after so much silence.
    pub async fn answers_after(&self, silence: Duration) -> bool {
        if self.connection.is_closed() || self.connection.is_held() {
            return false;
        }
        if self.connection.silent_for() < silence || self.connection.ping().await {
            return true;
        }
        self.suspect();
        false
    }

    /// Takes note that it does not answer: nobody gets a place on it before it is heard of again.
    pub fn suspect(&self) {
        *lock(&self.unanswered) = Some(Instant::now());
    }

    /// Whether it has been silent for so long that it is asked for a sign of life before it is used.
    pub fn is_silent(&self) -> bool {
        self.connection.silent_for() >= SILENT
    }

    /// A channel: the spare one, if it is still good, or a new one.
    pub async fn open(&self) -> Result<Opened, ChannelError> {
        match self.spare.take() {
            Some(spare) => Ok(spare),
            None => Ok(Opened { channel: self.open_new().await?, was_spare: false }),
        }
    }

    async fn open_new(&self) -> Result<Channel, ChannelError> {
        let mut opened = self.connection.open().await;
        if !self.ahead.is_there() {
            return opened;
        }
        // What is begun ahead must not take the place of what is wanted now.
        for pause in CLOSING {
            if !matches!(opened, Err(ChannelError::OpenRefused)) {
                break;
            }
            if let Some(begun) = self.take_begun() {
                begun.give_up().await;
            }
            sleep(pause).await;
            opened = self.connection.open().await;
        }
        opened
    }

    /// The command that was begun ahead, if there is one. Its host may have ended it meanwhile.
    pub fn take_begun(&self) -> Option<Begun> {
        self.ahead.take()
    }

    /// Begins a command ahead, for whoever needs it within the next seconds; then it is given up. Must not be cancelled, or the
    /// server would keep a channel that nobody knows.
    pub async fn begin_ahead(&self, command: &str) {
        self.ahead.begin(&self.connection, command).await;
    }

    /// Opens a channel for the next job, unless there is one. Must not be cancelled, or the server would keep a channel that
    /// nobody knows.
    pub async fn refill(&self) {
        self.spare.refill(&self.connection).await;
    }

    /// A job begins on it.
    pub fn job_begins(&self) {
        self.spare.job_begins();
    }

    /// A job has ended. Some seconds after the last one the spare channel goes; nobody needs to wait for that.
    pub async fn job_ends(&self) {
        self.spare.job_ends().await;
    }
}

impl Pooled for Arc<Link> {
    fn is_closed(&self) -> bool {
        self.connection.is_closed()
    }

    fn is_heavy(&self) -> bool {
        self.traffic.is_heavy()
    }

    fn is_suspect(&self) -> bool {
        let unanswered = *lock(&self.unanswered);
        self.connection.is_held() || unanswered.is_some_and(|at| at.elapsed() <= self.connection.silent_for())
    }
}
