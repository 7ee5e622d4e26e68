use std::sync::Arc;

use rmcp::ServiceExt;
use rmcp::transport::stdio;
use tokio::signal::unix::{SignalKind, signal};

use super::server::Server;
use crate::api::Service;

/// Why serving ended badly.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The client and we did not come together.
    #[error("the MCP client did not begin as the protocol says")]
    Initialize(#[source] Box<rmcp::service::ServerInitializeError>),
    /// The server's task failed.
    #[error("the MCP server stopped")]
    Stopped(#[from] tokio::task::JoinError),
    /// Signals can't be caught.
    #[error("signals can't be caught")]
    Signals(#[from] std::io::Error),
}

/// Serves MCP on stdin and stdout until the client closes stdin or the process is told to stop (TERM, INT, HUP); then ends
/// the jobs that still run.
pub async fn serve_stdio(service: Service) -> Result<(), ServeError> {
    let service = Arc::new(service);
    let served = serve(Arc::clone(&service)).await;
    service.shutdown().await;
    served
}

async fn serve(service: Arc<Service>) -> Result<(), ServeError> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut hang_up = signal(SignalKind::hangup())?;
    let serving = async {
        let running = Server::new(service).serve(stdio()).await;
        running.map_err(|error| ServeError::Initialize(Box::new(error)))?.waiting().await?;
        Ok(())
    };
    tokio::select! {
        served = serving => served,
        _ = terminate.recv() => Ok(()),
        _ = interrupt.recv() => Ok(()),
        _ = hang_up.recv() => Ok(()),
    }
}
