//! Fetches small JSON documents of an issuer.

use std::io;
use std::time::Duration;

use http_body_util::{BodyExt, Empty, Limited};
use hyper::body::Bytes;
use hyper::header::{ACCEPT, HOST};
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use serde::de::DeserializeOwned;
use tokio::time::timeout;
use url::Url;

use crate::dial::dial;

/// Maximum bytes of a document.
const MOST_BYTES: usize = 1 << 20;
/// Time limit for the whole request.
const FETCH_TIME: Duration = Duration::from_secs(5);

/// Fetches a document. Follows no redirects: only the configuration and the issuer choose where keys come
/// from.
///
/// # Errors
/// A message for the log, after five seconds at the latest.
pub(super) async fn fetch<T: DeserializeOwned>(url: &str) -> Result<T, String> {
    let fetched = timeout(FETCH_TIME, fetch_bytes(url)).await;
    let bytes = fetched
        .map_err(|_| format!("no answer within {FETCH_TIME:?}"))?
        .map_err(|error| error.to_string())?;
    serde_json::from_slice(&bytes).map_err(|error| format!("it is no such document: {error}"))
}

async fn fetch_bytes(url: &str) -> io::Result<Bytes> {
    let url = Url::parse(url).map_err(io::Error::other)?;
    let host = url.host_str().ok_or_else(|| io::Error::other("the URL has no host"))?;
    let port = url.port_or_known_default().unwrap_or(443);
    // An IPv6 address has brackets only in a URL.
    let stream = dial(host.trim_matches(['[', ']']), port, url.scheme() == "https").await?;
    let connecting = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await;
    let (mut sender, connection) = connecting.map_err(io::Error::other)?;

    let authority = match url.port() {
        Some(port) => format!("{host}:{port}"),
        None => host.to_owned(),
    };
    let target = &url[url::Position::BeforePath..url::Position::AfterQuery];
    let request = Request::get(target)
        .header(HOST, authority)
        .header(ACCEPT, "application/json")
        .body(Empty::<Bytes>::new())
        .map_err(io::Error::other)?;
    let answering = async {
        let response = sender.send_request(request).await.map_err(io::Error::other)?;
        if response.status() != StatusCode::OK {
            return Err(io::Error::other(format!(
                "the answer is {}",
                response.status()
            )));
        }
        let body = Limited::new(response.into_body(), MOST_BYTES).collect().await;
        Ok(body.map_err(io::Error::other)?.to_bytes())
    };
    let mut answering = std::pin::pin!(answering);
    tokio::select! {
        answer = &mut answering => answer,
        // The server may close the connection before the answer has been read from its buffer.
        _ = connection => answering.await,
    }
}
