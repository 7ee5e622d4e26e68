//! Everything that goes wrong between here and the command, against a private sshd: each has its
//! own code, and nothing that had arrived is lost.

use std::time::Duration;

use crate::support::{HOST, Sshd, canonical_loop, eventually, run, service, spawn, stored_service};
use sshjobs_core::jobs::Limits;
use sshjobs_wire::{
    Code, Error, ForgetRequest, HostsRequest, JobState, JobsRequest, Service, SignalRequest,
    SpawnRequest, TailRequest, WriteRequest,
};
use tokio::time::Instant;

async fn spawn_error(sshd: &Sshd) -> Error {
    let service = service(&sshd.ssh_config(), Limits::default());
    service
        .spawn(SpawnRequest::new(HOST, "true"))
        .await
        .expect_err("the spawn fails")
}

fn started(sshd: &Sshd) -> Service {
    service(&sshd.ssh_config(), Limits::default())
}

#[tokio::test]
async fn an_unknown_host_is_refused_with_the_nearest_known_one() {
    let sshd = Sshd::start().await;
    let error = started(&sshd).spawn(SpawnRequest::new("wbe1", "true")).await.unwrap_err();
    assert_eq!(error.code, Code::UnknownHost);
    assert!(error.hint.contains("\"web1\""), "{error}");
}

#[tokio::test]
async fn a_refused_port_is_unreachable() {
    let sshd = Sshd::start().await;
    let config = std::fs::read_to_string(sshd.ssh_config()).unwrap();
    let closed = std::net::TcpListener::bind(("127.0.0.1", 0))
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    std::fs::write(
        sshd.ssh_config(),
        config.replace(&sshd.port().to_string(), &closed.to_string()),
    )
    .unwrap();
    let error = spawn_error(&sshd).await;
    assert_eq!((error.code, error.retryable), (Code::Unreachable, true));
}

#[tokio::test]
async fn a_host_that_never_speaks_runs_into_the_time_limit() {
    let sshd = Sshd::start().await;
    let silent = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let port = silent.local_addr().unwrap().port().to_string();
    let config = std::fs::read_to_string(sshd.ssh_config()).unwrap();
    std::fs::write(
        sshd.ssh_config(),
        config.replace(&sshd.port().to_string(), &port) + "  ConnectTimeout 1\n",
    )
    .unwrap();
    let start = Instant::now();
    assert_eq!(spawn_error(&sshd).await.code, Code::Timeout);
    assert!(start.elapsed() < Duration::from_secs(5));
}

#[tokio::test]
async fn a_key_that_the_host_does_not_take_is_auth_failed_after_one_login() {
    let sshd = Sshd::with("LogLevel VERBOSE").await;
    sshd.configure("other");
    let error = spawn_error(&sshd).await;
    assert_eq!((error.code, error.retryable), (Code::AuthFailed, false));
    assert!(error.message.contains("/other"), "{error}");
    assert_eq!(
        sshd.log().matches("Connection from").count(),
        1,
        "{}",
        sshd.log()
    );
}

#[tokio::test]
async fn a_private_key_that_others_can_read_is_not_used() {
    use std::os::unix::fs::PermissionsExt;
    let sshd = Sshd::start().await;
    std::fs::set_permissions(sshd.path("id"), std::fs::Permissions::from_mode(0o644)).unwrap();
    let error = spawn_error(&sshd).await;
    assert_eq!(error.code, Code::AuthFailed);
    assert!(error.message.contains("others can read it"), "{error}");
}

#[tokio::test]
async fn a_host_that_is_not_listed_is_refused_with_its_fingerprint() {
    let sshd = Sshd::start().await;
    sshd.write_known_hosts("");
    let error = spawn_error(&sshd).await;
    assert_eq!(error.code, Code::HostKeyUnknown);
    assert!(error.message.contains("ssh-ed25519 SHA256:"), "{error}");
}

#[tokio::test]
async fn a_changed_host_key_is_refused_with_file_line_and_both_fingerprints() {
    let sshd = Sshd::start().await;
    sshd.trust("other");
    let error = spawn_error(&sshd).await;
    assert_eq!(error.code, Code::HostKeyChanged);
    assert!(
        error.message.contains("known_hosts:1") && error.message.matches("SHA256:").count() == 2,
        "{error}"
    );
}

#[tokio::test]
async fn a_revoked_host_key_is_refused() {
    let sshd = Sshd::start().await;
    let listed = std::fs::read_to_string(sshd.path("known_hosts")).unwrap();
    let key = listed.split_once(' ').unwrap().1;
    sshd.write_known_hosts(&format!("{listed}@revoked * {key}"));
    assert_eq!(spawn_error(&sshd).await.code, Code::HostKeyRevoked);
}

#[tokio::test]
async fn a_known_hosts_that_cannot_be_read_is_not_empty() {
    let sshd = Sshd::start().await;
    std::fs::remove_file(sshd.path("known_hosts")).unwrap();
    std::fs::create_dir(sshd.path("known_hosts")).unwrap();
    assert_eq!(spawn_error(&sshd).await.code, Code::Io);
}

#[tokio::test]
async fn a_proxied_host_is_not_connected_to_directly() {
    let sshd = Sshd::start().await;
    sshd.append("  ProxyCommand nc %h %p\n");
    assert_eq!(spawn_error(&sshd).await.code, Code::Unsupported);
}

#[tokio::test]
async fn a_connection_cut_in_mid_output_is_lost_and_keeps_what_had_arrived() {
    let sshd = Sshd::start().await;
    let service = started(&sshd);
    let job = spawn(&service, "seq 1 100; printf half; sleep 1000").await;
    eventually("all of it has arrived", async || {
        let reply = service.tail(TailRequest::new(&job, 100, 0)).await.unwrap();
        reply.partial.is_some_and(|partial| partial.stdout.as_deref() == Some("half"))
    })
    .await;
    sshd.cut();
    let story = canonical_loop(&service, &job).await;
    assert_eq!(
        (story.state(), story.status(), story.signal()),
        (JobState::Lost, None, None)
    );
    assert_eq!(
        (story.lines.len(), story.lines[100].as_str()),
        (101, "half")
    );
    assert_eq!(
        run(&service, "echo again").await.unwrap().head,
        ["again"],
        "the next spawn makes a new connection"
    );
    let request = SignalRequest {
        signal: Some("KILL".to_owned()),
        ..SignalRequest::new(&job)
    };
    let reply = service.signal(request).await.unwrap();
    assert!(
        crate::support::is_dead(&reply),
        "a lost job's processes can still be ended"
    );
}

#[tokio::test]
async fn every_job_of_a_cut_connection_is_lost() {
    let sshd = Sshd::start().await;
    let service = started(&sshd);
    let mut jobs = Vec::new();
    for n in 0..5 {
        jobs.push(spawn(&service, &format!("echo {n}; sleep 2")).await);
    }
    for job in &jobs {
        service.tail(TailRequest::new(job, 0, 5000)).await.unwrap();
    }
    sshd.cut();
    for (n, job) in jobs.iter().enumerate() {
        let story = canonical_loop(&service, job).await;
        assert_eq!(
            (story.state(), story.lines.join("")),
            (JobState::Lost, n.to_string())
        );
    }
}

#[tokio::test]
async fn a_frozen_peer_is_noticed_by_keepalive() {
    let sshd = Sshd::start().await;
    let service = started(&sshd);
    let job = spawn(&service, "echo before; sleep 1000").await;
    service.tail(TailRequest::new(&job, 0, 5000)).await.unwrap();
    sshd.freeze();
    let start = Instant::now();
    let story = canonical_loop(&service, &job).await;
    assert_eq!(
        (story.state(), story.lines.join("")),
        (JobState::Lost, "before".to_owned())
    );
    assert!(start.elapsed() < Duration::from_secs(10));
}

#[tokio::test]
async fn a_server_that_died_is_unreachable_and_then_reached_again_by_name() {
    let sshd = Sshd::start().await;
    let service = started(&sshd);
    run(&service, "true").await.unwrap();
    let config = sshd.ssh_config();
    let text = std::fs::read_to_string(&config).unwrap();
    let other = Sshd::start().await;
    std::fs::write(
        &config,
        std::fs::read_to_string(other.ssh_config()).unwrap(),
    )
    .unwrap();
    sshd.cut();
    // A command that is sent at the very moment of the cut is reported as lost: it may have run.
    eventually("the cut is noticed", async || {
        service
            .hosts(Default::default())
            .await
            .unwrap()
            .hosts
            .iter()
            .all(|host| !host.connected)
    })
    .await;
    assert_eq!(run(&service, "echo moved").await.unwrap().head, ["moved"]);
    std::fs::write(&config, text).unwrap();
}

#[tokio::test]
async fn shutdown_ends_attached_jobs_and_leaves_nothing_behind() {
    let sshd = Sshd::start().await;
    let service = service(
        &sshd.ssh_config(),
        Limits {
            kill_grace: Duration::from_millis(300),
            ..Limits::default()
        },
    );
    let mut pids = Vec::new();
    for command in [
        "sleep 1000",
        "trap '' TERM; sleep 1000 & wait",
        "setsid sleep 1000 & wait",
    ] {
        let job = spawn(&service, &format!("echo $$; {command}")).await;
        let reply = service.tail(TailRequest::new(&job, 0, 5000)).await.unwrap();
        pids.push(reply.lines.unwrap()[0].clone());
    }
    let sleepers = || {
        let all = std::process::Command::new("pgrep")
            .args(["-fx", "sleep 1000", "-s"])
            .arg(pids.join(","))
            .output();
        String::from_utf8(all.unwrap().stdout).unwrap()
    };
    assert!(!sleepers().is_empty());
    let start = Instant::now();
    service.shutdown().await;
    assert!(
        start.elapsed() < Duration::from_secs(8),
        "{:?}",
        start.elapsed()
    );
    assert_eq!(sleepers(), "");
    let error = service.spawn(SpawnRequest::new(HOST, "true")).await.unwrap_err();
    assert_eq!(error.code, Code::ShuttingDown);
}

#[tokio::test]
async fn a_lower_max_sessions_than_planned_is_learned() {
    let sshd = Sshd::with("MaxSessions 2").await;
    let service = started(&sshd);
    let mut jobs = Vec::new();
    for _ in 0..5 {
        jobs.push(spawn(&service, "sleep 0.5; echo done").await);
    }
    for job in jobs {
        assert_eq!(canonical_loop(&service, &job).await.lines, ["done"]);
    }
}

#[tokio::test]
async fn a_forced_command_gets_no_prelude_and_no_cwd() {
    let sshd = Sshd::with("ForceCommand echo forced").await;
    let service = started(&sshd);
    assert_eq!(run(&service, "anything").await.unwrap().head, ["forced"]);
    let request = SpawnRequest {
        cwd: Some("/".into()),
        ..SpawnRequest::new(HOST, "pwd")
    };
    assert_eq!(
        service.spawn(request).await.unwrap_err().code,
        Code::Unsupported
    );
}

#[tokio::test]
async fn a_failed_spawn_leaves_no_job() {
    let sshd = Sshd::start().await;
    sshd.write_known_hosts("");
    let service = started(&sshd);
    let request = || SpawnRequest {
        idempotency_key: Some("k".into()),
        ..SpawnRequest::new(HOST, "echo now")
    };
    service.spawn(request()).await.unwrap_err();
    assert_eq!(service.jobs(Default::default()).await.unwrap().total, 0);
    sshd.trust("host");
    let job = service.spawn(request()).await.unwrap().job_id;
    assert_eq!(
        canonical_loop(&service, &job).await.lines,
        ["now"],
        "the key of a failed spawn is free again"
    );
}

#[tokio::test]
async fn a_host_probe_tells_what_was_negotiated_or_why_not() {
    let sshd = Sshd::start().await;
    let service = started(&sshd);
    let probe = || HostsRequest {
        host: Some(HOST.to_owned()),
        tag: None,
        ..HostsRequest::default()
    };
    let host = service.hosts(probe()).await.unwrap().hosts.remove(0);
    assert!(host.connected && host.host_key.unwrap().starts_with("ssh-ed25519 SHA256:"));
    assert_eq!(
        (host.cipher.as_deref(), host.login_shell.as_deref()),
        (Some("aes256-gcm@openssh.com"), Some("posix"))
    );
    let other = started(&sshd);
    sshd.write_known_hosts("");
    let host = other.hosts(probe()).await.unwrap().hosts.remove(0);
    assert!(!host.connected && host.last_error.unwrap().starts_with("host_key_unknown"));
}

#[tokio::test]
async fn a_refused_call_is_no_error_of_its_host() {
    let sshd = Sshd::start().await;
    let service = started(&sshd);
    let with_key = |command: &str| SpawnRequest {
        idempotency_key: Some("k".into()),
        ..SpawnRequest::new(HOST, command)
    };
    service.spawn(with_key("true")).await.unwrap();
    let reused = service.spawn(with_key("false")).await.unwrap_err();
    assert_eq!(reused.code, Code::InvalidArgument, "{reused}");
    let host = service.hosts(HostsRequest::default()).await.unwrap().hosts.remove(0);
    assert_eq!(host.last_error, None);
    service.shutdown().await;
}

#[tokio::test]
async fn calls_with_the_same_key_all_learn_why_the_host_cannot_be_reached() {
    let sshd = Sshd::start().await;
    sshd.write_known_hosts("");
    let service = started(&sshd);
    let request = || SpawnRequest {
        idempotency_key: Some("k".into()),
        ..SpawnRequest::new(HOST, "true")
    };
    let (one, two) = tokio::join!(service.spawn(request()), service.spawn(request()));
    assert_eq!(
        (one.unwrap_err().code, two.unwrap_err().code),
        (Code::HostKeyUnknown, Code::HostKeyUnknown)
    );
}

#[tokio::test]
async fn shutdown_ends_a_job_that_has_only_just_started() {
    let sshd = Sshd::start().await;
    let service = started(&sshd);
    run(&service, "true").await.unwrap();
    let duration = format!("1000.{}", sshd.port());
    spawn(&service, &format!("sleep {duration}")).await;
    service.shutdown().await;
    let found = std::process::Command::new("pgrep")
        .args(["-fx", &format!("sleep {duration}")])
        .output()
        .unwrap();
    assert_eq!(String::from_utf8(found.stdout).unwrap(), "");
    let jobs = service.jobs(Default::default()).await.unwrap().jobs;
    assert_eq!(
        jobs[0].standing.state,
        JobState::Signaled,
        "it was ended by its tree, and seen to end"
    );
}

/// Starts this number of jobs at the same time.
async fn spawn_many(
    service: &std::sync::Arc<Service>,
    count: usize,
    command: &'static str,
) -> Vec<Result<String, Error>> {
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..count {
        let service = std::sync::Arc::clone(service);
        let request = SpawnRequest::new(HOST, command);
        tasks.spawn(async move { service.spawn(request).await.map(|reply| reply.job_id) });
    }
    tasks.join_all().await
}

#[tokio::test]
async fn a_server_that_takes_few_unknown_connections_at_a_time_gets_them_few_at_a_time() {
    let sshd = Sshd::with("MaxStartups 2:50:4").await;
    let service = std::sync::Arc::new(started(&sshd));
    let jobs = spawn_many(&service, 60, "sleep 2; echo done").await;
    for job in jobs {
        let story = canonical_loop(&service, &job.unwrap()).await;
        assert_eq!(
            (story.lines.join(""), story.status()),
            ("done".to_owned(), Some(0))
        );
    }
}

/// All of the jobs run to their end.
async fn all_end(service: &Service, jobs: Vec<Result<String, Error>>, line: &str) {
    for job in jobs {
        let story = canonical_loop(service, &job.unwrap()).await;
        assert_eq!(
            (story.lines.join(""), story.status()),
            (line.to_owned(), Some(0))
        );
    }
}

#[tokio::test]
async fn whatever_maxsessions_is_jobs_find_their_places() {
    for most in [1, 2, 10] {
        let sshd = Sshd::with(&format!("MaxSessions {most}")).await;
        let service = std::sync::Arc::new(started(&sshd));
        for _ in 0..2 {
            let jobs = spawn_many(&service, 12, "echo begun; sleep 0.3; echo done").await;
            all_end(&service, jobs, "begundone").await;
        }
        let job = spawn(&service, "sleep 1000").await;
        let request = SignalRequest {
            signal: Some("TERM".to_owned()),
            grace_ms: Some(1000),
            ..SignalRequest::new(&job)
        };
        let reply = service.signal(request).await.unwrap();
        assert!(crate::support::is_dead(&reply), "MaxSessions {most}");
        service.shutdown().await;
    }
}

#[tokio::test]
async fn two_hundred_jobs_run_at_the_same_time_on_a_default_sshd() {
    let sshd = Sshd::start().await;
    let service = std::sync::Arc::new(started(&sshd));
    let jobs = spawn_many(&service, 200, "read line; echo $line").await;
    let running = JobsRequest {
        state: Some(JobState::Running),
        limit: Some(1000),
        ..JobsRequest::default()
    };
    assert_eq!(service.jobs(running.clone()).await.unwrap().jobs.len(), 200);
    for job in jobs.iter().flatten() {
        let request = WriteRequest {
            data: Some("done".into()),
            newline: true,
            ..WriteRequest::new(job)
        };
        service.write(request).await.unwrap();
    }
    all_end(&service, jobs, "done").await;
    service.shutdown().await;
}

#[tokio::test]
async fn when_every_place_is_taken_a_job_waits_for_one_and_no_longer_than_it_may() {
    let sshd = Sshd::start().await;
    let limits = Limits {
        jobs_per_connection: 1,
        connections_per_host: 1,
        channel_wait: Duration::from_secs(1),
        ..Limits::default()
    };
    let service = service(&sshd.ssh_config(), limits);
    let first = spawn(&service, "sleep 0.4").await;
    let second = spawn(&service, "echo second; sleep 1000").await;
    assert_eq!(
        canonical_loop(&service, &first).await.state(),
        JobState::Exited
    );
    let start = Instant::now();
    let error = service.spawn(SpawnRequest::new(HOST, "true")).await.unwrap_err();
    assert_eq!(
        (error.code, error.retryable),
        (Code::ChannelLimit, true),
        "{error}"
    );
    assert!(
        start.elapsed() >= Duration::from_secs(1) && error.message.contains("1s"),
        "{error}"
    );
    assert_eq!(
        service.tail(TailRequest::new(&second, 0, 5000)).await.unwrap().lines.unwrap(),
        ["second"]
    );
    service.shutdown().await;
}

#[tokio::test]
async fn keys_are_exchanged_again_under_load_and_nothing_is_lost() {
    let sshd = Sshd::with("RekeyLimit 1M\nLogLevel DEBUG1").await;
    let service = std::sync::Arc::new(started(&sshd));
    let sum = "for i in 1 2 3 4 5 6 7 8; do seq 1 100000; done | cksum";
    let expected = run(&service, sum).await.unwrap().head;
    let job = spawn(&service, "cksum").await;
    let noise = spawn_many(&service, 3, "seq 1 400000 | tail -n 300000").await;
    let piece: String = (1..=100_000).map(|n| format!("{n}\n")).collect();
    for round in 0..8 {
        let request = WriteRequest {
            data: Some(piece.clone().into()),
            close_after: round == 7,
            ..WriteRequest::new(&job)
        };
        service.write(request).await.unwrap();
    }
    let story = canonical_loop(&service, &job).await;
    assert_eq!(
        (story.lines.last(), story.status()),
        (expected.first(), Some(0))
    );
    for noise in noise {
        let story = canonical_loop(&service, &noise.unwrap()).await;
        let delivered = story.lines.len() as u64;
        assert_eq!(
            (story.dropped + delivered, story.state()),
            (300_000, JobState::Exited)
        );
    }
    let exchanges = sshd.log().matches("SSH2_MSG_NEWKEYS sent").count();
    assert!(exchanges > 3, "{exchanges} key exchanges");
    service.shutdown().await;
}

#[tokio::test]
async fn the_spare_channel_stays_open_while_jobs_follow_each_other() {
    let sshd = Sshd::with("LogLevel DEBUG1").await;
    let service = started(&sshd);
    let mut jobs = 0;
    let began = Instant::now();
    // Longer than a spare channel is kept after the last job. If it were closed after each, ten more would be opened.
    while began.elapsed() < Duration::from_secs(9) {
        run(&service, "true").await.unwrap();
        jobs += 1;
        tokio::time::sleep(Duration::from_millis(400)).await;
    }

    let opened = sshd.log().matches("ctype session").count();
    assert!(
        opened >= jobs,
        "the log has other lines now: {opened} channels for {jobs} jobs"
    );
    // One that is open in advance, one for the control shell, and two that a busy machine may need.
    assert!(opened <= jobs + 4, "{opened} channels for {jobs} jobs");
}

#[tokio::test]
async fn short_timeouts_of_the_server_are_not_seen_by_anybody() {
    let sshd = Sshd::with("UnusedConnectionTimeout 1s\nChannelTimeout session=1s").await;
    let service = started(&sshd);
    // The server closes an unused channel, and then the connection, each after one to two seconds. A command that
    // it starts on a channel while the timeout passes may be closed with it.
    for pause in [0, 2500, 4500] {
        tokio::time::sleep(Duration::from_millis(pause)).await;
        let reply = run(&service, "echo here").await.unwrap();
        assert_eq!(reply.head, ["here"], "after {pause} ms: {reply:?}");
    }
    // The spare channel of a busy connection falls to its timeout; the next job does not.
    let busy = spawn(
        &service,
        "for i in 1 2 3 4 5 6 7 8; do echo $i; sleep 0.7; done",
    )
    .await;
    for _ in 0..2 {
        tokio::time::sleep(Duration::from_millis(2500)).await;
        let reply = run(&service, "echo beside").await.unwrap();
        assert_eq!(reply.head, ["beside"], "{reply:?}");
    }
    assert_eq!(canonical_loop(&service, &busy).await.lines.len(), 8);
    service.shutdown().await;
}

#[tokio::test]
async fn a_login_that_fails_again_is_paused_before_it_earns_a_penalty() {
    let sshd = Sshd::with("LogLevel VERBOSE").await;
    sshd.configure("other");
    let service = std::sync::Arc::new(started(&sshd));
    for job in spawn_many(&service, 10, "true").await {
        assert_eq!(job.unwrap_err().code, Code::AuthFailed);
    }
    for _ in 0..10 {
        assert_eq!(
            service.spawn(SpawnRequest::new(HOST, "true")).await.unwrap_err().code,
            Code::AuthFailed
        );
    }
    let paused = service.spawn(SpawnRequest::new(HOST, "true")).await.unwrap_err();
    assert!(
        paused.retryable && paused.message.contains("waiting"),
        "{paused}"
    );
    assert_eq!(
        sshd.log().matches("Connection from").count(),
        2,
        "{}",
        sshd.log()
    );
}

#[tokio::test]
async fn a_server_that_opens_no_channel_at_all_is_not_logged_in_to_again_and_again() {
    let sshd = Sshd::with("MaxSessions 0").await;
    let error = spawn_error(&sshd).await;
    assert_eq!(error.code, Code::ChannelLimit, "{error}");
    let logins = sshd.log().matches("Accepted publickey").count();
    assert!(logins <= 2, "{logins} logins");
}

#[tokio::test]
async fn a_call_that_is_given_up_leaves_no_channel_behind() {
    let sshd = Sshd::with("MaxSessions 3").await;
    let service = started(&sshd);
    let first = spawn(&service, "sleep 1000").await;
    for patience in 0..30 {
        let request = SpawnRequest::new(HOST, "sleep 1000");
        let given_up = tokio::time::timeout(
            Duration::from_micros(patience * 100),
            service.spawn(request),
        );
        drop(given_up.await);
    }
    // Whatever began is listed, and can be ended.
    let listed = async |state: JobState| {
        let filter = JobsRequest {
            state: Some(state),
            limit: Some(1000),
            ..JobsRequest::default()
        };
        service
            .jobs(filter.clone())
            .await
            .unwrap()
            .jobs
            .into_iter()
            .map(|job| job.job_id)
            .collect::<Vec<_>>()
    };
    eventually("no job is starting any more", async || {
        listed(JobState::Starting).await.is_empty()
    })
    .await;
    let jobs = listed(JobState::Running).await;
    for job in jobs.iter().filter(|job| **job != first) {
        let request = SignalRequest {
            signal: Some("KILL".to_owned()),
            ..SignalRequest::new(job)
        };
        service.signal(request).await.unwrap();
    }
    eventually("their channels are closed", async || {
        service.hosts(Default::default()).await.unwrap().hosts[0].channels_in_use == 1
    })
    .await;
    service.shutdown().await;
}

#[tokio::test]
async fn a_frozen_peer_is_noticed_while_a_write_to_it_is_pending() {
    let sshd = Sshd::start().await;
    let service = started(&sshd);
    let job = spawn(&service, "echo before; cat > /dev/null").await;
    service.tail(TailRequest::new(&job, 0, 5000)).await.unwrap();
    sshd.freeze();
    let data = vec![b'x'; 16 << 20];
    let writing = async {
        // More than all buffers on the way hold.
        service
            .library()
            .job(&job)
            .await
            .unwrap()
            .write(&data, Duration::from_secs(60))
            .await
            .ok();
        std::future::pending::<()>().await;
    };
    let start = Instant::now();
    tokio::select! {
        story = canonical_loop(&service, &job) => assert_eq!(story.state(), JobState::Lost),
        () = writing => unreachable!("it waits for ever"),
    }
    assert!(
        start.elapsed() < Duration::from_secs(10),
        "{:?}",
        start.elapsed()
    );
}

/// The ssh_config of an sshd with other keepalives.
fn keepalive(sshd: &Sshd, seconds: u32) {
    let text = std::fs::read_to_string(sshd.ssh_config()).unwrap();
    let interval = format!("ServerAliveInterval {seconds}");
    std::fs::write(
        sshd.ssh_config(),
        text.replace("ServerAliveInterval 1", &interval),
    )
    .unwrap();
}

#[tokio::test]
async fn a_call_keeps_to_its_wait_on_a_connection_that_is_half_open() {
    let sshd = Sshd::start().await;
    keepalive(&sshd, 60);
    let service = started(&sshd);
    run(&service, "true").await.unwrap();
    let waiting = spawn(&service, "sleep 1000").await;
    sshd.freeze();
    let start = Instant::now();
    let mut request = crate::support::run_request("echo through");
    request.options.wait_ms = Some(1000);
    let reply = service.run(request).await.unwrap();
    assert!(
        start.elapsed() < Duration::from_secs(4),
        "{:?}",
        start.elapsed()
    );
    assert!(reply.still_running, "{reply:?}");
    // A connection that does not answer is left for another one.
    let reply = run(&service, "echo again").await.unwrap();
    assert_eq!(reply.head, ["again"], "{reply:?}");
    assert!(
        start.elapsed() < Duration::from_secs(12),
        "{:?}",
        start.elapsed()
    );
    let start = Instant::now();
    service.shutdown().await;
    assert!(
        start.elapsed() < Duration::from_secs(8),
        "{:?}",
        start.elapsed()
    );
    drop(waiting);
}

#[tokio::test]
async fn a_job_that_could_not_be_started_in_time_tells_why() {
    let sshd = Sshd::start().await;
    let silent = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let port = silent.local_addr().unwrap().port().to_string();
    let config = std::fs::read_to_string(sshd.ssh_config()).unwrap();
    let text = config.replace(&sshd.port().to_string(), &port) + "  ConnectTimeout 5\n";
    std::fs::write(sshd.ssh_config(), text).unwrap();
    let service = started(&sshd);
    let mut request = crate::support::run_request("echo never");
    request.options.wait_ms = Some(100);
    let reply = service.run(request).await.unwrap();
    assert_eq!(
        (reply.still_running, reply.standing.state),
        (true, JobState::Starting)
    );
    let story = canonical_loop(&service, &reply.job_id).await;
    let ending = story.last.unwrap().standing;
    assert_eq!(ending.state, JobState::Refused);
    assert!(ending.reason.unwrap().contains("did not finish the handshake"));
}

#[tokio::test]
async fn a_durable_job_that_is_starting_can_be_cancelled() {
    let sshd = Sshd::start().await;
    let silent = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let port = silent.local_addr().unwrap().port().to_string();
    let config = std::fs::read_to_string(sshd.ssh_config()).unwrap();
    std::fs::write(
        sshd.ssh_config(),
        config.replace(&sshd.port().to_string(), &port),
    )
    .unwrap();
    let service = stored_service(sshd.ssh_config(), sshd.path("state"), Limits::default());
    let mut request = crate::support::run_request("echo never");
    request.start.durable = Some(true);
    request.options.wait_ms = Some(100);
    let job_id = service.run(request).await.unwrap().job_id;

    let reply = service.signal(SignalRequest::new(&job_id)).await.unwrap();

    assert!(reply.confirmed_dead, "{reply:?}");
    let story = canonical_loop(&service, &job_id).await;
    assert_eq!(story.last.unwrap().standing.state, JobState::Refused);
}

#[tokio::test]
async fn a_command_that_no_host_would_take_is_refused_before_anything_is_connected() {
    let sshd = Sshd::with("LogLevel VERBOSE").await;
    let service = started(&sshd);
    let error = service.spawn(SpawnRequest::new(HOST, "x".repeat(300_000))).await.unwrap_err();
    assert_eq!(error.code, Code::InvalidArgument);
    assert!(error.hint.contains("stdin"), "{error}");
    assert_eq!(sshd.log().matches("Connection from").count(), 0);
    let longest = format!("true {}", "x".repeat(128_000));
    assert_eq!(
        run(&service, &longest).await.unwrap().standing.exit_status,
        Some(0)
    );
}

#[tokio::test]
async fn a_known_hosts_that_hangs_delays_no_other_host() {
    let (good, bad) = (Sshd::start().await, Sshd::start().await);
    std::fs::remove_file(bad.path("known_hosts")).unwrap();
    let fifo = bad.path("known_hosts");
    assert!(std::process::Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let entry = std::fs::read_to_string(bad.ssh_config())
        .unwrap()
        .replace("Host web1", "Host web2");
    good.append(&entry);
    let service = started(&good);
    let hanging = service.spawn(SpawnRequest::new("web2", "true"));
    let others = async {
        for _ in 0..5 {
            let start = Instant::now();
            assert_eq!(run(&service, "echo here").await.unwrap().head, ["here"]);
            assert!(start.elapsed() < Duration::from_secs(3));
        }
    };
    let (hanging, ()) = tokio::join!(hanging, others);
    assert_eq!(hanging.unwrap_err().code, Code::Io);
    // The thread that still hangs must not hold up the end of this test.
    std::fs::OpenOptions::new().write(true).open(&fifo).unwrap();
}

#[tokio::test]
async fn a_key_is_remembered_when_its_job_is_forgotten() {
    let sshd = Sshd::start().await;
    let service = started(&sshd);
    let request = |command: &str| SpawnRequest {
        idempotency_key: Some("k".into()),
        ..SpawnRequest::new(HOST, command)
    };
    let job = service.spawn(request("echo once; exit 3")).await.unwrap().job_id;
    canonical_loop(&service, &job).await;
    service.forget(ForgetRequest::new(&job)).await.unwrap();
    let error = service.spawn(request("echo once; exit 3")).await.unwrap_err();
    assert_eq!(error.code, Code::ExpiredJob);
    assert!(
        error.message.contains("exited with status 3") && error.message.contains(&job),
        "{error}"
    );
    assert_eq!(
        service.spawn(request("echo twice")).await.unwrap_err().code,
        Code::InvalidArgument
    );
    assert_eq!(service.jobs(Default::default()).await.unwrap().total, 0);
}

#[tokio::test]
async fn a_host_name_that_can_be_none_costs_nothing() {
    let sshd = Sshd::start().await;
    let service = started(&sshd);
    let start = Instant::now();
    let error = service.spawn(SpawnRequest::new("x".repeat(7 << 20), "true")).await.unwrap_err();
    assert_eq!(error.code, Code::InvalidArgument);
    assert!(start.elapsed() < Duration::from_secs(1) && error.to_string().len() < 1000);
}

#[tokio::test]
async fn a_signal_ends_a_job_that_is_still_starting() {
    let sshd = Sshd::start().await;
    let silent = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let config = std::fs::read_to_string(sshd.ssh_config()).unwrap();
    let port = silent.local_addr().unwrap().port().to_string();
    std::fs::write(
        sshd.ssh_config(),
        config.replace(&sshd.port().to_string(), &port),
    )
    .unwrap();
    let service = started(&sshd);
    let mut request = crate::support::run_request("echo never");
    request.options.wait_ms = Some(10);
    let job = service.run(request).await.unwrap().job_id;
    let signal = SignalRequest {
        signal: Some("TERM".to_owned()),
        ..SignalRequest::new(&job)
    };
    let reply = service.signal(signal).await.unwrap();
    assert_eq!(
        (crate::support::is_dead(&reply), reply.standing.state),
        (true, JobState::Refused)
    );
}

#[tokio::test]
async fn the_bound_over_all_jobs_is_kept_while_output_comes() {
    let sshd = Sshd::start().await;
    let limits = Limits {
        ring_buffer_bytes: 8 << 20,
        ring_buffer_lines: 1 << 20,
        buffered_bytes_total: 4 << 20,
        ..Limits::default()
    };
    let service = std::sync::Arc::new(service(&sshd.ssh_config(), limits));
    let jobs = spawn_many(
        &service,
        4,
        "head -c 10000000 /dev/zero | tr '\\0' x | fold -w 100; sleep 1000",
    )
    .await;
    let kept = async || {
        let jobs = service.jobs(Default::default()).await.unwrap().jobs;
        jobs.iter().map(|job| (job.total_lines - job.dropped_lines) * 101).sum::<u64>()
    };
    let most = std::cell::Cell::new(0);
    eventually("everything has arrived", async || {
        most.set(most.get().max(kept().await));
        service
            .jobs(Default::default())
            .await
            .unwrap()
            .jobs
            .iter()
            .all(|job| job.total_bytes > 10_000_000)
    })
    .await;
    // Bytes that may be unaccounted, plus the jobs' own rings.
    assert!(
        most.get() <= 3 * (4 << 20),
        "{} bytes were kept",
        most.get()
    );
    drop(jobs);
    service.shutdown().await;
}

/// A relay to an sshd that passes this number of bytes on unchanged, and then one byte at a time.
async fn dawdling(sshd: &Sshd, quick: usize) -> u16 {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let (port, target) = (listener.local_addr().unwrap().port(), sshd.port());
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            tokio::spawn(async move {
                let server = tokio::net::TcpStream::connect(("127.0.0.1", target)).await.unwrap();
                let ((mut from_client, mut to_client), (mut from_server, mut to_server)) =
                    (client.into_split(), server.into_split());
                let there = async { drop(tokio::io::copy(&mut from_client, &mut to_server).await) };
                let back = async {
                    let (mut passed, mut byte) = (0, [0]);
                    while from_server.read_exact(&mut byte).await.is_ok()
                        && to_client.write_all(&byte).await.is_ok()
                    {
                        passed += 1;
                        if passed > quick {
                            tokio::time::sleep(Duration::from_millis(100)).await;
                        }
                    }
                };
                tokio::join!(there, back);
            });
        }
    });
    port
}

#[tokio::test]
async fn a_login_has_one_limit_however_long_each_of_its_steps_takes() {
    let sshd = Sshd::start().await;
    // The handshake passes; the login has some hundred bytes.
    let port = dawdling(&sshd, 2300).await.to_string();
    let config = std::fs::read_to_string(sshd.ssh_config()).unwrap();
    let text = config.replace(&sshd.port().to_string(), &port) + "  ConnectTimeout 1\n";
    std::fs::write(sshd.ssh_config(), text).unwrap();
    let known = std::fs::read_to_string(sshd.path("known_hosts")).unwrap();
    sshd.write_known_hosts(&known.replace(&sshd.port().to_string(), &port));
    let start = Instant::now();
    let error = spawn_error(&sshd).await;
    assert_eq!(error.code, Code::Timeout, "{error}");
    assert!(
        start.elapsed() < Duration::from_secs(6),
        "{:?}",
        start.elapsed()
    );
}

#[tokio::test]
async fn a_named_reader_whose_call_is_given_up_while_the_host_is_looked_at_has_lost_nothing() {
    let sshd = Sshd::start().await;
    let service = started(&sshd);
    let job = spawn(
        &service,
        "echo one; echo two; printf 'Password: '; read word",
    )
    .await;
    let prompt = TailRequest {
        until: Some("Password".to_owned()),
        ..TailRequest::new(&job, 0, 5000)
    };
    service.tail(prompt).await.unwrap();
    tokio::time::sleep(Duration::from_millis(300)).await;
    sshd.freeze();
    let read = || TailRequest {
        since_line_no: None,
        reader: Some("me".to_owned()),
        ..TailRequest::new(&job, 0, 0)
    };
    let given_up = tokio::time::timeout(Duration::from_millis(600), service.tail(read())).await;
    assert!(
        given_up.is_err(),
        "the host was not asked whether the job reads"
    );
    sshd.thaw();
    assert_eq!(
        service.tail(read()).await.unwrap().lines.unwrap(),
        ["one", "two"]
    );
    assert!(service.tail(read()).await.unwrap().lines.unwrap().is_empty());
}

#[tokio::test]
async fn a_corrected_ssh_config_is_used_without_a_pause() {
    let sshd = Sshd::start().await;
    let right = std::fs::read_to_string(sshd.ssh_config()).unwrap();
    let port = format!("Port {}", sshd.port());
    std::fs::write(sshd.ssh_config(), right.replace(&port, "Port 1")).unwrap();
    let service = started(&sshd);
    assert_eq!(
        run(&service, "true").await.unwrap_err().code,
        Code::Unreachable
    );
    std::fs::write(sshd.ssh_config(), right).unwrap();
    assert_eq!(run(&service, "echo there").await.unwrap().head, ["there"]);
}

#[tokio::test]
async fn a_forged_process_group_changes_nothing() {
    let sshd = Sshd::start().await;
    let service = service(&sshd.ssh_config(), Limits::default());
    let mut stranger = std::process::Command::new("/bin/sleep")
        .arg("1000")
        .env_clear()
        .spawn()
        .unwrap();
    // The command knows the mark, and prints the host's line. The first line counts, and that is
    // the host's.
    let forged = format!(
        "echo \"$SSHJOBS_JOB {}\"; echo ready; while :; do sleep 1; done",
        stranger.id()
    );
    let job = service.spawn(SpawnRequest::new(HOST, forged)).await.unwrap().job_id;
    let until = TailRequest {
        until: Some("ready".into()),
        ..TailRequest::new(&job, 0, 50_000)
    };
    service.tail(until).await.unwrap();

    let request = SignalRequest {
        signal: Some("KILL".to_owned()),
        ..SignalRequest::new(&job)
    };
    service.signal(request).await.unwrap();

    let story = crate::support::canonical_loop(&service, &job).await;
    assert_eq!(story.signal(), Some("KILL"));
    assert!(
        stranger.try_wait().unwrap().is_none(),
        "the other process was killed"
    );
    stranger.kill().unwrap();
    stranger.wait().unwrap();
}
