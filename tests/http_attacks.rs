//! Attacks over the network: floods, clients that stall. The server keeps answering, stays
//! small, and starves no client.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use serde_json::json;

use crate::http_fuzz::{Listener, metrics_address, send_and_read};
use crate::support::server::{Caller, Server};
use crate::support::{HOST, Sshd};

#[tokio::test(flavor = "multi_thread")]
async fn heads_without_end_are_cut_off() {
    let sshd = Sshd::start().await;
    let server = Server::start(&sshd);
    let flood = |request: String| {
        let answer = send_and_read(&server, Listener::Api, request.as_bytes());
        String::from_utf8_lossy(&answer).lines().next().unwrap_or_default().to_owned()
    };
    let one = flood(format!(
        "GET / HTTP/1.1\r\nHost: localhost\r\nX: {}\r\n\r\n",
        "x".repeat(1 << 20)
    ));
    assert!(one.is_empty() || one.contains(" 431 "), "{one}");
    let many = flood(format!(
        "GET / HTTP/1.1\r\nHost: localhost\r\n{}\r\n",
        "X: y\r\n".repeat(1000)
    ));
    assert!(many.is_empty() || many.contains(" 431 "), "{many}");
    let path = flood(format!(
        "GET /{} HTTP/1.1\r\nHost: localhost\r\n\r\n",
        "x".repeat(100_000)
    ));
    assert!(
        path.is_empty() || path.contains(" 414 ") || path.contains(" 431 "),
        "{path}"
    );
    assert!(server.memory() < 200 << 10);
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_that_say_nothing_leave_room_for_those_that_do_and_end() {
    let sshd = Sshd::start().await;
    let server = Server::start(&sshd);
    let caller = server.caller(&sshd, "ci", &[]);
    let mut stalled: Vec<TcpStream> =
        (0..1000).map(|_| TcpStream::connect(server.address()).unwrap()).collect();
    // The last one says nothing at all, the others half a head.
    for stream in &mut stalled[..999] {
        stream.write_all(b"POST /v1/tail HTTP/1.1\r\nHost: loc").unwrap();
    }
    let began = Instant::now();
    caller.ok("run", json!({"host": HOST, "command": "true"}));
    assert!(began.elapsed() < Duration::from_secs(5));
    let mut last = stalled.pop().unwrap();
    last.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let mut rest = Vec::new();
    last.read_to_end(&mut rest).unwrap();
    assert!(
        began.elapsed() < Duration::from_secs(50),
        "the server closes it"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn three_hundred_long_polls_are_answered_while_one_caller_floods() {
    const CALLERS: usize = 30;
    const POLLS: usize = 10;
    let sshd = Sshd::start().await;
    let server = Server::start(&sshd);
    let callers: Vec<Caller> = (0..CALLERS)
        .map(|number| server.caller(&sshd, &format!("c{number}"), &[]))
        .collect();
    let flooder = server.caller(&sshd, "flooder", &[]);
    let go = sshd.path("go");
    let command = format!(
        "while [ ! -e {} ]; do sleep 0.05; done; echo now",
        go.display()
    );
    let jobs: Vec<String> = callers.iter().map(|caller| caller.spawn(&command)).collect();
    let (is_over, ready) = (AtomicBool::new(false), Barrier::new(CALLERS * POLLS + 1));
    let mut took: Vec<Duration> = std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                while !is_over.load(Relaxed) {
                    flooder.call("jobs", json!({"limit": 1000}));
                }
            });
        }
        let polls: Vec<_> = callers
            .iter()
            .zip(&jobs)
            .flat_map(|pair| std::iter::repeat_n(pair, POLLS))
            .map(|(caller, job)| {
                let ready = &ready;
                scope.spawn(move || {
                    ready.wait();
                    let reply = caller.ok("tail", json!({"job_id": job, "wait_ms": 50_000}));
                    assert_eq!(reply["lines"], json!(["now"]), "{reply}");
                    Instant::now()
                })
            })
            .collect();
        ready.wait();
        let deadline = Instant::now() + Duration::from_secs(30);
        while server.calls() < (CALLERS * POLLS) as u64 {
            assert!(Instant::now() < deadline, "not all polls wait");
            std::thread::sleep(Duration::from_millis(20));
        }
        std::fs::write(&go, "").unwrap();
        let began = Instant::now();
        let took = polls
            .into_iter()
            .map(|poll| poll.join().unwrap().duration_since(began))
            .collect();
        is_over.store(true, Relaxed);
        took
    });
    took.sort();
    assert_eq!(took.len(), CALLERS * POLLS);
    assert!(
        took[took.len() - 1] < Duration::from_secs(10),
        "the last waited {:?}",
        took[took.len() - 1]
    );
    assert!(server.memory() < 500 << 10);
}

/// Sends a head, and the beginning of a body that never comes to its end.
fn begin_body(server: &Server, token: &str, path: &str, sent: usize) -> TcpStream {
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n\
         Content-Type: application/json\r\nContent-Length: 4194304\r\n\r\n"
    );
    let mut stream = TcpStream::connect(server.address()).unwrap();
    stream.set_write_timeout(Some(Duration::from_secs(5))).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    stream.write_all(head.as_bytes()).unwrap();
    // A server that has refused may close meanwhile.
    stream.write_all(&vec![b' '; sent]).ok();
    stream
}

/// The status of the answer.
fn status(stream: &mut TcpStream) -> String {
    let mut answer = [0; 12];
    stream.read_exact(&mut answer).unwrap();
    String::from_utf8_lossy(&answer[9..]).into_owned()
}

#[tokio::test]
async fn bodies_that_never_end_do_not_fill_the_memory() {
    let sshd = Sshd::start().await;
    let server = Server::start(&sshd);
    let caller = server.caller(&sshd, "reader", &["--role", "read"]);
    caller.ok("jobs", json!({}));
    let before = server.memory();

    // Together 300 MiB; a caller may have 16 MiB at a time.
    let bodies: Vec<TcpStream> = (0..100)
        .map(|_| begin_body(&server, &caller.token, "/v1/jobs", 3 << 20))
        .collect();

    let grown = server.memory().saturating_sub(before);
    assert!(grown < 64 << 10, "{grown} KiB more");
    drop(bodies);
    let other = server.caller(&sshd, "other", &["--role", "read"]);
    other.ok("jobs", json!({}));
}

#[tokio::test]
async fn a_caller_without_the_right_is_refused_before_the_body_arrives() {
    let sshd = Sshd::start().await;
    let server = Server::start(&sshd);
    let caller = server.caller(&sshd, "reader", &["--role", "read"]);

    assert_eq!(
        status(&mut begin_body(&server, &caller.token, "/v1/spawn", 1)),
        "403"
    );
    assert_eq!(
        status(&mut begin_body(&server, &caller.token, "/v1/nothing", 1)),
        "404"
    );
}

#[tokio::test]
async fn a_body_of_three_mebibytes_is_taken_and_one_of_five_refused_in_json() {
    let sshd = Sshd::start().await;
    let server = Server::start(&sshd);
    let caller = server.caller(&sshd, "reader", &[]);
    let long = |mebibytes: usize| json!({"job_id": "x".repeat(mebibytes << 20)});

    let (status, reply) = caller.call("tail", long(3));
    assert_eq!(
        (status, &reply["code"]),
        (404, &json!("unknown_job")),
        "{status}"
    );
    let (status, reply) = caller.call("tail", long(5));
    assert_eq!(
        (status, &reply["code"]),
        (413, &json!("invalid_argument")),
        "{reply}"
    );
}

#[tokio::test]
async fn a_connection_without_a_whole_head_ends() {
    let sshd = Sshd::start().await;
    let server = Server::start(&sshd);
    // The first byte of an HTTP/2 preface, and of a request.
    let stalled: Vec<TcpStream> = (0..200)
        .map(|index| {
            let mut stream = TcpStream::connect(server.address()).unwrap();
            stream.write_all(if index % 2 == 0 { b"P" } else { b"G" }).unwrap();
            stream.set_read_timeout(Some(Duration::from_secs(90))).unwrap();
            stream
        })
        .collect();

    for mut stream in stalled {
        let mut answer = Vec::new();
        // However it ends, it ends.
        stream.read_to_end(&mut answer).or_else(ignore_reset).unwrap();
    }
}

#[tokio::test]
async fn idle_clients_that_fill_a_listener_keep_nobody_out() {
    /// The limit on connections to the metrics' address, and one more.
    const TOO_MANY: usize = 65;

    let sshd = Sshd::start().await;
    let server = Server::start(&sshd);
    let caller = server.caller(&sshd, "ci", &[]);
    let metrics = metrics_address(&server);
    let stalled: Vec<TcpStream> =
        (0..TOO_MANY).map(|_| TcpStream::connect(metrics).unwrap()).collect();

    let mut monitoring = TcpStream::connect(metrics).unwrap();
    monitoring.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    monitoring
        .write_all(b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        .unwrap();
    let mut answer = [0; 15];
    monitoring.read_exact(&mut answer).unwrap();
    assert_eq!(String::from_utf8_lossy(&answer), "HTTP/1.1 200 OK");

    caller.ok("jobs", json!({}));
    let mut socket = UnixStream::connect(&server.socket).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    socket.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    let mut answer = [0; 15];
    socket.read_exact(&mut answer).unwrap();
    assert_eq!(String::from_utf8_lossy(&answer), "HTTP/1.1 200 OK");
    drop(stalled);
}

fn ignore_reset(error: std::io::Error) -> std::io::Result<usize> {
    if error.kind() == ErrorKind::ConnectionReset {
        Ok(0)
    } else {
        Err(error)
    }
}
