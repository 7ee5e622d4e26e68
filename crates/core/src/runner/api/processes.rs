//! Inspects the processes of a job on its host.

use std::time::Duration;

use super::runner::Runner;
use crate::admission::ReadOutput;
use crate::hosts::{Asking, Script};
use crate::runner::seen_job::Permitted;
use crate::runner::signal::{
    OtherUser, PGID_TIMEOUT, process_group_told, run_on_machine, run_on_machine_as,
};
use crate::runner::state::SignalError;
use sshjobs_job::{Awaited, Job, LONGEST_COMMAND, Process, Processes, inspect_script};

/// Time limit for a host to describe the processes of a job.
const INSPECT_TIMEOUT: Duration = Duration::from_secs(10);

impl Runner {
    /// The processes of a running job, which its host describes. Takes half a second there. `None` if
    /// the host does not describe them.
    ///
    /// # Errors
    /// If the job has ended, or its host can't be reached.
    pub async fn processes(
        &self,
        job: Permitted<'_, ReadOutput>,
    ) -> Result<Option<Processes>, SignalError> {
        process_group_told(&job, PGID_TIMEOUT).await;
        let group = job.process_group().ok_or(SignalError::JobEnded)?;
        let script = inspect_script(&group);
        let by_account = Script::without_input(script.clone());
        let answer = match &job.spec.becomes {
            None => run_on_machine(&self.shared, &job, by_account, INSPECT_TIMEOUT).await?,
            Some(becomes) => {
                // The account sees little of another user's processes, so that user looks, if the host allows
                // it without a password.
                let user = OtherUser {
                    becomes,
                    asking: Asking::Nobody,
                };
                match run_on_machine_as(&self.shared, &job, user, script, INSPECT_TIMEOUT).await {
                    Ok(answer) => answer,
                    Err(SignalError::Become(_)) => {
                        run_on_machine(&self.shared, &job, by_account, INSPECT_TIMEOUT).await?
                    }
                    Err(error) => return Err(error),
                }
            }
        };
        let Some(mut processes) = Processes::parse(&answer) else { return Ok(None) };
        let knows_secrets = self.knows_secrets(&job);
        for process in &mut processes.processes {
            let known = knows_secrets.then(|| without_secrets(process, &job)).flatten();
            let (command, waits_for) = known.unwrap_or_else(|| (WITHHELD.to_owned(), None));
            (process.command, process.waits_for) = (command, waits_for);
        }
        Ok(Some(processes))
    }

    /// Whether this process knows which secrets a job was given. Those that another process has written to
    /// a job that it records itself are in no record.
    fn knows_secrets(&self, job: &Job) -> bool {
        job.spec.durable || self.shared.registry().place(&job.id).is_some()
    }
}

/// The command of a process and the event that it waits for, with the job's secrets hidden. `None` if they
/// can't be hidden.
fn without_secrets(process: &Process, job: &Job) -> Option<(String, Option<Awaited>)> {
    let command = &process.command;
    // A secret at the end of a command that was cut would not be found.
    if command.len() >= LONGEST_COMMAND && !job.hidden_secrets().is_empty() {
        return None;
    }
    let mut waits_for = process.waits_for.clone();
    if let Some(path) = waits_for.as_mut().and_then(Awaited::path_mut) {
        *path = job.without_secrets(path)?;
    }
    Some((job.without_secrets(command)?, waits_for))
}

/// Instead of a command in which secrets can't be hidden.
const WITHHELD: &str = "(withheld: it may contain a secret)";
