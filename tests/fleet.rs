//! One suite over hosts of every kind, in containers: `make test-containers` starts them. On each
//! of them a command behaves as with `ssh`, and unsupported features are reported, never guessed.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "tests"
)]

#[path = "support/guide.rs"]
mod guide;
mod support;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use sshjobs_core::jobs::{
    Access, Answer, Config, HostSettings, Limits, Prompter, Question, SecretSource,
};
use sshjobs_wire::{
    Code, DeliveryRoute, Error, ForgetRequest, HostEntry, HostsRequest, JobState, RunReply,
    RunRequest, Service, SignalRequest, SpawnRequest, StreamArg, TailRequest, WriteRequest,
};
use support::{McpClient, canonical_loop, eventually, keygen};

/// The fleet: each host with what runs its commands. Without `faulty`, which one test breaks while
/// the others run.
const FLEET: [(&str, &str); 14] = [
    ("web1", "posix"),
    ("dash", "posix"),
    ("fish", "foreign"),
    ("tcsh", "foreign"),
    ("restricted", "bare"),
    ("noisy", "posix"),
    ("forced", "bare"),
    ("old", "posix"),
    ("old-root", "posix"),
    ("new", "posix"),
    ("narrow", "posix"),
    ("dropbear", "posix"),
    ("busybox", "posix"),
    ("inner", "posix"),
];

/// Hosts that run the requested command.
fn obedient() -> impl Iterator<Item = &'static str> {
    FLEET.into_iter().map(|(host, _)| host).filter(|host| *host != "forced")
}

/// Hosts on which a job can be set up.
fn capable() -> impl Iterator<Item = &'static str> {
    FLEET.into_iter().filter(|(_, shell)| *shell != "bare").map(|(host, _)| host)
}

fn ssh_config() -> PathBuf {
    let file = std::env::var_os("SSHJOBS_TEST_SSH_CONFIG");
    file.expect("these tests need the fleet: run them by `make test-containers`")
        .into()
}

fn service() -> Service {
    support::service(&ssh_config(), Limits::default())
}

async fn run(service: &Service, host: &str, command: &str) -> Result<RunReply, Error> {
    let mut request = RunRequest::new(host, command);
    request.options.max_bytes = Some(262_144);
    service.run(request).await
}

async fn probe(service: &Service, host: &str) -> HostEntry {
    service
        .hosts(HostsRequest {
            host: Some(host.to_owned()),
            ..HostsRequest::default()
        })
        .await
        .unwrap()
        .hosts
        .remove(0)
}

/// Output and end of a command with the real `ssh`.
fn by_ssh(host: &str, command: &str) -> (String, Option<u32>) {
    let output = Command::new("ssh")
        .arg("-F")
        .arg(ssh_config())
        .args([host, command])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let status = output.status.code().map(|code| code.try_into().unwrap());
    (String::from_utf8(output.stdout).unwrap(), status)
}

#[tokio::test]
async fn every_kind_of_host_is_recognized() {
    let service = service();
    for (host, shell) in FLEET {
        let entry = probe(&service, host).await;
        assert_eq!(
            (entry.connected, entry.login_shell.as_deref()),
            (true, Some(shell)),
            "{entry:?}"
        );
    }
    for (host, server) in [
        ("web1", "OpenSSH_9.2"),
        ("old", "OpenSSH_8.4"),
        ("new", "OpenSSH_10.0"),
        ("busybox", "dropbear"),
    ] {
        let entry = probe(&service, host).await;
        assert!(
            entry.server.as_deref().unwrap().contains(server),
            "{entry:?}"
        );
    }
    assert_eq!(
        probe(&service, "new").await.kex.as_deref(),
        Some("mlkem768x25519-sha256"),
        "post-quantum first"
    );
    assert_eq!(probe(&service, "inner").await.via, ["bastion"]);
    service.shutdown().await;
}

#[tokio::test]
async fn a_command_prints_and_ends_as_it_does_with_ssh() {
    let service = service();
    let commands = [
        r#"echo 'it'\''s' "two  spaces" \\ 'back\\slash' 'a\nb'"#,
        "echo 'bang!' ; echo % %s %d '100%' '$HOME' '`id`'",
        "printf 'x\\ty\\n'; exit 3",
        "sh -c 'echo out; echo \"$0\"; kill -9 $$'",
        "echo ünïcödé \u{1f980}",
        "if (((",
        "true",
    ];
    for (host, _) in FLEET {
        for command in commands {
            let (stdout, status) = by_ssh(host, command);
            let request = SpawnRequest::new(host, command);
            let job = service.spawn(request).await.unwrap().job_id;
            let story = support::follow(&service, &job, StreamArg::Stdout, 5000).await;
            let printed: String = story.lines.iter().map(|line| format!("{line}\n")).collect();
            // A last line without an end gets one here.
            assert_eq!(
                printed.trim_end(),
                stdout.trim_end(),
                "{command:?} on {host}"
            );
            let ours = match story.state() {
                JobState::Exited => story.status(),
                // ssh has but one number for all of these.
                JobState::Signaled | JobState::Closed => Some(255),
                JobState::Queued
                | JobState::Starting
                | JobState::Running
                | JobState::Lost
                | JobState::Refused
                | JobState::TimedOut => {
                    panic!("{command:?} on {host} is {:?}", story.state());
                }
            };
            assert_eq!(ours, status, "{command:?} on {host}");
        }
    }
    service.shutdown().await;
}

#[tokio::test]
async fn directory_and_variables_arrive_or_are_refused() {
    let service = service();
    for (host, shell) in FLEET {
        // In a locale that is not UTF-8, fish takes the bytes of its environment for Latin-1:
        // that's fish's own.
        let letter = if host == "fish" { 'u' } else { 'ü' };
        let value = format!("a'b\"c$(id)`id`\n\\d;e&f|g!h* \t%s {letter}");
        let command = "sh -c 'pwd; printf %s \"$V\"; cat'";
        let mut request = RunRequest::new(host, command);
        request.start.cwd = Some("/tmp".to_owned());
        request.start.env.insert("V".to_owned(), value.clone().into());
        request.start.stdin = Some("the rest\n".into());
        match service.run(request).await {
            Ok(reply) => {
                let printed = reply.head.join("\n");
                let wanted = format!("/tmp\n{value}the rest");
                assert!(
                    shell != "bare" && printed.ends_with(&wanted),
                    "{host}: {printed:?}"
                );
            }
            Err(error) => assert_eq!(
                (error.code, shell),
                (Code::Unsupported, "bare"),
                "{host}: {error}"
            ),
        }
    }
    service.shutdown().await;
}

#[tokio::test]
async fn a_whole_tree_is_ended_and_that_is_verified() {
    let service = service();
    for host in capable() {
        let mark = format!("3{}", 10_000 + u32::from(rand::random::<u16>()));
        let command =
            format!("sh -c 'trap \"\" TERM; sleep {mark} & sh -c \"sleep {mark}; true\"'");
        let job = service.spawn(SpawnRequest::new(host, &command)).await.unwrap().job_id;
        let left = async || {
            // The searching process must not match itself.
            let count = format!(
                "sh -c 'cat /proc/[0-9]*/cmdline | tr \"\\000\" \"~\" | grep -o \"sleep[~]{mark}\" | wc -l'"
            );
            run(&service, host, &count)
                .await
                .unwrap()
                .head
                .last()
                .unwrap()
                .trim()
                .parse::<u32>()
                .unwrap()
        };
        eventually("it has begun", async || left().await == 2).await;
        let request = SignalRequest {
            signal: Some("TERM".to_owned()),
            grace_ms: Some(500),
            ..SignalRequest::new(&job)
        };
        let reply = service.signal(request).await.unwrap();
        assert_eq!(
            (reply.delivered_via, reply.confirmed_dead),
            (DeliveryRoute::ProcessGroup, true),
            "{host}"
        );
        assert_eq!(left().await, 0, "{host}");
    }
    service.shutdown().await;
}

#[tokio::test]
async fn where_the_tree_is_not_known_a_signal_takes_the_channel_and_that_is_said() {
    let service = service();
    for host in ["restricted", "forced"] {
        let job = service.spawn(SpawnRequest::new(host, "sleep 1000")).await.unwrap().job_id;
        let reply = service.signal(SignalRequest::new(&job)).await.unwrap();
        assert_eq!(
            (reply.delivered_via, reply.confirmed_dead),
            (DeliveryRoute::Channel, false),
            "{host}"
        );
        service
            .forget(ForgetRequest {
                force: true,
                ..ForgetRequest::new(&job)
            })
            .await
            .ok();
    }
    service.shutdown().await;
}

#[tokio::test]
async fn a_mebibyte_goes_in_and_comes_out_whole() {
    let service = service();
    let sent: String = (0..150_000).map(|n| format!("{n}\n")).collect();
    for host in obedient() {
        let job = service.spawn(SpawnRequest::new(host, "cat")).await.unwrap().job_id;
        let request = WriteRequest {
            data: Some(sent.clone().into()),
            close_after: true,
            ..WriteRequest::new(&job)
        };
        let (written, story) = tokio::join!(service.write(request), canonical_loop(&service, &job));
        written.unwrap();
        let delivered: Vec<u64> = story.lines.iter().filter_map(|line| line.parse().ok()).collect();
        assert_eq!(
            (delivered.last(), story.status()),
            (Some(&149_999), Some(0)),
            "{host}"
        );
        // Output of startup files is either read or evicted with its numbers: each line is one or
        // the other.
        let total = story.last.as_ref().unwrap().total_lines;
        assert_eq!(story.lines.len() as u64 + story.dropped, total, "{host}");
        let noise = if host == "noisy" || host == "tcsh" {
            3
        } else {
            0
        };
        assert!(
            (150_000..=150_000 + noise).contains(&total),
            "{host}: {total}"
        );
    }
    service.shutdown().await;
}

#[tokio::test]
async fn a_terminal_is_one_everywhere() {
    let service = service();
    for host in obedient() {
        let request = SpawnRequest {
            pty: true,
            cols: Some(93),
            rows: Some(41),
            ..SpawnRequest::new(
                host,
                "sh -c 'test -t 0 && test -t 1 && echo on a terminal; stty size'",
            )
        };
        let job = service.spawn(request).await.unwrap().job_id;
        let story = canonical_loop(&service, &job).await;
        let printed = story.lines.join("\n");
        assert!(
            printed.contains("on a terminal") && printed.contains("41 93"),
            "{host}: {printed:?}"
        );
    }
    service.shutdown().await;
}

#[tokio::test]
async fn twenty_jobs_at_a_time_all_run_to_their_end() {
    let service = Arc::new(service());
    for (host, _) in FLEET {
        let mut tasks = tokio::task::JoinSet::new();
        for _ in 0..20 {
            let service = Arc::clone(&service);
            tasks.spawn(async move {
                let job = service
                    .spawn(SpawnRequest::new(host, "sh -c 'sleep 0.5; echo done'"))
                    .await?
                    .job_id;
                let story = canonical_loop(&service, &job).await;
                Ok::<_, Error>((story.status(), story.lines.last().cloned()))
            });
        }
        for result in tasks.join_all().await {
            let (status, last) = result.unwrap();
            let last = last.unwrap();
            assert!(
                status == Some(0) && (last == "done" || host == "forced"),
                "{host}: {status:?} {last}"
            );
        }
    }
    service.shutdown().await;
}

fn password() -> String {
    let file = std::env::var_os("SSHJOBS_TEST_PASSWORD_FILE").unwrap();
    std::fs::read_to_string(file).unwrap().trim().to_owned()
}

fn with_password(host: &str, source: SecretSource) -> Service {
    let table = HostSettings {
        password: Some(source),
        ..HostSettings::default()
    };
    let hosts = BTreeMap::from([(host.to_owned(), table)]);
    Service::new(
        Config {
            ssh_config: Some(ssh_config()),
            hosts,
            ..support::unstored()
        },
        Access::Listed,
    )
}

/// A person who knows one answer.
struct Person(String);

impl Prompter for Person {
    fn ask<'a>(&'a self, question: &'a Question) -> Answer<'a> {
        assert!(
            question.text.contains("assword") && !question.echo,
            "{question:?}"
        );
        Box::pin(std::future::ready(Some(self.0.clone().into())))
    }
}

fn with_person(answer: &str) -> Service {
    let config = Config {
        ssh_config: Some(ssh_config()),
        ..support::unstored()
    };
    Service::asking(config, Access::Listed, Arc::new(Person(answer.to_owned())))
}

#[tokio::test]
async fn a_password_comes_from_the_configuration_or_a_person() {
    let file = std::env::var_os("SSHJOBS_TEST_PASSWORD_FILE").unwrap();
    for host in ["password", "mfa"] {
        let source = SecretSource::File(file.clone().into());
        assert_eq!(
            run(&with_password(host, source), host, "echo in").await.unwrap().head,
            ["in"],
            "{host}"
        );
        assert_eq!(
            run(&with_person(&password()), host, "echo in").await.unwrap().head,
            ["in"],
            "{host}"
        );
        let error = run(&service(), host, "true").await.unwrap_err();
        assert_eq!(error.code, Code::AuthFailed, "{error}");
        let reasons = ["no password is available", "no person can answer"];
        assert!(
            reasons.iter().any(|reason| error.message.contains(reason)),
            "{host}: {error}"
        );
    }
    let error = run(&service(), "mfa", "true").await.unwrap_err();
    assert!(
        error.message.contains("right, and not enough") && error.message.contains("Password"),
        "{error}"
    );
    let error = run(
        &with_password("password", SecretSource::Command("echo wrong".into())),
        "password",
        "true",
    )
    .await;
    assert_eq!(error.unwrap_err().code, Code::AuthFailed);
}

#[tokio::test]
async fn a_password_is_in_no_log_no_reply_and_no_process_list() {
    let directory = tempfile::tempdir().unwrap();
    let (log, config) = (
        directory.path().join("log"),
        directory.path().join("config.toml"),
    );
    let file = PathBuf::from(std::env::var_os("SSHJOBS_TEST_PASSWORD_FILE").unwrap());
    let hosts = ["password", "mfa"].map(|host| {
        format!(
            "[hosts.{host}]\npassword = {{ command = \"cat {}\" }}\n",
            file.display()
        )
    });
    std::fs::write(&config, hosts.concat()).unwrap();
    let mut client = McpClient::with_config_and_log(&ssh_config(), &config, &log);
    let mut seen = String::new();
    for host in ["password", "mfa"] {
        seen += &client
            .call(
                "ssh_run",
                serde_json::json!({"host": host, "command": "cat /proc/[0-9]*/cmdline; env"}),
            )
            .to_string();
        seen += &client.call("ssh_hosts", serde_json::json!({"host": host})).to_string();
        let local = Command::new("ps").args(["axeww"]).output().unwrap();
        seen += &String::from_utf8_lossy(&local.stdout);
    }
    assert!(seen.contains("SSHJOBS_JOB"), "they let us in: {seen}");
    client.close(Duration::from_secs(20));
    seen += &std::fs::read_to_string(&log).unwrap();
    assert!(seen.contains("connected") && !seen.contains(&password()));
}

#[tokio::test]
async fn logins_that_fail_earn_no_penalty() {
    let directory = tempfile::tempdir().unwrap();
    let key = directory.path().join("stranger");
    keygen(&key, &["-t", "ed25519"]);
    let table = HostSettings {
        identity_file: Some(key),
        ..HostSettings::default()
    };
    let hosts = BTreeMap::from([("new".to_owned(), table)]);
    let config = Config {
        ssh_config: Some(ssh_config()),
        hosts,
        ..support::unstored()
    };
    let stranger = Arc::new(Service::new(config, Access::Listed));
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(12) {
        let mut tasks = tokio::task::JoinSet::new();
        for _ in 0..10 {
            let stranger = Arc::clone(&stranger);
            tasks.spawn(async move {
                stranger.spawn(SpawnRequest::new("new", "true")).await.unwrap_err()
            });
        }
        for error in tasks.join_all().await {
            assert_eq!(error.code, Code::AuthFailed, "{error}");
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    assert_eq!(
        run(&service(), "new", "echo in").await.unwrap().head,
        ["in"],
        "our address is not banned"
    );
}

fn docker(arguments: &[&str]) {
    let output = Command::new("docker").args(arguments).output().unwrap();
    assert!(
        output.status.success(),
        "docker {arguments:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
}

/// Starts a job with output on the faulty host, lets `fault` happen, and measures the time until a
/// new job ran.
async fn after(fault: impl FnOnce(&str), command: &str) -> (support::Story, Duration) {
    let service = service();
    let job = service.spawn(SpawnRequest::new("faulty", command)).await.unwrap().job_id;
    eventually("it has begun", async || {
        service.tail(TailRequest::new(&job, 0, 100)).await.unwrap().total_lines > 0
    })
    .await;
    fault(&std::env::var("SSHJOBS_TEST_FAULTY").unwrap());
    let healed = Instant::now();
    let deadline = healed + Duration::from_secs(60);
    while !answers(&service).await {
        assert!(Instant::now() < deadline, "it is not reached again");
    }
    let recovery = healed.elapsed();
    let story = canonical_loop(&service, &job).await;
    service.shutdown().await;
    (story, recovery)
}

/// Whether the faulty host runs a command.
async fn answers(service: &Service) -> bool {
    let reply = run(service, "faulty", "echo again").await;
    reply.is_ok_and(|reply| reply.head == ["again"])
}

#[tokio::test(flavor = "multi_thread")]
async fn jobs_on_a_failing_host_end_or_are_lost_and_the_host_is_reached_again() {
    // A short pause is not noticed.
    let (story, _) = after(
        |faulty| {
            docker(&["pause", faulty]);
            std::thread::sleep(Duration::from_secs(2));
            docker(&["unpause", faulty]);
        },
        "for i in 1 2 3 4 5 6 7 8; do echo $i; sleep 0.5; done",
    )
    .await;
    assert_eq!(
        (story.lines.len(), story.status(), story.dropped),
        (8, Some(0), 0)
    );
    // A long one is a lost connection: 3 keepalives, 2 s each.
    let (story, _) = after(
        |faulty| {
            docker(&["pause", faulty]);
            std::thread::sleep(Duration::from_secs(10));
            docker(&["unpause", faulty]);
        },
        "echo begun; sleep 1000",
    )
    .await;
    assert_eq!(
        (story.lines.join(""), story.state()),
        ("begun".to_owned(), JobState::Lost)
    );
    // The server ends and begins again; its sessions live on, as OpenSSH's do.
    let (story, _) = after(
        |faulty| docker(&["exec", faulty, "sh", "-c", "kill $(cat /run/sshd.pid)"]),
        "for i in 1 2 3 4; do echo $i; sleep 0.5; done",
    )
    .await;
    assert_eq!((story.lines.len(), story.status()), (4, Some(0)));
    // The network fails, and recovers.
    let (story, _) = after(
        |faulty| {
            let format = "{{range $name, $_ := .NetworkSettings.Networks}}{{$name}}{{end}}";
            let output =
                Command::new("docker").args(["inspect", "-f", format, faulty]).output().unwrap();
            let network = String::from_utf8(output.stdout).unwrap().trim().to_owned();
            docker(&["network", "disconnect", &network, faulty]);
            std::thread::sleep(Duration::from_secs(1));
            docker(&["network", "connect", &network, faulty]);
        },
        "echo begun; sleep 1000",
    )
    .await;
    assert_eq!(
        (story.lines.join(""), story.state()),
        ("begun".to_owned(), JobState::Lost)
    );
    // The whole machine is restarted.
    let (story, _) = after(
        |faulty| docker(&["restart", "-t", "1", faulty]),
        "echo begun; sleep 1000",
    )
    .await;
    assert_eq!(
        (story.lines.join(""), story.state()),
        ("begun".to_owned(), JobState::Lost)
    );
    check_durable_reboot().await;
}

/// A durable job ends with its host, and is never reported as exited.
async fn check_durable_reboot() {
    let state = tempfile::tempdir().unwrap();
    let service = support::stored_service(
        ssh_config(),
        state.path().join("sshjobs"),
        Limits::default(),
    );
    let mut request = SpawnRequest::new("faulty", "echo begun; sleep 1000");
    request.durable = Some(true);
    let job = service.spawn(request).await.unwrap().job_id;
    eventually("it has begun", async || {
        service.tail(TailRequest::new(&job, 0, 100)).await.unwrap().total_lines > 0
    })
    .await;
    docker(&[
        "restart",
        "-t",
        "1",
        &std::env::var("SSHJOBS_TEST_FAULTY").unwrap(),
    ]);
    let story = canonical_loop(&service, &job).await;
    let standing = story.last.as_ref().unwrap().standing.clone();
    assert_eq!(
        (standing.state, standing.reason.as_deref()),
        (JobState::Lost, Some("host_rebooted"))
    );
    assert_eq!(story.lines, ["begun"]);
    service.shutdown().await;
}

/// Prints on both streams, reads twice, and ends on its own terms.
const DURABLE: &str = "echo begun; echo trouble >&2; read -r one; echo \"got $one\"; read -r two; echo \"got $two\"; printf '%s' \"$V\"; exit 6";

#[tokio::test]
async fn durable_jobs_run_to_their_end_on_every_host_or_the_host_says_why_not() {
    let state = tempfile::tempdir().unwrap();
    let service = support::stored_service(
        ssh_config(),
        state.path().join("sshjobs"),
        Limits::default(),
    );
    let mut wrong = Vec::new();
    for (host, shell) in FLEET {
        let command = format!(
            "sh -c '{}'",
            DURABLE.replace('\'', "\"'\"'").replace("\"'\"'", "'\"'\"'")
        );
        let mut request = SpawnRequest::new(host, command);
        request.durable = Some(true);
        request.env.insert("V".to_owned(), "it's $HOME\n".into());
        let job = match service.spawn(request).await {
            Ok(reply) => reply.job_id,
            Err(error) => {
                assert_eq!(
                    (error.code, shell),
                    (Code::Unsupported, "bare"),
                    "{host}: {error:?}"
                );
                continue;
            }
        };
        let text = |text: &str, close| {
            let mut write = WriteRequest::new(&job);
            (write.data, write.close_after) = (Some(text.into()), close);
            write
        };
        let one = service.write(text("one\n", false)).await.map(|reply| reply.bytes_written);
        let two = service.write(text("two\n", true)).await.map(|reply| reply.bytes_written);
        let story = canonical_loop(&service, &job).await;
        // Startup files may have something to say, as with ssh.
        let mut lines = story.lines.clone();
        lines.retain(|line| !line.starts_with("noise"));
        lines.sort_unstable();
        let is_right = lines == ["begun", "got one", "got two", "it's $HOME", "trouble"]
            && (story.state(), story.status()) == (JobState::Exited, Some(6));
        if !is_right || one.is_err() || two.is_err() {
            wrong.push(format!(
                "{host}: {one:?}, {two:?}, {lines:?}, {:?}",
                story.last
            ));
        }
        service.forget(ForgetRequest::new(&job)).await.unwrap();
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    service.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_workflow_for_containers_reaches_each_kind_of_host() {
    let place = tempfile::tempdir().unwrap();
    // The containers are up already, so only the command is run.
    let stands_in = place.path().join("sshjobs/fixtures/sshd/with-containers");
    std::fs::create_dir_all(stands_in.parent().unwrap()).unwrap();
    std::fs::write(&stands_in, "#!/bin/sh\nexec \"$@\"\n").unwrap();
    std::fs::set_permissions(
        &stands_in,
        std::os::unix::fs::PermissionsExt::from_mode(0o755),
    )
    .unwrap();
    let printed = guide::run_steps(&guide::workflow("hosts"), (place.path(), &[]));
    for host in ["web1", "old", "new", "busybox"] {
        assert!(
            printed.lines().any(|line| line.starts_with(host) && line.contains("Linux")),
            "{printed}"
        );
    }
}
