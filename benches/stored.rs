//! The cost of storing, and of durable jobs: with the store beside without it, and beside `ssh` and
//! `rg`, in the same run. `cargo bench --bench stored`; an argument selects: `latency`,
//! `throughput`, `pages`, `durable`, `start`.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::panic,
    clippy::disallowed_methods,
    clippy::cast_precision_loss,
    clippy::too_many_arguments,
    clippy::too_many_lines,
    reason = "a bench"
)]

#[path = "../tests/support/mod.rs"]
mod support;

use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use sshjobs::jobs::{Access, Config, Limits};
use sshjobs::wire::{JobsRequest, SearchRequest, Service, SpawnRequest, TailRequest, WriteRequest};
use support::{HOST, Sshd};

#[tokio::main]
async fn main() {
    // `cargo test` runs benches too; there is nothing to test here.
    if !std::env::args().any(|argument| argument == "--bench") {
        return;
    }
    let only = std::env::args().skip(1).find(|argument| !argument.starts_with('-'));
    let wanted = |name: &str| only.as_deref().is_none_or(|only| name.contains(only));
    println!("| what | sshjobs | peer | ratio | bar |\n|---|---|---|---|---|");
    if wanted("latency") {
        latency().await;
    }
    if wanted("throughput") {
        throughput().await;
    }
    if wanted("pages") {
        pages().await;
    }
    if wanted("durable") {
        durable().await;
    }
    if wanted("start") {
        start().await;
    }
}

fn service(sshd: &Sshd, store: bool) -> Service {
    // Without a store, a reader gets every line only from a ring that holds them all.
    let (ring_buffer_lines, ring_buffer_bytes) = if store {
        (10_000, 8 << 20)
    } else {
        (1 << 24, 1 << 30)
    };
    let config = Config {
        ssh_config: Some(sshd.ssh_config()),
        state_dir: Some(sshd.path("state")),
        store,
        limits: Limits {
            stored_bytes_per_job: 8 << 30,
            ring_buffer_lines,
            ring_buffer_bytes,
            ..Limits::default()
        },
        ..Config::default()
    };
    Service::new(config, Access::Listed)
}

fn row(what: &str, ours: &str, peer: &str, ratio: f64, bar: &str) {
    println!("| {what} | {ours} | {peer} | {ratio:.2} | {bar} |");
}

fn millis(duration: Duration) -> String {
    format!("{:.2} ms", duration.as_secs_f64() * 1e3)
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

fn ratio(one: Duration, other: Duration) -> f64 {
    one.as_secs_f64() / other.as_secs_f64()
}

/// Reads a job to its end. Returns the number of lines, evicted ones included: beside other programs
/// a reader may be too slow for some, and each of them must be counted.
async fn read_all(service: &Service, job: &str) -> u64 {
    let mut cursor = 0;
    let mut lines = 0;
    loop {
        let request = TailRequest {
            max_lines: Some(10_000),
            max_bytes: Some(262_144),
            ..TailRequest::new(job, cursor, 50_000)
        };
        let reply = service.tail(request).await.unwrap();
        lines += reply.lines.iter().flatten().count() as u64 + reply.dropped_lines;
        if reply.dropped_lines > 0 {
            println!("{} lines were evicted unread", reply.dropped_lines);
        }
        cursor = reply.last_line_no;
        if !reply.still_running {
            return lines;
        }
    }
}

async fn one_job(service: &Service, command: &str, durable: bool) -> Duration {
    let begun = Instant::now();
    let mut request = SpawnRequest::new(HOST, command);
    request.durable = Some(durable);
    let job = service.spawn(request).await.unwrap().job_id;
    read_all(service, &job).await;
    begun.elapsed()
}

/// The same for a job that prints many lines, all of which must be read.
async fn many_lines(service: &Service, command: &str, durable: bool) -> Duration {
    let begun = Instant::now();
    let mut request = SpawnRequest::new(HOST, command);
    request.durable = Some(durable);
    let job = service.spawn(request).await.unwrap().job_id;
    assert_eq!(read_all(service, &job).await, LINES, "durable: {durable}");
    let elapsed = begun.elapsed();
    let forget = serde_json::json!({"job_id": job});
    service.forget(serde_json::from_value(forget).unwrap()).await.unwrap();
    elapsed
}

async fn latency() {
    let sshd = Sshd::start().await;
    let (with, without) = (service(&sshd, true), service(&sshd, false));
    let (mut stored, mut plain) = (Vec::new(), Vec::new());
    for _ in 0..300 {
        stored.push(one_job(&with, "true", false).await);
        plain.push(one_job(&without, "true", false).await);
    }
    let (stored, plain) = (median(stored), median(plain));
    row(
        "spawn → exit seen, stored, against not",
        &millis(stored),
        &millis(plain),
        ratio(stored, plain),
        "–",
    );
}

const LINES: u64 = 5_000_000;

async fn throughput() {
    let sshd = Sshd::start().await;
    let (with, without) = (service(&sshd, true), service(&sshd, false));
    let command = format!("yes '{:.<79}' | head -n {LINES}", "a line of eighty bytes ");
    let (mut stored, mut plain, mut ssh, mut cpu) = (Vec::new(), Vec::new(), Vec::new(), [0.0; 2]);
    for _ in 0..3 {
        let before = cpu_seconds();
        stored.push(many_lines(&with, &command, false).await);
        let between = cpu_seconds();
        plain.push(many_lines(&without, &command, false).await);
        cpu[0] += between - before;
        cpu[1] += cpu_seconds() - between;
        let begun = Instant::now();
        let mut peer = Command::new("ssh");
        peer.arg("-F")
            .arg(sshd.ssh_config())
            .args([HOST, &command])
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        assert!(peer.status().unwrap().success());
        ssh.push(begun.elapsed());
    }
    let (stored, plain, ssh) = (median(stored), median(plain), median(ssh));
    let rate =
        |time: Duration| format!("{:.0} MB/s", LINES as f64 * 80.0 / time.as_secs_f64() / 1e6);
    row(
        "lines stored and read back, against ssh > /dev/null",
        &rate(stored),
        &rate(ssh),
        ratio(ssh, stored),
        "≥ 0.8",
    );
    row(
        "the same with the store off",
        &rate(plain),
        &rate(ssh),
        ratio(ssh, plain),
        "≥ 0.95",
    );
    let per_gb = |seconds: f64| format!("{:.2} s/GB", seconds / 3.0 / (LINES as f64 * 80.0 / 1e9));
    row(
        "CPU with the store, against without",
        &per_gb(cpu[0]),
        &per_gb(cpu[1]),
        cpu[0] / cpu[1],
        "≤ 1.6",
    );
}

/// CPU time of this process so far.
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = stat.rsplit_once(") ").unwrap().1.split(' ').collect();
    let ticks = fields[11].parse::<f64>().unwrap() + fields[12].parse::<f64>().unwrap();
    ticks / 100.0
}

async fn pages() {
    const MANY: u64 = 10_000_000;
    let sshd = Sshd::start().await;
    let service = service(&sshd, true);
    let mut jobs = Vec::new();
    for lines in [1000, MANY] {
        let job = service
            .spawn(SpawnRequest::new(
                HOST,
                format!("seq -f 'line %.0f of a long log that continues' {lines}"),
            ))
            .await;
        let job = job.unwrap().job_id;
        let request = serde_json::json!({"job_ids": [job], "wait_ms": 50_000});
        while service
            .wait(serde_json::from_value(request.clone()).unwrap())
            .await
            .unwrap()
            .ended
            == 0
        {}
        jobs.push(job);
    }
    let (mut small, mut stored) = (Vec::new(), Vec::new());
    for round in 0..500_u64 {
        let begun = Instant::now();
        service.tail(TailRequest::new(&jobs[0], 0, 0)).await.unwrap();
        small.push(begun.elapsed());
        let begun = Instant::now();
        let cursor = 1_000_000 + round * 15_013;
        let reply = service.tail(TailRequest::new(&jobs[1], cursor, 0)).await.unwrap();
        stored.push(begun.elapsed());
        assert_eq!(reply.first_line_no, Some(cursor + 1));
    }
    let (small, stored) = (median(small), median(stored));
    row(
        "500 lines from 10 M stored, against a ring of 1,000",
        &millis(stored),
        &millis(small),
        ratio(stored, small),
        "≤ 5",
    );
    let begun = Instant::now();
    let (mut since, mut found) = (0, 0);
    loop {
        let request = serde_json::json!({"job_id": jobs[1], "pattern": "line [0-9]*99999 ", "context": 0, "max_matches": 1000, "since_line_no": since});
        let reply = service
            .search(serde_json::from_value::<SearchRequest>(request).unwrap())
            .await
            .unwrap();
        found += reply.matches.len();
        since = reply.last_line_no;
        if !reply.has_more {
            break;
        }
    }
    let ours = begun.elapsed();
    let file = sshd.path("text");
    let text = std::fs::File::create(&file).unwrap();
    let seq = [
        "-f",
        "line %.0f of a long log that continues",
        &MANY.to_string(),
    ]
    .map(str::to_owned);
    assert!(Command::new("seq").args(seq).stdout(text).status().unwrap().success());
    let grep = if Command::new("rg").arg("--version").output().is_ok() {
        "rg"
    } else {
        "grep"
    };
    let begun = Instant::now();
    let output = Command::new(grep)
        .args(["-n", "line [0-9]*99999 "])
        .arg(&file)
        .output()
        .unwrap();
    let peer = begun.elapsed();
    assert_eq!(
        output.stdout.iter().filter(|byte| **byte == b'\n').count(),
        found
    );
    row(
        &format!("search through 10 M stored lines, against {grep}"),
        &millis(ours),
        &millis(peer),
        ratio(peer, ours),
        "≥ 0.25",
    );
}

async fn durable() {
    let sshd = Sshd::start().await;
    let service = Arc::new(service(&sshd, true));
    one_job(&service, "true", true).await;
    let (mut far, mut near) = (Vec::new(), Vec::new());
    for _ in 0..50 {
        for (times, durable) in [(&mut far, true), (&mut near, false)] {
            let begun = Instant::now();
            let mut request = SpawnRequest::new(HOST, "true");
            request.durable = Some(durable);
            let job = service.spawn(request).await.unwrap().job_id;
            times.push(begun.elapsed());
            // Work that the host still does for one must not slow the next.
            read_all(&service, &job).await;
            tokio::time::sleep(Duration::from_millis(150)).await;
        }
    }
    let (far, near) = (median(far), median(near));
    row(
        "spawn of a durable job, against an attached one",
        &millis(far),
        &millis(near),
        ratio(far, near),
        "≤ 3",
    );
    let mut request = SpawnRequest::new(HOST, "while read -r line; do date +%s%N; done");
    request.durable = Some(true);
    let job = service.spawn(request).await.unwrap().job_id;
    let mut times = Vec::new();
    for line in 0..100 {
        let waiting = service.tail(TailRequest::new(&job, line, 10_000));
        let writing = async {
            tokio::time::sleep(Duration::from_millis(37)).await;
            let mut write = WriteRequest::new(&job);
            write.data = Some("x\n".into());
            service.write(write).await.unwrap();
        };
        let (reply, ()) = tokio::join!(
            async {
                let reply = waiting.await.unwrap();
                let now =
                    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
                (reply, now)
            },
            writing
        );
        let printed: u64 = reply.0.lines.unwrap()[0].parse().unwrap();
        times.push(reply.1.saturating_sub(Duration::from_nanos(printed)));
    }
    let median = median(times);
    row(
        "a durable job's line reaches a waiting reader",
        &millis(median),
        "30 ms",
        median.as_secs_f64() / 0.03,
        "≤ 1",
    );
    let command = format!("yes '{:.<79}' | head -n {LINES}", "a line of eighty bytes ");
    let (far, near) = (
        many_lines(&service, &command, true).await,
        many_lines(&service, &command, false).await,
    );
    let rate =
        |time: Duration| format!("{:.0} MB/s", LINES as f64 * 80.0 / time.as_secs_f64() / 1e6);
    row(
        "lines of a durable job, against an attached one",
        &rate(far),
        &rate(near),
        ratio(near, far),
        "≥ 0.8",
    );
    service.shutdown().await;
}

/// The first answer of a process, with many stored jobs and with none.
async fn start() {
    const JOBS: usize = 100_000;
    let sshd = Sshd::start().await;
    let service = service(&sshd, true);
    one_job(&service, "true", false).await;
    service.shutdown().await;
    drop(service);
    let state = sshd.path("state");
    let empty = sshd.path("empty");
    let first = |state: &std::path::Path| {
        let begun = Instant::now();
        let config = Config {
            ssh_config: Some(sshd.ssh_config()),
            state_dir: Some(state.to_owned()),
            ..Config::default()
        };
        (Service::new(config, Access::Listed), begun)
    };
    fill(&state.join("jobs.db"), JOBS);
    let request = JobsRequest {
        host: Some("host7".to_owned()),
        ..JobsRequest::default()
    };
    let (service, begun) = first(&empty);
    service.jobs(request.clone()).await.unwrap();
    let of_none = begun.elapsed();
    let (service, begun) = first(&state);
    let reply = service.jobs(request.clone()).await.unwrap();
    let of_many = begun.elapsed();
    assert_eq!(reply.total, JOBS / 100);
    row(
        "first answer with 100,000 stored jobs, against none",
        &millis(of_many),
        &millis(of_none),
        ratio(of_many, of_none),
        "≤ 2",
    );
    let mut times = Vec::new();
    for _ in 0..50 {
        let begun = Instant::now();
        service.jobs(request.clone()).await.unwrap();
        times.push(begun.elapsed());
    }
    let median = median(times);
    row(
        "ssh_jobs with a filter over them",
        &millis(median),
        "20 ms",
        median.as_secs_f64() / 0.02,
        "≤ 1",
    );
}

/// Copies of the one job there is, on a hundred hosts.
fn fill(database: &std::path::Path, jobs: usize) {
    let connection = rusqlite::Connection::open(database).unwrap();
    let insert = format!(
        "INSERT INTO jobs SELECT 'copy-' || n, caller, 'host' || (n % 100), label, state, owner, NULL, started_at + n, ended_at, 0,
         json_set(document, '$.id', 'copy-' || n, '$.host', 'host' || (n % 100)), fleet
         FROM (SELECT * FROM jobs LIMIT 1), (WITH RECURSIVE count(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM count WHERE n < {jobs}) SELECT n FROM count)"
    );
    assert_eq!(connection.execute(&insert, []).unwrap(), jobs);
}
