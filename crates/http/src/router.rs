//! The routes of the server, and which of them need a caller.

use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::{from_fn, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::mount::Mount;
use super::{page, reject};
use crate::api::{
    approvals, attach, audit, calls, events, export, fetched, files, notifications, openapi, raw,
    screen, updates,
};
use crate::guard::{METADATA, RequestGuard, check_names, guard, metrics};
use crate::peers::{
    ClusterPrompters, answer_at_replica, ask_route, for_the_caller, pass_on_files, stick_to_replica,
};
use sshjobs_core::jobs::{Jobs, Peers};
use sshjobs_wire::Service;

/// All routes of the address and the socket.
pub(super) fn router(
    guarded: Arc<RequestGuard>,
    mounts: Vec<Mount>,
    ends: ConnectionEnds,
    prefix: &str,
) -> Router {
    let ConnectionEnds { closing, sessions } = ends;
    let readiness = Readiness {
        closing,
        jobs: guarded.service.library().clone(),
        peers: guarded.service.library().peers(),
    };
    let api = calls::routes()
        .merge(file_routes().layer(from_fn(pass_on_files)))
        .merge(approvals::routes())
        .route("/jobs/{id}/stream", get(events::stream))
        .route("/jobs/{id}/raw", get(raw::raw))
        .route("/jobs/{id}/export", get(export::export))
        .route("/jobs/{id}/fetched/{*path}", get(fetched::fetched))
        .route("/jobs/{id}/screen", get(screen::screen))
        .route("/notifications", get(notifications::notifications))
        .route("/jobs/{id}/audit", get(audit::audit))
        .route("/jobs/{id}/updates", get(updates::updates))
        .merge(session_route(sessions))
        .route(
            "/openapi.json",
            get(async || {
                (
                    [(header::CONTENT_TYPE, "application/json")],
                    openapi::text(),
                )
            }),
        )
        .fallback(async || reject::nothing_here())
        .method_not_allowed_fallback(async || reject::wrong_method());
    let app = Router::new().nest("/v1", api);
    let for_metadata = Arc::clone(&guarded);
    let (for_anybody, mounts): (Vec<_>, _) =
        mounts.into_iter().partition(|mount| mount.is_for_anybody);
    let mut mounted_paths = mounts.into_iter().fold(Router::new(), mounted);
    if let Some(peers) = guarded.service.library().peers() {
        mounted_paths = mounted_paths.layer(from_fn_with_state(peers, stick_to_replica));
    }
    let app = app.merge(mounted_paths);
    let metrics = Arc::clone(&guarded.metrics);
    let named = Arc::clone(&guarded);
    let app = app
        .fallback(async || reject::nothing_here())
        // Covers the fallback, too: an unknown path needs a caller like any other.
        .layer(from_fn_with_state(guarded, guard))
        .layer(from_fn(without_sniffing));
    let mut for_anybody = for_anybody.into_iter().fold(Router::new(), mounted);
    if let Some(peers) = readiness.peers.clone() {
        for_anybody = for_anybody.layer(from_fn_with_state(peers, answer_at_replica));
    }
    let app = app
        // Merged after the guard's layer, which covers only the routes added before it.
        .merge(
            for_anybody
                .layer(from_fn_with_state(named, check_names))
                .layer(from_fn(without_sniffing)),
        )
        .merge(page_routes(Arc::clone(&for_metadata)))
        // Neither token nor Host is checked: the answers reveal nothing about jobs.
        .route("/healthz", get(async || "ok\n"))
        .route("/readyz", get(ready).with_state(readiness))
        // Outermost, so that requests that the guard refuses are counted, too.
        .layer(from_fn_with_state(metrics, metrics::count));
    let app = if prefix.is_empty() {
        app
    } else {
        // `nest` does not match the prefix with a slash at its end.
        let index =
            get(page::index).layer(from_fn_with_state(Arc::clone(&for_metadata), check_names));
        Router::new().nest(prefix, app).route(&format!("{prefix}/"), index)
    };
    // Outside of the prefix: RFC 9728 appends the path of the resource to the well-known path.
    app.merge(metadata_routes(for_metadata))
}

/// The live page. Its files need no caller, and its login checks the token itself.
fn page_routes(guarded: Arc<RequestGuard>) -> Router {
    let login = get(page::logged_in_caller).post(page::log_in).delete(page::log_out);
    Router::new()
        .route("/", get(page::index))
        .route("/web/{name}", get(page::static_file))
        .route("/login", login)
        .route("/login/issuers", get(page::issuers))
        .route("/login/oidc", get(page::finish))
        .route("/login/oidc/{name}", get(page::begin))
        .with_state(Arc::clone(&guarded))
        .layer(from_fn_with_state(guarded, check_names))
}

/// Metadata of the server as a resource of OAuth, at both well-known paths of RFC 9728.
fn metadata_routes(guarded: Arc<RequestGuard>) -> Router {
    let answer = get(
        async |State(guard): State<Arc<RequestGuard>>, request: Request| {
            let (parts, _) = request.into_parts();
            match guard.oauth_metadata(&parts) {
                Some(metadata) => metadata.into_response(),
                None => reject::nothing_here().into_response(),
            }
        },
    );
    Router::new()
        .route(METADATA, answer.clone())
        .route(&format!("{METADATA}/{{*resource}}"), answer)
        .with_state(Arc::clone(&guarded))
        .layer(from_fn_with_state(guarded, check_names))
        .layer(from_fn(without_sniffing))
}

/// The routes for other replicas of a cluster. Calls of verbs are performed here; sessions of MCP
/// pass their calls on as if they had come from a client.
pub(super) fn peer_routes(cluster: &InCluster, sessions: TaskTracker, mounts: &[Mount]) -> Router {
    let mut api = calls::routes().merge(file_routes()).merge(session_route(sessions));
    if let Some(prompters) = cluster.prompters.clone() {
        api = api.merge(ask_route(prompters));
    }
    let here = Arc::new(cluster.here.clone());
    let api = Router::new().nest("/v1", api).layer(from_fn_with_state(here, for_the_caller));
    let (for_anybody, mounts): (Vec<Mount>, Vec<Mount>) =
        mounts.iter().cloned().partition(|mount| mount.is_for_anybody);
    let for_anybody = for_anybody.into_iter().fold(Router::new(), mounted);
    let passing_on = Arc::new(cluster.passing_on.clone());
    let mounts = mounts
        .into_iter()
        .fold(Router::new(), mounted)
        .layer(from_fn_with_state(
            Arc::clone(&cluster.peers),
            stick_to_replica,
        ))
        .layer(from_fn_with_state(passing_on, for_the_caller));
    api.merge(mounts).merge(for_anybody)
}

/// A server as a replica of a cluster.
pub(super) struct InCluster {
    pub(super) peers: Arc<dyn Peers>,
    /// The service that performs calls here.
    pub(super) here: Service,
    /// The service that passes calls on.
    pub(super) passing_on: Service,
    /// Asks this replica's clients on behalf of others.
    pub(super) prompters: Option<ClusterPrompters>,
}

fn session_route(sessions: TaskTracker) -> Router {
    let session = get(attach::session).with_state(Arc::new(sessions));
    Router::new().route("/session", session)
}

fn file_routes() -> Router {
    let files = get(files::get).put(files::put);
    Router::new().route("/hosts/{host}/files/{*path}", files)
}

fn mounted(app: Router, mount: Mount) -> Router {
    let path = mount.path;
    app.route(
        path,
        any(async move |request: Request| mount.answer(request).await),
    )
}

/// Signals for the shutdown of the server.
pub(super) struct ConnectionEnds {
    /// Cancelled when the server accepts no more requests.
    pub(super) closing: CancellationToken,
    pub(super) sessions: TaskTracker,
}

/// Whether the server accepts work.
#[derive(Clone)]
struct Readiness {
    /// Cancelled when the server shuts down.
    closing: CancellationToken,
    jobs: Jobs,
    /// The other replicas, in a cluster.
    peers: Option<Arc<dyn Peers>>,
}

/// `GET /readyz`: 503 once the server shuts down and accepts no more work, and while a replica can't
/// renew its lease, or nothing can be stored, so that it starts no durable job.
///
/// A policy file with a mistake is reported, and the server stays ready: the last good policy is in
/// force, and all replicas may have read the same file. So is an audit log that can't be written: only
/// another call shows that it can be written again.
async fn ready(State(readiness): State<Readiness>) -> (StatusCode, String) {
    let Readiness {
        closing,
        jobs,
        peers,
    } = readiness;
    if closing.is_cancelled() {
        return (
            StatusCode::SERVICE_UNAVAILABLE,
            "shutting down\n".to_owned(),
        );
    }
    if peers.is_some_and(|peers| !peers.may_act()) {
        return (
            StatusCode::SERVICE_UNAVAILABLE,
            "NATS can't be reached\n".to_owned(),
        );
    }
    if jobs.store_trouble().is_some() {
        // Without the reason, which names files: the caller may be anybody.
        let answer = "nothing can be stored; the server's log says why\n";
        return (StatusCode::SERVICE_UNAVAILABLE, answer.to_owned());
    }
    let mut answer = "ready\n".to_owned();
    let Some(state) = jobs.policy_state().await else {
        return (StatusCode::OK, answer);
    };
    if let Some(trouble) = state.trouble {
        // Without the text of the file: the caller may be anybody.
        tracing::debug!(trouble, "asked for readiness");
        answer.push_str(
            "error: the policy file can't be used, and the last good one stays in force; \
             `sshjobs policy check` shows the mistake\n",
        );
    }
    if state.is_log_failing {
        answer.push_str("error: the audit log can't be written\n");
    }
    (StatusCode::OK, answer)
}

/// Adds headers: browsers must neither guess the type of a job's output nor store it.
async fn without_sniffing(request: Request, next: axum::middleware::Next) -> Response {
    let mut response = next.run(request).await;
    let headers = response.headers_mut();
    headers.insert(
        "x-content-type-options",
        axum::http::HeaderValue::from_static("nosniff"),
    );
    headers.insert(
        "cache-control",
        axum::http::HeaderValue::from_static("no-store"),
    );
    response
}
