//! Memory: of many jobs at a time, and after many jobs.

use std::time::Instant;

use sshjobs_core::jobs::Limits;
use sshjobs_wire::{JobState, JobsRequest, SpawnRequest};

use crate::peers::{one_job, service};
use crate::report::Report;
use crate::support::{HOST, Sshd};

/// A thousand live jobs on one host, and the memory of this process for each.
pub(crate) async fn thousand_jobs(report: &mut Report) {
    const JOBS: usize = 1000;
    let sshd = Sshd::with("MaxStartups 500:30:1000").await;
    let service = service(&sshd, Limits::default());
    one_job(&service, "true").await;
    let before = rss();
    let start = Instant::now();
    for _ in 0..JOBS {
        service.spawn(SpawnRequest::new(HOST, "sleep 1000")).await.unwrap();
    }
    let took = start.elapsed();
    let each = (rss() - before) / JOBS as f64;
    let running = service
        .jobs(JobsRequest {
            state: Some(JobState::Running),
            ..JobsRequest::default()
        })
        .await
        .unwrap()
        .total;
    report.row(
        "live jobs on one host",
        &format!("{running} in {:.1} s", took.as_secs_f64()),
        "–",
        None,
        "1000",
    );
    report.row(
        "memory of an idle job, connections included",
        &format!("{:.1} KiB", each / 1024.0),
        "–",
        None,
        "≤ 24 KiB",
    );
    let start = Instant::now();
    service.shutdown().await;
    report.row(
        "ending all of them",
        &format!("{:.1} s", start.elapsed().as_secs_f64()),
        "–",
        None,
        "–",
    );
}

/// Jobs that come and go: memory must not grow once all that is kept for finished jobs is full. The last to
/// fill are the outcomes of 10,000 jobs.
pub(crate) async fn soak(report: &mut Report) {
    let sshd = Sshd::start().await;
    let service = service(
        &sshd,
        Limits {
            max_finished: 50,
            ..Limits::default()
        },
    );
    let run_ten_thousand_jobs = async || {
        for _ in 0..10_000 {
            one_job(&service, "seq 1 2000").await;
        }
        rss()
    };
    let first = run_ten_thousand_jobs().await;
    let last = run_ten_thousand_jobs().await;
    let shown = |bytes: f64| format!("{:.1} MiB", bytes / 1048576.0);
    report.row(
        "RSS after 20,000 jobs against after 10,000",
        &shown(last),
        &shown(first),
        Some(last / first),
        "flat",
    );
    service.shutdown().await;
}

/// This process's resident memory in bytes.
fn rss() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<f64>().unwrap() * 1024.0
}
