//! Durable jobs against a private sshd: they outlive the connection and the process that started
//! them, exactly.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::support::{HOST, McpClient, Sshd, canonical_loop, durable, eventually, stored_service};
use serde_json::{Value, json};
use sshjobs_core::jobs::{Access, Config, Limits};
use sshjobs_wire::{
    Code, ForgetRequest, JobState, JobsRequest, Service, SignalRequest, StreamArg, TailRequest,
    WriteRequest,
};

fn service(sshd: &Sshd, state: &Path) -> Service {
    stored_service(sshd.ssh_config(), state.to_owned(), Limits::default())
}

const COUNTING: &str = "i=0; while [ $i -lt 300 ]; do i=$((i+1)); echo out $i; [ $((i%3)) = 0 ] && echo err $i >&2; sleep 0.01; done; exit 5";

/// Output of `COUNTING`, whatever the order of the streams is.
fn check_counting(lines: &[String]) {
    let of = |name: &str| {
        lines.iter().filter(|line| line.starts_with(name)).cloned().collect::<Vec<_>>()
    };
    assert_eq!(
        of("out"),
        (1..=300).map(|i| format!("out {i}")).collect::<Vec<_>>()
    );
    assert_eq!(
        of("err"),
        (1..=100).map(|i| format!("err {}", 3 * i)).collect::<Vec<_>>()
    );
    assert_eq!(lines.len(), 400);
}

#[tokio::test]
async fn a_durable_job_is_followed_to_its_end_and_its_variables_and_directory_are_inert() {
    let sshd = Sshd::start().await;
    let service = service(&sshd, &sshd.path("state"));
    let hostile = "a'b\"c$(echo pwned)`x`\\n\n\\d;*~ \t é";
    let mut request = durable("pwd; printf '%s' \"$V\"; cat; exit 3");
    request.env.insert("V".to_owned(), hostile.into());
    request.cwd = Some("/tmp".into());
    request.stdin = Some("from\nstdin\\n\n".into());
    let reply = service.spawn(request).await.unwrap();
    assert!(reply.durable);
    let story = canonical_loop(&service, &reply.job_id).await;
    assert_eq!(
        story.lines.join("\n"),
        format!("/tmp\n{hostile}from\nstdin\\n")
    );
    assert_eq!((story.state(), story.status()), (JobState::Exited, Some(3)));
    let both = service.spawn(durable(COUNTING)).await.unwrap().job_id;
    let story = canonical_loop(&service, &both).await;
    check_counting(&story.lines);
    assert_eq!(story.status(), Some(5));
    service.shutdown().await;
}

#[tokio::test]
async fn a_durable_job_continues_when_its_connection_is_cut_and_when_its_server_is_killed() {
    let sshd = Sshd::start().await;
    let state = sshd.path("state");
    let mut client = McpClient::start(&sshd.ssh_config());
    let spawned = client.ok(
        "ssh_spawn",
        json!({"host": HOST, "command": COUNTING, "durable": true}),
    );
    let job = spawned["job_id"].as_str().unwrap().to_owned();
    let mut shown: Vec<String> = Vec::new();
    let mut cuts = 0;
    while shown.len() < 200 {
        let reply: Value = client.ok(
            "ssh_tail",
            json!({"job_id": job, "since_line_no": shown.len(), "wait_ms": 5000}),
        );
        shown.extend(
            reply["lines"]
                .as_array()
                .unwrap()
                .iter()
                .map(|line| line.as_str().unwrap().to_owned()),
        );
        if cuts < 2 && shown.len() > 60 * (cuts + 1) {
            sshd.cut();
            cuts += 1;
        }
    }
    nix::sys::signal::kill(
        nix::unistd::Pid::from_raw(client.pid().cast_signed()),
        nix::sys::signal::SIGKILL,
    )
    .unwrap();
    let service = service(&sshd, &state.join("sshjobs"));
    let story = canonical_loop(&service, &job).await;
    assert_eq!(
        &story.lines[..shown.len()],
        &shown[..],
        "no number has changed"
    );
    check_counting(&story.lines);
    assert_eq!((story.dropped, story.status()), (0, Some(5)));
    service.shutdown().await;
}

async fn write(service: &Service, job: &str, text: &str, close: bool) {
    let mut request = WriteRequest::new(job);
    request.data = Some(text.into());
    request.close_after = close;
    service.write(request).await.unwrap();
}

#[tokio::test]
async fn what_is_written_to_a_durable_job_arrives_once_also_after_a_restart() {
    let sshd = Sshd::start().await;
    let state = sshd.path("state");
    let first = service(&sshd, &state);
    let job = first
        .spawn(durable(
            "while read -r line; do echo \"got $line\"; done; echo end",
        ))
        .await
        .unwrap()
        .job_id;
    write(&first, &job, "one\n", false).await;
    sshd.cut();
    write(&first, &job, "two\n", false).await;
    first.shutdown().await;
    drop(first);
    let second = service(&sshd, &state);
    write(&second, &job, "three\n", false).await;
    write(&second, &job, "four", true).await;
    let story = canonical_loop(&second, &job).await;
    assert_eq!(story.lines, ["got one", "got two", "got three", "end"]);
    second.shutdown().await;
}

#[tokio::test]
async fn a_durable_job_is_signalled_and_its_time_limit_is_kept_on_the_host() {
    let sshd = Sshd::start().await;
    let service = service(&sshd, &sshd.path("state"));
    let sleeping = service.spawn(durable("sleep 1000")).await.unwrap().job_id;
    eventually("it is verified dead", async || {
        let request = SignalRequest {
            signal: Some("KILL".into()),
            ..SignalRequest::new(&sleeping)
        };
        match service.signal(request).await {
            Ok(reply) => crate::support::is_dead(&reply),
            // A busy host may have killed it and not reported in time.
            Err(error) => error.code == Code::JobEnded,
        }
    })
    .await;
    let story = canonical_loop(&service, &sleeping).await;
    assert_eq!(
        (story.state(), story.signal()),
        (JobState::Signaled, Some("KILL"))
    );
    let mut limited = durable("echo begun; sleep 1000");
    limited.timeout_s = Some(0.5);
    let job = service.spawn(limited).await.unwrap().job_id;
    let story = canonical_loop(&service, &job).await;
    assert_eq!(
        (story.state(), story.lines),
        (JobState::TimedOut, vec!["begun".to_owned()])
    );
    service.shutdown().await;
}

#[tokio::test]
async fn two_processes_that_find_an_orphan_do_not_both_take_it() {
    let sshd = Sshd::start().await;
    let state = sshd.path("state");
    let first = service(&sshd, &state);
    let job = first.spawn(durable(COUNTING)).await.unwrap().job_id;
    first.shutdown().await;
    drop(first);
    let (one, two) = (service(&sshd, &state), service(&sshd, &state));
    let (left, right) = tokio::join!(canonical_loop(&one, &job), canonical_loop(&two, &job));
    check_counting(&left.lines);
    assert_eq!((&left.lines, left.status()), (&right.lines, right.status()));
    one.shutdown().await;
    two.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_sees_the_next_line_although_the_process_that_followed_the_job_has_ended() {
    let sshd = Sshd::start().await;
    let state = sshd.path("state");
    let owner = service(&sshd, &state);
    let go = sshd.path("go");
    let command = format!(
        "echo first; until [ -e {} ]; do sleep 0.05; done; echo second",
        go.display()
    );
    let job = owner.spawn(durable(&command)).await.unwrap().job_id;
    // As the command line's `tail`: it takes over nothing but what it is asked for.
    let limits = Limits {
        adopts_jobs: false,
        ..Limits::default()
    };
    let reader = stored_service(sshd.ssh_config(), state.clone(), limits);
    let first = reader.tail(TailRequest::new(&job, 0, 5000)).await.unwrap();
    assert_eq!(first.lines.unwrap(), ["first"]);

    let end_the_owner = async {
        owner.shutdown().await;
        drop(owner);
        std::fs::write(&go, "").unwrap();
    };
    let (second, ()) = tokio::join!(
        reader.tail(TailRequest::new(&job, 1, 50_000)),
        end_the_owner
    );

    assert_eq!(second.unwrap().lines.unwrap(), ["second"]);
    reader.shutdown().await;
}

#[tokio::test]
async fn a_supervisor_that_is_killed_and_a_spool_that_is_removed_are_lost_and_never_exited() {
    let sshd = Sshd::start().await;
    let service = service(&sshd, &sshd.path("state"));
    let killed = service.spawn(durable("echo begun; sleep 3")).await.unwrap().job_id;
    let removed = service.spawn(durable("echo begun; sleep 3")).await.unwrap().job_id;
    for job in [&killed, &removed] {
        service.tail(TailRequest::new(job, 0, 10_000)).await.unwrap();
    }
    let spool =
        "${XDG_STATE_HOME:-$HOME/.local/state}/sshjobs/spool/$(cat /proc/sys/kernel/hostname)";
    crate::support::run(
        &service,
        &format!("read -r p _ <{spool}/{killed}/sup; kill -9 $p; rm -rf {spool}/{removed}"),
    )
    .await
    .unwrap();
    for (job, reason) in [(&killed, "supervisor_died"), (&removed, "spool_gone")] {
        let story = canonical_loop(&service, job).await;
        let standing = story.last.as_ref().unwrap().standing.clone();
        assert_eq!(
            (standing.state, standing.reason.as_deref()),
            (JobState::Lost, Some(reason))
        );
        assert_eq!(story.lines, ["begun"]);
    }
    service.shutdown().await;
}

#[tokio::test]
async fn a_durable_job_on_a_terminal_runs_under_script() {
    let sshd = Sshd::start().await;
    let service = service(&sshd, &sshd.path("state"));
    let mut request = durable("stty size; test -t 0 && test -t 1 && echo terminal; exit 4");
    (request.pty, request.cols, request.rows) = (true, Some(100), Some(30));
    match service.spawn(request).await {
        Ok(reply) => {
            let story = canonical_loop(&service, &reply.job_id).await;
            assert_eq!(
                (story.lines.clone(), story.status()),
                (vec!["30 100".into(), "terminal".into()], Some(4))
            );
            for file in std::fs::read_dir(sshd.spool(&reply.job_id)).unwrap() {
                let file = file.unwrap();
                let mode = file.metadata().unwrap().permissions().mode();
                assert_eq!(mode & 0o077, 0, "{:?}: {mode:o}", file.path());
            }
        }
        Err(error) => assert_eq!(
            (error.code, error.message.contains("script")),
            (Code::Unsupported, true)
        ),
    }
    service.shutdown().await;
}

#[tokio::test]
async fn a_process_that_ends_leaves_its_durable_jobs_to_the_next() {
    let sshd = Sshd::start().await;
    let state = sshd.path("state");
    let first = service(&sshd, &state);
    let job = first.spawn(durable("sleep 1; echo late")).await.unwrap().job_id;
    first.shutdown().await;
    drop(first);
    eventually("it has ended", async || {
        sshd.spool(&job).join("exit").exists()
    })
    .await;
    let second = service(&sshd, &state);
    let story = crate::support::follow(&second, &job, StreamArg::Stdout, 5000).await;
    assert_eq!(
        (story.lines.clone(), story.status()),
        (vec!["late".to_owned()], Some(0))
    );
    second.shutdown().await;
}

#[tokio::test]
async fn processes_of_a_job_without_a_supervisor_are_ended_when_it_is_forgotten() {
    let sshd = Sshd::start().await;
    let service = service(&sshd, &sshd.path("state"));
    let alive = sshd.path("alive");
    let command = format!(
        "while :; do date +%s%N > {}; sleep 0.1; done",
        alive.display()
    );
    let job = service.spawn(durable(&command)).await.unwrap().job_id;
    eventually("it runs", async || alive.exists()).await;
    let supervisor = std::fs::read_to_string(sshd.spool(&job).join("sup")).unwrap();
    let pid = supervisor.split(' ').next().unwrap().parse().unwrap();
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::SIGKILL).unwrap();
    assert_eq!(canonical_loop(&service, &job).await.state(), JobState::Lost);
    service.forget(sshjobs_wire::ForgetRequest::new(&job)).await.unwrap();
    eventually("its process is gone, and its spool", async || {
        let before = std::fs::read(&alive).unwrap();
        tokio::time::sleep(Duration::from_millis(400)).await;
        std::fs::read(&alive).unwrap() == before && !sshd.spool(&job).exists()
    })
    .await;
    service.shutdown().await;
}

#[tokio::test]
async fn a_job_that_prints_too_much_is_ended_on_its_host_also_when_the_warden_was_killed() {
    let sshd = Sshd::start().await;
    let config = Config {
        ssh_config: Some(sshd.ssh_config()),
        state_dir: Some(sshd.path("state")),
        limits: Limits {
            spool_bytes_per_job: std::num::NonZeroU64::new(1_000_000),
            ..Default::default()
        },
        ..Config::default()
    };
    let service = Service::new(config, Access::Listed);
    let go = sshd.path("go");
    let command = format!(
        "echo begun; while ! [ -e {} ]; do sleep 0.1; done; while :; do seq 2000; sleep 0.01; done",
        go.display()
    );
    let idle = service.spawn(durable("sleep 1000")).await.unwrap().job_id;
    let job = service.spawn(durable(&command)).await.unwrap().job_id;
    service.tail(TailRequest::new(&job, 0, 10_000)).await.unwrap();
    let warden = sshd.spool("warden");
    eventually("there is a warden", async || warden.exists()).await;
    let pid = std::fs::read_to_string(&warden)
        .unwrap()
        .split(' ')
        .next()
        .unwrap()
        .parse()
        .unwrap();
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::SIGKILL).unwrap();
    std::fs::write(&go, "").unwrap();
    let story = canonical_loop(&service, &job).await;
    assert_eq!(
        (story.state(), story.signal()),
        (JobState::Signaled, Some("TERM"))
    );
    // The warden continues for the other job, and has finished with this one.
    let said = || {
        let errors = std::fs::read_to_string(sshd.spool(&job).join("err")).unwrap();
        errors.matches("more than 1000000 bytes").count()
    };
    assert_eq!(said(), 1);
    tokio::time::sleep(Duration::from_millis(2500)).await;
    assert_eq!(said(), 1);
    let request = sshjobs_wire::ForgetRequest {
        force: true,
        ..sshjobs_wire::ForgetRequest::new(&idle)
    };
    service.forget(request).await.unwrap();
    service.shutdown().await;
}

/// The control shells on the host: those that wait for scripts.
fn control_shells(sshd: &Sshd) -> Vec<i32> {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let pids = processes.filter_map(|process| process.file_name().to_str()?.parse().ok());
    let read =
        |pid: &i32, file: &str| std::fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
    let has = |text: Vec<u8>, wanted: &str| String::from_utf8_lossy(&text).contains(wanted);
    let ours = format!(" 127.0.0.1 {}\0", sshd.port());
    // As its command line has `while read -r id`.
    pids.filter(|pid| {
        has(read(pid, "cmdline"), "while read -r id") && has(read(pid, "environ"), &ours)
    })
    .collect()
}

#[tokio::test]
async fn a_durable_job_can_be_interrupted() {
    let sshd = Sshd::start().await;
    let service = service(&sshd, &sshd.path("state"));
    let job = service.spawn(durable("echo begun; exec sleep 1000")).await.unwrap().job_id;
    service.tail(TailRequest::new(&job, 0, 30_000)).await.unwrap();

    let signal = Some("INT".to_owned());
    service
        .signal(SignalRequest {
            signal,
            ..SignalRequest::new(&job)
        })
        .await
        .unwrap();

    let story = canonical_loop(&service, &job).await;
    assert_eq!(
        (story.state(), story.signal()),
        (JobState::Signaled, Some("INT"))
    );
    service.shutdown().await;
}

#[tokio::test]
async fn a_durable_job_starts_once_whatever_became_of_the_control_shell() {
    let sshd = Sshd::start().await;
    let service = service(&sshd, &sshd.path("state"));
    let ran = sshd.path("ran");
    let command = |number: u32| format!("echo {number} >> {}", ran.display());

    for number in 0..5 {
        let job = service.spawn(durable(&command(number))).await.unwrap().job_id;
        assert_eq!(canonical_loop(&service, &job).await.status(), Some(0));
        match number {
            0 => {
                // A script that has just ended may still look like one.
                eventually("there is one", async || control_shells(&sshd).len() == 1).await;
                let shell = control_shells(&sshd)[0];
                let shell = rustix::process::Pid::from_raw(shell).unwrap();
                rustix::process::kill_process(shell, rustix::process::Signal::KILL).unwrap();
            }
            1 => sshd.cut(),
            2 => std::fs::remove_dir_all(sshd.path("on-the-host")).unwrap(),
            // Only the scripts are removed.
            3 => {
                let spool =
                    std::fs::read_dir(sshd.path("on-the-host/sshjobs/spool")).unwrap().flatten();
                spool
                    .filter(|entry| entry.path().is_file())
                    .for_each(|file| std::fs::remove_file(file.path()).unwrap());
            }
            _ => {}
        }
    }

    assert_eq!(std::fs::read_to_string(&ran).unwrap(), "0\n1\n2\n3\n4\n");
    service.shutdown().await;
    eventually("the control shells end", async || {
        control_shells(&sshd).is_empty()
    })
    .await;
}

#[tokio::test]
async fn a_control_shell_gives_way_where_a_connection_has_few_sessions() {
    for most in [1, 2, 3] {
        let sshd = Sshd::with(&format!("MaxSessions {most}")).await;
        let service = service(&sshd, &sshd.path("state"));
        for _ in 0..3 {
            let job =
                service.spawn(durable("read -r line; echo \"got $line\"")).await.unwrap().job_id;
            let mut write = WriteRequest::new(&job);
            write.data = Some("it\n".into());
            service.write(write).await.unwrap();
            assert_eq!(
                canonical_loop(&service, &job).await.lines,
                ["got it"],
                "MaxSessions {most}"
            );
        }
        service.shutdown().await;
    }
}

#[tokio::test]
async fn a_durable_job_may_print_what_the_spool_says() {
    let sshd = Sshd::start().await;
    let service = service(&sshd, &sshd.path("state"));
    for _ in 0..3 {
        let job = service
            .spawn(durable("echo sshjobs-spool missing; exit 2"))
            .await
            .unwrap()
            .job_id;
        let story = canonical_loop(&service, &job).await;
        assert_eq!(
            (&story.lines, story.state()),
            (&vec!["sshjobs-spool missing".to_owned()], JobState::Exited)
        );
    }
    service.shutdown().await;
}

#[tokio::test]
async fn durable_jobs_work_again_after_the_spool_was_removed() {
    let sshd = Sshd::start().await;
    let service = service(&sshd, &sshd.path("state"));
    let first = service.spawn(durable("echo first")).await.unwrap().job_id;
    canonical_loop(&service, &first).await;

    std::fs::remove_dir_all(sshd.path("on-the-host")).unwrap();
    let second = service.spawn(durable("echo second")).await.unwrap().job_id;

    let story = tokio::time::timeout(crate::support::PATIENCE, canonical_loop(&service, &second))
        .await
        .unwrap();
    assert_eq!(
        (story.state(), story.lines.join("\n")),
        (JobState::Exited, "second".to_owned())
    );
    service.shutdown().await;
}

#[tokio::test]
async fn a_follower_that_skips_output_is_restarted_ever_less_often() {
    /// Reports output far after the beginning, and exits.
    const HOSTILE: &str = r#"
        open(my $sessions, '>>', 'SESSIONS'); print $sessions "x\n"; close $sessions;
        my ($job) = split ' ', <STDIN>;
        syswrite(STDOUT, "C\nD $job 1 999 4\nabcd");
    "#;
    let sshd = Sshd::start().await;
    let service = service(&sshd, &sshd.path("state"));
    service.spawn(durable("sleep 10")).await.unwrap();
    let sessions = sshd.path("sessions");
    let scripts = follow_scripts(&sshd);
    assert_eq!(scripts.len(), 1, "{scripts:?}");
    let script = HOSTILE.replace("SESSIONS", sessions.to_str().unwrap());
    std::fs::write(&scripts[0], script).unwrap();

    sshd.cut();
    eventually("a session has begun", async || sessions.exists()).await;
    // Nothing else shows that a session does not start.
    tokio::time::sleep(Duration::from_secs(5)).await;

    let count = std::fs::read_to_string(&sessions).unwrap().lines().count();
    assert!((2..=8).contains(&count), "{count} sessions in 5 seconds");
    service.shutdown().await;
}

#[tokio::test]
async fn a_killed_job_whose_follower_is_silent_can_be_forgotten_by_force() {
    /// Takes its jobs, and says nothing about them.
    const SILENT: &str = "syswrite(STDOUT, \"C\\n\"); 1 while <STDIN>; sleep 60";

    let sshd = Sshd::start().await;
    let service = service(&sshd, &sshd.path("state"));
    let job = service.spawn(durable("sleep 1234")).await.unwrap().job_id;
    std::fs::write(&follow_scripts(&sshd)[0], SILENT).unwrap();
    sshd.cut();
    // The old follower has gone with its connection.
    tokio::time::sleep(Duration::from_secs(2)).await;
    let forget = |force| ForgetRequest {
        job_id: job.clone(),
        force,
        ..ForgetRequest::default()
    };

    let refused = service.forget(forget(false)).await.unwrap_err();
    assert_eq!(refused.code, Code::StillRunning);
    service.forget(forget(true)).await.unwrap();

    let gone = service.tail(TailRequest::new(&job, 0, 0)).await.unwrap_err();
    assert_eq!(gone.code, Code::ExpiredJob);
    service.shutdown().await;
    let later = self::service(&sshd, &sshd.path("state"));
    let listed = later.jobs(JobsRequest::default()).await.unwrap();
    assert_eq!(listed.total, 0, "{listed:?}");
    later.shutdown().await;
}

/// The followers in perl that are installed on the host.
fn follow_scripts(sshd: &Sshd) -> Vec<PathBuf> {
    let output = std::process::Command::new("find")
        .arg(sshd.path("on-the-host"))
        .args(["-name", "*.pl"])
        .output()
        .unwrap();
    String::from_utf8(output.stdout).unwrap().lines().map(PathBuf::from).collect()
}

#[tokio::test]
async fn a_job_that_is_forgotten_leaves_nothing_on_its_host_and_a_running_one_stays() {
    let sshd = Sshd::start().await;
    let service = service(&sshd, &sshd.path("state"));
    let spools = || {
        let machines = std::fs::read_dir(sshd.path("on-the-host/sshjobs/spool")).unwrap();
        let folders = machines.map(|entry| entry.unwrap().path()).filter(|path| path.is_dir());
        let jobs = folders.flat_map(|folder| std::fs::read_dir(folder).unwrap());
        let names = jobs.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.filter(|name| name.starts_with(HOST)).collect::<Vec<_>>()
    };
    let running = service.spawn(durable("sleep 1000")).await.unwrap().job_id;
    let ended = service.spawn(durable("echo done")).await.unwrap().job_id;
    assert_eq!(canonical_loop(&service, &ended).await.status(), Some(0));
    let error = service.forget(ForgetRequest::new(&running)).await.unwrap_err();
    assert_eq!(error.code, Code::StillRunning, "{error:?}");
    service.forget(ForgetRequest::new(&ended)).await.unwrap();
    eventually("the spool of the other is gone", async || {
        spools() == [running.clone()]
    })
    .await;
    let request = serde_json::from_value(json!({"job_id": running, "force": true})).unwrap();
    service.forget(request).await.unwrap();
    eventually("nothing is left", async || spools().is_empty()).await;
    service.shutdown().await;
}
