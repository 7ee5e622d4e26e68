use std::sync::Arc;
use std::time::Duration;

use secrecy::SecretString;
use tokio::time::timeout;

use super::end::{SignalReport, end_tree};
use super::link::{Directory, Link};
use super::spawn::Shared;
use super::stdin::Stdin;
use super::{EventSource, Reader};
use crate::job::{Job, Outcome, Signal};
use crate::ssh::Lease;

/// After the end: how long the server may take to close the channel.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(10);
/// How often a server hears of us while its output is held back; a second is the least that sshd can be told to wait.
const SIGN_OF_LIFE: Duration = Duration::from_millis(500);
/// After its tree was ended: how long the server may take to say that the job is over.
const END_TIMEOUT: Duration = Duration::from_secs(5);

/// Stays with a job from its start to its end, then cleans up after it.
pub(super) async fn attend<D: Directory, S: EventSource>(
    shared: Arc<Shared<D>>,
    job: Arc<Job>,
    mut reader: Reader<S>,
    stdin: Arc<Stdin>,
    stdin_header: Option<SecretString>,
    lease: Lease<Arc<Link>>,
) {
    let outcome = {
        let feeding = async {
            if let Err(error) = stdin.begin(stdin_header).await {
                tracing::debug!(job = %job.id, %error, "stdin ended early");
            }
            std::future::pending().await
        };
        let reading = read_within_limit(&shared, &job, &mut reader, &stdin);
        tokio::select! {
            biased;
            // First, for a flood would let nothing else have its turn.
            never = hold_back(&job, lease.connection()) => never,
            outcome = reading => outcome,
            never = feeding => never,
        }
    };
    lease.connection().connection.hold(false);
    tracing::info!(job = %job.id, ?outcome, "job ended");
    job.write_log(|log| log.end(outcome));
    shared.registry().finish(&job.id);
    // A connection that is lost needs no closing.
    stdin.channel().close().await.ok();
    drop(timeout(CLOSE_TIMEOUT, reader.drop_until_close()).await);
    let link = Arc::clone(lease.connection());
    drop(lease);
    link.job_ends().await;
}

/// Holds the far end back while the follower that it is to wait for is behind. A job that is held so has its connection to itself.
async fn hold_back(job: &Job, link: &Link) -> ! {
    loop {
        job.runs_ahead().await;
        link.connection.hold(true);
        // A server that wants signs of life (ClientAliveInterval) gets no answers now.
        while timeout(SIGN_OF_LIFE, job.has_room()).await.is_err() {
            link.connection.show_life().await;
        }
        link.connection.hold(false);
    }
}

async fn read_within_limit<D: Directory, S: EventSource>(
    shared: &Shared<D>,
    job: &Job,
    reader: &mut Reader<S>,
    stdin: &Stdin,
) -> Outcome {
    let Some(limit) = job.spec.timeout else { return reader.run().await };
    if let Ok(outcome) = timeout(limit, reader.run()).await {
        return outcome;
    }
    tracing::info!(job = %job.id, ?limit, "time limit reached");
    let grace = shared.limits.kill_grace();
    let ending = async {
        match end_tree(shared, job, Signal::TERM, Some(grace), stdin.channel()).await {
            // Nothing more comes than what is on its way, and for that there is room.
            Ok(SignalReport { confirmed_dead: true, .. }) => job.let_go(),
            Ok(report) => tracing::warn!(job = %job.id, ?report, "the job is not verified dead"),
            Err(error) => tracing::warn!(job = %job.id, %error, "the job could not be ended"),
        }
    };
    let reading = timeout(grace + END_TIMEOUT, reader.run());
    drop(tokio::join!(ending, reading));
    Outcome::TimedOut(reader.exit())
}
