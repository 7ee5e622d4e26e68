//! Requests to an issuer, whose replies are small JSON documents.

use std::io;
use std::time::Duration;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST};
use hyper::http::request;
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use secrecy::{ExposeSecret, SecretString};
use serde::de::DeserializeOwned;
use tokio::time::timeout;
use url::{Url, form_urlencoded};

use sshjobs_base::dial::dial;

/// Maximum bytes of a document.
const MOST_BYTES: usize = 1 << 20;
/// Time limit for the whole request.
const FETCH_TIME: Duration = Duration::from_secs(5);

/// This server as a client of an issuer (RFC 6749, section 2.3.1).
pub(super) struct IssuerClient<'a> {
    pub(super) id: &'a str,
    /// `None`: a public client, which PKCE protects.
    pub(super) secret: Option<SecretString>,
}

/// Fetches a document. Follows no redirects: only the configuration and the issuer choose where keys come
/// from.
///
/// # Errors
/// A message for the log, after five seconds at the latest.
pub(super) async fn fetch<T: DeserializeOwned>(url: &str) -> Result<T, String> {
    let url = Url::parse(url).map_err(|error| error.to_string())?;
    send(&url, Request::get(target(&url)), String::new()).await
}

/// Sends a form, as a client of the issuer. Follows no redirects.
///
/// # Errors
/// A message for the log, after five seconds at the latest. It contains nothing of the form.
pub(super) async fn post_form<T: DeserializeOwned>(
    url: &Url,
    client: &IssuerClient<'_>,
    form: &[(&str, &str)],
) -> Result<T, String> {
    let mut request =
        Request::post(target(url)).header(CONTENT_TYPE, "application/x-www-form-urlencoded");
    let public_id = if let Some(secret) = &client.secret {
        request = request.header(AUTHORIZATION, basic_credentials(client.id, secret));
        None
    } else {
        Some(("client_id", client.id))
    };
    let fields = form.iter().copied().chain(public_id);
    let body = form_urlencoded::Serializer::new(String::new()).extend_pairs(fields).finish();
    send(url, request, body).await
}

/// The header of a client with a secret. RFC 6749 wants both encoded like a form before they are encoded
/// for the header.
fn basic_credentials(id: &str, secret: &SecretString) -> String {
    let pair = format!(
        "{}:{}",
        form_encoded(id),
        form_encoded(secret.expose_secret())
    );
    format!("Basic {}", BASE64_STANDARD.encode(pair))
}

fn form_encoded(text: &str) -> String {
    form_urlencoded::byte_serialize(text.as_bytes()).collect()
}

/// Path and query of a URL.
fn target(url: &Url) -> &str {
    &url[url::Position::BeforePath..url::Position::AfterQuery]
}

async fn send<T: DeserializeOwned>(
    url: &Url,
    request: request::Builder,
    body: String,
) -> Result<T, String> {
    let answered = timeout(FETCH_TIME, answer_of(url, request, body)).await;
    let bytes = answered
        .map_err(|_| format!("no answer within {FETCH_TIME:?}"))?
        .map_err(|error| error.to_string())?;
    // serde's message may quote the reply, which may have a token.
    serde_json::from_slice(&bytes).map_err(|error| {
        format!(
            "the reply is not the expected JSON document: {:?} error",
            error.classify()
        )
    })
}

async fn answer_of(url: &Url, request: request::Builder, body: String) -> io::Result<Bytes> {
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
    let request = request
        .header(HOST, authority)
        .header(ACCEPT, "application/json")
        .body(Full::new(Bytes::from(body)))
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
