//! Finds out why a job ended.

use std::time::{Duration, SystemTime};

use super::runner::Runner;
use crate::hosts::Script;
use crate::runner::SeenJob;
use crate::runner::signal::run_on_machine;
use sshjobs_job::{EndCause, EndFacts, Job, Phase, PostMortem, post_mortem_script};

/// Time limit for a host to report processes that its kernel killed.
const REPORT_TIMEOUT: Duration = Duration::from_secs(5);

impl Runner {
    /// Why a job ended. `None` if it has not.
    ///
    /// If the job was killed and nothing else explains that, its host is asked which processes its kernel
    /// killed. If it can't be asked, the cause stays unknown.
    pub async fn end_cause(&self, job: &SeenJob) -> Option<EndCause> {
        let job = &job.0;
        let status = job.status();
        let Phase::Ended(outcome) = &status.phase else { return None };
        let ended_ago = status.ended_at.and_then(|at| SystemTime::now().duration_since(at).ok());
        let facts = EndFacts {
            evidence: &status.evidence,
            report: None,
            ended_ago,
        };
        let cause = EndCause::decide(outcome, facts);
        if !cause.wants_post_mortem() {
            return Some(cause);
        }
        let report = self.post_mortem(job).await;
        let facts = EndFacts {
            report: report.as_ref(),
            ..facts
        };
        Some(EndCause::decide(outcome, facts))
    }

    /// The host's report about processes that its kernel killed. `None` if it can't be asked.
    async fn post_mortem(&self, job: &Job) -> Option<PostMortem> {
        let script = Script::without_input(post_mortem_script().to_owned());
        match run_on_machine(&self.shared, job, script, REPORT_TIMEOUT).await {
            Ok(answer) => PostMortem::parse(&answer),
            Err(error) => {
                tracing::debug!(job = %job.id, %error, "the host can't report killed processes");
                None
            }
        }
    }
}
