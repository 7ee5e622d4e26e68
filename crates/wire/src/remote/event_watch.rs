//! The events of several jobs in a row, as watch prints them and a channel sends them.

use std::collections::BTreeMap;
use std::fmt;

use super::Api;
use crate::{Code, Error, EventKind, JobEntry, JobEvent, JobsRequest, WaitReply, WaitRequest};

/// Follows the events of jobs: of those that are named, or of one's own, also those that start meanwhile.
#[derive(Clone, Debug)]
pub struct EventWatch {
    awaited: WatchedEvents,
    position: WatchPosition,
}

/// The events that a watch follows.
#[derive(Clone, Debug)]
pub struct WatchedEvents {
    /// Their kinds.
    pub on: Vec<EventKind>,
    /// With `match`: the pattern.
    pub until: Option<String>,
    /// With `silence`: milliseconds without output. Default a minute.
    pub quiet_ms: Option<i64>,
}

/// Length of one wait. After it, jobs are found that have started meanwhile.
const WAIT_MS: i64 = 2_000;
/// Length of one wait for jobs that were named: no others are added.
const LONG_WAIT_MS: i64 = 50_000;
/// Maximum events of one job in a reply: a chatty job must not outrun its watch.
const MOST_EVENTS: usize = 500;
/// Maximum jobs of a list.
const MOST_JOBS: i64 = 1_000;

impl EventWatch {
    /// Watches jobs by their ids, from their start or behind an event with this cursor.
    ///
    /// # Errors
    /// The cursor is not one of these jobs.
    pub fn of_jobs(
        awaited: WatchedEvents,
        ids: &[String],
        since: Option<&str>,
    ) -> Result<Self, Error> {
        let position = WatchPosition::of(ids, since)?;
        Ok(Self { awaited, position })
    }

    /// Watches one's own jobs: those that run and will start, or all after an event with this cursor.
    ///
    /// # Errors
    /// The jobs can't be listed, or the cursor belongs to another watch.
    pub async fn of_own_jobs(
        api: &Api,
        awaited: WatchedEvents,
        since: Option<&str>,
    ) -> Result<Self, Error> {
        let position = WatchPosition::of_own_jobs(api, since).await?;
        Ok(Self { awaited, position })
    }

    /// Waits for the next events, for a while: none may have happened. `None` once all jobs have ended.
    /// Each has the cursor of the whole watch behind it. After an error, the call can be repeated.
    ///
    /// # Errors
    /// Those of the verbs jobs and wait.
    pub async fn next(&mut self, api: &Api) -> Result<Option<Vec<JobEvent>>, Error> {
        self.position.add_started(api).await?;
        if self.position.is_at_end() {
            return Ok(None);
        }
        match api.wait(self.request()).await {
            Ok(reply) => Ok(Some(self.position.pass(reply))),
            Err(error) if [Code::UnknownJob, Code::ExpiredJob].contains(&error.code) => {
                if self.position.forget_gone(api).await == 0 {
                    return Err(error);
                }
                Ok(Some(Vec::new()))
            }
            Err(error) => Err(error),
        }
    }

    fn request(&self) -> WaitRequest {
        let running: BTreeMap<String, String> = self
            .position
            .jobs
            .iter()
            .filter(|(_, job)| !job.is_over())
            .map(|(id, job)| (id.clone(), job.cursor.clone()))
            .collect();
        let is_of_own_jobs = self.position.newest_start.is_some();
        WaitRequest {
            wait_ms: Some(if is_of_own_jobs {
                WAIT_MS
            } else {
                LONG_WAIT_MS
            }),
            on: self.awaited.on.clone(),
            until: self.awaited.until.clone(),
            quiet_ms: self.awaited.quiet_ms,
            max_events: Some(MOST_EVENTS),
            cursors: running.clone(),
            ..WaitRequest::new(running.into_keys().collect())
        }
    }
}

/// Position of a watch: its cursor in each job.
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
    fn of(ids: &[String], since: Option<&str>) -> Result<Self, Error> {
        let mut position = Self::default();
        let all = ids.iter().map(|id| (id.clone(), WatchedJob::from_start(0)));
        position.jobs.extend(all);
        match (since, ids) {
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
            if !since.starts_with('@') {
                return Err(bad_cursor(since));
            }
            return Ok(position);
        }
        // Of a job that no process follows, only its host knows whether it has ended.
        let jobs = own_jobs(api, JobStates::OfHosts).await?;
        let newest_start = jobs.iter().map(|job| job.started_at).max().unwrap_or(0);
        position.newest_start = Some(newest_start);
        for job in jobs {
            let mut watched = WatchedJob::from_start(job.started_at);
            if job.standing.state.is_final() {
                // It ended before the watch began.
                watched.cursor = "0e".to_owned();
            }
            position.jobs.insert(job.job_id, watched);
        }
        position.forget_old();
        Ok(position)
    }

    /// Goes to the position that a cursor describes: `[@TIME,]JOB=CURSOR,…`.
    fn move_to(&mut self, since: &str) -> Result<(), Error> {
        let bad = || bad_cursor(since);
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

    /// Forgets jobs that are no longer kept. Returns how many.
    async fn forget_gone(&mut self, api: &Api) -> usize {
        let mut gone = Vec::new();
        for id in self.jobs.keys() {
            let entry = api.entry(id).await;
            if entry.is_err_and(|error| [Code::UnknownJob, Code::ExpiredJob].contains(&error.code))
            {
                gone.push(id.clone());
            }
        }
        // A job that was named and never existed is an error of the caller.
        if gone.len() == self.jobs.len() {
            return 0;
        }
        self.jobs.retain(|id, _| !gone.contains(id));
        gone.len()
    }

    fn is_at_end(&self) -> bool {
        self.jobs.values().all(WatchedJob::is_over)
    }

    /// Moves behind the reply of a wait. Returns its events, each with the cursor of the whole watch
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

impl fmt::Display for WatchPosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut jobs = self.jobs.iter();
        if let (Some((_, job)), None, None) = (jobs.next(), jobs.next(), self.newest_start) {
            return f.write_str(&job.cursor);
        }
        let time = self.newest_start.map(|time| format!("@{time}"));
        let jobs = self.jobs.iter().map(|(id, job)| format!("{id}={}", job.cursor));
        f.write_str(&time.into_iter().chain(jobs).collect::<Vec<_>>().join(","))
    }
}

fn bad_cursor(since: &str) -> Error {
    Error::invalid(
        format!("{since:?} is not a cursor of these jobs"),
        "use the cursor of an event that a watch of the same jobs has printed",
    )
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
    let mut jobs = api.jobs(request).await?.jobs;
    jobs.retain(|job| job.caller.is_none());
    Ok(jobs)
}
