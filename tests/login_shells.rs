//! Login shells that take long to start, as with pyenv, nvm or conda, are started as seldom as ssh
//! starts them.
#![cfg(unix)]

use std::path::Path;
use std::time::Duration;

use crate::support::command::{sshjobs, told};
use crate::support::login_shell::{sshd_with_login_shell, starts};
use crate::support::{HOST, Sshd, canonical_loop, durable, eventually, run_request};
use sshjobs_wire::{Code, HostsRequest, SignalRequest, SpawnRequest, TailRequest};
use tokio::time::sleep;

#[tokio::test(flavor = "multi_thread")]
async fn a_cold_run_starts_one_login_shell() {
    let sshd = sshd_with_login_shell("/bin/bash", 0.0, "").await;
    let runs: [&[&str]; 5] = [
        &["run", HOST, "--", "echo it works"],
        &["run", HOST, "--", "echo it; echo 'works'\nexit 0"],
        &[
            "run",
            "--env",
            "A=it works",
            "--cwd",
            "/",
            HOST,
            "--",
            "echo \"$A\"; pwd >&2",
        ],
        &["run", "-t", HOST, "--", "echo it works"],
        &["run", "-t", "--env", "A=it works", HOST, "--", "echo $A"],
    ];
    for arguments in runs {
        let printed = told(&sshjobs(&sshd, arguments));
        assert_eq!(
            printed.split_whitespace().collect::<Vec<_>>(),
            ["it", "works"],
            "{arguments:?}"
        );
        assert_eq!(starts(&sshd), 1, "{arguments:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fleet_starts_one_login_shell_for_each_member() {
    let sshd = sshd_with_login_shell("/bin/bash", 0.0, "").await;
    let config = std::fs::read_to_string(sshd.ssh_config()).unwrap();
    std::fs::write(
        sshd.ssh_config(),
        config.replace("Host web1", "Host web1 web2 web3"),
    )
    .unwrap();

    told(&sshjobs(&sshd, &["run", "web*", "--", "true"]));

    assert_eq!(starts(&sshd), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn looks_at_prompts_and_signals_share_one_login_shell() {
    let sshd = sshd_with_login_shell("/bin/bash", 0.2, "").await;
    let service = crate::support::service(&sshd.ssh_config(), Default::default());
    let job = service
        .spawn(SpawnRequest::new(HOST, "printf 'Proceed? '; read x"))
        .await
        .unwrap()
        .job_id;

    for _ in 0..4 {
        let mut tail = TailRequest::new(&job, 0, 10_000);
        tail.quiet_ms = Some(300);
        let reply = service.tail(tail).await.unwrap();
        assert!(reply.awaiting_input, "{reply:?}");
    }
    for signal in ["CONT", "KILL"] {
        let signal = Some(signal.to_owned());
        service
            .signal(SignalRequest {
                signal,
                ..SignalRequest::new(&job)
            })
            .await
            .unwrap();
    }

    canonical_loop(&service, &job).await;
    assert_eq!(starts(&sshd), 2, "the job's own, and the control shell");
    service.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_lasts_has_a_control_shell_before_it_is_signalled() {
    let sshd = sshd_with_login_shell("/bin/bash", 0.0, "").await;
    let service = crate::support::service(&sshd.ssh_config(), Default::default());
    let job = service.spawn(SpawnRequest::new(HOST, "sleep 1000")).await.unwrap().job_id;
    eventually("the control shell starts", async || {
        let started = std::fs::read_to_string(sshd.path("starts")).unwrap_or_default();
        started.lines().count() == 2
    })
    .await;
    starts(&sshd);

    service.signal(SignalRequest::new(&job)).await.unwrap();

    canonical_loop(&service, &job).await;
    assert_eq!(
        starts(&sshd),
        0,
        "the signal needed no login shell of its own"
    );
    service.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn all_durable_jobs_start_by_one_login_shell_and_are_followed_by_another() {
    let sshd = sshd_with_login_shell("/bin/bash", 0.0, "").await;
    let state = sshd.path("state");
    let first =
        crate::support::stored_service(sshd.ssh_config(), state.clone(), Default::default());
    let job = first.spawn(durable("true")).await.unwrap().job_id;
    canonical_loop(&first, &job).await;
    assert_eq!(
        starts(&sshd),
        3,
        "the control shell, the one that installs the scripts, the follower"
    );
    first.shutdown().await;

    let second = crate::support::stored_service(sshd.ssh_config(), state, Default::default());
    // After its output, a follower runs, and later jobs are added to it. It runs as long as a job:
    // however busy the machine is, this one must last longer than the others.
    let first = second.spawn(durable("echo runs; sleep 600")).await.unwrap().job_id;
    second.tail(TailRequest::new(&first, 0, 30_000)).await.unwrap();
    let mut jobs = Vec::new();
    for _ in 0..5 {
        jobs.push(second.spawn(durable("true")).await.unwrap().job_id);
    }
    for job in jobs {
        canonical_loop(&second, &job).await;
    }
    let count = starts(&sshd);
    // On a busy machine a job's first output may come before the answer to its start. It is then
    // followed by a new follower, which has a login shell. With a login shell for each start there
    // would be six more.
    assert!(
        (2..=7).contains(&count),
        "{count} login shells: the control shell, the follower, and perhaps further followers"
    );
    second.signal(SignalRequest::new(&first)).await.unwrap();
    canonical_loop(&second, &first).await;
    second.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn in_csh_and_fish_a_command_runs_once_and_the_shell_is_remembered() {
    for shell in ["/usr/bin/tcsh", "/usr/bin/fish"] {
        assert!(Path::new(shell).exists(), "`make test` installs {shell}");
        let sshd = sshd_with_login_shell(shell, 0.0, "").await;
        let service = crate::support::service(&sshd.ssh_config(), Default::default());
        let ran = sshd.path("ran");
        let command = format!("echo ran >> {}; echo it works", ran.display());

        for connection in 1..=2 {
            let reply = service.run(run_request(&command)).await.unwrap();
            assert_eq!(reply.head, ["it works"], "{shell}: {reply:?}");
            assert_eq!(
                std::fs::read_to_string(&ran).unwrap().lines().count(),
                connection,
                "{shell}"
            );

            // Once a job is lost, the connection is known to be cut.
            let lost = crate::support::spawn(&service, "echo runs; sleep 1000").await;
            service.tail(TailRequest::new(&lost, 0, 30_000)).await.unwrap();
            sshd.cut();
            canonical_loop(&service, &lost).await;
        }
        let counted = starts(&sshd);
        // The first connection: refused, one probe, the command, the lost job. The second: the
        // command, the lost job.
        assert_eq!(counted, 6, "{shell}");
        service.shutdown().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_probe_before_the_first_job_recognizes_csh_and_fish() {
    for shell in ["/usr/bin/tcsh", "/usr/bin/fish"] {
        let sshd = sshd_with_login_shell(shell, 0.0, "").await;
        let service = crate::support::service(&sshd.ssh_config(), Default::default());

        let probe = HostsRequest {
            host: Some(HOST.to_owned()),
            ..HostsRequest::default()
        };
        let reply = service.hosts(probe).await.unwrap();
        let reply = serde_json::to_value(&reply.hosts[0]).unwrap();
        assert_eq!(reply["login_shell"], "foreign", "{shell}: {reply}");

        let mut run = run_request("echo $A");
        run.start.env.insert("A".to_owned(), "x y".into());
        assert_eq!(service.run(run).await.unwrap().head, ["x y"], "{shell}");
        service.shutdown().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_that_is_given_up_while_its_shell_starts_never_runs() {
    let sshd = sshd_with_login_shell("/bin/bash", 1.5, "").await;
    let service = crate::support::service(&sshd.ssh_config(), Default::default());
    let ran = sshd.path("ran");
    let request = SpawnRequest::new(HOST, format!("touch {}", ran.display()));

    let shell_starts = eventually("the shell starts", async || sshd.path("starts").exists());
    tokio::select! {
        spawned = service.spawn(request) => panic!("the shell is not there yet: {spawned:?}"),
        () = shell_starts => {}
    }

    // Longer than the shell takes to start.
    sleep(Duration::from_secs(3)).await;
    assert!(!ran.exists());
    service.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_forced_command_that_ignores_the_request_runs_once() {
    let sshd = Sshd::with("ForceCommand echo started >> DIR/starts; echo deployed").await;

    for arguments in [&["run", HOST, "--", "deploy"][..], &["ping", HOST]] {
        told(&sshjobs(&sshd, arguments));
        assert_eq!(starts(&sshd), 1, "{arguments:?}");
    }
    assert_eq!(
        told(&sshjobs(&sshd, &["run", HOST, "--", "deploy"])),
        "deployed\n"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_whose_commands_are_not_run_by_a_shell_gets_bare_commands() {
    let sshd = Sshd::with("ForceCommand echo router: $SSH_ORIGINAL_COMMAND").await;
    let service = crate::support::service(&sshd.ssh_config(), Default::default());

    let reply = service.run(run_request("show version")).await.unwrap();
    assert_eq!(reply.head, ["router: show version"]);

    let request = SpawnRequest {
        cwd: Some("/".into()),
        ..SpawnRequest::new(HOST, "pwd")
    };
    assert_eq!(
        service.spawn(request).await.unwrap_err().code,
        Code::Unsupported
    );
    service.shutdown().await;
}
