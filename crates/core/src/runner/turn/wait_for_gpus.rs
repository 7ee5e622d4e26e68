//! Waits until the host of a job has GPUs for it, and claims them.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;

use crate::hosts::{HostRef, run_short};
use crate::runner::durable::run_on;
use crate::runner::state::{RunnerState, SpawnError};
use sshjobs_job::spool::{self, SpoolReply};
use sshjobs_job::{Gpu, GpuRequest, Job, parse_gpu_failure, parse_gpus, parse_load};

/// Interval at which a host is asked again.
const LOOK: Duration = Duration::from_secs(5);
/// Pause after another job was faster.
const SHORT: Duration = Duration::from_millis(200);
/// Time limit for a host to report its capacity.
const LISTING_TIME: Duration = Duration::from_secs(30);

/// Waits until the host has the GPUs that a job needs. They then belong to the job, until it ends.
pub(super) async fn wait_for_gpus(shared: &Arc<RunnerState>, job: &Job) -> Result<(), SpawnError> {
    let Some(request) = &job.spec.gpus else { return Ok(()) };
    loop {
        match claim(shared, job, request).await? {
            Claim::Made(ids) => {
                job.give_gpus(ids);
                return Ok(());
            }
            Claim::Lost => sleep(SHORT).await,
            Claim::Missing { fitting } => {
                note_fitting(shared, job, fitting);
                job.queue();
                sleep(LOOK).await;
            }
        }
    }
}

/// Notes how many GPUs of its host fit a job, also in its record.
fn note_fitting(shared: &RunnerState, job: &Job, fitting: usize) {
    if job.status().evidence.fitting_gpus == Some(fitting) {
        return;
    }
    job.note_fitting_gpus(fitting);
    if let Some(storing) = &shared.storing {
        storing.note_fitting_gpus(&job.id, fitting);
    }
}

enum Claim {
    /// The job has these devices.
    Made(Vec<String>),
    /// Another job has taken one of them meanwhile.
    Lost,
    /// There are not enough now.
    Missing {
        /// How many there are that fit.
        fitting: usize,
    },
}

async fn claim(
    shared: &Arc<RunnerState>,
    job: &Job,
    request: &GpuRequest,
) -> Result<Claim, SpawnError> {
    let host = &job.spec.host;
    let gpus = capacity_of(shared, &HostRef::of(job)).await?.gpus;
    let own = |gpu: &&Gpu| gpu.job.as_deref() == Some(job.id.as_str());
    let fitting: Vec<&Gpu> = gpus.iter().filter(|gpu| gpu.fits(&request.kind)).collect();
    if fitting.len() < request.count {
        return Err(SpawnError::TooFewGpus {
            host: host.clone(),
            wanted: request.to_string(),
            fitting: fitting.len(),
            total: gpus.len(),
        });
    }
    // Those of an earlier attempt first.
    let held = fitting.iter().filter(|gpu| own(gpu));
    let free = fitting.iter().filter(|gpu| gpu.is_free());
    let mut chosen: Vec<String> =
        held.chain(free).map(|gpu| gpu.id.clone()).take(request.count).collect();
    if chosen.len() < request.count {
        return Ok(Claim::Missing {
            fitting: fitting.len(),
        });
    }
    // In one order, so that of two jobs that want the same devices one gets all.
    chosen.sort();
    let lease = shared.hosts.pool().lease(&HostRef::of(job)).await?;
    let command = spool::claim_gpus(job.id.as_str(), &chosen);
    let answer = run_on(lease.connection(), &command, &[]).await;
    let answer = answer.map_err(|error| SpawnError::channel(job, error))?;
    if answer == SpoolReply::Done {
        return Ok(Claim::Made(chosen));
    }
    if answer == SpoolReply::Taken {
        return Ok(Claim::Lost);
    }
    Err(SpawnError::Spool {
        host: host.clone(),
        why: format!("it answered {answer:?}"),
    })
}

/// The GPUs and the load of a host.
pub(crate) struct HostCapacity {
    pub(crate) gpus: Vec<Gpu>,
    /// Processes that run or wait for a processor, for each processor. `None` if the host does not tell.
    pub(crate) load: Option<f64>,
}

/// Asks a host for its GPUs and its load.
pub(crate) async fn capacity_of(
    shared: &RunnerState,
    host: &HostRef,
) -> Result<HostCapacity, SpawnError> {
    let lease = shared.hosts.pool().lease(host).await?;
    let failed = |source| SpawnError::Channel {
        host: host.name.clone(),
        source,
    };
    let opened = lease.connection().open().await.map_err(failed)?;
    let printed = run_short(opened.channel, &spool::capacity(), LISTING_TIME).await;
    let printed = printed.map_err(failed)?.stdout;
    let gpus = parse_gpus(&printed);
    if gpus.is_empty()
        && let Some(status) = parse_gpu_failure(&printed)
    {
        return Err(SpawnError::GpusUnknown {
            host: host.name.clone(),
            status,
        });
    }
    Ok(HostCapacity {
        gpus,
        load: parse_load(&printed),
    })
}
