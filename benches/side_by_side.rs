//! sshjobs beside `ssh` and beside a bare russh channel, on one machine, in one run, against one
//! private sshd. Prints a table of ratios; asserts nothing.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::panic,
    clippy::disallowed_methods,
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::too_many_arguments,
    clippy::too_many_lines,
    reason = "a bench"
)]

#[path = "../tests/support/mod.rs"]
mod support;

#[path = "distance/mod.rs"]
mod distance;

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use russh::keys::{PrivateKeyWithHashAlg, PublicKeyOrCertificate, load_secret_key};
use russh::{ChannelMsg, client};
use sshjobs::jobs::{Access, Config, Limits};
use sshjobs::wire::{
    ForgetRequest, JobState, JobsRequest, RunRequest, Service, SignalRequest, SpawnRequest,
    TailRequest,
};
use support::Sshd;
use support::login_shell::{sshd_with_login_shell, starts};

const HOST: &str = "web1";
const ROUNDS: usize = 300;
/// Cold starts of each program.
const COLD_ROUNDS: usize = 15;

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
    if wanted("slow-login") {
        slow_login_shell().await;
    }
    if wanted("distance") {
        distance().await;
    }
    if wanted("crowd") {
        crowd().await;
    }
    if wanted("recovery") {
        recovery().await;
    }
    if wanted("throughput") {
        throughput().await;
    }
    if wanted("neighbour") {
        neighbour().await;
    }
    if wanted("thousand") {
        thousand_jobs().await;
    }
    if wanted("readers") {
        readers().await;
    }
    if wanted("soak") {
        soak().await;
    }
}

fn service(sshd: &Sshd, limits: Limits) -> Arc<Service> {
    let config = Config {
        ssh_config: Some(sshd.ssh_config()),
        limits,
        store: false,
        ..Config::default()
    };
    Arc::new(Service::new(config, Access::Listed))
}

fn row(what: &str, ours: &str, peer: &str, ratio: Option<f64>, bar: &str) {
    let ratio = ratio.map_or_else(|| "–".to_owned(), |ratio| format!("{ratio:.2}"));
    println!("| {what} | {ours} | {peer} | {ratio} | {bar} |");
}

fn millis(duration: Duration) -> String {
    format!("{:.2} ms", duration.as_secs_f64() * 1e3)
}

fn percentile(times: &mut [Duration], percent: usize) -> Duration {
    times.sort_unstable();
    times[(times.len() - 1) * percent / 100]
}

/// Starts a job and reads it to its end; returns the time from the call to the end seen.
async fn one_job(service: &Service, command: &str) -> Duration {
    let start = Instant::now();
    let job = service.spawn(SpawnRequest::new(HOST, command)).await.unwrap().job_id;
    let mut cursor = 0;
    loop {
        let reply = service.tail(TailRequest::new(&job, cursor, 50_000)).await.unwrap();
        cursor = reply.last_line_no;
        if !reply.still_running {
            return start.elapsed();
        }
    }
}

/// A thousand readers who wait for the next line of one job, against a single one: from writing a
/// line to the job's stdin until the last reader has it.
async fn readers() {
    let sshd = Sshd::start().await;
    let service = service(&sshd, Limits::default());
    let job = service.spawn(SpawnRequest::new(HOST, "cat")).await.unwrap().job_id;
    let mut line = 0;
    let mut measured = Vec::new();
    for count in [1, 1000] {
        let mut times = Vec::new();
        for _ in 0..100 {
            let mut waiting = tokio::task::JoinSet::new();
            for _ in 0..count {
                let (service, job) = (Arc::clone(&service), job.clone());
                waiting.spawn(async move {
                    let reply = service.tail(TailRequest::new(&job, line, 50_000)).await.unwrap();
                    assert_eq!(reply.last_line_no, line + 1);
                });
            }
            // All of them must wait before the line is printed.
            tokio::time::sleep(Duration::from_millis(20)).await;
            let start = Instant::now();
            service
                .library()
                .job(&job)
                .await
                .unwrap()
                .write(b"news\n", Duration::from_secs(5))
                .await
                .unwrap();
            while waiting.join_next().await.is_some() {}
            times.push(start.elapsed());
            line += 1;
        }
        measured.push(percentile(&mut times, 50));
    }
    service.shutdown().await;
    let ratio = measured[1].as_secs_f64() / measured[0].as_secs_f64();
    row(
        "a line to the last of 1000 waiting readers, p50, against a single one",
        &millis(measured[1]),
        &millis(measured[0]),
        Some(ratio),
        "–",
    );
}

struct AcceptOurs;

impl client::Handler for AcceptOurs {
    type Error = russh::Error;

    // The server was started by this process a moment ago.
    async fn check_server_key(
        &mut self,
        _key: &PublicKeyOrCertificate,
    ) -> Result<bool, russh::Error> {
        Ok(true)
    }
}

async fn bare_connection(sshd: &Sshd) -> client::Handle<AcceptOurs> {
    let mut preferred = russh::Preferred::DEFAULT;
    preferred.cipher = vec![russh::cipher::AES_256_GCM].into();
    let config = client::Config {
        nodelay: true,
        preferred,
        ..client::Config::default()
    };
    let mut handle = client::connect(Arc::new(config), ("127.0.0.1", sshd.port()), AcceptOurs)
        .await
        .unwrap();
    let key = load_secret_key(sshd.path("id"), None).unwrap();
    let user = String::from_utf8(Command::new("id").arg("-un").output().unwrap().stdout).unwrap();
    let key = PrivateKeyWithHashAlg::new(Arc::new(key), None);
    assert!(handle.authenticate_publickey(user.trim(), key).await.unwrap().success());
    handle
}

async fn bare_job(handle: &client::Handle<AcceptOurs>, command: &str) -> Duration {
    let start = Instant::now();
    let mut channel = handle.channel_open_session().await.unwrap();
    channel.exec(true, command).await.unwrap();
    while let Some(message) = channel.wait().await {
        if matches!(message, ChannelMsg::Close) {
            break;
        }
    }
    start.elapsed()
}

fn ssh(config: &Path) -> Command {
    let mut ssh = Command::new("ssh");
    ssh.arg("-F").arg(config).stdin(Stdio::null()).stdout(Stdio::null());
    ssh
}

/// Spawn to exit seen on a warm connection, the three in turn.
async fn latency() {
    let sshd = Sshd::start().await;
    let service = service(&sshd, Limits::default());
    let bare = bare_connection(&sshd).await;
    let socket = sshd.path("control");
    let master = ["-o", "ControlMaster=auto", "-o", "ControlPersist=60"];
    let via_master = || {
        let mut ssh = ssh(&sshd.ssh_config());
        ssh.args(master).arg("-S").arg(&socket).args([HOST, "true"]);
        let start = Instant::now();
        assert!(ssh.status().unwrap().success());
        start.elapsed()
    };
    let (mut ours, mut russh, mut master) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..ROUNDS + 10 {
        let times = (
            one_job(&service, "true").await,
            bare_job(&bare, "true").await,
            via_master(),
        );
        if round >= 10 {
            ours.push(times.0);
            russh.push(times.1);
            master.push(times.2);
        }
    }
    let (our, bare, ssh) = (
        percentile(&mut ours, 50),
        percentile(&mut russh, 50),
        percentile(&mut master, 50),
    );
    let ratio = |peer: Duration| Some(our.as_secs_f64() / peer.as_secs_f64());
    row(
        "spawn → exit seen, p50, against a bare russh channel",
        &millis(our),
        &millis(bare),
        ratio(bare),
        "≤ 1.1",
    );
    row(
        "the same against ssh over a ControlMaster",
        &millis(our),
        &millis(ssh),
        ratio(ssh),
        "≤ 0.4",
    );
    ssh_exit(&sshd, &socket);
    service.shutdown().await;
}

async fn distance() {
    let sshd = Sshd::start().await;
    let far = distance::far_away(sshd.port()).await.to_string();
    sshd.append("  HostKeyAlias near\n");
    let listed = std::fs::read_to_string(sshd.path("known_hosts")).unwrap();
    sshd.write_known_hosts(&format!("near {}", listed.split_once(' ').unwrap().1));
    let config = std::fs::read_to_string(sshd.ssh_config()).unwrap();
    std::fs::write(
        sshd.ssh_config(),
        config.replace(&sshd.port().to_string(), &far),
    )
    .unwrap();
    let service = service(&sshd, Limits::default());
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..3 {
        one_job(&service, "true").await;
    }
    let socket = sshd.path("mux");
    let master = ["-o", "ControlMaster=yes", "-o", "ControlPersist=60", "-fN"];
    let mut with_socket = ssh(&sshd.ssh_config());
    with_socket.arg("-S").arg(&socket);
    assert!(with_socket.args(master).arg(HOST).status().unwrap().success());
    for _ in 0..40 {
        ours.push(one_job(&service, "true").await);
        let start = Instant::now();
        let status = ssh(&sshd.ssh_config()).arg("-S").arg(&socket).args([HOST, "true"]).status();
        assert!(status.unwrap().success());
        theirs.push(start.elapsed());
    }
    ssh_exit(&sshd, &socket);
    let (ours, theirs) = (percentile(&mut ours, 50), percentile(&mut theirs, 50));
    let ratio = ours.as_secs_f64() / theirs.as_secs_f64();
    let what =
        "spawn → exit seen at 50 ms of round trip, p50 of 40, against ssh over a ControlMaster";
    row(what, &millis(ours), &millis(theirs), Some(ratio), "–");
    service.shutdown().await;
}

/// Jobs that run at the same time on an sshd with its default limits.
async fn crowd() {
    let sshd = Sshd::start().await;
    let service = service(&sshd, Limits::default());
    let start = Instant::now();
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..200 {
        let service = Arc::clone(&service);
        tasks.spawn(async move {
            service.spawn(SpawnRequest::new(HOST, "sleep 1000")).await.map(|job| job.job_id)
        });
    }
    let jobs = tasks.join_all().await;
    let elapsed = start.elapsed();
    assert!(jobs.iter().all(Result::is_ok));
    let connections = service.hosts(Default::default()).await.unwrap().hosts[0].connections;
    let what = "200 jobs started at once on a default sshd, from nothing until all run";
    row(
        what,
        &format!("{} on {connections} connections", millis(elapsed)),
        "–",
        None,
        "200",
    );
    service.shutdown().await;
}

async fn ends_well(service: &Service) -> bool {
    let request = RunRequest::new(HOST, "true");
    service
        .run(request)
        .await
        .is_ok_and(|reply| reply.standing.exit_status == Some(0))
}

/// From the end of every connection to the end of the next job.
async fn recovery() {
    let sshd = Sshd::start().await;
    let service = service(&sshd, Limits::default());
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..20 {
        one_job(&service, "true").await;
        sshd.cut();
        let start = Instant::now();
        // A job that was sent before the cut was noticed is reported as lost.
        while !ends_well(&service).await {}
        ours.push(start.elapsed());
        let start = Instant::now();
        assert!(ssh(&sshd.ssh_config()).args([HOST, "true"]).status().unwrap().success());
        theirs.push(start.elapsed());
    }
    let (ours, theirs) = (percentile(&mut ours, 50), percentile(&mut theirs, 50));
    let ratio = ours.as_secs_f64() / theirs.as_secs_f64();
    let what = "a cut of all connections → the next job's exit seen, p50 of 20, against a new ssh";
    row(what, &millis(ours), &millis(theirs), Some(ratio), "–");
    service.shutdown().await;
}

fn ssh_exit(sshd: &Sshd, socket: &Path) {
    ssh(&sshd.ssh_config())
        .arg("-S")
        .arg(socket)
        .args(["-O", "exit", HOST])
        .stderr(Stdio::null())
        .status()
        .unwrap();
}

/// 80-byte lines through sshd into the ring and read back, beside `ssh host cmd > /dev/null`.
async fn throughput() {
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
    let ratio = Some(peer.as_secs_f64() / our.as_secs_f64());
    row(
        "lines through sshd and read back, against ssh > /dev/null",
        &rate(our),
        &rate(peer),
        ratio,
        "≥ 0.5",
    );
    row(
        "of them evicted before the reader came",
        &dropped.to_string(),
        "–",
        None,
        "–",
    );
    let python = 0.5e6;
    let lines = LINES as f64 / our.as_secs_f64();
    row(
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
async fn neighbour() {
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
    let ratio = |a: Duration, b: Duration| Some(a.as_secs_f64() / b.as_secs_f64());
    row(
        "spawn → first line beside `yes`, p99, against without",
        &millis(beside.1),
        &millis(quiet.1),
        ratio(beside.1, quiet.1),
        "≤ 2",
    );
    row(
        "the same, p50",
        &millis(beside.0),
        &millis(quiet.0),
        ratio(beside.0, quiet.0),
        "–",
    );
    service.shutdown().await;
    neighbour_of_ssh(&sshd).await;
}

/// The machine's own effect of a noisy neighbour: a bare russh channel, warm, beside OpenSSH's
/// client that receives `yes`.
async fn neighbour_of_ssh(sshd: &Sshd) {
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
    let ratio = beside.as_secs_f64() / quiet.as_secs_f64();
    let what = "a bare russh channel beside `ssh HOST yes`, p99, against without";
    row(what, &millis(beside), &millis(quiet), Some(ratio), "–");
}

/// A thousand live jobs on one host, and the cost of an idle one here.
async fn thousand_jobs() {
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
    row(
        "live jobs on one host",
        &format!("{running} in {:.1} s", took.as_secs_f64()),
        "–",
        None,
        "1000",
    );
    row(
        "memory of an idle job, connections included",
        &format!("{:.1} KiB", each / 1024.0),
        "–",
        None,
        "≤ 32 KiB",
    );
    let start = Instant::now();
    service.shutdown().await;
    row(
        "ending all of them",
        &format!("{:.1} s", start.elapsed().as_secs_f64()),
        "–",
        None,
        "–",
    );
}

/// Jobs that come and go: memory must not grow.
async fn soak() {
    let sshd = Sshd::start().await;
    let service = service(
        &sshd,
        Limits {
            max_finished: 50,
            ..Limits::default()
        },
    );
    let batch = async || {
        for _ in 0..1500 {
            one_job(&service, "seq 1 2000").await;
        }
        rss()
    };
    let (first, _, last) = (batch().await, batch().await, batch().await);
    let shown = |bytes: f64| format!("{:.1} MiB", bytes / 1048576.0);
    row(
        "RSS after 4500 jobs against after 1500",
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

/// Cold starts on an account whose login shell takes 200 ms to start.
async fn slow_login_shell() {
    let sshd = sshd_with_login_shell("/bin/bash", 0.2, "").await;
    let config = sshd.ssh_config();
    let ssh = || {
        let mut ssh = Command::new("ssh");
        ssh.arg("-F").arg(&config).args([HOST, "true"]);
        ssh
    };
    let sshjobs = || {
        let mut sshjobs = Command::new(env!("CARGO_BIN_EXE_sshjobs"));
        sshjobs
            .arg("--ssh-config")
            .arg(&config)
            .arg("--state-dir")
            .arg(sshd.path("state"));
        sshjobs.args(["run", HOST, "--", "true"]);
        sshjobs
    };
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    let (mut our_starts, mut their_starts) = (0, 0);
    for _ in 0..COLD_ROUNDS {
        theirs.push(whole_process(ssh()));
        their_starts += starts(&sshd);
        ours.push(whole_process(sshjobs()));
        our_starts += starts(&sshd);
    }
    let (our, their) = (median(ours), median(theirs));
    println!(
        "| cold `run HOST -- true`, login shell of 200 ms, against ssh, p50 of {COLD_ROUNDS} | {:.0} ms, {:.1} shells | {:.0} ms, {:.1} shells | {:.2} | ≤ 1.1 |",
        our.as_secs_f64() * 1e3,
        our_starts as f64 / COLD_ROUNDS as f64,
        their.as_secs_f64() * 1e3,
        their_starts as f64 / COLD_ROUNDS as f64,
        our.as_secs_f64() / their.as_secs_f64(),
    );
}

/// Time from the start of a program to its end.
fn whole_process(mut command: Command) -> Duration {
    let start = Instant::now();
    assert!(
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .unwrap()
            .success()
    );
    start.elapsed()
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}
