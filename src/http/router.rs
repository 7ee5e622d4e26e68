use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::middleware::{from_fn, from_fn_with_state};
use axum::response::Response;
use axum::routing::{any, get};
use axum::{Json, Router};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::guard::{Guard, check_names, guard};
use super::{Mount, attach, calls, events, metrics, openapi, raw, reject};

/// Everything that is served on the address and the socket.
pub(super) fn router(guarded: Arc<Guard>, mounts: Vec<Mount>, ends: Ends, prefix: &str) -> Router {
    let Ends { closing, sessions } = ends;
    let api = calls::routes()
        .route("/jobs/{id}/stream", get(events::stream))
        .route("/jobs/{id}/raw", get(raw::raw))
        .route("/session", get(attach::session).with_state(Arc::new(sessions)))
        .route("/openapi.json", get(async || Json(openapi::document())))
        .fallback(async || reject::nothing_here())
        .method_not_allowed_fallback(async || reject::wrong_method());
    let mut app = Router::new().nest("/v1", api);
    let (for_anybody, mounts): (Vec<_>, _) = mounts.into_iter().partition(|mount| mount.is_for_anybody);
    for mount in mounts {
        app = mounted(app, mount);
    }
    let (metrics, named) = (Arc::clone(&guarded.metrics), Arc::clone(&guarded));
    let app = app
        .fallback(async || reject::nothing_here())
        .layer(from_fn_with_state(guarded, guard))
        .layer(from_fn(without_sniffing));
    let for_anybody = for_anybody.into_iter().fold(Router::new(), mounted);
    let app = app
        .merge(for_anybody.layer(from_fn_with_state(named, check_names)).layer(from_fn(without_sniffing)))
        .route("/healthz", get(async || "ok\n"))
        .route("/readyz", get(ready).with_state(closing))
        .layer(from_fn_with_state(metrics, metrics::count));
    if prefix.is_empty() { app } else { Router::new().nest(prefix, app) }
}

fn mounted(app: Router, mount: Mount) -> Router {
    let path = mount.path;
    app.route(path, any(async move |request: Request| mount.answer(request).await))
}

/// What tells that the server ends, and what it waits for then.
pub(super) struct Ends {
    /// Nothing more is taken in.
    pub(super) closing: CancellationToken,
    pub(super) sessions: TaskTracker,
}

/// A server that is about to end takes no more work.
async fn ready(State(closing): State<CancellationToken>) -> (StatusCode, &'static str) {
    if closing.is_cancelled() {
        (StatusCode::SERVICE_UNAVAILABLE, "shutting down\n")
    } else {
        (StatusCode::OK, "ready\n")
    }
}

/// What jobs print is no page, whatever a browser makes of it.
async fn without_sniffing(request: Request, next: axum::middleware::Next) -> Response {
    let mut response = next.run(request).await;
    let headers = response.headers_mut();
    headers.insert("x-content-type-options", axum::http::HeaderValue::from_static("nosniff"));
    headers.insert("cache-control", axum::http::HeaderValue::from_static("no-store"));
    response
}
