//! Readers of one job over HTTP, beside bare sockets that get as many bytes: the time of the machine itself.

use std::time::{Duration, Instant};

use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::report::{Report, millis, percentile, ratio};
use crate::support::Sshd;
use crate::support::server::Server;

/// Below the limit of calls in progress of one caller (1,024).
const READERS: usize = 1000;
/// Two sockets each, below the 20,000 files that this process may open.
const BARE_READERS: usize = 9000;
const ROUNDS: usize = 10;
/// Time for all readers to wait.
const SETTLE: Duration = Duration::from_secs(1);
const LIMIT: Duration = Duration::from_secs(30);
/// The word in a line for which the readers wait.
const NEWS: &str = "news";

/// From writing a line to a job's stdin until each of its readers has it.
pub(crate) async fn readers(report: &mut Report, sshd: &Sshd) {
    let over_http = readers_over_http(sshd).await;
    let few_bare = bare_readers(READERS).await;
    report.row(
        "a line to 1000 readers over HTTP, p99, against as many bare sockets",
        &millis(over_http),
        &millis(few_bare),
        ratio(over_http, few_bare),
        "–",
    );
    let many_bare = bare_readers(BARE_READERS).await;
    report.row(
        "a line to 9000 bare sockets, p99",
        "–",
        &millis(many_bare),
        None,
        "< 50 ms",
    );
}

async fn readers_over_http(sshd: &Sshd) -> Duration {
    let server = Server::start(sshd);
    let caller = server.caller(sshd, "readers", &[]);
    let id = caller.spawn("cat");
    let mut connections: Vec<TcpStream> = Vec::new();
    let mut times = Vec::new();
    for line in 0..ROUNDS {
        let body = json!({"job_id": id, "since_line_no": line, "wait_ms": 50_000}).to_string();
        let request = format!(
            "POST /v1/tail HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {}\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            caller.token,
            body.len()
        );
        for index in 0..READERS {
            // With its first request: a server hangs up on clients that connect and ask nothing, if they are many.
            if index == connections.len() {
                connections.push(TcpStream::connect(server.address()).await.unwrap());
            }
            connections[index].write_all(request.as_bytes()).await.unwrap();
        }
        let reading = read_all(&mut connections);
        tokio::time::sleep(SETTLE).await;
        let began = Instant::now();
        let write = json!({"job_id": id, "data": NEWS, "newline": true});
        tokio::task::block_in_place(|| caller.ok("write", write));
        times.extend(arrivals(reading, &mut connections, began).await);
    }
    percentile(&mut times, 99)
}

async fn bare_readers(count: usize) -> Duration {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let (mut near, mut far) = (Vec::new(), Vec::new());
    for _ in 0..count {
        near.push(TcpStream::connect(address).await.unwrap());
        far.push(listener.accept().await.unwrap().0);
    }
    // As long as an answer over HTTP.
    let answer = format!("{:>400}", json!({"text": NEWS}).to_string());
    let mut times = Vec::new();
    for _ in 0..ROUNDS {
        let reading = read_all(&mut near);
        tokio::time::sleep(SETTLE).await;
        let began = Instant::now();
        for connection in &mut far {
            connection.write_all(answer.as_bytes()).await.unwrap();
        }
        times.extend(arrivals(reading, &mut near, began).await);
    }
    percentile(&mut times, 99)
}

/// Tasks that each wait for an answer on one connection.
type Reading = JoinSet<(Instant, TcpStream)>;

fn read_all(connections: &mut Vec<TcpStream>) -> Reading {
    connections.drain(..).map(read).collect()
}

async fn read(mut connection: TcpStream) -> (Instant, TcpStream) {
    let mut answer = Vec::new();
    loop {
        let length = connection.read_buf(&mut answer).await.unwrap();
        assert!(length > 0, "the server hung up");
        let text = String::from_utf8_lossy(&answer);
        // Answers over HTTP come in chunks, of which the last is empty.
        let is_whole = text.ends_with('}') || text.ends_with("\r\n0\r\n\r\n");
        if text.contains(NEWS) && is_whole {
            return (Instant::now(), connection);
        }
    }
}

/// How long after `began` each answer came.
async fn arrivals(
    mut reading: Reading,
    connections: &mut Vec<TcpStream>,
    began: Instant,
) -> Vec<Duration> {
    let mut times = Vec::new();
    while let Some(read) = timeout(LIMIT, reading.join_next()).await.expect("all are answered") {
        let (arrived, connection) = read.unwrap();
        times.push(arrived.duration_since(began));
        connections.push(connection);
    }
    times
}
