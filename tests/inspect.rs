//! `sshjobs inspect` and `ssh_jobs` with `detail`: the processes of a job.

use std::os::unix::fs::PermissionsExt;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

use crate::support::command::{sshjobs, told};
use crate::support::server::{Caller, Server, token};
use crate::support::{HOST, McpClient, Sshd, eventually};

fn spawn(sshd: &Sshd, options: &[&str], command: &str) -> String {
    let arguments = [&["spawn"], options, &[HOST, "--", command]].concat();
    told(&sshjobs(sshd, &arguments)).trim().to_owned()
}

fn inspect(sshd: &Sshd, job: &str) -> Value {
    serde_json::from_str(&told(&sshjobs(sshd, &["inspect", "--json", job]))).unwrap()
}

/// Waits until the summary has this text, and returns the processes.
async fn summary_with(sshd: &Sshd, job: &str, text: &str) -> Value {
    let seen = std::cell::RefCell::new(Value::Null);
    eventually("the summary says it", async || {
        let processes = inspect(sshd, job)["processes"].clone();
        let is_it = processes["summary"].as_str().is_some_and(|summary| summary.contains(text));
        seen.replace(processes);
        is_it
    })
    .await;
    seen.into_inner()
}

#[tokio::test]
async fn a_silent_job_says_what_it_waits_for() {
    let sshd = Sshd::start().await;
    let job = spawn(&sshd, &[], "sleep 600 & wait");
    let seen = summary_with(&sshd, &job, "(sleep 600) waits for a timer").await;
    let sleep = seen["processes"].as_array().unwrap().iter();
    let sleep: Vec<&Value> = sleep.filter(|one| one["command"] == "sleep 600").collect();
    assert_eq!(sleep.len(), 1, "{seen}");
    assert_eq!(sleep[0]["state"], "sleeping");
    assert!(sleep[0]["memory_bytes"].as_u64() > Some(0), "{seen}");
    told(&sshjobs(&sshd, &["kill", &job, "KILL"]));
}

#[tokio::test]
async fn a_busy_job_and_its_bytes_are_seen() {
    let sshd = Sshd::start().await;
    let job = spawn(&sshd, &[], "cat /dev/zero >/dev/null");
    let seen = summary_with(&sshd, &job, "/dev/zero").await;
    let processes = seen["processes"].as_array().unwrap();
    let reads_much = |one: &Value| one["read_bytes_per_s"].as_u64() > Some(1 << 20);
    assert!(processes.iter().any(reads_much), "{seen}");
    let table = told(&sshjobs(&sshd, &["inspect", &job]));
    assert!(
        table.contains("WAITS FOR") && table.contains("/dev/zero"),
        "{table}"
    );
    told(&sshjobs(&sshd, &["kill", &job, "KILL"]));
}

#[tokio::test]
async fn a_prompt_on_a_terminal_is_recognized_and_whether_it_hides_what_is_typed() {
    let sshd = Sshd::start().await;
    let job = spawn(&sshd, &["--pty", "--stdin"], "stty -echo; read secret");
    let seen = summary_with(&sshd, &job, "as for a password").await;
    assert_eq!(seen["terminal"], json!({"lines": true, "echo": false}));
    assert!(
        seen["processes"]
            .as_array()
            .unwrap()
            .iter()
            .any(|one| one["reads_terminal"] == true),
        "{seen}"
    );
    told(&sshjobs(&sshd, &["kill", &job, "KILL"]));

    let keys = spawn(&sshd, &["--pty", "--stdin"], "stty -icanon; cat");
    let seen = summary_with(&sshd, &keys, "waits for input on its terminal").await;
    assert_eq!(seen["terminal"]["lines"], false);
    told(&sshjobs(&sshd, &["kill", &keys, "KILL"]));
}

#[tokio::test]
async fn agents_and_http_callers_ask_for_it_as_a_detail_of_a_job() {
    let sshd = Sshd::start().await;
    let server = Server::start(&sshd);
    let caller = Caller::new(&server.url, &token(&sshd, "ci", &[]));
    let started = caller.ok("spawn", json!({"host": HOST, "command": "sleep 600"}));
    let job = started["job_id"].as_str().unwrap().to_owned();

    let summary = |reply: &Value| reply["jobs"][0]["processes"]["summary"].to_string();
    eventually("the summary names the command", async || {
        let reply = caller.ok("jobs", json!({"job_id": job, "detail": "processes"}));
        assert_eq!(reply["total"], 1);
        summary(&reply).contains("sleep 600")
    })
    .await;
    let plain = caller.ok("jobs", json!({"job_id": job}));
    assert!(plain["jobs"][0]["processes"].is_null(), "{plain}");

    let (status, error) = caller.call("jobs", json!({"detail": "processes"}));
    assert_eq!((status, &error["code"]), (404, &json!("unknown_job")));
    let stranger = Caller::new(&server.url, &token(&sshd, "stranger", &[]));
    assert_eq!(stranger.call("jobs", json!({"job_id": job})).0, 404);

    let filtered = |state: &str| caller.ok("jobs", json!({"job_id": job, "state": state}));
    assert_eq!(
        (
            filtered("running")["total"].clone(),
            filtered("exited")["total"].clone()
        ),
        (json!(1), json!(0))
    );

    let client = std::cell::RefCell::new(McpClient::start(&sshd.ssh_config()));
    let started = client
        .borrow_mut()
        .ok("ssh_spawn", json!({"host": HOST, "command": "sleep 601"}));
    let request = json!({"job_id": started["job_id"], "detail": "processes"});
    eventually("an agent sees it, too", async || {
        summary(&client.borrow_mut().ok("ssh_jobs", request.clone())).contains("sleep 601")
    })
    .await;

    caller.ok("signal", json!({"job_id": job, "grace_ms": 2000}));
    caller.ok("wait", json!({"job_ids": [&job], "wait_ms": 20_000}));
    let ended = caller.ok("jobs", json!({"job_id": job, "detail": "processes"}));
    assert!(ended["jobs"][0]["processes"].is_null(), "{ended}");
}

#[tokio::test]
async fn a_secret_in_an_argument_or_a_path_is_not_shown() {
    let sshd = Sshd::start().await;
    let config = sshd.path("config.toml");
    let value = sshd.path("value");
    std::fs::write(&value, "hunter2-is-secret").unwrap();
    std::fs::set_permissions(&value, std::fs::Permissions::from_mode(0o600)).unwrap();
    std::fs::write(
        &config,
        format!(
            "[secrets.db]\nfile = {:?}\n",
            sshd.path("value").display().to_string()
        ),
    )
    .unwrap();
    let config = config.display().to_string();
    let fifo = sshd.path("x");
    let command = format!(
        "fifo={}$PASSWORD; mkfifo $fifo; exec 7<>$fifo; cat <&7 & \
         sh -c 'sleep 600; :' \"$PASSWORD\"; :",
        fifo.display()
    );
    let arguments = [
        "--config",
        &config,
        "spawn",
        "--secret-env",
        "PASSWORD=db",
        HOST,
        "--",
        &command,
    ];
    let job = told(&sshjobs(&sshd, &arguments)).trim().to_owned();
    eventually("its processes are there", async || {
        let seen = inspect(&sshd, &job).to_string();
        assert!(!seen.contains("hunter2"), "{seen}");
        seen.matches("may contain a secret").count() >= 4
    })
    .await;
    told(&sshjobs(&sshd, &["kill", &job, "KILL"]));

    // The process that has read the secret hides its value and nothing else.
    let server = Server::with(&sshd, &["--config", &config]);
    let caller = Caller::new(&server.url, &token(&sshd, "ci", &[]));
    let request = json!({"host": HOST, "command": command, "secret_env": {"PASSWORD": "db"}});
    let job = caller.ok("spawn", request)["job_id"].clone();
    eventually("its arguments are there", async || {
        let reply = caller.ok("jobs", json!({"job_id": job, "detail": "processes"})).to_string();
        assert!(!reply.contains("hunter2"), "{reply}");
        reply.contains("sh -c sleep 600; : [secret db]")
    })
    .await;
    caller.ok("signal", json!({"job_id": job, "signal": "KILL"}));
}

#[tokio::test]
async fn of_many_processes_the_oldest_and_the_newest_are_described() {
    let sshd = Sshd::start().await;
    let job = spawn(&sshd, &[], "for i in $(seq 80); do sleep 60$i & done; wait");
    eventually("all are counted", async || {
        let seen = inspect(&sshd, &job)["processes"].clone();
        seen["total"].as_u64() >= Some(81) && seen["processes"].as_array().unwrap().len() == 50
    })
    .await;
    told(&sshjobs(&sshd, &["kill", &job, "KILL"]));
}

/// Why a job ended, once it has.
fn why(sshd: &Sshd, job: &str) -> Value {
    sshjobs(sshd, &["wait", job]);
    inspect(sshd, job)["why"].clone()
}

#[tokio::test]
async fn a_durable_job_says_why_it_ended_and_what_it_used() {
    let sshd = Sshd::start().await;
    let job = spawn(
        &sshd,
        &[],
        "perl -e '$x = q(a) x 40_000_000; $i++ while $i < 3_000_000'; exit 3",
    );

    let why = why(&sshd, &job);

    assert_eq!(why["cause"], "exited", "{why}");
    assert_eq!(why["summary"], format!("{job} exited with status 3"));
    assert!(why["cpu_ms"].as_u64() > Some(10), "{why}");
    assert!(
        why["peak_memory_bytes"].as_u64() > Some(40_000_000),
        "{why}"
    );
    let words = told(&sshjobs(&sshd, &["inspect", &job]));
    assert!(
        words.contains("exited with status 3") && words.contains("MiB"),
        "{words}"
    );
}

#[tokio::test]
async fn the_end_of_a_job_says_who_caused_it() {
    let sshd = Sshd::start().await;
    let limited = spawn(&sshd, &["--timeout", "1s"], "sleep 600");
    let signalled = spawn(&sshd, &[], "sleep 601");
    let killed = spawn(&sshd, &[], "sleep 602");
    let crashed = spawn(&sshd, &[], "kill -SEGV $$");

    told(&sshjobs(&sshd, &["signal", &signalled, "TERM"]));
    let seen = summary_with(&sshd, &killed, "sleep 602").await;
    kill_as_a_stranger(&seen["processes"][0]["pid"]);

    let causes =
        [&limited, &signalled, &killed, &crashed].map(|job| why(&sshd, job)["cause"].clone());
    assert_eq!(
        causes,
        ["time_limit", "sent_signal", "unknown_sender", "crashed"].map(|cause| json!(cause))
    );
}

#[tokio::test]
async fn a_command_that_handles_a_signal_exits_after_it() {
    let sshd = Sshd::start().await;
    let job = spawn(
        &sshd,
        &[],
        "trap 'exit 7' TERM; echo ready; while :; do sleep 0.05; done",
    );
    told(&sshjobs(&sshd, &["tail", "--until", "ready", &job]));

    told(&sshjobs(&sshd, &["signal", &job, "TERM"]));

    let why = why(&sshd, &job);
    assert_eq!(why["cause"], "exited", "{why}");
    let summary = why["summary"].as_str().unwrap();
    assert!(
        summary.ends_with("exited with status 7, after SIGTERM was sent to it through sshjobs"),
        "{why}"
    );
}

#[tokio::test]
async fn an_attached_job_that_a_stranger_killed_has_no_figures() {
    let sshd = Sshd::start().await;
    let server = Server::start(&sshd);
    let caller = Caller::new(&server.url, &token(&sshd, "ci", &[]));
    let spawn = |command: &str| {
        let started = caller.ok("spawn", json!({"host": HOST, "command": command}));
        started["job_id"].as_str().unwrap().to_owned()
    };
    let why = |job: &str| {
        caller.ok("wait", json!({"job_ids": [job], "wait_ms": 20_000}));
        let reply = caller.ok("jobs", json!({"job_id": job, "detail": "processes"}));
        reply["jobs"][0]["why"].clone()
    };
    let killed = spawn("exec sleep 603");
    let processes = std::cell::RefCell::new(Value::Null);
    eventually("the job runs", async || {
        let reply = caller.ok("jobs", json!({"job_id": killed, "detail": "processes"}));
        let found = reply["jobs"][0]["processes"]["processes"].clone();
        let is_it = found[0]["command"] == "sleep 603";
        processes.replace(found);
        is_it
    })
    .await;

    kill_as_a_stranger(&processes.borrow()[0]["pid"]);
    let by_stranger = why(&killed);
    let signalled = spawn("exec sleep 604");
    caller.ok("signal", json!({"job_id": signalled, "signal": "KILL"}));
    let by_us = why(&signalled);

    assert_eq!(by_stranger["cause"], "unknown_sender", "{by_stranger}");
    assert!(by_stranger["cpu_ms"].is_null() && by_stranger["peak_memory_bytes"].is_null());
    assert_eq!(by_us["cause"], "sent_signal", "{by_us}");
}

/// Kills a process without the help of sshjobs.
fn kill_as_a_stranger(pid: &Value) {
    let pid = i32::try_from(pid.as_i64().unwrap()).unwrap();
    kill(Pid::from_raw(pid), Signal::SIGKILL).unwrap();
}
