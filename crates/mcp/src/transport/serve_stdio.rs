//! MCP on stdin and stdout, from the first message to the end of the last job.

use std::sync::Arc;
use std::time::Duration;

use rmcp::ServiceExt;
use rmcp::service::ServerInitializeError;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tokio::io::{stdin, stdout};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::{interval, sleep};

use super::stdio::{ClientGone, Wire};
use crate::ask::Elicitor;
use crate::server::{McpOptions, McpServer};
use sshjobs_wire::Service;

/// Why serving failed.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The handshake with the client failed.
    #[error("the MCP client did not begin as the protocol says")]
    Initialize(#[source] Box<rmcp::service::ServerInitializeError>),
    /// The server's task failed.
    #[error("the MCP server stopped")]
    Stopped(#[from] tokio::task::JoinError),
    /// Signals can't be caught.
    #[error("signals can't be caught")]
    Signals(#[from] std::io::Error),
}

/// After the end of stdin: time limit for writing answers, in case the client does not read them.
const LAST_ANSWERS: Duration = Duration::from_secs(7);

/// Interval at which stdout is checked for a reader.
const STDOUT_CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Serves MCP on stdin and stdout until the client closes stdin or a signal stops the process
/// (TERM, INT, HUP). Then ends the jobs that still run. `elicitor` must be that of the service.
pub async fn serve_stdio(
    service: Service,
    elicitor: Arc<Elicitor>,
    options: McpOptions,
) -> Result<(), ServeError> {
    let service = Arc::new(service);
    let served = serve(Arc::clone(&service), elicitor, options).await;
    service.shutdown().await;
    served
}

/// Resolves when our stdout has no reader. A pipe reports that without a write.
async fn stdout_is_closed() {
    let mut tick = interval(STDOUT_CHECK_INTERVAL);
    loop {
        tick.tick().await;
        let stdout = std::io::stdout();
        // poll(2) reports ERR without a request for it.
        let mut polled = [PollFd::new(&stdout, PollFlags::empty())];
        let now = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        if poll(&mut polled, Some(&now)).is_ok() && polled[0].revents().contains(PollFlags::ERR) {
            return;
        }
    }
}

/// The signals that stop the process.
struct StopSignals {
    terminate: Signal,
    interrupt: Signal,
    hang_up: Signal,
}

impl StopSignals {
    fn catch() -> std::io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hang_up: signal(SignalKind::hangup())?,
        })
    }

    /// Resolves at the first of them.
    async fn first(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
            _ = self.hang_up.recv() => {}
        }
    }
}

async fn serve(
    service: Arc<Service>,
    elicitor: Arc<Elicitor>,
    options: McpOptions,
) -> Result<(), ServeError> {
    // First, so that a signal during the handshake ends the jobs, too.
    let mut signals = StopSignals::catch()?;
    let (carry_in, carry_out, server_ends) = Wire::new().into_parts(stdin(), stdout());
    let answering = async {
        let running = match McpServer::new(service, elicitor, options).serve(server_ends).await {
            Ok(running) => running,
            // A client may disconnect after it has only listed features.
            Err(ServerInitializeError::ConnectionClosed(_)) => return Ok(()),
            Err(error) => {
                return Err(ServeError::Initialize(Box::new(error)));
            }
        };
        running.waiting().await?;
        Ok(())
    };
    // A failure of the server does not end this: its last answers are still written.
    let exchange = async { tokio::try_join!(async { Ok(answering.await) }, carry_out) };
    let reading = async {
        carry_in.await;
        // The server ends, too, once it has answered.
        sleep(LAST_ANSWERS).await;
    };
    tokio::select! {
        exchanged = exchange => match exchanged {
            Ok((served, ())) => served,
            Err(ClientGone) => Ok(()),
        },
        () = reading => Ok(()),
        () = stdout_is_closed() => Ok(()),
        () = signals.first() => Ok(()),
    }
}
