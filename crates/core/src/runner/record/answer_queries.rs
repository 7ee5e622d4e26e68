//! Answers a program's questions about its terminal, as a terminal does.

use std::sync::Arc;
use std::time::Duration;

use crate::runner::state::{JobStdin, RunnerState};
use sshjobs_job::Job;
use sshjobs_output::Stream;

/// Time limit for one answer: a program that asks reads its stdin.
const PATIENCE: Duration = Duration::from_secs(5);
/// Maximum time of one wait for output. The loop then waits again.
const WAIT: Duration = Duration::from_secs(3600);

/// Whether a job was started on a terminal that answers.
pub(crate) fn has_answering_terminal(job: &Job) -> bool {
    job.spec.terminal.as_ref().is_some_and(|terminal| terminal.answers_queries)
}

/// Draws a job's screen as output arrives, and writes the answers to its questions to `stdin`, until
/// the job has ended.
///
/// Questions that the job asked before this call count as answered.
pub(crate) fn answer_queries(
    shared: &RunnerState,
    job: Arc<Job>,
    stdin: Arc<JobStdin>,
) -> impl Future<Output = ()> + Send + use<> {
    // Read before the task starts: a question that arrives in between must be answered.
    let asked_before = job.read_log(|log| log.ring().total_bytes(Stream::Stdout));
    let screen = shared.screens.of(&job);
    let permit = shared.screens.may_answer(&job);
    async move {
        let Some(_permit) = permit else {
            tracing::warn!(job = %job.id, "too many or too large terminals answer queries; this one does not");
            return;
        };
        {
            let mut screen = screen.lock().await;
            screen.draw_until(&job, asked_before).await;
            screen.take_answers();
        }
        loop {
            let (drawn, answers) = {
                let mut screen = screen.lock().await;
                screen.draw_all(&job).await;
                (screen.drawn(), screen.take_answers())
            };
            if job.is_over() {
                return;
            }
            if !answers.is_empty()
                && let Err(error) = stdin.write(&answers, PATIENCE).await
            {
                tracing::debug!(job = %job.id, %error, "a question of the program was not answered");
            }
            job.wait_for_drawing(WAIT, drawn).await;
        }
    }
}
