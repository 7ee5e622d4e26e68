//! The client side: passes calls on to another replica.

use std::sync::Arc;

use axum::Extension;
use axum::body::Body;
use axum::extract::Request;
use axum::http::header;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use http_body_util::{BodyExt, Limited};
use hyper::client::conn::http1::handshake;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::task::JoinSet;

use super::header::PassedCaller;
use crate::file_address::FileAddress;
use crate::prefer::prefer_wait;
use crate::status::HttpFailure;
use sshjobs_core::jobs::Peers;
use sshjobs_wire::{Error, PassOn, PassedCall, Service, not_passed_on};

/// Passes calls on over the streams between replicas.
pub(crate) struct HttpPassOn {
    peers: Arc<dyn Peers>,
}

/// Maximum bytes of a reply.
const MOST_REPLY: usize = 64 << 20;

impl HttpPassOn {
    pub(crate) fn new(peers: Arc<dyn Peers>) -> Self {
        Self { peers }
    }

    /// Performs a verb at a replica.
    async fn perform(&self, replica: &str, passed: PassedCall) -> Result<Value, Error> {
        let body = serde_json::to_vec(&passed.request).expect("a request is plain data");
        let mut request = Request::post(format!("/v1/{}", passed.verb))
            .header(header::CONTENT_TYPE, "application/json")
            .body(Body::from(body))
            .expect("its parts are constant");
        PassedCaller::new(&passed.caller, &passed.rights)
            .called_from(passed.address)
            .write_to(request.headers_mut());
        prefer_wait(request.headers_mut(), passed.approval_wait);

        let response = send(&*self.peers, replica, request).await?;
        let is_success = response.status().is_success();
        let body = Limited::new(response.into_body(), MOST_REPLY).collect().await;
        let body = body.map_err(|error| not_passed_on(replica, &error))?.to_bytes();
        if is_success {
            return serde_json::from_slice(&body).map_err(|error| not_passed_on(replica, &error));
        }
        Err(serde_json::from_slice(&body).unwrap_or_else(|error| not_passed_on(replica, &error)))
    }
}

impl PassOn for HttpPassOn {
    fn call<'a>(
        &'a self,
        replica: &'a str,
        passed: PassedCall,
    ) -> BoxFuture<'a, Result<Value, Error>> {
        self.perform(replica, passed).boxed()
    }
}

/// Sends a request to a replica over a stream of its own. The stream lives as long as the response.
pub(super) async fn send(
    peers: &dyn Peers,
    replica: &str,
    mut request: Request,
) -> Result<Response, Error> {
    let stream = peers.connect(replica).await.map_err(|error| not_passed_on(replica, &error))?;
    let (mut sender, moving) = handshake(TokioIo::new(stream))
        .await
        .map_err(|error| not_passed_on(replica, &error))?;
    let mut tasks = JoinSet::new();
    tasks.spawn(moving);
    let headers = request.headers_mut();
    // HTTP/1.1 requires it.
    headers.insert(header::HOST, header::HeaderValue::from_static("replica"));
    // The other replica must not see the client's token, which is also in the cookie of a login.
    headers.remove(header::AUTHORIZATION);
    headers.remove(header::COOKIE);
    let response = sender
        .send_request(request)
        .await
        .map_err(|error| not_passed_on(replica, &error))?;
    let (parts, body) = response.into_parts();
    let body = body.map_frame(move |frame| {
        // Held by the body, so that dropping it ends the stream.
        let _moving = &tasks;
        frame
    });
    Ok(Response::from_parts(parts, Body::new(body)))
}

/// Passes a transfer of a file on to the replica that has the host, if that is another one.
pub(crate) async fn pass_on_files(
    Extension(service): Extension<Service>,
    mut request: Request,
    next: Next,
) -> Response {
    // Not by axum, which refuses names that are not UTF-8.
    let host = match FileAddress::parse(request.uri()) {
        Ok(address) => address.host,
        Err(error) => return HttpFailure::from(error).into_response(),
    };
    let replica = match service.replica_of_host(&host).await {
        Ok(Some(replica)) => replica,
        Ok(None) => return next.run(request).await,
        Err(error) => return HttpFailure::from(error).into_response(),
    };
    let Some(peers) = service.library().peers() else {
        return next.run(request).await;
    };
    // The router has removed the prefix.
    let path = request.uri().path_and_query().map_or("/", |path| path.as_str());
    match format!("/v1{path}").parse() {
        Ok(uri) => *request.uri_mut() = uri,
        Err(error) => {
            return HttpFailure::from(not_passed_on(&replica, &error)).into_response();
        }
    }
    PassedCaller::of_service(&service).write_to(request.headers_mut());
    match send(&*peers, &replica, request).await {
        Ok(response) => response,
        Err(error) => HttpFailure::from(error).into_response(),
    }
}
