//! Looks at the processes of a job on its host.

use std::time::Duration;

use super::runner::Runner;
use crate::hosts::{Asking, Script};
use crate::job::{Job, Processes, inspect_script};
use crate::runner::signal::{
    OtherUser, PGID_TIMEOUT, process_group_told, run_on_machine, run_on_machine_as,
};
use crate::runner::state::SignalError;

/// Time limit for a host to describe the processes of a job.
const DESCRIBE: Duration = Duration::from_secs(10);

impl Runner {
    /// The processes of a running job, which its host describes. Takes half a second there. `None` if
    /// the host does not show its processes.
    ///
    /// # Errors
    /// If the job has ended, or its host can't be reached.
    pub async fn processes(&self, job: &Job) -> Result<Option<Processes>, SignalError> {
        process_group_told(job, PGID_TIMEOUT).await;
        let group = job.process_group().ok_or(SignalError::JobEnded)?;
        let script = inspect_script(&group);
        let by_account = Script::without_input(script.clone());
        let answer = match &job.spec.becomes {
            None => run_on_machine(&self.shared, job, by_account, DESCRIBE).await?,
            Some(becomes) => {
                // The account sees little of another user's processes.
                let user = OtherUser {
                    becomes,
                    asking: Asking::Nobody,
                };
                match run_on_machine_as(&self.shared, job, user, script, DESCRIBE).await {
                    Ok(answer) => answer,
                    Err(SignalError::Become(_)) => {
                        run_on_machine(&self.shared, job, by_account, DESCRIBE).await?
                    }
                    Err(error) => return Err(error),
                }
            }
        };
        Ok(Processes::parse(&answer).map(|processes| without_secrets(processes, job)))
    }
}

/// Hides the values of a job's secrets in the commands of its processes.
fn without_secrets(mut processes: Processes, job: &Job) -> Processes {
    for process in &mut processes.processes {
        process.command =
            job.without_secrets(&process.command).unwrap_or_else(|| WITHHELD.to_owned());
    }
    processes
}

/// Instead of a command in which secrets can't be hidden, because this process has not read them.
const WITHHELD: &str = "(withheld: it may contain a secret)";
