use std::sync::Arc;
use std::time::Duration;

use super::spawn::terminal_size;
use super::write::PATIENCE;
use super::{Ending, Error, Service};
use crate::job::{Job, Positions};

/// Follows a job's output byte by byte, unfinished lines included; for terminals and pipes.
pub struct Follow {
    job: Arc<Job>,
    positions: Positions,
}

/// The next bytes of a job.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Output {
    /// Of standard output.
    pub stdout: Vec<u8>,
    /// Of standard error.
    pub stderr: Vec<u8>,
    /// How many bytes were evicted before they were asked for.
    pub dropped_bytes: u64,
    /// How the job ended, with the last bytes.
    pub ended: Option<Ending>,
}

impl Follow {
    /// Waits for the next bytes. Cancel safe: nothing is lost.
    pub async fn next(&mut self) -> Output {
        let mut positions = self.positions;
        let chunk = self.job.follow(&mut positions).await;
        self.positions = positions;
        let ended = chunk.at_end.then(|| Ending::of(&self.job.status().phase));
        Output { stdout: chunk.stdout, stderr: chunk.stderr, dropped_bytes: chunk.dropped_bytes, ended }
    }
}

impl Service {
    /// Follows a job's output from its beginning.
    pub fn follow(&self, job_id: &str) -> Result<Follow, Error> {
        Ok(Follow { job: self.job(job_id)?, positions: Positions::default() })
    }

    /// Writes to a job's stdin; waits up to `patience` for the command to read. Cancelling may leave a part written.
    pub async fn write_bytes(&self, job_id: &str, data: &[u8], patience: Duration) -> Result<(), Error> {
        Ok(self.runner.write(&*self.job(job_id)?, data, patience).await?)
    }

    /// Tells a job's terminal its new size in columns and rows.
    pub async fn resize(&self, job_id: &str, cols: u32, rows: u32) -> Result<(), Error> {
        let size = terminal_size(cols.into(), rows.into())?;
        Ok(self.runner.resize(&*self.job(job_id)?, size).await?)
    }

    /// Ends a job's stdin, behind what is still being written; waits ten seconds for that at most.
    pub async fn close_stdin(&self, job_id: &str) -> Result<(), Error> {
        Ok(self.runner.close_stdin(&*self.job(job_id)?, PATIENCE).await?)
    }
}
