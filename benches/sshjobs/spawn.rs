//! How long it takes until a command runs and its end is seen.

use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use sshjobs_core::jobs::Limits;
use sshjobs_wire::{RunRequest, Service, SpawnRequest};
use tokio::task::JoinSet;

use crate::distance;
use crate::peers::{bare_connection, bare_job, one_job, service, ssh, ssh_exit};
use crate::report::{Curve, Line, Report, median, millis, percentile, ratio};
use crate::support::login_shell::{sshd_with_login_shell, starts};
use crate::support::{HOST, Sshd};

/// Jobs of each kind.
const ROUNDS: usize = 300;
/// Cold starts of each program.
const COLD_ROUNDS: usize = 15;

/// Spawn to exit seen on a warm connection, the three in turn.
pub(crate) async fn latency(report: &mut Report) {
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
    report.row(
        "spawn → exit seen, p50, against a bare russh channel",
        &millis(our),
        &millis(bare),
        ratio(our, bare),
        "≤ 1.08",
    );
    report.row(
        "the same against ssh over a ControlMaster",
        &millis(our),
        &millis(ssh),
        ratio(our, ssh),
        "≤ 0.25",
    );
    ssh_exit(&sshd, &socket);
    service.shutdown().await;
}

/// Cold starts on an account whose login shell takes 200 ms to start.
pub(crate) async fn slow_login_shell(report: &mut Report) {
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
    let shown = |time: Duration, starts: usize| {
        format!(
            "{}, {:.1} shells",
            millis(time),
            starts as f64 / COLD_ROUNDS as f64
        )
    };
    report.row(
        "cold `run HOST -- true`, login shell of 200 ms, against ssh, p50 of 15",
        &shown(our, our_starts),
        &shown(their, their_starts),
        ratio(our, their),
        "≤ 1.1",
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

/// Spawn to exit on a host that is 50 ms away.
pub(crate) async fn far(report: &mut Report) {
    let (ours, theirs) = spawn_and_ssh_at(Duration::from_millis(25)).await;
    report.row(
        "spawn → exit seen at 50 ms of round trip, p50 of 40, against ssh over a ControlMaster",
        &millis(ours),
        &millis(theirs),
        ratio(ours, theirs),
        "–",
    );
}

/// Spawn to exit on a host that is ever farther away.
pub(crate) async fn curve(report: &mut Report) {
    let mut points = [Vec::new(), Vec::new()];
    for round_trip in [0, 1, 10, 30, 100] {
        let (ours, theirs) = spawn_and_ssh_at(Duration::from_millis(round_trip) / 2).await;
        // A logarithmic axis has no zero.
        let x = (round_trip as f64).max(0.1);
        for (points, time) in points.iter_mut().zip([ours, theirs]) {
            points.push((x, time.as_secs_f64() * 1e3));
        }
    }
    let [ours, theirs] = points;
    report.curve(Curve {
        name: "distance",
        title: "Spawn to exit seen, at a distance",
        x: "round trip in ms (0.1 stands for none)",
        y: "ms, p50 of 40",
        lines: vec![
            Line {
                name: "sshjobs".to_owned(),
                points: ours,
            },
            Line {
                name: "ssh over a ControlMaster".to_owned(),
                points: theirs,
            },
        ],
    });
}

/// Spawn to exit seen, and ssh over a ControlMaster, p50 of 40, with a delay in each direction.
async fn spawn_and_ssh_at(delay: Duration) -> (Duration, Duration) {
    let sshd = Sshd::start().await;
    let far = distance::far_away(sshd.port(), delay).await.to_string();
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
    service.shutdown().await;
    (percentile(&mut ours, 50), percentile(&mut theirs, 50))
}

/// Jobs that run at the same time on an sshd with its default limits.
pub(crate) async fn crowd(report: &mut Report) {
    let sshd = Sshd::start().await;
    let service = service(&sshd, Limits::default());
    let start = Instant::now();
    let mut tasks = JoinSet::new();
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
    report.row(
        what,
        &format!("{} on {connections} connections", millis(elapsed)),
        "–",
        None,
        "200",
    );
    service.shutdown().await;
}

/// From the end of every connection to the end of the next job.
pub(crate) async fn recovery(report: &mut Report) {
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
    let what = "a cut of all connections → the next job's exit seen, p50 of 20, against a new ssh";
    report.row(
        what,
        &millis(ours),
        &millis(theirs),
        ratio(ours, theirs),
        "–",
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
