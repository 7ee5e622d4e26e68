use std::time::Duration;

use super::Service;
use crate::job::Job;
use crate::output::{Selection, looks_like_prompt};

/// How long an unfinished line must stand before it may be a prompt.
const SILENCE: Duration = Duration::from_millis(200);
/// How long one without the shape of a prompt must stand before the host is asked.
const LONG_SILENCE: Duration = Duration::from_millis(500);

impl Service {
    /// Whether a job seems to wait for input: its line is unfinished, it is silent, and either the line has the shape of a
    /// prompt or a process of it was found reading its stdin.
    pub(super) async fn awaits_input(&self, job: &Job, selection: Selection) -> bool {
        let partial = |silence| job.read_log(|log| log.silent_partial(selection, silence));
        let Some(text) = partial(SILENCE) else { return false };
        if self.runner.is_stdin_closed(job).unwrap_or(true) {
            return false;
        }
        looks_like_prompt(&text) || (partial(LONG_SILENCE).is_some() && self.runner.is_reading(job).await)
    }
}
