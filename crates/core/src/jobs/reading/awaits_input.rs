use std::time::Duration;

use crate::jobs::{Job, Selection};
use sshjobs_job::AwaitsStdin;
use sshjobs_output::looks_like_prompt;
use sshjobs_policy::Verb;

/// Silence after which an unfinished line may be a prompt.
const SILENCE: Duration = Duration::from_millis(200);

impl Job {
    /// Whether the job seems to wait for input: its last line is unfinished, it is silent, and one
    /// of its processes is reading its stdin. If the host can't report that, or a process waits for
    /// something unknown, the line must look like a prompt.
    pub async fn awaits_input(&self, selection: Selection) -> bool {
        let Some(text) = self.job.read_log(|log| log.silent_partial(selection, SILENCE)) else {
            return false;
        };
        // Before `awaits_stdin`, which takes a round trip to the host. The check fails if the
        // job does not run or its process can't be asked: its stdin then counts as closed.
        if self.is_stdin_closed().await.unwrap_or(true) {
            return false;
        }
        match self.look(Verb::Read).runner.awaits_stdin(&self.job).await {
            Some(AwaitsStdin::Yes) => true,
            Some(AwaitsStdin::No) => false,
            Some(AwaitsStdin::Perhaps) | None => looks_like_prompt(&text),
        }
    }
}
