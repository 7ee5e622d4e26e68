//! Calls a webhook.

use std::io;
use std::time::Duration;

use http_body_util::Full;
use hyper::body::Bytes;
use hyper::header::{CONTENT_TYPE, HOST, USER_AGENT};
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::time::timeout;
use url::Url;

use super::address::address_of;
use sshjobs_base::dial::dial_at;
use sshjobs_job::notify::DeliveryAttempt;

/// Time limit for a whole attempt, less than that of a claim.
const POST_TIME: Duration = Duration::from_secs(20);

/// Sends a body. The errors don't contain the URL, which may have a secret.
pub(super) async fn post(
    url: &str,
    headers: &[(&str, Option<String>)],
    body: String,
    allows_private: bool,
) -> DeliveryAttempt {
    let url = match Url::parse(url) {
        Ok(url) if matches!(url.scheme(), "https" | "http") => url,
        Ok(_) | Err(_) => {
            return DeliveryAttempt::Refused("the URL is not one of http or https".to_owned());
        }
    };
    let sent = timeout(POST_TIME, status_of(&url, headers, body, allows_private)).await;
    match sent {
        Ok(Ok(status)) => judge(status),
        Ok(Err(error)) if error.kind() == io::ErrorKind::PermissionDenied => {
            DeliveryAttempt::Refused(error.to_string())
        }
        Ok(Err(error)) => DeliveryAttempt::Failed(error.to_string()),
        Err(_) => DeliveryAttempt::Failed(format!("no answer within {POST_TIME:?}")),
    }
}

/// The result of an attempt with this status, as Standard Webhooks advises.
fn judge(status: StatusCode) -> DeliveryAttempt {
    if status.is_success() {
        return DeliveryAttempt::Accepted;
    }
    let answer = format!("the answer is {status}");
    if status.is_redirection() {
        DeliveryAttempt::Failed(format!("{answer}, and redirects are not followed"))
    } else if status == StatusCode::GONE {
        DeliveryAttempt::Refused(answer)
    } else {
        DeliveryAttempt::Failed(answer)
    }
}

async fn status_of(
    url: &Url,
    headers: &[(&str, Option<String>)],
    body: String,
    allows_private: bool,
) -> io::Result<StatusCode> {
    let host = url.host_str().ok_or_else(|| io::Error::other("the URL has no host"))?;
    // An IPv6 address has brackets only in a URL.
    let name = host.trim_matches(['[', ']']);
    let port = url.port_or_known_default().unwrap_or(443);
    let address = address_of(name, port, allows_private).await?;
    let stream = dial_at(address, name, url.scheme() == "https").await?;
    let connecting = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await;
    let (mut sender, connection) = connecting.map_err(io::Error::other)?;

    let authority = match url.port() {
        Some(port) => format!("{host}:{port}"),
        None => host.to_owned(),
    };
    let mut request = Request::post(&url[url::Position::BeforePath..url::Position::AfterQuery])
        .header(HOST, authority)
        .header(USER_AGENT, concat!("sshjobs/", env!("CARGO_PKG_VERSION")))
        .header(CONTENT_TYPE, "application/json");
    for (name, value) in headers {
        if let Some(value) = value {
            request = request.header(*name, value);
        }
    }
    let request = request.body(Full::new(Bytes::from(body))).map_err(io::Error::other)?;
    let answering = async {
        let response = sender.send_request(request).await.map_err(io::Error::other)?;
        // The body is not read: only the status counts.
        Ok(response.status())
    };
    let mut answering = std::pin::pin!(answering);
    tokio::select! {
        answer = &mut answering => answer,
        // The server may close the connection before the answer has been read from its buffer.
        _ = connection => answering.await,
    }
}
