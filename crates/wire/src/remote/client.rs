//! HTTP client of a server: one connection, made again when it breaks. Only calls that change
//! nothing are repeated.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use secrecy::{ExposeSecret, SecretString};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::Mutex;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use super::ServerAddress;
use super::dial::dial;
use crate::{Code, Error, Repeat};

/// Calls a server. Calls that don't overlap share a connection, which is made when first needed.
pub struct ServerClient {
    pub(super) address: ServerAddress,
    token: Option<SecretString>,
    connection: Mutex<HttpConnection>,
    /// Whether the server was reached before.
    was_reached: AtomicBool,
}

#[derive(Default)]
struct HttpConnection {
    sender: Option<SendRequest<Full<Bytes>>>,
    /// Task that moves its bytes.
    moving: JoinSet<()>,
}

/// Method, path and body of a request; [`ServerClient::request`] adds the headers.
struct OutgoingCall {
    method: Method,
    /// Below the server's prefix: `/v1/tail`.
    path: String,
    body: Bytes,
}

impl OutgoingCall {
    /// A call of the JSON API, with `path` below `/v1/`.
    fn post(path: &str, body: Bytes) -> Self {
        Self {
            method: Method::POST,
            path: format!("/v1/{path}"),
            body,
        }
    }

    /// A read from the JSON API, with `path` below `/v1/`.
    fn get(path: &str) -> Self {
        Self {
            method: Method::GET,
            path: format!("/v1/{path}"),
            body: Bytes::new(),
        }
    }

    /// The question whether the server accepts work.
    fn readiness() -> Self {
        Self {
            method: Method::GET,
            path: "/readyz".to_owned(),
            body: Bytes::new(),
        }
    }
}

/// The answer of a server.
struct HttpAnswer {
    status: StatusCode,
    body: Bytes,
}

/// Why a call has no answer.
enum FailedCall {
    /// The server has not received the call: there is no connection.
    Unheard(String),
    /// The connection broke; the server may have received the call.
    Broken(String),
    /// The server answered with an error.
    Answered(Error),
}

/// How long a call waits for an unreachable server, for example during its restart.
const AWAY: Duration = Duration::from_secs(60);
/// A connection that breaks this long after the call was sent was one to an sshjobs server, which may be restarting. Other
/// programs close it at once, because they don't understand HTTP.
const SERVER_IF_OPEN_FOR: Duration = Duration::from_secs(2);
/// Pause before the second attempt. It doubles with each attempt, up to the second value.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LAST_PAUSE: Duration = Duration::from_secs(2);
/// Time limit for an answer: longer than the longest wait of a call.
const ANSWER: Duration = Duration::from_secs(180);
/// Time limit for the answer whether a server accepts work, connecting included.
const READINESS: Duration = Duration::from_secs(5);
/// Longest answer to that question, in bytes.
const READINESS_BYTES: usize = 4096;

impl ServerClient {
    /// A client of the server at `address`, with this token.
    pub fn new(address: ServerAddress, token: Option<SecretString>) -> Self {
        Self {
            address,
            token,
            connection: Mutex::default(),
            was_reached: AtomicBool::new(false),
        }
    }

    /// Makes a call. If the server becomes unreachable and the call may be repeated, waits for the
    /// server. Cancel safe: the next call uses a new connection.
    pub(super) async fn call<Request: Serialize + Sync, Reply: DeserializeOwned>(
        &self,
        verb: &str,
        request: &Request,
        repeat: Repeat,
    ) -> Result<Reply, Error> {
        let body = Bytes::from(serde_json::to_vec(request).expect("a request is plain data"));
        self.perform(OutgoingCall::post(verb, body), repeat).await
    }

    /// Reads what is at a path below `/v1/`. Waits for the server like a call that changes nothing.
    pub(super) async fn read<Reply: DeserializeOwned>(&self, path: &str) -> Result<Reply, Error> {
        self.perform(OutgoingCall::get(path), Repeat::Safe).await
    }

    /// Asks the server once whether it accepts work, and returns its answer in words. Needs no token.
    ///
    /// # Errors
    /// The server can't be reached, or accepts no work; the message says why.
    pub async fn ready(&self) -> Result<String, Error> {
        let asked = async {
            let mut own = HttpConnection::default();
            let mut sender = self.connect(&mut own).await?;
            let request = self.request(&OutgoingCall::readiness());
            let response = sender.send_request(request).await;
            let response = response.map_err(|error| self.failed(&error))?;
            let status = response.status();
            // The address may lead to any program, which may send any amount.
            let body = Limited::new(response.into_body(), READINESS_BYTES).collect().await;
            let body = body.map_err(|_| FailedCall::Answered(self.foreign()))?.to_bytes();
            Ok(HttpAnswer { status, body })
        };
        let answer = match timeout(READINESS, asked).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(FailedCall::Answered(error))) => return Err(error),
            Ok(Err(FailedCall::Unheard(why) | FailedCall::Broken(why))) => {
                return Err(self.unreachable(&why));
            }
            Err(_) => return Err(self.unreachable("it does not answer")),
        };
        let text = String::from_utf8_lossy(&answer.body).trim_end().to_owned();
        match answer.status {
            StatusCode::OK if text.starts_with("ready") => Ok(text),
            StatusCode::SERVICE_UNAVAILABLE => {
                let message = format!("the server at {} accepts no work: {text}", self.address);
                let hint = "try again later; the server's log says more (`serve --log info`)";
                Err(Error::new(Code::ShuttingDown, message, hint).retryable())
            }
            _ => Err(self.foreign()),
        }
    }

    /// Reads what is at a path below `/v1/`, on a connection of its own. `take` gets it in pieces, and
    /// returns false to stop.
    pub(super) async fn download(
        &self,
        path: &str,
        mut take: impl FnMut(Bytes) -> bool,
    ) -> Result<(), Error> {
        let mut own = HttpConnection::default();
        let mut sender = self.connect(&mut own).await.map_err(|failed| self.error(failed))?;
        let sending = sender.send_request(self.request(&OutgoingCall::get(path)));
        let response = timeout(ANSWER, sending).await;
        let response = response.map_err(|_| self.broken("it does not answer"))?;
        let response = response.map_err(|error| self.error(self.failed(&error)))?;
        self.note_reached();
        let is_success = response.status().is_success();
        let mut body = response.into_body();
        if !is_success {
            let text = timeout(ANSWER, body.collect()).await;
            let text = text.map_err(|_| self.broken("it does not answer"))?;
            let text = text.map_err(|error| self.broken(&error.to_string()))?;
            let told = serde_json::from_slice(&text.to_bytes());
            return Err(told.unwrap_or_else(|_| self.foreign()));
        }
        loop {
            let frame = timeout(ANSWER, body.frame()).await;
            let frame = frame.map_err(|_| self.broken("it does not answer"))?;
            let Some(frame) = frame else { return Ok(()) };
            let frame = frame.map_err(|error| self.broken(&error.to_string()))?;
            if let Ok(bytes) = frame.into_data()
                && !take(bytes)
            {
                return Ok(());
            }
        }
    }

    async fn perform<Reply: DeserializeOwned>(
        &self,
        asked: OutgoingCall,
        repeat: Repeat,
    ) -> Result<Reply, Error> {
        let mut pause = FIRST_PAUSE;
        let mut lost_at = None;
        loop {
            let (failed, is_safe) = match self.attempt(&asked).await {
                Ok(reply) => return Ok(reply),
                // The next attempt may reach the restarted server.
                Err(FailedCall::Answered(error)) if error.code == Code::ShuttingDown => {
                    (error, repeat == Repeat::Safe)
                }
                Err(FailedCall::Answered(error)) => return Err(error),
                Err(FailedCall::Unheard(why)) => (self.unreachable(&why), true),
                Err(FailedCall::Broken(why)) => (self.broken(&why), repeat == Repeat::Safe),
            };
            let was_reached = self.was_reached.load(Ordering::Relaxed);
            let is_first_failure = lost_at.is_none();
            let since = *lost_at.get_or_insert_with(Instant::now);
            // A server that was never reached is more likely a wrong address than a restart.
            if !is_safe || !was_reached || since.elapsed() >= AWAY {
                return Err(failed);
            }
            if is_first_failure {
                // At the level shown by default: the call may wait for a minute now.
                tracing::warn!("{}; trying again for {AWAY:?}", failed.message);
            }
            // Random, so that the clients of a restarted server don't all return at once.
            let share = rand::random_range(0.5..1.5);
            sleep(pause.mul_f64(share)).await;
            pause = (pause * 2).min(LAST_PAUSE);
        }
    }

    async fn attempt<Reply: DeserializeOwned>(
        &self,
        asked: &OutgoingCall,
    ) -> Result<Reply, FailedCall> {
        // A call that finds the connection in use, for example by a long wait, gets one of its own.
        let mut own = HttpConnection::default();
        let mut shared = self.connection.try_lock().ok();
        let connection = shared.as_deref_mut().unwrap_or(&mut own);
        // Taken out meanwhile, so that a cancelled call leaves no half-read answer to the next one.
        let sender = match connection.sender.take().filter(|sender| !sender.is_closed()) {
            Some(sender) => sender,
            None => self.connect(connection).await?,
        };
        let (sender, answer) = timeout(ANSWER, self.send(sender, asked))
            .await
            .unwrap_or_else(|_| Err(FailedCall::Broken("it does not answer".to_owned())))?;
        // Only now: the answer is complete, so the next call can use the connection.
        connection.sender = Some(sender);
        drop(shared);
        let HttpAnswer { status, body } = answer;
        if status.is_success() {
            return serde_json::from_slice(&body).map_err(|_| FailedCall::Answered(self.foreign()));
        }
        Err(FailedCall::Answered(
            serde_json::from_slice(&body).unwrap_or_else(|_| self.foreign()),
        ))
    }

    async fn connect(
        &self,
        connection: &mut HttpConnection,
    ) -> Result<SendRequest<Full<Bytes>>, FailedCall> {
        let stream = dial(&self.address)
            .await
            .map_err(|error| FailedCall::Unheard(error.to_string()))?;
        let (mut sender, moving) = handshake(TokioIo::new(stream))
            .await
            .map_err(|error| FailedCall::Unheard(error.to_string()))?;
        // The previous connection may still wait for the answer to a cancelled call.
        connection.moving.abort_all();
        connection.moving.spawn(async {
            if let Err(error) = moving.await {
                tracing::debug!(%error, "the connection to the server broke");
            }
        });
        sender.ready().await.map_err(|error| FailedCall::Unheard(error.to_string()))?;
        Ok(sender)
    }

    /// Sends a request and reads the answer.
    async fn send(
        &self,
        mut sender: SendRequest<Full<Bytes>>,
        asked: &OutgoingCall,
    ) -> Result<(SendRequest<Full<Bytes>>, HttpAnswer), FailedCall> {
        let request = self.request(asked);
        // The server may have closed the idle connection. Nothing of this call was sent yet.
        sender.ready().await.map_err(|error| FailedCall::Unheard(error.to_string()))?;
        let sent = Instant::now();
        let response = sender.send_request(request).await;
        // Not before: another program may accept the connection.
        if response.is_ok() || sent.elapsed() >= SERVER_IF_OPEN_FOR {
            self.note_reached();
        }
        let response: Response<Incoming> = response.map_err(|error| self.failed(&error))?;
        let status = response.status();
        let body = response
            .into_body()
            .collect()
            .await
            .map_err(|error| FailedCall::Broken(error.to_string()))?;
        let body = body.to_bytes();
        Ok((sender, HttpAnswer { status, body }))
    }

    fn failed(&self, error: &hyper::Error) -> FailedCall {
        if error.is_parse() {
            // It answers, but not in HTTP.
            FailedCall::Answered(self.foreign())
        } else if error.is_canceled() {
            // hyper cancels a request only before it has begun to send it.
            FailedCall::Unheard(error.to_string())
        } else {
            FailedCall::Broken(error.to_string())
        }
    }

    fn request(&self, asked: &OutgoingCall) -> Request<Full<Bytes>> {
        let builder = Request::builder()
            .method(asked.method.clone())
            .uri(self.address.path(&asked.path))
            .header(HOST, self.address.authority())
            .header(CONTENT_TYPE, "application/json")
            // A call that waits for an approver is made again, and its user is told meanwhile.
            .header("prefer", "wait=1");
        let body = Full::new(asked.body.clone());
        let mut request = builder.body(body).expect("the address was checked");
        if let Some(token) = self.authorization() {
            request.headers_mut().insert(AUTHORIZATION, token);
        }
        request
    }

    /// The header with the token.
    pub(super) fn authorization(&self) -> Option<HeaderValue> {
        let token = self.token.as_ref()?.expose_secret();
        // A token that no header can hold is omitted; the server then refuses the call.
        let mut value = HeaderValue::from_str(&format!("Bearer {token}")).ok()?;
        value.set_sensitive(true);
        Some(value)
    }

    /// Notes that an sshjobs server was at the address, so that a failure is its end or restart.
    pub(super) fn note_reached(&self) {
        self.was_reached.store(true, Ordering::Relaxed);
    }

    fn error(&self, failed: FailedCall) -> Error {
        match failed {
            FailedCall::Unheard(why) => self.unreachable(&why),
            FailedCall::Broken(why) => self.broken(&why),
            FailedCall::Answered(error) => error,
        }
    }

    pub(super) fn unreachable(&self, why: &str) -> Error {
        let message = format!("the server at {} can't be reached: {why}", self.address);
        let hint = match self.address {
            ServerAddress::Network { .. } => {
                "check --server, and that it runs: sshjobs serve --http"
            }
            ServerAddress::Socket(_) => "check --server, and that it runs: sshjobs serve --socket",
        };
        Error::new(Code::Unreachable, message, hint).retryable()
    }

    pub(super) fn broken(&self, why: &str) -> Error {
        let message = format!(
            "the connection to the server at {} broke: {why}",
            self.address
        );
        let hint = "it may have been performed: check with `sshjobs jobs` before repeating it";
        let hint = if self.was_reached.load(Ordering::Relaxed) {
            hint.to_owned()
        } else {
            format!("check --server; {hint}")
        };
        Error::new(Code::ConnectionLost, message, hint)
    }

    /// The error for an answer that does not come from an sshjobs server.
    pub(super) fn foreign(&self) -> Error {
        let message = format!(
            "the server at {} is not an sshjobs server of this version",
            self.address
        );
        Error::new(
            Code::Unsupported,
            message,
            "check --server, and the versions of both",
        )
    }
}
