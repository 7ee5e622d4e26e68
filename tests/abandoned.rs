//! Durable jobs for which nobody asks any more: `abandoned` of `[defaults]`.

use std::time::Duration;

use serde_json::{Value, json};

use crate::support::command::{sshjobs, told};
use crate::support::server::{Caller, Server};
use crate::support::{HOST, Sshd, eventually};

/// Lets the server of a test end durable jobs after a few seconds, and write its notifications to a file.
fn configure(sshd: &Sshd, abandoned: &str) -> String {
    let told = sshd.path("told");
    let config = sshd.path("config.toml");
    let text = format!(
        "[defaults]\nabandoned = \"{abandoned}\"\n\n\
         [notify.targets.file]\ncommand = [\"sh\", \"-c\", \"cat >> {0}; echo >> {0}\"]\n\n\
         [[notify.rules]]\ntargets = [\"file\"]\n",
        told.display()
    );
    std::fs::write(&config, text).unwrap();
    config.display().to_string()
}

fn spawn(caller: &Caller) -> String {
    let request = json!({"host": HOST, "command": "sleep 600", "durable": true});
    caller.ok("spawn", request)["job_id"].as_str().unwrap().to_owned()
}

/// The state of a job, in a list, which is no call for it.
fn state(caller: &Caller, job: &str) -> String {
    let jobs = caller.ok("jobs", json!({}))["jobs"].clone();
    let found = jobs.as_array().unwrap().iter().find(|entry| entry["job_id"] == job).cloned();
    found.unwrap()["state"].as_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_nobody_asks_for_is_ended_after_a_notice_and_one_that_is_read_is_not() {
    let sshd = Sshd::start().await;
    let config = configure(&sshd, "8s");
    let server = Server::with(&sshd, &["--config", &config]);
    let caller = server.caller(&sshd, "ci", &["--role", "run"]);
    let (abandoned, waited, asked) = (spawn(&caller), spawn(&caller), spawn(&caller));

    // One call that takes longer than the limit.
    let waiting = std::thread::spawn({
        let caller = server.caller(&sshd, "ci2", &["--role", "admin"]);
        let waited = waited.clone();
        move || caller.ok("wait", json!({"job_ids": [waited], "wait_ms": 14_000}))
    });
    eventually("the abandoned job ends", || async {
        // Calls now and then.
        caller.ok("read", json!({"job_id": asked}));
        state(&caller, &abandoned) != "running"
    })
    .await;
    assert_eq!(state(&caller, &abandoned), "signaled");
    assert_eq!(state(&caller, &waited), "running");
    assert_eq!(state(&caller, &asked), "running");

    let detail = json!({"job_id": abandoned, "detail": "processes"});
    let entry = caller.ok("jobs", detail)["jobs"][0].clone();
    assert_eq!(entry["why"]["cause"], "abandoned", "{entry}");
    let told = std::fs::read_to_string(sshd.path("told")).unwrap();
    let messages: Vec<Value> = told
        .lines()
        .filter(|line| !line.is_empty())
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let notices = |job: &str| {
        let is_notice =
            |message: &&Value| message["event"] == "abandoned" && message["job"]["job_id"] == job;
        messages.iter().filter(is_notice).count()
    };
    assert_eq!(notices(&abandoned), 1, "{told}");
    assert_eq!(notices(&waited), 0, "{told}");

    waiting.join().unwrap();
    for job in [&waited, &asked] {
        // By now the second may be abandoned, too.
        caller.call("signal", json!({"job_id": job, "signal": "KILL"}));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_follower_on_the_command_line_keeps_a_job_and_time_without_a_server_is_no_notice() {
    let sshd = Sshd::start().await;
    let config = configure(&sshd, "20s");
    let server = Server::with(&sshd, &["--config", &config]);
    let caller = server.caller(&sshd, "ci", &["--role", "admin"]);
    let (followed, forgotten) = (spawn(&caller), spawn(&caller));
    server.stop().await;
    tokio::time::sleep(Duration::from_secs(21)).await;

    let server = Server::with(&sshd, &["--config", &config]);
    let caller = server.caller(&sshd, "ci2", &["--role", "admin"]);
    assert_eq!(state(&caller, &forgotten), "running", "nobody was told yet");
    let limited = ["--config", &config, "wait", "--timeout", "8s", &followed];
    let waited = sshjobs(&sshd, &limited);
    assert!(!waited.status.success());
    assert_eq!(state(&caller, &followed), "running");
    eventually("the forgotten job ends", || async {
        state(&caller, &forgotten) != "running"
    })
    .await;
    told(&sshjobs(&sshd, &["--config", &config, "kill", &followed]));
}

#[tokio::test]
async fn a_time_that_is_none_is_refused() {
    let sshd = Sshd::start().await;
    let config = sshd.path("config.toml");
    for (abandoned, words) in [
        ("\"soon\"", "not a time such as 7d"),
        ("\"0s\"", "at least 1s"),
    ] {
        std::fs::write(&config, format!("[defaults]\nabandoned = {abandoned}\n")).unwrap();
        let output = sshjobs(&sshd, &["--config", &config.display().to_string(), "jobs"]);
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(message.contains(words), "{message}");
    }
}
