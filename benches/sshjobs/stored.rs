//! The cost of storing, and of durable jobs: with the store beside without it, and beside `ssh` and
//! `rg`.

use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::report::{Curve, Line, Report, cpu_seconds, median, millis, ratio};
use crate::support::{HOST, Sshd};
use sshjobs_core::jobs::{Access, Config, Limits};
use sshjobs_wire::{JobsRequest, SearchRequest, Service, SpawnRequest, TailRequest, WriteRequest};

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

/// The time that storing adds to a short job.
pub(crate) async fn latency(report: &mut Report) {
    let sshd = Sshd::start().await;
    let (with, without) = (service(&sshd, true), service(&sshd, false));
    let (mut stored, mut plain) = (Vec::new(), Vec::new());
    for _ in 0..300 {
        stored.push(one_job(&with, "true", false).await);
        plain.push(one_job(&without, "true", false).await);
    }
    let (stored, plain) = (median(stored), median(plain));
    report.row(
        "spawn → exit seen, stored, against not",
        &millis(stored),
        &millis(plain),
        ratio(stored, plain),
        "–",
    );
}

const LINES: u64 = 5_000_000;

/// The time and processor time that storing adds to much output.
pub(crate) async fn throughput(report: &mut Report) {
    let sshd = Sshd::start().await;
    let (with, without) = (service(&sshd, true), service(&sshd, false));
    let command = format!("yes '{:.<79}' | head -n {LINES}", "a line of eighty bytes ");
    let (mut stored, mut plain, mut cpu) = (Vec::new(), Vec::new(), [0.0; 2]);
    let (mut ssh, mut disk) = (Vec::new(), Vec::new());
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
        disk.push(write_to_disk(&sshd, LINES * 80));
    }
    let (stored, plain) = (median(stored), median(plain));
    let (ssh, disk) = (median(ssh), median(disk));
    let rate =
        |time: Duration| format!("{:.0} MB/s", LINES as f64 * 80.0 / time.as_secs_f64() / 1e6);
    report.row(
        "lines stored and read back, against ssh > /dev/null",
        &rate(stored),
        &rate(ssh),
        ratio(ssh, stored),
        "≥ 0.95",
    );
    report.row(
        "lines stored and read back, against dd of as many bytes to the same disk, with its sync",
        &rate(stored),
        &rate(disk),
        ratio(disk, stored),
        "–",
    );
    report.row(
        "lines read back with the store off, against ssh > /dev/null",
        &rate(plain),
        &rate(ssh),
        ratio(ssh, plain),
        "≥ 0.95",
    );
    let per_gb = |seconds: f64| format!("{:.2} s/GB", seconds / 3.0 / (LINES as f64 * 80.0 / 1e9));
    report.row(
        "CPU with the store, against without",
        &per_gb(cpu[0]),
        &per_gb(cpu[1]),
        Some(cpu[0] / cpu[1]),
        "≤ 1.6",
    );
}

/// The time in which the disk takes these bytes from a program that does nothing else.
fn write_to_disk(sshd: &Sshd, bytes: u64) -> Duration {
    const BLOCK: u64 = 64 << 10;
    let file = sshd.path("state").join("dd");
    // Earlier writes must not count as its work.
    assert!(Command::new("sync").status().unwrap().success());
    let begun = Instant::now();
    let mut dd = Command::new("dd");
    dd.args(["if=/dev/zero", "bs=64k", "conv=fdatasync"]);
    dd.args([
        format!("of={}", file.display()),
        format!("count={}", bytes.div_ceil(BLOCK)),
    ]);
    assert!(dd.stderr(Stdio::null()).status().unwrap().success());
    let elapsed = begun.elapsed();
    std::fs::remove_file(file).unwrap();
    elapsed
}

/// A page and a search, in ever more stored lines.
pub(crate) async fn curve(report: &mut Report) {
    let sshd = Sshd::start().await;
    let service = service(&sshd, true);
    let mut points = [Vec::new(), Vec::new(), Vec::new()];
    for lines in [10_000, 100_000, 1_000_000, 10_000_000] {
        let job = numbered_lines(&service, lines).await;
        let mut pages = Vec::new();
        for round in 0..200_u64 {
            let cursor = (lines - 600) * round / 200;
            let begun = Instant::now();
            service.tail(TailRequest::new(&job, cursor, 0)).await.unwrap();
            pages.push(begun.elapsed());
        }
        let search = search(&sshd, &service, &job, lines).await;
        let times = [median(pages), search.ours, search.grep];
        for (points, time) in points.iter_mut().zip(times) {
            points.push((lines as f64, time.as_secs_f64() * 1e3));
        }
    }
    let names = ["500 lines", "search", "rg -n"];
    let curves = names.into_iter().zip(points).map(|(name, points)| Line {
        name: name.to_owned(),
        points,
    });
    report.curve(Curve {
        name: "lines",
        title: "A page and a search, in many stored lines",
        x: "stored lines",
        y: "ms",
        lines: curves.collect(),
    });
}

/// A page of 10 million stored lines, and a search through them.
pub(crate) async fn pages(report: &mut Report) {
    const MANY: u64 = 10_000_000;
    let sshd = Sshd::start().await;
    let service = service(&sshd, true);
    let few = numbered_lines(&service, 1000).await;
    let many = numbered_lines(&service, MANY).await;
    let (mut small, mut stored) = (Vec::new(), Vec::new());
    for round in 0..500_u64 {
        let begun = Instant::now();
        service.tail(TailRequest::new(&few, 0, 0)).await.unwrap();
        small.push(begun.elapsed());
        let begun = Instant::now();
        let cursor = 1_000_000 + round * 15_013;
        let reply = service.tail(TailRequest::new(&many, cursor, 0)).await.unwrap();
        stored.push(begun.elapsed());
        assert_eq!(reply.first_line_no, Some(cursor + 1));
    }
    let (small, stored) = (median(small), median(stored));
    report.row(
        "500 lines from 10 M stored, against a ring of 1,000",
        &millis(stored),
        &millis(small),
        ratio(stored, small),
        "≤ 5",
    );
    // Filters are written once output has paused.
    tokio::time::sleep(Duration::from_secs(10)).await;
    let search = search(&sshd, &service, &many, MANY).await;
    report.row(
        &format!("search through 10 M stored lines, against {GREP} -n"),
        &millis(search.ours),
        &millis(search.grep),
        ratio(search.grep, search.ours),
        "≥ 1",
    );
}

/// The peer of our search, which must be installed.
const GREP: &str = "rg";
const NUMBERED: &str = "line %.0f of a long log that continues";

/// A job that has printed this number of lines and has ended.
async fn numbered_lines(service: &Service, lines: u64) -> String {
    let command = format!("seq -f '{NUMBERED}' {lines}");
    let job = service.spawn(SpawnRequest::new(HOST, command)).await.unwrap().job_id;
    let request = serde_json::json!({"job_ids": [job], "wait_ms": 50_000});
    while service
        .wait(serde_json::from_value(request.clone()).unwrap())
        .await
        .unwrap()
        .ended
        == 0
    {}
    job
}

struct Searched {
    ours: Duration,
    grep: Duration,
}

/// The same search in a job's stored output, and by another program in a file: the best of three, in turn.
/// The first would read while the operating system still writes the output.
async fn search(sshd: &Sshd, service: &Service, job: &str, lines: u64) -> Searched {
    const PATTERN: &str = "line [0-9]*99999 ";
    let file = sshd.path("text");
    let text = std::fs::File::create(&file).unwrap();
    let mut seq = Command::new("seq");
    seq.args(["-f", NUMBERED, &lines.to_string()]).stdout(text);
    assert!(seq.status().unwrap().success());

    let mut best = Searched {
        ours: Duration::MAX,
        grep: Duration::MAX,
    };
    for _ in 0..3 {
        let begun = Instant::now();
        let found = search_all(service, job, PATTERN).await;
        best.ours = best.ours.min(begun.elapsed());

        let begun = Instant::now();
        let output = Command::new(GREP).args(["-n", PATTERN]).arg(&file).output().unwrap();
        best.grep = best.grep.min(begun.elapsed());
        let theirs = output.stdout.iter().filter(|byte| **byte == b'\n').count();
        assert_eq!(theirs, found);
    }
    best
}

/// Searches all of a job's output, and returns the number of matches.
async fn search_all(service: &Service, job: &str, pattern: &str) -> usize {
    let (mut since, mut found) = (0, 0);
    loop {
        let request = serde_json::json!({"job_id": job, "pattern": pattern, "context": 0, "max_matches": 1000, "since_line_no": since});
        let request = serde_json::from_value::<SearchRequest>(request).unwrap();
        let reply = service.search(request).await.unwrap();
        found += reply.matches.len();
        since = reply.last_line_no;
        if !reply.has_more {
            return found;
        }
    }
}

/// The cost of a durable job beside that of an attached one.
pub(crate) async fn durable(report: &mut Report) {
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
    report.row(
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
    report.row(
        "a durable job's line reaches a waiting reader",
        &millis(median),
        "30 ms",
        Some(median.as_secs_f64() / 0.03),
        "≤ 1",
    );
    let command = format!("yes '{:.<79}' | head -n {LINES}", "a line of eighty bytes ");
    let (far, near) = (
        many_lines(&service, &command, true).await,
        many_lines(&service, &command, false).await,
    );
    let rate =
        |time: Duration| format!("{:.0} MB/s", LINES as f64 * 80.0 / time.as_secs_f64() / 1e6);
    report.row(
        "lines of a durable job, against an attached one",
        &rate(far),
        &rate(near),
        ratio(near, far),
        "≥ 0.85",
    );
    service.shutdown().await;
}

/// The first answer of a process, with many stored jobs and with none.
pub(crate) async fn start(report: &mut Report) {
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
    report.row(
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
    report.row(
        "ssh_jobs with a filter over them",
        &millis(median),
        "20 ms",
        Some(median.as_secs_f64() / 0.02),
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
