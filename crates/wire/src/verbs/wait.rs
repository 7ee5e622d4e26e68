//! The verb wait.

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::try_join_all;
use futures_util::stream::FuturesUnordered;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::time::{Instant, timeout_at};

use super::events::{EventKind, JobEvent, awaited, position};
use super::jobs::first_error;
use super::jobs::{JobEntry, shortened};
use crate::clamp::Clamps;
use crate::error::Error;
use crate::leave_out::is_false;
use crate::{Clamped, Group, Service};
use sshjobs_core::jobs::{AwaitedEvents, EventCursor, EventLook, Job, Occasion, ReadableJob, Verb};

/// Wait until jobs have ended.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WaitRequest {
    /// Jobs from ssh_spawn.
    #[schemars(length(min = 1, max = 1000))]
    pub job_ids: Vec<String>,
    /// Wait for all jobs, or any.
    #[serde(default)]
    pub mode: WaitMode,
    /// Milliseconds to wait, up to 50000. Default 30000. As a task it has no limit.
    #[serde(default)]
    pub wait_ms: Option<i64>,
    /// Return at the first such event. Default: end.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub on: Vec<EventKind>,
    /// With on=match: regex for lines.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<String>,
    /// With on=silence: milliseconds without output. Default 60000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quiet_ms: Option<i64>,
    /// Maximum events of one job in a reply. Default 1: a model acts on the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(skip)]
    pub max_events: Option<usize>,
    /// With on: cursors of the previous reply.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub cursors: BTreeMap<String, String>,
    /// Last lines of failed jobs, up to 100. Default 0.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub last_lines: i64,
    /// Jobs whose lines are returned.
    #[serde(default)]
    pub last_lines_of: LastLinesOf,
}

/// Jobs whose lines are returned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum LastLinesOf {
    /// Jobs that ended with anything except status 0.
    #[default]
    Failed,
    /// All jobs.
    All,
}

/// Condition of the wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum WaitMode {
    /// The end of every job.
    #[default]
    All,
    /// The end of any job.
    Any,
}

/// State of the jobs.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct WaitReply {
    /// One summary per job, in the requested order.
    pub jobs: Vec<JobEntry>,
    /// For a single fleet that has ended: its members, grouped by outcome and output.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(skip)]
    pub groups: Vec<Group>,
    /// With on: the events, at most one of each job.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub events: Vec<JobEvent>,
    /// With on: cursors for the next call, by job.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub cursors: BTreeMap<String, String>,
    /// Number of jobs that have ended.
    pub ended: usize,
    /// Whether the time limit was reached first.
    #[serde(default, skip_serializing_if = "is_false")]
    pub timed_out: bool,
    /// Arguments that were out of range, and the values used.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(skip)]
    pub clamped: Vec<Clamped>,
}

const WAIT_MS: i64 = 30_000;
const MOST_JOBS: usize = 1000;
const MOST_LAST_LINES: i64 = 100;
/// Maximum events of one job in a reply.
const MOST_EVENTS: usize = 500;
/// Maximum failed jobs whose first error is shown.
const MOST_FIRST_ERRORS: usize = 20;
/// Maximum bytes of a job's last lines: about a hundred lines of 80 bytes.
const LAST_LINES_BYTES: usize = 8 << 10;
/// The caller knows the command already.
const SHOWN_OF_COMMAND: usize = 60;

impl Service {
    /// Waits until all jobs, or any of them, have ended, at most until the time limit. Cancelling
    /// ends the wait, not the jobs.
    pub async fn wait(&self, request: WaitRequest) -> Result<WaitReply, Error> {
        if request.job_ids.is_empty() || request.job_ids.len() > MOST_JOBS {
            let message = format!("job_ids names {} jobs", request.job_ids.len());
            return Err(Error::invalid(message, "name 1 to 1000 jobs"));
        }
        let events = request.awaited()?;
        let mut jobs = self.waited_jobs(&request, events.as_ref()).await?;
        let mut clamps = Clamps::default();
        let wait = clamps.wait_ms(
            "wait_ms",
            request.wait_ms.unwrap_or(WAIT_MS),
            self.longest_wait_ms(),
        );
        // Before the wait, so that a mistake is reported at once.
        let last_lines = clamps.size("last_lines", request.last_lines, 0..=MOST_LAST_LINES)?;
        let deadline = Instant::now() + Duration::from_millis(wait);
        let mut happened = Vec::new();
        if let Some(awaited) = &events {
            // Boxed, because without optimization the callers of a future this large overflow the stack.
            happened = Box::pin(self.first_events(&mut jobs, awaited, deadline)).await?;
            let most = request.max_events.unwrap_or(1).min(MOST_EVENTS);
            for _ in 1..most {
                if happened.is_empty() {
                    break;
                }
                let more = Box::pin(look(&mut jobs, awaited, Duration::ZERO)).await?;
                if more.is_empty() {
                    break;
                }
                happened.extend(more);
            }
        } else {
            let waiting = async {
                match request.mode {
                    WaitMode::All => all_ended(&jobs, deadline).await,
                    WaitMode::Any => any_ended(&jobs, deadline).await,
                }
            };
            // However the wait ends, the logs hold the answer.
            self.unless_closed(waiting).await;
        }
        let entry = |waited: &WaitedJob| {
            let entry = JobEntry::of(&waited.job);
            let is_shown = request.last_lines_of == LastLinesOf::All || entry.standing.has_failed();
            let last_lines = match &waited.readable {
                Some(job) if is_shown => job.last_lines(last_lines, LAST_LINES_BYTES),
                Some(_) | None => Vec::new(),
            };
            JobEntry {
                command: shortened(waited.job.command(), SHOWN_OF_COMMAND),
                last_lines,
                ..entry
            }
        };
        let mut entries: Vec<JobEntry> = jobs.iter().map(entry).collect();
        note_first_errors(&jobs, &mut entries).await;
        self.note_reasons(&mut entries).await;
        self.note_results(&mut entries).await;
        // Counted from the entries, so that the number agrees with the states in this reply.
        let ended = entries.iter().filter(|entry| entry.standing.state.is_final()).count();
        // Also if the service is closing; the caller then waits again.
        let timed_out = match (&events, request.mode) {
            (Some(_), _) => happened.is_empty() && jobs.iter().any(|job| !job.cursor.is_at_end),
            (None, WaitMode::All) => ended < jobs.len(),
            (None, WaitMode::Any) => ended == 0,
        };
        let cursor_of = |waited: &WaitedJob| {
            let id = waited.job.id().to_owned();
            (id, waited.cursor.to_string())
        };
        Ok(WaitReply {
            jobs: entries,
            groups: groups(&jobs),
            cursors: events.iter().flat_map(|_| jobs.iter().map(cursor_of)).collect(),
            events: happened,
            ended,
            timed_out,
            clamped: clamps.0,
        })
    }

    /// The jobs of a request, each once. If events are waited for, their output must be readable.
    async fn waited_jobs(
        &self,
        request: &WaitRequest,
        events: Option<&AwaitedEvents>,
    ) -> Result<Vec<WaitedJob>, Error> {
        let mut seen = HashSet::new();
        let mut jobs: Vec<WaitedJob> = Vec::new();
        for id in request.job_ids.iter().filter(|id| seen.insert(id.as_str())) {
            let job = self.job(Verb::Wait, id).await?;
            let shows_lines = request.last_lines > 0 || job.is_fleet();
            let shows_output = events.is_some_and(|events| {
                events.prompt || events.silence.is_some() || events.pattern.is_some()
            });
            let readable = if shows_output {
                Some(job.readable(Verb::Tail).await?)
            } else if shows_lines {
                job.readable_if_allowed().await
            } else {
                None
            };
            let cursor = position(&request.cursors, id)?;
            jobs.push(WaitedJob {
                job,
                readable,
                cursor,
            });
        }
        Ok(jobs)
    }

    /// The next events of jobs, at most one of each, once there is one. Moves the cursors behind them.
    async fn first_events(
        &self,
        jobs: &mut [WaitedJob],
        awaited: &AwaitedEvents,
        deadline: Instant,
    ) -> Result<Vec<JobEvent>, Error> {
        // At once first, so that a job with news does not hide those of others.
        let happened = look(jobs, awaited, Duration::ZERO).await?;
        if !happened.is_empty() || jobs.iter().all(|waited| waited.cursor.is_at_end) {
            return Ok(happened);
        }
        let left = deadline.saturating_duration_since(Instant::now());
        let waiting = async {
            let mut looks: FuturesUnordered<_> = jobs
                .iter()
                .enumerate()
                .filter(|(_, waited)| !waited.cursor.is_at_end)
                .map(async |(index, waited)| (index, waited.next_event(awaited, left).await))
                .collect();
            while let Some((index, look)) = looks.next().await {
                let look = look?;
                if look.event.is_some() {
                    return Ok(Some((index, look)));
                }
            }
            Ok::<_, Error>(None)
        };
        let first = match self.unless_closed(waiting).await {
            Some(first) => first?,
            None => None,
        };
        // Kept, because a second look may not find it again: a silence ends, a question is answered.
        let mut happened = Vec::new();
        if let Some((index, look)) = first
            && let Some(waited) = jobs.get_mut(index)
        {
            waited.cursor = look.cursor;
            happened.extend(look.event.map(|occasion| waited.event(occasion)));
        }
        Ok(happened)
    }
}

impl WaitRequest {
    /// A request for the end of jobs.
    pub fn new(job_ids: Vec<String>) -> Self {
        Self {
            job_ids,
            mode: WaitMode::default(),
            wait_ms: None,
            on: Vec::new(),
            until: None,
            quiet_ms: None,
            max_events: None,
            cursors: BTreeMap::new(),
            last_lines: 0,
            last_lines_of: LastLinesOf::default(),
        }
    }

    /// The events for which it waits. `None` if it waits for ends by its mode.
    fn awaited(&self) -> Result<Option<AwaitedEvents>, Error> {
        let kinds = if self.on.is_empty() && !self.cursors.is_empty() {
            &[EventKind::End][..]
        } else {
            &self.on
        };
        let awaited = awaited(kinds, self.until.as_deref(), self.quiet_ms)?;
        Ok((!kinds.is_empty()).then_some(awaited))
    }
}

/// Adds to the entries of failed jobs the first line that looks like an error, if the caller may read it.
async fn note_first_errors(jobs: &[WaitedJob], entries: &mut [JobEntry]) {
    let failed = jobs.iter().zip(entries).filter(|(_, entry)| entry.standing.has_failed());
    for (waited, entry) in failed.take(MOST_FIRST_ERRORS) {
        let readable = match &waited.readable {
            Some(job) => Some(job.clone()),
            None => waited.job.readable_if_allowed().await,
        };
        if let Some(job) = readable {
            entry.first_error = first_error(&job).await;
        }
    }
}

/// Looks for an event of each job, and moves the cursors behind them.
async fn look(
    jobs: &mut [WaitedJob],
    awaited: &AwaitedEvents,
    patience: Duration,
) -> Result<Vec<JobEvent>, Error> {
    let looks = jobs.iter().map(|waited| waited.next_event(awaited, patience));
    let looks: Vec<EventLook> = try_join_all(looks).await?;
    let mut events = Vec::new();
    for (waited, look) in jobs.iter_mut().zip(looks) {
        waited.cursor = look.cursor;
        if let Some(occasion) = look.event {
            events.push(waited.event(occasion));
        }
    }
    Ok(events)
}

/// A job that is waited for.
struct WaitedJob {
    job: Job,
    /// The job with leave to show its lines. `None` if the reply shows none, or the caller may know only
    /// that it has ended.
    readable: Option<ReadableJob>,
    /// The position from which its events are looked for.
    cursor: EventCursor,
}

impl WaitedJob {
    /// The event behind which its cursor is.
    fn event(&self, occasion: Occasion) -> JobEvent {
        JobEvent::new(self.job.id(), occasion, self.cursor, &self.job.status())
    }

    async fn next_event(
        &self,
        awaited: &AwaitedEvents,
        patience: Duration,
    ) -> Result<EventLook, Error> {
        match &self.readable {
            Some(job) => Ok(job.next_event(awaited, self.cursor, patience).await?),
            // Who may only know whether it has ended learns that.
            None => {
                let is_over = self.job.wait_within(patience).await;
                let is_news = is_over && !self.cursor.is_at_end;
                Ok(EventLook {
                    event: (is_news && awaited.end).then_some(Occasion::Ended),
                    cursor: EventCursor {
                        is_at_end: is_over,
                        ..self.cursor
                    },
                })
            }
        }
    }
}

/// The members of a fleet with their output. Empty for a caller who may know only that it has ended.
fn groups(jobs: &[WaitedJob]) -> Vec<Group> {
    match jobs {
        [
            WaitedJob {
                readable: Some(job),
                ..
            },
        ] if job.is_over() => job.fleet_summary().map(Group::all).unwrap_or_default(),
        _ => Vec::new(),
    }
}

async fn all_ended(jobs: &[WaitedJob], deadline: Instant) {
    for WaitedJob { job, .. } in jobs {
        // One after the other: all share the deadline, and a job that has ended returns at once.
        job.wait_within(deadline.saturating_duration_since(Instant::now())).await;
    }
}

async fn any_ended(jobs: &[WaitedJob], deadline: Instant) {
    let mut ends: FuturesUnordered<_> = jobs.iter().map(|waited| waited.job.wait()).collect();
    // However the wait ends, the logs hold the answer.
    drop(timeout_at(deadline, ends.next()).await);
}
