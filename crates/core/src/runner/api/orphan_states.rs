//! Updates durable jobs that no process follows, by asking their hosts, all at once and within a
//! time limit.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt, stream};
use tokio::time::{Instant, timeout_at};

use super::summary::Summary;
use crate::hosts::{HostRef, Link, run_short};
use crate::runner::durable::{begin_following, install, outcome};
use crate::runner::state::RunnerState;
use sshjobs_job::spool::{self, FollowFrom, FrameReader, SpoolEnd, SpoolFrame, SpoolReply};
use sshjobs_job::{JobId, Phase, end_by_host_clock};
use sshjobs_output::{time_of, timestamp_of};
use sshjobs_ssh::{ChannelError, ChannelEvent};

/// Maximum hosts asked at the same time.
const AT_A_TIME: usize = 64;
/// Time that is left for the answer of a host once its lines are counted.
const TIME_TO_ANSWER: Duration = Duration::from_millis(300);
/// Time limit for counting lines on a host.
const COUNTING_TIME: Duration = Duration::from_secs(5);

/// Asks the hosts of durable jobs in `summaries` that have neither ended nor an owner, and updates
/// these summaries. A job whose host does not answer within `patience` keeps its last known state
/// and its `last_seen_at`.
///
/// Writes nothing to the records: there, a job ends once its output is stored to its end.
pub(crate) async fn look_at_orphans(
    shared: &RunnerState,
    summaries: &mut [Summary],
    patience: Duration,
) {
    let deadline = Instant::now() + patience;
    let mut by_host: HashMap<HostRef, Vec<JobId>> = HashMap::new();
    for orphan in summaries.iter().filter(|summary| summary.is_orphan()) {
        let host = HostRef {
            caller: orphan.caller.clone(),
            name: orphan.facts.host.clone(),
        };
        by_host.entry(host).or_default().push(orphan.id.clone());
    }
    if by_host.is_empty() {
        return;
    }

    let asking = by_host.into_iter().map(|(host, jobs)| async move {
        let told = ask_host(shared, &host, &jobs, deadline).await;
        told.inspect_err(|why| tracing::debug!(%host, why, "its jobs can't be looked at"))
            .unwrap_or_default()
    });
    let mut answers = stream::iter(asking.collect::<Vec<_>>()).buffer_unordered(AT_A_TIME);
    let mut told = HashMap::new();
    // Answers that come before the deadline count, even if another host never answers.
    while let Ok(Some(answer)) = timeout_at(deadline, answers.next()).await {
        told.extend(answer);
    }
    for summary in summaries {
        if let Some(seen) = told.remove(&summary.id) {
            seen.show_in(summary);
        }
    }
}

/// State, end and number of lines of a job, as its host has them now.
#[derive(Debug)]
struct SeenOnHost {
    phase: Phase,
    /// By the host's clock, in seconds since 1970.
    ended_at: Option<u64>,
    /// Number of its lines. `None` if they were not counted.
    lines: Option<u64>,
}

impl SeenOnHost {
    fn running() -> Self {
        Self {
            phase: Phase::Running,
            ended_at: None,
            lines: None,
        }
    }

    fn ended(end: SpoolEnd) -> Self {
        Self {
            ended_at: end.ended_at(),
            phase: Phase::Ended(outcome(end)),
            lines: None,
        }
    }

    fn show_in(self, summary: &mut Summary) {
        let status = &mut summary.status;
        let started = timestamp_of(status.started_at);
        let ended = self.ended_at.and_then(|seconds| end_by_host_clock(started, seconds));
        status.ended_at = ended.map(time_of);
        status.phase = self.phase;
        if let Some(lines) = self.lines {
            status.total_lines = lines.max(status.total_lines);
        }
        summary.last_seen_at = None;
    }
}

/// The same of several jobs.
async fn ask_host(
    shared: &RunnerState,
    host: &HostRef,
    jobs: &[JobId],
    deadline: Instant,
) -> Result<HashMap<JobId, SeenOnHost>, String> {
    let lease = shared.hosts.pool().lease(host).await.map_err(|error| error.to_string())?;
    let link = Arc::clone(lease.connection());
    let mut told = follow_once(&link, jobs).await.map_err(|error| error.to_string())?;
    if told.is_none() {
        // The host lacks the scripts of this version, but has jobs of another.
        install(&link).await.map_err(|error| error.to_string())?;
        told = follow_once(&link, jobs).await.map_err(|error| error.to_string())?;
    }
    let mut told = told.ok_or_else(|| "the scripts could not be installed".to_owned())?;
    // The states have to arrive in time, with or without the numbers.
    let counting = count_lines(&link, jobs, &mut told);
    match timeout_at(deadline - TIME_TO_ANSWER, counting).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(%host, %error, "lines can't be counted"),
        Err(_) => tracing::debug!(%host, "lines can't be counted in time"),
    }
    Ok(told)
}

/// Adds the numbers of lines.
async fn count_lines(
    link: &Arc<Link>,
    jobs: &[JobId],
    told: &mut HashMap<JobId, SeenOnHost>,
) -> Result<(), ChannelError> {
    let jobs: Vec<&str> = jobs.iter().map(JobId::as_str).collect();
    let command = spool::count_lines(&jobs);
    let channel = link.open().await?.channel;
    let printed = run_short(channel, &command, COUNTING_TIME).await?;
    for (job, lines) in spool::counted_lines(&printed.stdout) {
        if let Some(seen) = told.get_mut(&JobId::from(job)) {
            seen.lines = Some(lines);
        }
    }
    Ok(())
}

/// Everything a follower reports until it has examined each job once. `None` if the scripts are
/// missing.
async fn follow_once(
    link: &Arc<Link>,
    jobs: &[JobId],
) -> Result<Option<HashMap<JobId, SeenOnHost>>, ChannelError> {
    let lines = FollowFrom::states_only(jobs.iter().map(JobId::as_str));
    let name = format!("l{:016x}", rand::random::<u64>());
    let (mut reader, writer) = begin_following(link, &name, &lines).await?;
    let mut frames = FrameReader::default();
    let mut told = HashMap::new();
    let mut has_begun = false;
    let is_complete = loop {
        let bytes = match reader.next().await {
            Some(ChannelEvent::Data(bytes)) => bytes,
            // States that arrived in time count. Other jobs keep their last known state.
            None | Some(ChannelEvent::Close | ChannelEvent::Failure) => break has_begun,
            Some(_) => continue,
        };
        frames.push(bytes.clone());
        let mut has_caught_up = false;
        while let Some(frame) = frames.next_frame() {
            has_begun = true;
            match frame {
                SpoolFrame::End { job, end, .. } => {
                    told.insert(JobId::from(job.as_str()), SeenOnHost::ended(end));
                }
                SpoolFrame::CaughtUp => has_caught_up = true,
                SpoolFrame::Alive
                | SpoolFrame::ProcessGroup { .. }
                | SpoolFrame::Usage { .. }
                | SpoolFrame::Data { .. } => {}
            }
        }
        if has_caught_up {
            // The follower has examined every job, so one without an end is running.
            for id in jobs {
                told.entry(id.clone()).or_insert_with(SeenOnHost::running);
            }
            break true;
        }
        if !has_begun
            && SpoolReply::parse(&String::from_utf8_lossy(&bytes)) == Some(SpoolReply::Missing)
        {
            break false;
        }
    };
    writer.end(&mut reader).await;
    Ok(is_complete.then_some(told))
}
