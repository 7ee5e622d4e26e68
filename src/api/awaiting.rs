use std::time::Duration;

use super::Service;
use crate::job::{Job, Reads};
use crate::output::{Selection, looks_like_prompt};

/// How long an unfinished line must stand before it may be a prompt.
const SILENCE: Duration = Duration::from_millis(200);

impl Service {
    /// Whether a job seems to wait for input: its line is unfinished, it is silent, and a process of it was found reading its
    /// stdin. Where the host can't tell, or one of them waits for who knows what, the shape of a prompt decides.
    pub(super) async fn awaits_input(&self, job: &Job, selection: Selection) -> bool {
        let Some(text) = job.read_log(|log| log.silent_partial(selection, SILENCE)) else { return false };
        if self.runner.is_stdin_closed(job).unwrap_or(true) {
            return false;
        }
        match self.runner.reads(job).await {
            Some(Reads::Yes) => true,
            Some(Reads::No) => false,
            Some(Reads::Perhaps) | None => looks_like_prompt(&text),
        }
    }
}
