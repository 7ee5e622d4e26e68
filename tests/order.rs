//! The order of jobs: after others, and in queues.

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

use crate::support::command::{command, sshjobs, told};
use crate::support::server::{Caller, Server, token};
use crate::support::{HOST, Sshd, eventually, exit_of};

/// A command that notes its start and its end in a file.
fn noted(sshd: &Sshd, name: &str) -> String {
    let file = sshd.path("order").display().to_string();
    format!("echo {name} begins >> {file}; sleep 0.4; echo {name} ends >> {file}")
}

fn notes(sshd: &Sshd) -> Vec<String> {
    let text = std::fs::read_to_string(sshd.path("order")).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

/// Spawns a job. Returns its id and the reply.
fn spawn(caller: &Caller, command: &str, order: Value) -> (String, Value) {
    let mut request = json!({"host": HOST, "command": command});
    request.as_object_mut().unwrap().extend(order.as_object().unwrap().clone());
    let reply = caller.ok("spawn", request);
    (reply["job_id"].as_str().unwrap().to_owned(), reply)
}

fn wait_for(caller: &Caller, jobs: &[String]) -> Vec<Value> {
    let reply = caller.ok("wait", json!({"job_ids": jobs, "wait_ms": 40_000}));
    assert_eq!(reply["ended"], jobs.len(), "{reply}");
    reply["jobs"].as_array().unwrap().clone()
}

fn one_after_the_other(names: &[&str]) -> Vec<String> {
    let both = |name: &&str| [format!("{name} begins"), format!("{name} ends")];
    names.iter().flat_map(both).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn jobs_of_a_queue_run_one_after_the_other_in_the_order_of_their_start() {
    let sshd = Sshd::start().await;
    let server = Server::start(&sshd);
    let caller = server.caller(&sshd, "ci", &[]);
    let names = ["a", "b", "c"];

    let gate = sshd.path("gate").display().to_string();

    let started: Vec<(String, Value)> = names
        .iter()
        .map(|name| {
            let command = format!(
                "until [ -e {gate} ]; do sleep 0.1; done; {}",
                noted(&sshd, name)
            );
            spawn(&caller, &command, json!({"queue": "deploy"}))
        })
        .collect();

    let states: Vec<&Value> = started.iter().map(|(_, reply)| &reply["state"]).collect();
    assert_eq!(states, ["running", "queued", "queued"]);
    assert_eq!(started[1].1["reason"], "is next in the queue deploy");
    assert_eq!(started[2].1["reason"], "is number 2 in the queue deploy");
    let inspected = caller.ok(
        "jobs",
        json!({"job_id": started[1].0, "detail": "processes"}),
    );
    assert_eq!(
        inspected["jobs"][0]["reason"],
        "is next in the queue deploy"
    );
    let (other, reply) = spawn(&caller, "true", json!({"queue": "backup"}));
    assert_ne!(reply["state"], "queued", "{other}");
    std::fs::write(&gate, "").unwrap();
    let jobs: Vec<String> = started.into_iter().map(|(id, _)| id).collect();
    let ended = wait_for(&caller, &jobs);
    assert!(ended.iter().all(|job| job["exit_status"] == 0), "{ended:?}");
    assert_eq!(notes(&sshd), one_after_the_other(&names));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_and_commands_of_a_person_keep_one_order() {
    let sshd = Sshd::start().await;
    let server = Server::start(&sshd);
    let caller = server.caller(&sshd, "ci", &["--role", "admin"]);
    let gate = sshd.path("gate").display().to_string();
    let first = format!(
        "until [ -e {gate} ]; do sleep 0.1; done; {}",
        noted(&sshd, "a")
    );
    let (first, _) = spawn(&caller, &first, json!({"queue": "deploy"}));
    let person = |name: &str| {
        let words = ["spawn", "--queue", "deploy", HOST, "--"];
        let mut started = command(&sshd, &words);
        started.arg(noted(&sshd, name)).spawn().unwrap()
    };
    let wait_until_queued = async |number: u64| {
        eventually("the job is queued", async || {
            caller.ok("jobs", json!({"state": "queued"}))["total"] == number
        })
        .await;
    };

    let mut second = person("b");
    wait_until_queued(1).await;
    let (third, _) = spawn(&caller, &noted(&sshd, "c"), json!({"queue": "deploy"}));
    wait_until_queued(2).await;
    let mut fourth = person("d");
    wait_until_queued(3).await;
    std::fs::write(&gate, "").unwrap();

    assert_eq!(exit_of(&mut second).await, Some(0));
    assert_eq!(exit_of(&mut fourth).await, Some(0));
    wait_for(&caller, &[first, third]);
    eventually("all have ended", async || notes(&sshd).len() == 8).await;
    assert_eq!(notes(&sshd), one_after_the_other(&["a", "b", "c", "d"]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_starts_after_the_end_or_only_after_the_success_of_others() {
    let sshd = Sshd::start().await;
    let server = Server::start(&sshd);
    let caller = server.caller(&sshd, "ci", &[]);
    let gate = sshd.path("gate").display().to_string();
    let fails = format!("until [ -e {gate} ]; do sleep 0.1; done; exit 3");
    let (fails, _) = spawn(&caller, &fails, json!({}));
    let (after, reply) = spawn(&caller, "true", json!({"after": [fails]}));
    assert_eq!(reply["state"], "queued");
    assert_eq!(reply["reason"], format!("waits for the end of {fails}"));
    let (after_ok, _) = spawn(&caller, "true", json!({"after_ok": [fails]}));
    let (then, _) = spawn(&caller, "true", json!({"after_ok": [after]}));
    std::fs::write(&gate, "").unwrap();

    let ended = wait_for(&caller, &[after, after_ok, then]);

    assert_eq!(ended[0]["exit_status"], 0);
    assert_eq!(ended[1]["state"], "refused");
    let expected =
        format!("it was to start after the success of {fails}, which exited with status 3");
    assert_eq!(ended[1]["reason"], expected);
    assert_eq!(ended[2]["exit_status"], 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_job_and_a_bad_name_of_a_queue_are_refused() {
    let sshd = Sshd::start().await;
    let server = Server::start(&sshd);
    let caller = server.caller(&sshd, "ci", &[]);
    for (order, code) in [
        (json!({"after": ["web1-nothere"]}), "unknown_job"),
        (json!({"queue": "a b"}), "invalid_argument"),
    ] {
        let mut request = json!({"host": HOST, "command": "true"});
        request.as_object_mut().unwrap().extend(order.as_object().unwrap().clone());
        assert_eq!(caller.call("spawn", request).1["code"], code, "{order}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_queued_durable_job_keeps_its_place_when_its_server_is_killed() {
    let sshd = Sshd::start().await;
    let server = Server::start(&sshd);
    let token = token(&sshd, "ci", &[]);
    let caller = Caller::new(&server.url, &token);
    let gate = sshd.path("gate").display().to_string();
    let first = format!(
        "until [ -e {gate} ]; do sleep 0.1; done; {}",
        noted(&sshd, "a")
    );
    let order = |durable: bool| json!({"queue": "deploy", "durable": durable});
    let (first, _) = spawn(&caller, &first, order(true));
    let (second, _) = spawn(&caller, &noted(&sshd, "b"), order(true));
    let (lost, _) = spawn(&caller, &noted(&sshd, "lost"), order(false));
    let with_secret = json!({
        "host": HOST, "command": "true", "env": {"TOKEN": "x"}, "durable": true, "queue": "deploy",
    });
    let with_secret = caller.ok("spawn", with_secret)["job_id"].as_str().unwrap().to_owned();
    let (third, _) = spawn(&caller, &noted(&sshd, "c"), order(true));
    // With SIGKILL.
    drop(server);

    let server = Server::start(&sshd);
    let caller = Caller::new(&server.url, &token);
    std::fs::write(&gate, "").unwrap();

    let ended = wait_for(&caller, &[first, second, lost, with_secret, third]);
    let states: Vec<&Value> = ended.iter().map(|job| &job["state"]).collect();
    assert_eq!(states, ["exited", "exited", "lost", "refused", "exited"]);
    assert!(ended[3]["reason"].as_str().unwrap().contains("values of its variables"));
    assert_eq!(notes(&sshd), one_after_the_other(&["a", "b", "c"]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_signal_or_forgetting_cancels_a_queued_job() {
    let sshd = Sshd::start().await;
    let server = Server::start(&sshd);
    let caller = server.caller(&sshd, "ci", &["--role", "admin"]);
    let queued = |durable: bool| json!({"queue": "deploy", "durable": durable});
    let (first, _) = spawn(&caller, "sleep 60", queued(true));
    let started: Vec<String> = [true, false, true]
        .map(|durable| spawn(&caller, &noted(&sshd, "x"), queued(durable)).0)
        .into();
    let (last, _) = spawn(&caller, &noted(&sshd, "last"), queued(true));

    // The server owns it, and another process cancels it.
    told(&sshjobs(&sshd, &["signal", &started[0], "TERM"]));
    caller.ok("signal", json!({"job_id": started[1], "signal": "INT"}));
    caller.ok("forget", json!({"job_id": started[2]}));

    let ended = wait_for(&caller, &started[..2]);
    assert!(
        ended.iter().all(|job| job["state"] == "refused"),
        "{ended:?}"
    );
    // Jobs that have ended leave the queue a moment later.
    eventually("the last one is next", async || {
        let listed = caller.ok("jobs", json!({"job_id": last}));
        assert_eq!(listed["jobs"][0]["state"], "queued");
        listed["jobs"][0]["reason"] == "is next in the queue deploy"
    })
    .await;
    caller.ok("signal", json!({"job_id": first, "signal": "KILL"}));
    wait_for(&caller, &[last]);
    assert_eq!(notes(&sshd), one_after_the_other(&["last"]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_queue_may_run_several_jobs_or_one_on_each_host() {
    let sshd = Sshd::start().await;
    let config = sshd.path("queues.toml");
    std::fs::write(
        &config,
        "[queues.two]\nparallel = 2\n[queues.hosts]\nper_host = true\n",
    )
    .unwrap();
    let config = config.to_str().unwrap();
    let server = Server::with(&sshd, &["--config", config]);
    let caller = server.caller(&sshd, "ci", &[]);
    let state =
        |queue: &str| spawn(&caller, "sleep 60", json!({"queue": queue})).1["state"].clone();

    let two = [(); 3].map(|()| state("two"));
    let hosts = [(); 2].map(|()| state("hosts"));

    assert_eq!(two, ["running", "running", "queued"]);
    assert_eq!(hosts, ["running", "queued"]);
    let fleet = json!({"hosts": [HOST], "command": "true", "queue": "hosts"});
    let fleet = caller.ok("spawn", fleet);
    assert_eq!(fleet["state"], "queued", "{fleet}");
    assert_eq!(fleet["reason"], "is number 2 in the queue hosts");
    caller.ok(
        "signal",
        json!({"job_id": fleet["job_id"], "signal": "TERM"}),
    );
    let id = fleet["job_id"].as_str().unwrap().to_owned();
    assert_eq!(wait_for(&caller, &[id])[0]["state"], "refused");
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_that_start_jobs_at_once_run_all_of_them_one_at_a_time() {
    let sshd = Sshd::start().await;
    let words = ["spawn", "--queue", "deploy", HOST, "--"];
    let mut started: Vec<_> = ["a", "b", "c", "d", "e", "f"]
        .iter()
        .map(|name| command(&sshd, &words).arg(noted(&sshd, name)).spawn().unwrap())
        .collect();

    for child in &mut started {
        assert_eq!(exit_of(child).await, Some(0));
    }

    eventually("all have ended", async || notes(&sshd).len() == 12).await;
    for pair in notes(&sshd).chunks(2) {
        let name = pair[0].strip_suffix(" begins").unwrap();
        assert_eq!(pair[1], format!("{name} ends"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_program_does_not_stop_its_queue() {
    let sshd = Sshd::start().await;
    let mut first = command(&sshd, &["run", "--queue", "deploy", HOST, "--", "sleep 60"]);
    let mut first = first.spawn().unwrap();
    eventually("the first job runs", async || {
        told(&sshjobs(&sshd, &["jobs"])).contains("running  ")
    })
    .await;
    let mut second = command(&sshd, &["run", "--queue", "deploy", HOST, "--"]);
    let mut second = second.arg(noted(&sshd, "b")).spawn().unwrap();
    eventually("the second job is queued", async || {
        told(&sshjobs(&sshd, &["jobs"])).contains("queued")
    })
    .await;

    first.kill().unwrap();
    first.wait().unwrap();

    assert_eq!(exit_of(&mut second).await, Some(0));
    assert_eq!(notes(&sshd), one_after_the_other(&["b"]));
}

#[tokio::test(flavor = "multi_thread")]
async fn spawn_of_a_queued_job_returns_and_a_process_in_the_background_starts_it() {
    let sshd = Sshd::start().await;
    let first = told(&sshjobs(&sshd, &["spawn", HOST, "--", "sleep 60"]));
    let first = first.trim();
    let queued = |name: &str| {
        let words = ["spawn", "--after", first, HOST, "--", &noted(&sshd, name)];
        let output = sshjobs(&sshd, &words);
        let note = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            note.contains(&format!("waits for the end of {first}")),
            "{note}"
        );
        told(&output).trim().to_owned()
    };
    let kept = queued("a");
    // Without the process in the background, the next server starts the job.
    let left = {
        let before = keepers(&sshd);
        let job = queued("b");
        let new: Vec<Pid> =
            keepers(&sshd).into_iter().filter(|pid| !before.contains(pid)).collect();
        assert_eq!(new.len(), 1, "{new:?}");
        kill(new[0], Signal::SIGKILL).unwrap();
        job
    };
    let listed = told(&sshjobs(&sshd, &["jobs", "--state", "queued"]));
    assert!(listed.contains(&kept) && listed.contains(&left), "{listed}");

    told(&sshjobs(&sshd, &["signal", first, "KILL"]));

    eventually("the first one has run", async || {
        notes(&sshd).contains(&"a ends".to_owned())
    })
    .await;
    let server = Server::start(&sshd);
    let caller = server.caller(&sshd, "ci", &["--role", "admin"]);
    let ended = wait_for(&caller, &[kept, left]);
    assert!(ended.iter().all(|job| job["exit_status"] == 0), "{ended:?}");
    eventually("no process is left", async || keepers(&sshd).is_empty()).await;
    let refused = sshjobs(&sshd, &["spawn", "--queue", "a b", HOST, "--", "true"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("invalid_argument"));
}

/// Processes in the background that stay with queued jobs of this host.
fn keepers(sshd: &Sshd) -> Vec<Pid> {
    let state = format!("XDG_STATE_HOME={}", sshd.path("state").display());
    let is_keeper = |pid: &i32| {
        let environ = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        let variables: Vec<&[u8]> = environ.split(|byte| *byte == 0).collect();
        let has = |wanted: &str| variables.iter().any(|set| set.starts_with(wanted.as_bytes()));
        has(&state) && has("SSHJOBS_KEEPER=")
    };
    let processes = std::fs::read_dir("/proc").unwrap();
    let pids = processes.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    pids.filter(is_keeper).map(Pid::from_raw).collect()
}
