//! The server side: answers calls that other replicas pass on.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::header::PassedCaller;
use crate::prefer::preferred_wait;
use crate::reject;
use crate::status::HttpFailure;
use sshjobs_core::jobs::Peers;
use sshjobs_wire::Service;

/// Pause after a failed attempt to accept.
const PAUSE: Duration = Duration::from_millis(500);

/// Answers other replicas until it is dropped.
pub(crate) async fn answer_peers(peers: Arc<dyn Peers>, app: Router) {
    let mut connections = JoinSet::new();
    loop {
        // A `JoinSet` keeps ended tasks until they are joined.
        while connections.try_join_next().is_some() {}
        let stream = match peers.accept().await {
            Ok(stream) => stream,
            Err(error) => {
                tracing::debug!(%error, "another replica can't be answered");
                sleep(PAUSE).await;
                continue;
            }
        };
        let answering = http1::Builder::new()
            .serve_connection(TokioIo::new(stream), TowerToHyperService::new(app.clone()))
            .with_upgrades();
        connections.spawn(async move {
            if let Err(error) = answering.await {
                tracing::debug!(%error, "a call that was passed on broke");
            }
        });
    }
}

/// Adds the service of the caller for whom a call is passed on. The state is that of the operator.
pub(crate) async fn for_the_caller(
    State(service): State<Arc<Service>>,
    mut request: Request,
    next: Next,
) -> Response {
    let Some(passed) = PassedCaller::of(request.headers()) else {
        return HttpFailure::from(reject::without_token()).into_response();
    };
    if let Some(reached_at) = PassedCaller::reached_at(request.headers()) {
        request.extensions_mut().insert(reached_at);
    }
    let service = match preferred_wait(request.headers()) {
        Some(wait) => service.with_context(|context| context.approval_wait = wait),
        None => Service::clone(&service),
    };
    request.extensions_mut().insert(passed.admit(&service));
    next.run(request).await
}
