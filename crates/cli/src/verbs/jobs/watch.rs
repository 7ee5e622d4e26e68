//! `sshjobs watch`: a line for each event of jobs, for programs that wake somebody.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::finish::finish;
use super::pick;
use crate::args::{AwaitedEvent, WatchArgs};
use crate::exit::print;
use crate::json::json;
use crate::{ProgramExit, note};
use sshjobs_core::jobs::printable;
use sshjobs_wire::remote::Api;
use sshjobs_wire::{Error, EventKind, JobEntry, JobEvent, JobsRequest, WaitReply, WaitRequest};

/// Length of one wait. After it, jobs are found that have started meanwhile.
const WAIT_MS: i64 = 2_000;
/// Length of one wait for jobs that were named: no others are added.
const LONG_WAIT_MS: i64 = 50_000;
/// Maximum jobs of a list.
const MOST_JOBS: i64 = 1_000;
/// Time for which a server that does not answer is asked again.
const RETRY_TIME: Duration = Duration::from_secs(60);
const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// Prints events until all jobs have ended.
pub async fn watch(api: &Api, args: WatchArgs) -> ProgramExit {
    finish(api, async {
        let mut position = match &args.jobs[..] {
            [] => WatchPosition::of_own_jobs(api, args.since.as_deref()).await?,
            words => {
                WatchPosition::of(pick::resolve_all(api, words).await?, args.since.as_deref())?
            }
        };
        loop {
            position.add_started(api).await?;
            if position.is_at_end() {
                return Ok(ProgramExit::SUCCESS);
            }
            let request = request(args.on(), &position);
            let reply = repeated(async || api.wait(request.clone()).await).await?;
            for event in position.pass(reply) {
                let printed = print(&if args.jsonl {
                    json(&event)
                } else {
                    in_words(&event)
                });
                if printed != ProgramExit::SUCCESS || args.once {
                    return Ok(printed);
                }
            }
        }
    })
    .await
}

/// WatchPosition of a watch: the cursor in each of its jobs.
#[derive(Clone, Debug, Default)]
struct WatchPosition {
    jobs: BTreeMap<String, WatchedJob>,
    /// In a watch of all own jobs: the start of the newest job that is known, in milliseconds since the Unix
    /// epoch. Jobs that start later are added.
    newest_start: Option<u64>,
}

#[derive(Clone, Debug)]
struct WatchedJob {
    cursor: String,
    /// Milliseconds since the Unix epoch; 0 if unknown.
    started_at: u64,
}

impl WatchedJob {
    /// A job before all of its events.
    fn from_start(started_at: u64) -> Self {
        Self {
            cursor: "0".to_owned(),
            started_at,
        }
    }

    /// Whether nothing more can happen to it.
    fn is_over(&self) -> bool {
        self.cursor.ends_with('e')
    }
}

impl WatchPosition {
    /// The position in jobs that were named: their start, or where an event was printed.
    fn of(ids: Vec<String>, since: Option<&str>) -> Result<Self, Error> {
        let mut position = Self::default();
        let all = ids.iter().map(|id| (id.clone(), WatchedJob::from_start(0)));
        position.jobs.extend(all);
        match (since, &ids[..]) {
            (None, _) => {}
            (Some(cursor), [_]) if !cursor.contains('=') => {
                position.jobs.values_mut().for_each(|job| cursor.clone_into(&mut job.cursor));
            }
            (Some(since), _) => position.move_to(since)?,
        }
        Ok(position)
    }

    /// The position in one's own jobs: those that run and will start, or all after a printed event.
    async fn of_own_jobs(api: &Api, since: Option<&str>) -> Result<Self, Error> {
        let mut position = Self::default();
        if let Some(since) = since {
            position.newest_start = Some(0);
            position.move_to(since)?;
            return Ok(position);
        }
        // Of a job that no process follows, only its host knows whether it has ended.
        let jobs = own_jobs(api, JobStates::OfHosts).await?;
        let newest_start = jobs.iter().map(|job| job.started_at).max().unwrap_or(0);
        position.newest_start = Some(newest_start);
        for job in jobs {
            let mut watched = WatchedJob::from_start(job.started_at);
            if job.standing.state.is_final() {
                // It has ended before: that is no news.
                watched.cursor = "0e".to_owned();
            }
            position.jobs.insert(job.job_id, watched);
        }
        position.forget_old();
        Ok(position)
    }

    /// Goes to the position that a cursor describes: `[@TIME,]JOB=CURSOR,…`.
    fn move_to(&mut self, since: &str) -> Result<(), Error> {
        let bad = || {
            Error::invalid(
                format!("{since:?} is no cursor of these jobs"),
                "use the cursor of an event that a watch of the same jobs has printed",
            )
        };
        for part in since.split(',') {
            if let Some(time) = part.strip_prefix('@') {
                let time = time.parse().map_err(|_| bad())?;
                *self.newest_start.as_mut().ok_or_else(bad)? = time;
                continue;
            }
            let (id, cursor) = part.split_once('=').ok_or_else(bad)?;
            let takes_any = self.newest_start.is_some();
            if !takes_any && !self.jobs.contains_key(id) {
                return Err(bad());
            }
            let watched = WatchedJob {
                cursor: cursor.to_owned(),
                started_at: 0,
            };
            self.jobs.insert(id.to_owned(), watched);
        }
        Ok(())
    }

    /// In a watch of all own jobs, adds those that have started since the last look.
    async fn add_started(&mut self, api: &Api) -> Result<(), Error> {
        let Some(newest_start) = self.newest_start else { return Ok(()) };
        let mut newest = newest_start;
        for job in own_jobs(api, JobStates::LastSeen).await? {
            newest = newest.max(job.started_at);
            match self.jobs.get_mut(&job.job_id) {
                Some(watched) => watched.started_at = job.started_at,
                None if job.started_at >= newest_start => {
                    self.jobs.insert(job.job_id, WatchedJob::from_start(job.started_at));
                }
                None => {}
            }
        }
        self.newest_start = Some(newest);
        self.forget_old();
        Ok(())
    }

    /// Forgets jobs that are over and that no later look takes for new ones.
    fn forget_old(&mut self) {
        if let Some(newest_start) = self.newest_start {
            self.jobs.retain(|_, job| !job.is_over() || job.started_at >= newest_start);
        }
    }

    fn is_at_end(&self) -> bool {
        self.jobs.values().all(WatchedJob::is_over)
    }

    /// Moves behind what a wait has returned. Returns its events, each with the cursor of the whole watch
    /// behind it.
    fn pass(&mut self, reply: WaitReply) -> Vec<JobEvent> {
        for (id, cursor) in reply.cursors {
            let has_event = reply.events.iter().any(|event| event.job_id == id);
            if let Some(job) = self.jobs.get_mut(&id)
                && !has_event
            {
                job.cursor = cursor;
            }
        }
        let mut events = reply.events;
        for event in &mut events {
            if let Some(job) = self.jobs.get_mut(&event.job_id) {
                job.cursor.clone_from(&event.cursor);
            }
            event.cursor = self.to_string();
        }
        events
    }
}

impl std::fmt::Display for WatchPosition {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut jobs = self.jobs.iter();
        if let (Some((_, job)), None, None) = (jobs.next(), jobs.next(), self.newest_start) {
            return f.write_str(&job.cursor);
        }
        let time = self.newest_start.map(|time| format!("@{time}"));
        let jobs = self.jobs.iter().map(|(id, job)| format!("{id}={}", job.cursor));
        f.write_str(&time.into_iter().chain(jobs).collect::<Vec<_>>().join(","))
    }
}

fn request(awaited: &[AwaitedEvent], position: &WatchPosition) -> WaitRequest {
    let running: BTreeMap<String, String> = position
        .jobs
        .iter()
        .filter(|(_, job)| !job.is_over())
        .map(|(id, job)| (id.clone(), job.cursor.clone()))
        .collect();
    let wait_ms = if position.newest_start.is_some() {
        WAIT_MS
    } else {
        LONG_WAIT_MS
    };
    let mut request = WaitRequest {
        wait_ms: Some(wait_ms),
        cursors: running.clone(),
        ..WaitRequest::new(running.into_keys().collect())
    };
    for on in awaited {
        let kind = match on {
            AwaitedEvent::End => EventKind::End,
            AwaitedEvent::Prompt => EventKind::Prompt,
            AwaitedEvent::Silence(limit) => {
                request.quiet_ms = limit.and_then(|limit| i64::try_from(limit.as_millis()).ok());
                EventKind::Silence
            }
            AwaitedEvent::Match(pattern) => {
                request.until = Some(pattern.clone());
                EventKind::Match
            }
        };
        request.on.push(kind);
    }
    request
}

/// States of jobs in a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum JobStates {
    OfHosts,
    LastSeen,
}

/// One's own jobs, newest first.
async fn own_jobs(api: &Api, states: JobStates) -> Result<Vec<JobEntry>, Error> {
    let request = JobsRequest {
        limit: Some(MOST_JOBS),
        cached: states == JobStates::LastSeen,
        ..JobsRequest::default()
    };
    let mut jobs = repeated(async || api.jobs(request.clone()).await).await?.jobs;
    jobs.retain(|job| job.caller.is_none());
    Ok(jobs)
}

/// Makes a call, and again while a server is being restarted.
async fn repeated<T>(call: impl AsyncFn() -> Result<T, Error>) -> Result<T, Error> {
    let give_up_at = Instant::now() + RETRY_TIME;
    let mut is_told = false;
    loop {
        match call().await {
            Err(error) if error.retryable && Instant::now() < give_up_at => {
                if !is_told {
                    note(&format!("{}; trying again", printable(&error.message)));
                    is_told = true;
                }
                sleep(RETRY_PAUSE).await;
            }
            answer => return answer,
        }
    }
}

/// An event as a line for a person.
fn in_words(event: &JobEvent) -> String {
    let text = event.text.as_deref().unwrap_or_default();
    let what = match event.event {
        EventKind::End => event.standing.to_string(),
        EventKind::Prompt => format!("waits for input: {text}"),
        EventKind::Silence => format!("has printed nothing for {} s", event.silent_ms / 1000),
        EventKind::Match => format!("line {}: {text}", event.line_no.unwrap_or_default()),
    };
    printable(&format!("{} {what}", event.job_id))
}
