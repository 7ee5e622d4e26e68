//! Tail of several jobs with one call: it returns when one of them has news.

use std::collections::{BTreeMap, BTreeSet};

use futures_util::FutureExt;
use futures_util::future::{join_all, select_all, try_join_all};

use super::tail::{MOST_BYTES, TailRequest};
use super::tail_reply::{Because, JobTail, TailReply};
use crate::clamp::Clamps;
use crate::error::Error;
use crate::{Clamped, Format, Service};

/// Maximum jobs of one call.
const MOST_JOBS: usize = 50;
/// Least bytes of one job's lines.
const LEAST_BYTES: i64 = 512;

/// The reply of one job.
struct JobReply {
    job_id: String,
    reply: TailReply,
}

impl Service {
    /// Reads the lines of several jobs after their cursors. Waits until one of them has news.
    pub(super) async fn tail_many(&self, request: TailRequest) -> Result<TailReply, Error> {
        check(&request)?;
        let mut clamps = Clamps::default();
        let requested = request.max_bytes.unwrap_or(i64::from(self.defaults().max_bytes));
        let bytes = clamps.size("max_bytes", requested, 1..=MOST_BYTES)?;
        let wait_ms = clamps.wait_ms("wait_ms", request.wait_ms, self.longest_wait_ms());
        let wait_ms = i64::try_from(wait_ms).unwrap_or(i64::MAX);
        let requests = one_by_one(&request, i64::try_from(bytes).unwrap_or(MOST_BYTES));

        let at_once = requests.iter().map(|request| self.tail_of(request.clone(), 0));
        let mut replies = try_join_all(at_once).await?;
        let has_news = replies.iter().any(|job| is_news(job, &request));
        let running = replies.iter().zip(&requests).filter(|(job, _)| job.reply.still_running);
        let running: Vec<&TailRequest> = running.map(|(_, request)| request).collect();
        if !has_news && !running.is_empty() && wait_ms > 0 {
            let waits = running.iter().map(|running| {
                let waiting = self.tail_of((*running).clone(), wait_ms);
                waiting.boxed()
            });
            // The others are cancelled, which loses nothing: the cursors are the caller's.
            let (first, ..) = select_all(waits).await;
            let first = first?;
            let again = requests.iter().map(|request| self.tail_of(request.clone(), 0));
            replies = join_all(again).await.into_iter().collect::<Result<_, _>>()?;
            // The answer that ended the wait also says why, for example that a pattern matched.
            if let Some(job) = replies.iter_mut().find(|job| job.job_id == first.job_id) {
                *job = first;
            }
        }
        add_clamped(&replies, &mut clamps.0);
        Ok(merged(replies, clamps.0))
    }

    async fn tail_of(&self, request: TailRequest, wait_ms: i64) -> Result<JobReply, Error> {
        let job_id = request.job_id.clone();
        let reply = self.tail_one(TailRequest { wait_ms, ..request }).await?;
        Ok(JobReply { job_id, reply })
    }
}

fn check(request: &TailRequest) -> Result<(), Error> {
    if !request.job_id.is_empty() || request.since_line_no.is_some_and(|line| line != 0) {
        let hint = "omit job_id and since_line_no; cursors has the position in each job";
        return Err(Error::invalid("job_ids is for several jobs", hint));
    }
    if request.reader.is_some() || request.format == Format::Records {
        let hint = "omit reader and format";
        return Err(Error::invalid(
            "job_ids returns plain lines, with cursors",
            hint,
        ));
    }
    let distinct: BTreeSet<&String> = request.job_ids.iter().collect();
    if distinct.len() < request.job_ids.len() || request.job_ids.len() > MOST_JOBS {
        let message = format!("job_ids must be up to {MOST_JOBS} different jobs");
        return Err(Error::invalid(
            message,
            "follow the others with another call",
        ));
    }
    match request.cursors.keys().find(|id| !request.job_ids.contains(id)) {
        Some(id) => Err(Error::invalid(
            format!("cursors has {id:?}, which is not in job_ids"),
            "name the same jobs in both",
        )),
        None => Ok(()),
    }
}

/// The request for each job, with its share of the bytes.
fn one_by_one(request: &TailRequest, bytes: i64) -> Vec<TailRequest> {
    let count = i64::try_from(request.job_ids.len()).unwrap_or(1);
    let max_bytes = Some((bytes / count).max(LEAST_BYTES));
    let mut requests = Vec::new();
    for id in &request.job_ids {
        let cursor = request.cursors.get(id);
        requests.push(TailRequest {
            job_id: id.clone(),
            job_ids: Vec::new(),
            cursors: BTreeMap::new(),
            since_line_no: cursor.map(|line| i64::try_from(*line).unwrap_or(i64::MAX)),
            max_bytes,
            ..request.clone()
        });
    }
    requests
}

/// Whether a job has what its reader waits for.
fn is_news(job: &JobReply, request: &TailRequest) -> bool {
    let reply = &job.reply;
    if request.until.is_some() || request.quiet_ms.is_some() {
        return matches!(reply.returned_because, Because::Matched) || reply.has_more;
    }
    reply.lines.as_ref().is_some_and(|lines| !lines.is_empty()) || reply.has_more
}

/// Whether the reply of a job has this reason.
fn has_returned_because(replies: &[JobReply], because: Because) -> bool {
    replies.iter().any(|job| job.reply.returned_because == because)
}

/// Adds the changed arguments of the single replies: each once, and a cursor with its job.
fn add_clamped(replies: &[JobReply], clamped: &mut Vec<Clamped>) {
    for job in replies {
        for changed in &job.reply.clamped {
            let field = match changed.field.as_str() {
                "since_line_no" => format!("cursors.{}", job.job_id),
                field => field.to_owned(),
            };
            let changed = Clamped {
                field,
                ..changed.clone()
            };
            if !clamped.contains(&changed) {
                clamped.push(changed);
            }
        }
    }
}

/// One reply for all jobs.
fn merged(replies: Vec<JobReply>, clamped: Vec<Clamped>) -> TailReply {
    let cursors = replies.iter().map(|job| (job.job_id.clone(), job.reply.last_line_no)).collect();
    let dropped_lines = replies.iter().map(|job| job.reply.dropped_lines).sum();
    let skipped_lines = replies.iter().map(|job| job.reply.skipped_lines).sum();
    let total_lines = replies.iter().map(|job| job.reply.total_lines).sum();
    let still_running = replies.iter().any(|job| job.reply.still_running);
    let has_more = replies.iter().any(|job| job.reply.has_more);
    let awaiting_input = replies.iter().any(|job| job.reply.awaiting_input);
    let mut lines = replies.iter().filter_map(|job| job.reply.lines.as_ref());
    let has_lines = lines.any(|lines| !lines.is_empty());
    let silent_ms = replies.iter().map(|job| job.reply.silent_ms).min().unwrap_or(0);
    let because = if has_returned_because(&replies, Because::Matched) {
        Because::Matched
    } else if !still_running {
        Because::Ended
    } else if has_lines || has_more {
        Because::Lines
    } else if has_returned_because(&replies, Because::Quiet) {
        Because::Quiet
    } else {
        Because::Timeout
    };
    // State of the whole: a running job's if there is one, otherwise a failed job's, otherwise the
    // first job's.
    let standing = replies
        .iter()
        .find(|job| !job.reply.standing.state.is_final())
        .or_else(|| replies.iter().find(|job| job.reply.standing.exit_status != Some(0)))
        .or(replies.first())
        .map(|job| job.reply.standing.clone());
    TailReply {
        lines: None,
        records: None,
        first_line_no: None,
        last_line_no: 0,
        stderr_lines: Vec::new(),
        continuation_lines: Vec::new(),
        still_running,
        standing: standing.expect("at least one job"),
        buffer_truncated: dropped_lines > 0,
        dropped_lines,
        skipped_lines,
        first_available_line_no: 1,
        total_lines,
        has_more,
        partial: None,
        awaiting_input,
        silent_ms,
        returned_because: because,
        matched_line_no: None,
        matched_row: None,
        screen: None,
        jobs: replies.into_iter().map(JobTail::of).collect(),
        cursors,
        clamped,
    }
}

impl JobTail {
    fn of(job: JobReply) -> Self {
        let JobReply { job_id, reply } = job;
        Self {
            job_id,
            lines: reply.lines.unwrap_or_default(),
            partial: reply.partial,
            still_running: reply.still_running,
            standing: reply.standing,
            awaiting_input: reply.awaiting_input,
            dropped_lines: reply.dropped_lines,
            skipped_lines: reply.skipped_lines,
            matched: reply.returned_because == Because::Matched,
        }
    }
}
