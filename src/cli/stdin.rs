use std::time::Duration;

use tokio::io::{AsyncReadExt, stdin};

use crate::api::{Code, Service};

/// How long a command that does not read is waited for before looking again whether the job is over.
const PATIENCE: Duration = Duration::from_secs(3600);

/// Passes our stdin on to a job until it ends or the job does, then waits for ever: it is for a `select!`.
pub(super) async fn forward(service: &Service, job_id: &str) -> ! {
    let mut input = stdin();
    let mut buffer = vec![0; 32 << 10];
    loop {
        match input.read(&mut buffer).await {
            Ok(length @ 1..) => {
                if let Err(error) = service.write_bytes(job_id, &buffer[..length], PATIENCE).await {
                    // A command need not read its stdin to its end.
                    tracing::debug!(%error, "stdin is not passed on any further");
                    break;
                }
            }
            Ok(0) => {
                if let Err(error) = service.close_stdin(job_id).await
                    && error.code != Code::JobEnded
                {
                    tracing::debug!(%error, "stdin could not be ended");
                }
                break;
            }
            Err(error) => {
                tracing::warn!(%error, "stdin can't be read");
                break;
            }
        }
    }
    std::future::pending().await
}
