//! An HTTP fuzzer: mangled requests and handshakes at each listener of the server.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Error, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex};

use nix::sys::socket::{Shutdown, setsockopt, sockopt};
use nix::sys::time::TimeVal;
use serde_json::json;
use tokio_rustls::rustls::{ClientConfig, ClientConnection, RootCertStore};

use crate::support::server::{Server, certificate};
use crate::support::{HOST, Sshd};

/// A place where a server accepts connections.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Listener {
    /// The TCP address of the API, with or without TLS.
    Api,
    Socket,
    Metrics,
}

impl Listener {
    fn connect(self, server: &Server) -> OwnedFd {
        match self {
            Self::Api => TcpStream::connect(server.address()).unwrap().into(),
            Self::Socket => UnixStream::connect(&server.socket).unwrap().into(),
            Self::Metrics => TcpStream::connect(metrics_address(server)).unwrap().into(),
        }
    }
}

pub(crate) fn metrics_address(server: &Server) -> &str {
    let address = server.metrics.strip_prefix("http://").unwrap();
    address.strip_suffix("/metrics").unwrap()
}

/// Time after which a client that waits for an answer sends no more. A server waits longer for the rest of
/// a request.
const PAUSE: TimeVal = TimeVal::new(0, 20_000);
/// Longest silence of a server that has received all.
const PATIENCE: TimeVal = TimeVal::new(30, 0);

/// Sends bytes, and reads until the server closes. Panics if it neither reads, answers nor closes.
pub(crate) fn send_and_read(server: &Server, listener: Listener, bytes: &[u8]) -> Vec<u8> {
    let mut stream = File::from(listener.connect(server));
    setsockopt(&stream, sockopt::SendTimeout, &PATIENCE).unwrap();
    match stream.write_all(bytes) {
        Ok(()) => {}
        // It has seen enough, and closes while we still write.
        Err(error) if is_closed(&error) => return Vec::new(),
        Err(error) => panic!("{listener:?} does not read: {error}"),
    }
    let mut answer = Vec::new();
    // A server forgets a request whose client closes its side before the answer, so it gets a moment for it.
    setsockopt(&stream, sockopt::ReceiveTimeout, &PAUSE).unwrap();
    if stream.read_to_end(&mut answer).is_ok() {
        return answer;
    }
    nix::sys::socket::shutdown(stream.as_raw_fd(), Shutdown::Write).ok();
    setsockopt(&stream, sockopt::ReceiveTimeout, &PATIENCE).unwrap();
    match stream.read_to_end(&mut answer) {
        Ok(_) => answer,
        Err(error) if is_closed(&error) => answer,
        Err(error) => panic!("{listener:?} neither answers nor closes: {error}"),
    }
}

fn is_closed(error: &Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::ConnectionReset | ErrorKind::BrokenPipe
    )
}

/// Pseudo-random numbers that are the same in each run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next() % bound as u64).unwrap()
    }

    fn one_of<'a>(&mut self, choices: &[&'a str]) -> &'a str {
        choices[self.below(choices.len())]
    }
}

/// A well-formed message. Its method, version or headers may be wrong.
fn request(random: &mut Random, token: &str) -> Vec<u8> {
    if random.below(16) == 0 {
        // The preface of HTTP/2, empty settings, and the head of a frame that is never sent (RFC 9113 §3.4, §4.1).
        return b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0\0\0\x09\x01\x05\0\0\0\x01"
            .to_vec();
    }
    http1_request(random, token)
}

fn http1_request(random: &mut Random, token: &str) -> Vec<u8> {
    let body = r#"{"job_id":"web1-00000000","wait_ms":0}"#;
    let line = random.one_of(&[
        "POST /v1/tail",
        "POST /v1/jobs",
        "GET /v1/jobs/x/stream",
        "GET /v1/jobs/x/raw?stream=stdout",
        "GET /v1/jobs/%2e%2e%2f%00/updates?render=spans",
        "GET /v1/jobs/x/session",
        "GET /v1/openapi.json",
        "POST /mcp",
        "DELETE /mcp",
        "POST /login",
        "GET /",
        "GET /metrics",
        "GET /healthz",
        "OPTIONS *",
        "CONNECT localhost:1",
    ]);
    let version = random.one_of(&["HTTP/1.1", "HTTP/1.1", "HTTP/1.0", "HTTP/2.0", "HTTP/9"]);
    let mut head = format!(
        "{line} {version}\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\nConnection: close\r\n",
        body.len()
    );
    for _ in 0..random.below(3) {
        head.push_str(random.one_of(&[
            "Transfer-Encoding: chunked\r\n",
            "Content-Length: 0\r\n",
            "Content-Length: 99999999999999999999\r\n",
            "Expect: 100-continue\r\n",
            "Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n",
            "Upgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n",
            "Content-Encoding: gzip\r\n",
            "Accept: text/event-stream, application/json\r\n",
            "MCP-Protocol-Version: 2026-07-28\r\n",
            "Mcp-Session-Id: \u{7f}\r\n",
            "Cookie: session=%\u{fffd}; session=;;=\r\n",
            "Last-Event-ID: 18446744073709551616\r\n",
            "Range: bytes=0-,5-3\r\n",
            "Host: elsewhere.example\r\n",
            "Origin: null\r\n",
            "Prefer: wait=-1\r\n",
        ]));
    }
    format!("{head}\r\n{body}").into_bytes()
}

/// Makes up to eight edits, or none.
fn mangle(random: &mut Random, message: &mut Vec<u8>) {
    for _ in 0..random.below(9) {
        let place = random.below(message.len());
        match random.below(5) {
            0 => message[place] = random.next().to_le_bytes()[0],
            1 => drop(message.splice(place..place, vec![b'A'; random.below(200)])),
            2 => message.truncate(place.max(1)),
            3 => message.extend_from_within(place..),
            _ => drop(message.splice(place..place, b"\r\n".to_vec())),
        }
    }
}

/// A server's reaction to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Reaction {
    /// Closed the connection.
    Silence,
    /// Answered in HTTP/1 with this status.
    Status(u16),
    /// Began to speak HTTP/2.
    Http2,
}

/// Understands an answer. `None` if it is not HTTP.
fn understand(mut answer: &[u8]) -> Option<Reaction> {
    // Type of the first frame, the settings (RFC 9113 §3.4).
    const SETTINGS: u8 = 4;
    if answer.is_empty() {
        return Some(Reaction::Silence);
    }
    if answer.get(3) == Some(&SETTINGS) {
        return Some(Reaction::Http2);
    }
    loop {
        // `HTTP/1.1 200 OK`
        let digits = answer.strip_prefix(b"HTTP/1.")?.get(2..5)?;
        let status = std::str::from_utf8(digits).ok()?.parse().ok()?;
        if status >= 200 {
            return Some(Reaction::Status(status));
        }
        // Another head follows one such as 100 Continue.
        let end = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n")?;
        answer = answer.get(end + 4..)?;
        if answer.is_empty() {
            return Some(Reaction::Silence);
        }
    }
}

/// Sends this many mangled requests from four clients at a time. Returns how often the server reacted how.
fn attack(
    server: &Server,
    listener: Listener,
    token: &str,
    seed: u64,
    count: usize,
) -> BTreeMap<Reaction, usize> {
    let reactions = Mutex::new(BTreeMap::new());
    std::thread::scope(|scope| {
        for client in 0..4 {
            let reactions = &reactions;
            scope.spawn(move || {
                let mut random = Random(seed + client);
                for _ in 0..count / 4 {
                    let mut message = request(&mut random, token);
                    mangle(&mut random, &mut message);
                    let answer = send_and_read(server, listener, &message);
                    let reaction = understand(&answer);
                    let shown = || {
                        let [message, answer] =
                            [&message, &answer].map(|bytes| String::from_utf8_lossy(bytes));
                        format!("{listener:?}: {message:?} got {answer:?}")
                    };
                    let reaction = reaction.unwrap_or_else(|| panic!("no HTTP: {}", shown()));
                    // 501 and 505 say that it lacks a feature, 503 that it is busy.
                    let has_failed = matches!(reaction, Reaction::Status(500 | 502 | 504 | 506..));
                    assert!(!has_failed, "{}", shown());
                    *reactions.lock().unwrap().entry(reaction).or_default() += 1;
                }
            });
        }
    });
    reactions.into_inner().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn nine_thousand_mangled_requests_change_nothing_at_any_listener() {
    let sshd = Sshd::start().await;
    let server = Server::start(&sshd);
    let caller = server.caller(&sshd, "ci", &[]);
    caller.ok("run", json!({"host": HOST, "command": "true"}));
    let attack_all = |seed: u64, count: usize| {
        [Listener::Api, Listener::Socket, Listener::Metrics].map(|listener| {
            (
                listener,
                attack(&server, listener, &caller.token, seed, count),
            )
        })
    };

    attack_all(1, 600);
    let before = server.memory();
    let reactions = attack_all(1000, 2400);

    let grown = server.memory().saturating_sub(before);
    assert!(grown < 16 << 10, "{grown} kB more than before");
    caller.ok("run", json!({"host": HOST, "command": "true"}));
    ureq::get(&server.metrics).call().unwrap();
    for (listener, reactions) in reactions {
        let answered: usize = [200, 400, 404]
            .iter()
            .filter_map(|&status| reactions.get(&Reaction::Status(status)))
            .sum();
        // Otherwise the requests reach nothing that could fail.
        assert!(answered > 50, "{listener:?}: {reactions:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn mangled_handshakes_of_tls_change_nothing() {
    let sshd = Sshd::start().await;
    let (cert, key) = certificate(&sshd, "localhost");
    let server = Server::with(&sshd, &["--tls-cert", &cert, "--tls-key", &key]);
    let hello = client_hello();
    // Types of records (RFC 8446 §5.1).
    const ALERT: u8 = 21;
    const HANDSHAKE: u8 = 22;
    let attack = |seed: u64, count: usize| {
        let mut random = Random(seed);
        for _ in 0..count {
            let mut message = hello.clone();
            mangle(&mut random, &mut message);
            let answer = send_and_read(&server, Listener::Api, &message);
            let is_tls = matches!(answer.first(), None | Some(&(ALERT | HANDSHAKE)));
            assert!(is_tls, "{answer:?}");
        }
    };

    attack(1, 300);
    let before = server.memory();
    attack(1000, 1200);

    let grown = server.memory().saturating_sub(before);
    assert!(grown < 16 << 10, "{grown} kB more than before");
    let answer = send_and_read(&server, Listener::Api, &hello);
    assert_eq!(answer.first(), Some(&HANDSHAKE), "the server still answers");
}

/// The first message of a client that speaks TLS 1.2 and 1.3.
fn client_hello() -> Vec<u8> {
    let config = ClientConfig::builder()
        .with_root_certificates(RootCertStore::empty())
        .with_no_client_auth();
    let name = "localhost".try_into().unwrap();
    let mut connection = ClientConnection::new(Arc::new(config), name).unwrap();
    let mut hello = Vec::new();
    connection.write_tls(&mut hello).unwrap();
    hello
}
