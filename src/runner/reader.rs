use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use crate::job::{Exit, Job, Outcome, Prelude};
use crate::output::Stream;
use crate::ssh::{ChannelEvent, ChannelReader};

/// Where a [`Reader`] gets its events: a channel, or a test's script.
pub trait EventSource: Send {
    /// The next event; none when the connection is lost. Cancel safe.
    fn next(&mut self) -> impl Future<Output = Option<ChannelEvent>> + Send;
}

impl EventSource for ChannelReader {
    async fn next(&mut self) -> Option<ChannelEvent> {
        Self::next(self).await
    }
}

/// Turns a channel's events into a job's log. It never waits for anyone who reads the log.
///
/// The events of the end come in any order, and data may follow an exit. A job is over when its channel is closed, or
/// its connection lost, or when the command has exited and the channel then stays silent for the drain time.
pub struct Reader<S> {
    source: S,
    job: Arc<Job>,
    prelude: Prelude,
    drain: Duration,
    exited: Option<Exited>,
    eof: bool,
    refused_if_failed: bool,
}

struct Exited {
    exit: Exit,
    at: Instant,
    last_event: Instant,
}

/// A background child that never falls silent can't hold a job open for more than this many drain times.
const MAX_DRAINS: u32 = 30;

impl<S: EventSource> Reader<S> {
    /// A reader for `job`, which takes `prelude` out of its stdout.
    pub fn new(source: S, job: Arc<Job>, prelude: Prelude, drain: Duration) -> Self {
        Self { source, job, prelude, drain, exited: None, eof: false, refused_if_failed: true }
    }

    /// Reads until the job is over and tells what became of it. Cancel safe: it can be called again and goes on.
    pub async fn run(&mut self) -> Outcome {
        loop {
            let event = match self.drain_ends_at() {
                None => self.source.next().await,
                Some(_) if self.job.is_held() => {
                    let event = tokio::select! {
                        biased;
                        event = self.source.next() => Some(event),
                        () = self.job.has_room() => None,
                    };
                    self.was_held();
                    let Some(event) = event else { continue };
                    event
                }
                Some(end) => tokio::select! {
                    biased;
                    event = self.source.next() => event,
                    () = sleep_until(end) => return self.outcome_of_close(),
                },
            };
            let outcome = match event {
                Some(event) => self.take(event),
                None => Some(self.outcome_of_loss()),
            };
            if let Some(outcome) = outcome {
                self.give_out_held();
                return outcome;
            }
        }
    }

    /// The time for which the far end was held back is no time in which it was silent.
    fn was_held(&mut self) {
        if let Some(exited) = &mut self.exited {
            (exited.at, exited.last_event) = (Instant::now(), Instant::now());
        }
    }

    /// How the command ended, if the server has told.
    pub fn exit(&self) -> Option<Exit> {
        self.exited.as_ref().map(|exited| exited.exit.clone())
    }

    /// After the end: takes what still comes until the channel is closed, so that it can't hold up the others on its
    /// connection.
    pub async fn drop_until_close(mut self) {
        while let Some(event) = self.source.next().await {
            if event == ChannelEvent::Close {
                return;
            }
        }
    }

    fn take(&mut self, event: ChannelEvent) -> Option<Outcome> {
        if let Some(exited) = &mut self.exited {
            exited.last_event = Instant::now();
        }
        match event {
            ChannelEvent::Data(bytes) => self.stdout(&bytes),
            ChannelEvent::ExtendedData(bytes) => {
                self.job.write_log(|log| log.append(Stream::Stderr, &bytes));
                self.refused_if_failed = false;
            }
            ChannelEvent::Eof => self.end_of_file(),
            ChannelEvent::ExitStatus(status) => self.exited(Exit::Status(status)),
            ChannelEvent::ExitSignal(signal) => self.exited(Exit::Signal(signal)),
            ChannelEvent::Success => {
                self.refused_if_failed = false;
                self.job.write_log(|log| log.run());
            }
            ChannelEvent::Failure if self.refused_if_failed => return Some(Outcome::Refused),
            ChannelEvent::Failure => {}
            ChannelEvent::Close => return Some(self.outcome_of_close()),
        }
        None
    }

    fn stdout(&mut self, bytes: &[u8]) {
        self.refused_if_failed = false;
        let (bytes, pgid) = self.prelude.strip(bytes);
        if bytes.is_empty() && pgid.is_none() {
            return;
        }
        self.job.write_log(|log| {
            log.append(Stream::Stdout, &bytes);
            if let Some(pgid) = pgid {
                log.know_pgid(pgid);
            }
        });
    }

    fn end_of_file(&mut self) {
        self.eof = true;
        self.give_out_held();
        self.job.write_log(|log| log.finish_streams());
    }

    /// What the prelude held back was the command's own.
    fn give_out_held(&mut self) {
        let held = self.prelude.finish();
        if !held.is_empty() {
            self.job.write_log(|log| log.append(Stream::Stdout, &held));
        }
    }

    /// The first word on how the command ended counts.
    fn exited(&mut self, exit: Exit) {
        self.refused_if_failed = false;
        let now = Instant::now();
        self.exited.get_or_insert(Exited { exit, at: now, last_event: now });
    }

    fn drain_ends_at(&self) -> Option<Instant> {
        let exited = self.exited.as_ref()?;
        Some((exited.last_event + self.drain).min(exited.at + self.drain * MAX_DRAINS))
    }

    fn outcome_of_close(&mut self) -> Outcome {
        self.give_out_held();
        self.exit().map_or(Outcome::Closed, Outcome::Ended)
    }

    /// A connection lost after exit and end of file has taken nothing with it.
    fn outcome_of_loss(&self) -> Outcome {
        match self.exit() {
            Some(exit) if self.eof => Outcome::Ended(exit),
            exit => Outcome::Lost(exit),
        }
    }
}

#[cfg(test)]
mod tests;
