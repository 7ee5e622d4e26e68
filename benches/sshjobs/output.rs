//! Amount of output, number of readers, and the effect of a noisy job on the others.

use std::sync::Arc;
use std::time::{Duration, Instant};

use sshjobs_core::jobs::Limits;
use sshjobs_wire::{ForgetRequest, Service, SignalRequest, SpawnRequest, TailRequest};
use tokio::task::JoinSet;

use crate::peers::{bare_connection, bare_job, service, ssh};
use crate::report::{Curve, Line, Report, millis, percentile, ratio};
use crate::support::{HOST, Sshd};

/// Jobs that are measured with a noisy one beside them, and as many without.
const ROUNDS: usize = 300;

/// 80-byte lines through sshd into the ring and read back, beside `ssh host cmd > /dev/null`.
pub(crate) async fn throughput(report: &mut Report) {
    const LINES: u64 = 5_000_000;
    let sshd = Sshd::start().await;
    let limits = Limits {
        ring_buffer_lines: 2_000_000,
        ring_buffer_bytes: 256 << 20,
        ..Limits::default()
    };
    let service = service(&sshd, limits);
    let command = format!("yes '{:.<79}' | head -n {LINES}", "a line of eighty bytes ");
    let (mut ours, mut peers, mut dropped) = (Vec::new(), Vec::new(), 0);
    for _ in 0..3 {
        let start = Instant::now();
        assert!(ssh(&sshd.ssh_config()).args([HOST, &command]).status().unwrap().success());
        peers.push(start.elapsed());
        let start = Instant::now();
        let job = service.spawn(SpawnRequest::new(HOST, &command)).await.unwrap().job_id;
        let (mut cursor, mut read, mut lost) = (0, 0, 0);
        loop {
            let request = TailRequest {
                max_lines: Some(10_000),
                max_bytes: Some(262_144),
                ..TailRequest::new(&job, cursor, 50_000)
            };
            let reply = service.tail(request).await.unwrap();
            read += reply.lines.iter().flatten().count() as u64;
            lost += reply.dropped_lines;
            cursor = reply.last_line_no;
            if !reply.still_running {
                break;
            }
        }
        ours.push(start.elapsed());
        assert_eq!(read + lost, LINES, "nothing is lost in silence");
        dropped += lost;
        service.forget(ForgetRequest::new(&job)).await.unwrap();
    }
    let (our, peer) = (percentile(&mut ours, 50), percentile(&mut peers, 50));
    let rate = |time: Duration| {
        let seconds = time.as_secs_f64();
        format!(
            "{:.2} M lines/s, {:.0} MB/s",
            LINES as f64 / seconds / 1e6,
            LINES as f64 * 80.0 / seconds / 1e6
        )
    };
    report.row(
        "lines through sshd and read back, against ssh > /dev/null",
        &rate(our),
        &rate(peer),
        ratio(peer, our),
        "≥ 0.5",
    );
    report.row(
        "of them evicted before the reader came",
        &dropped.to_string(),
        "–",
        None,
        "–",
    );
    let python = 0.5e6;
    let lines = LINES as f64 / our.as_secs_f64();
    report.row(
        "lines/s against the best Python server's 0.5 M",
        &rate(our),
        "0.50 M lines/s",
        Some(lines / python),
        "≥ 50",
    );
    service.shutdown().await;
}

/// Spawn to first line, without and with a job that prints as fast as it can on the same
/// connection.
pub(crate) async fn neighbour(report: &mut Report) {
    let sshd = Sshd::start().await;
    let service = service(&sshd, Limits::default());
    let first_line = async || {
        let start = Instant::now();
        let job = service.spawn(SpawnRequest::new(HOST, "echo x")).await.unwrap().job_id;
        service.tail(TailRequest::new(&job, 0, 50_000)).await.unwrap();
        start.elapsed()
    };
    let measure = async || {
        let mut times = Vec::new();
        for _ in 0..ROUNDS {
            times.push(first_line().await);
        }
        (percentile(&mut times, 50), percentile(&mut times, 99))
    };
    measure().await;
    let quiet = measure().await;
    let noisy = service.spawn(SpawnRequest::new(HOST, "yes")).await.unwrap().job_id;
    let beside = measure().await;
    let signal = SignalRequest {
        signal: Some("KILL".to_owned()),
        ..SignalRequest::new(&noisy)
    };
    service.signal(signal).await.unwrap();
    report.row(
        "spawn → first line beside `yes`, p99, against without",
        &millis(beside.1),
        &millis(quiet.1),
        ratio(beside.1, quiet.1),
        "≤ 2",
    );
    report.row(
        "the same, p50",
        &millis(beside.0),
        &millis(quiet.0),
        ratio(beside.0, quiet.0),
        "–",
    );
    service.shutdown().await;
    neighbour_of_ssh(report, &sshd).await;
}

/// The machine's own effect of a noisy neighbour: a bare russh channel, warm, beside OpenSSH's
/// client that receives `yes`.
async fn neighbour_of_ssh(report: &mut Report, sshd: &Sshd) {
    let bare = bare_connection(sshd).await;
    let measure = async || {
        let mut times = Vec::new();
        for _ in 0..ROUNDS {
            times.push(bare_job(&bare, "echo x").await);
        }
        percentile(&mut times, 99)
    };
    measure().await;
    let quiet = measure().await;
    let mut noisy = ssh(&sshd.ssh_config()).args([HOST, "yes"]).spawn().unwrap();
    let beside = measure().await;
    noisy.kill().unwrap();
    noisy.wait().unwrap();
    let what = "a bare russh channel beside `ssh HOST yes`, p99, against without";
    report.row(
        what,
        &millis(beside),
        &millis(quiet),
        ratio(beside, quiet),
        "–",
    );
}

/// A thousand readers who wait for the next line of one job, against a single one.
pub(crate) async fn readers(report: &mut Report) {
    let times = last_of_readers(&[1, 1000]).await;
    report.row(
        "a line to the last of 1000 waiting readers, p50, against a single one",
        &millis(times[1]),
        &millis(times[0]),
        ratio(times[1], times[0]),
        "–",
    );
}

/// For each number of readers: the time from writing a line to the job's stdin until the last
/// reader has it, p50 of 100.
pub(crate) async fn last_of_readers(counts: &[usize]) -> Vec<Duration> {
    let sshd = Sshd::start().await;
    let service = service(&sshd, Limits::default());
    let job = service.spawn(SpawnRequest::new(HOST, "cat")).await.unwrap().job_id;
    let mut line = 0;
    let mut medians = Vec::new();
    for &count in counts {
        let mut times = Vec::new();
        for _ in 0..100 {
            times.push(one_line(&service, &job, line, count).await);
            line += 1;
        }
        medians.push(percentile(&mut times, 50));
    }
    service.shutdown().await;
    medians
}

/// A line to ever more readers.
pub(crate) async fn curve(report: &mut Report) {
    let counts = [1, 10, 100, 1000];
    let times = last_of_readers(&counts).await;
    let points = counts
        .iter()
        .zip(times)
        .map(|(&readers, time)| (readers as f64, time.as_secs_f64() * 1e3));
    report.curve(Curve {
        name: "readers",
        title: "A line reaches the last of many waiting readers",
        x: "readers",
        y: "ms, p50 of 100",
        lines: vec![Line {
            name: "the last reader".to_owned(),
            points: points.collect(),
        }],
    });
}

async fn one_line(service: &Arc<Service>, job: &str, line: u64, readers: usize) -> Duration {
    let mut waiting = JoinSet::new();
    for _ in 0..readers {
        let (service, job) = (Arc::clone(service), job.to_owned());
        waiting.spawn(async move {
            let reply = service.tail(TailRequest::new(&job, line, 50_000)).await.unwrap();
            assert_eq!(reply.last_line_no, line + 1);
        });
    }
    // All of them must wait before the line is printed.
    tokio::time::sleep(Duration::from_millis(20)).await;
    let start = Instant::now();
    let job = service.library().job(job).await.unwrap();
    job.write(b"news\n", Duration::from_secs(5)).await.unwrap();
    while let Some(read) = waiting.join_next().await {
        read.unwrap();
    }
    start.elapsed()
}
