use std::sync::Arc;
use std::time::Duration;

use super::spawn::terminal_size;
use super::write::PATIENCE;
use super::{Ending, Error, Service, SpawnRequest};
use crate::job::{Job, Pace, Positions, StdinPlan};

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
    /// The job's id.
    pub fn job_id(&self) -> &str {
        self.job.id.as_str()
    }

    /// Waits for the next bytes. Cancel safe: nothing is lost.
    pub async fn next(&mut self) -> Output {
        let mut positions = self.positions;
        let chunk = self.job.follow(&mut positions).await;
        self.positions = positions;
        let ended = chunk.at_end.then(|| Ending::of(&self.job.status().phase));
        Output { stdout: chunk.stdout, stderr: chunk.stderr, dropped_bytes: chunk.dropped_bytes, ended }
    }
}

impl Drop for Follow {
    fn drop(&mut self) {
        self.job.let_go();
    }
}

/// A person may take as long to answer what a login asks.
const START: Duration = Duration::from_secs(3600);

impl Service {
    /// Starts a job for one follower. The far end is held back while the follower is behind, as by a pipe, so that nothing is
    /// lost; the job has a connection to itself. Dropping the `Follow` lets the job run on freely.
    pub async fn spawn_followed(&self, request: SpawnRequest) -> Result<Follow, Error> {
        let (mut spec, key) = request.into_spec(StdinPlan::Open)?;
        spec.pace = Pace::OfFollower;
        let job = self.start((spec, key), START).await?;
        Ok(Follow { job, positions: Positions::default() })
    }

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
