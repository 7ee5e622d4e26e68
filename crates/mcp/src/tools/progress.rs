use std::future::pending;
use std::time::Duration;

use rmcp::RoleServer;
use rmcp::model::ProgressNotificationParam;
use rmcp::service::RequestContext;
use tokio::time::{Instant, sleep};

use sshjobs_wire::Service;

/// Interval of progress notifications.
const PERIOD: Duration = Duration::from_secs(2);

/// Reports a call's progress and its job's state to a caller that sent a progress token. Never
/// returns; for use in `select!`. Progress counts seconds since the call.
pub(crate) async fn tell_progress(
    service: &Service,
    job_id: Option<&str>,
    context: &RequestContext<RoleServer>,
) -> ! {
    let Some(token) = context.meta.get_progress_token() else { pending().await };
    let called = Instant::now();
    loop {
        sleep(PERIOD).await;
        let mut progress =
            ProgressNotificationParam::new(token.clone(), called.elapsed().as_secs_f64().round());
        let standing = match job_id {
            Some(id) => service.standing(id).await,
            None => None,
        };
        progress.message = Some(standing.unwrap_or_else(|| "waiting".to_owned()));
        if let Err(error) = context.peer.notify_progress(progress).await {
            tracing::debug!(%error, "progress can't be reported");
            // The call continues without reports: its answer may still arrive.
            pending().await
        }
    }
}
