//! The cost of many short jobs, beside asyncssh.

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Instant;

use crate::peers::{bare_connection, bare_job, one_job};
use crate::report::{Curve, Line, Report, cpu_seconds, median};
use crate::support::{HOST, Sshd};
use sshjobs_core::jobs::{Access, Config, Limits};
use sshjobs_wire::{JobsRequest, RunRequest, Service, SpawnRequest};
use tempfile::TempDir;
use tokio::task::JoinSet;

/// Short jobs, and how many of them run at the same time.
const SHORT_JOBS: usize = 4000;
const AT_A_TIME: usize = 64;
/// Jobs that run while the short ones come and go.
const LONG_JOBS: usize = 10_000;
const LONG_HOST: &str = "web2";

/// A program that runs short commands over eight connections. Prints commands per second.
const ASYNCSSH: &str = r#"
import asyncio, asyncssh, sys, time
port, key, count, at_a_time = int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
async def main():
    connect = lambda: asyncssh.connect("127.0.0.1", port=port, client_keys=[key], known_hosts=None)
    connections = [await connect() for _ in range(8)]
    todo = iter(range(count))
    async def work(connection):
        for _ in todo:
            await connection.run("true", check=True)
    start = time.time()
    await asyncio.gather(*(work(connections[n % 8]) for n in range(at_a_time)))
    print(count / (time.time() - start))
asyncio.run(main())
"#;

/// Short jobs alone, and beside 10,000 that run.
pub(crate) async fn starts(report: &mut Report) {
    // Files are not deleted before the end: ext4 allocates new ones slowly while many deleted ones are recent.
    let _files_of_scripts = by_scripts(report);
    let _files = short_jobs(report, 0).await;
    short_jobs(report, LONG_JOBS).await;
}

/// How fast scripts on the host could run many jobs that each keep their output and exit, with nothing of SSH: the
/// limit of a burst through one script. Two scripts, for the two cores of the machine on which this is measured.
/// Returns their files.
fn by_scripts(report: &mut Report) -> [TempDir; 2] {
    const EACH: usize = 2000;
    const SCRIPT: &str = "i=0; while [ $i -lt $1 ]; do \
        /bin/sh -c 'echo line' >$2/out.$i 2>$2/err.$i; echo $? >$2/exit.$i; i=$((i + 1)); done";
    let files = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let start = Instant::now();
    std::thread::scope(|scope| {
        for files in &files {
            scope.spawn(|| {
                let mut shell = Command::new("/bin/sh");
                shell.args(["-c", SCRIPT, "burst", &EACH.to_string()]).arg(files.path());
                assert!(shell.status().unwrap().success());
            });
        }
    });
    let rate = (2 * EACH) as f64 / start.elapsed().as_secs_f64();
    report.row(
        "short jobs of two scripts on the host, with files for output and exit, without SSH",
        "–",
        &format!("{rate:.0}/s"),
        None,
        "≥ 2000/s",
    );
    files
}

/// Short jobs beside this number of running ones.
async fn short_jobs(report: &mut Report, running: usize) -> Sshd {
    let sshd = Sshd::with("MaxSessions 1000\nMaxStartups 500:30:1000").await;
    // The long jobs have connections of their own: sshd and russh walk over all channels of one at
    // each packet.
    sshd.alias([LONG_HOST]);
    let service = Arc::new(service_for_many(&sshd));
    spawn_long(&service, running).await;

    let (cpu, start) = (cpu_seconds(), Instant::now());
    run_short(&service).await;
    let rate = SHORT_JOBS as f64 / start.elapsed().as_secs_f64();
    let cpu_ms = (cpu_seconds() - cpu) * 1e3 / SHORT_JOBS as f64;
    let peer = asyncssh(&sshd);

    let what = format!(
        "{AT_A_TIME} short jobs at a time, stored, beside {running} that run, against asyncssh"
    );
    let shown = peer.map_or_else(|| "not installed".to_owned(), |peer| format!("{peer:.0}/s"));
    report.row(
        &what,
        &format!("{rate:.0}/s, {cpu_ms:.2} ms of CPU a job"),
        &shown,
        peer.map(|peer| rate / peer),
        "≥ 1.2, ≤ 0.8 ms",
    );
    service.shutdown().await;
    sshd
}

/// Spawn to exit of one job beside ever more that run, and beside a bare channel of the same server.
pub(crate) async fn curve(report: &mut Report) {
    let sshd = Sshd::with("MaxSessions 1000\nMaxStartups 500:30:1000").await;
    sshd.alias([LONG_HOST]);
    let service = Arc::new(service_for_many(&sshd));
    let bare = bare_connection(&sshd).await;
    let mut points = [Vec::new(), Vec::new(), Vec::new()];
    let list = JobsRequest {
        limit: Some(20),
        ..JobsRequest::default()
    };
    let mut running = 0;
    for jobs in [1, 10, 100, 1000, 10_000] {
        spawn_long(&service, jobs - running).await;
        running = jobs;
        let mut times = [Vec::new(), Vec::new(), Vec::new()];
        for _ in 0..100 {
            times[0].push(one_job(&service, "true").await);
            times[1].push(bare_job(&bare, "true").await);
            let began = Instant::now();
            service.jobs(list.clone()).await.unwrap();
            times[2].push(began.elapsed());
        }
        for (points, times) in points.iter_mut().zip(times) {
            points.push((jobs as f64, median(times).as_secs_f64() * 1e3));
        }
    }
    service.shutdown().await;
    let names = [
        "spawn → exit of sshjobs",
        "a bare russh channel",
        "a list of 20 jobs",
    ];
    let lines = names.into_iter().zip(points).map(|(name, points)| Line {
        name: name.to_owned(),
        points,
    });
    report.curve(Curve {
        name: "jobs",
        title: "One more job, and a list, beside many that run",
        x: "running jobs",
        y: "ms, p50 of 100",
        lines: lines.collect(),
    });
}

/// A service without limits on jobs, with a store.
fn service_for_many(sshd: &Sshd) -> Service {
    let limits = Limits {
        max_jobs: usize::MAX,
        max_jobs_per_host: usize::MAX,
        jobs_per_connection: 16,
        connections_per_host: 1000,
        ..Limits::default()
    };
    let config = Config {
        ssh_config: Some(sshd.ssh_config()),
        state_dir: Some(sshd.path("state")),
        limits,
        ..Config::default()
    };
    Service::new(config, Access::Listed)
}

async fn spawn_long(service: &Arc<Service>, count: usize) {
    let todo = Arc::new(AtomicUsize::new(0));
    let mut workers = JoinSet::new();
    for _ in 0..AT_A_TIME.min(count) {
        let (service, todo) = (Arc::clone(service), Arc::clone(&todo));
        workers.spawn(async move {
            while todo.fetch_add(1, Relaxed) < count {
                service.spawn(SpawnRequest::new(LONG_HOST, "exec sleep 1000")).await.unwrap();
            }
        });
    }
    workers.join_all().await;
}

async fn run_short(service: &Arc<Service>) {
    let todo = Arc::new(AtomicUsize::new(0));
    let mut workers = JoinSet::new();
    for _ in 0..AT_A_TIME {
        let (service, todo) = (Arc::clone(service), Arc::clone(&todo));
        workers.spawn(async move {
            while todo.fetch_add(1, Relaxed) < SHORT_JOBS {
                let reply = service.run(RunRequest::new(HOST, "true")).await.unwrap();
                assert_eq!(reply.standing.exit_status, Some(0));
            }
        });
    }
    workers.join_all().await;
}

/// Commands per second of asyncssh; none when it is not installed.
fn asyncssh(sshd: &Sshd) -> Option<f64> {
    let output = Command::new("python3")
        .args(["-c", ASYNCSSH, &sshd.port().to_string()])
        .arg(sshd.path("id"))
        .args([SHORT_JOBS.to_string(), AT_A_TIME.to_string()])
        .output()
        .unwrap();
    String::from_utf8_lossy(&output.stdout).trim().parse().ok()
}
