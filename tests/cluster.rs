//! Three replicas over NATS: every replica answers every call, with the same lines and numbers.
//!
//! Needs NATS: `make test-cluster`.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

#[path = "cluster/audit.rs"]
mod audit;
#[path = "cluster/kills.rs"]
mod kills;
#[path = "cluster/nats_faults.rs"]
mod nats_faults;
#[path = "cluster/operations.rs"]
mod operations;
mod support;

use std::time::Duration;

use serde_json::{Value, json};
use support::replicas::Cluster;
use support::server::Caller;
use support::{HOST, eventually};

fn job_id(reply: &Value) -> String {
    reply["job_id"].as_str().unwrap_or_else(|| panic!("{reply}")).to_owned()
}

/// The loop that every agent is shown, with each call to the next replica.
fn canonical_loop(callers: &[Caller], job: &str) -> Vec<(u64, String)> {
    let mut lines = Vec::new();
    let mut cursor = 0;
    for caller in callers.iter().cycle() {
        let request = json!({"job_id": job, "since_line_no": cursor, "wait_ms": 5000, "max_lines": 500,
            "format": "records"});
        let reply = caller.ok("tail", request);
        for record in reply["records"].as_array().into_iter().flatten() {
            let number = record["line_no"].as_u64().unwrap();
            lines.push((number, record["text"].as_str().unwrap().to_owned()));
        }
        cursor = reply["last_line_no"].as_u64().unwrap();
        if reply["still_running"] == false {
            break;
        }
    }
    lines
}

#[tokio::test]
async fn a_job_is_read_at_every_replica_with_the_same_numbers() {
    let cluster = Cluster::start(3).await;
    let callers = cluster.callers("ci", &[]);

    for (number, caller) in callers.iter().enumerate() {
        let host = format!("h{number}");
        let command = "for i in $(seq 1 2000); do echo line $i; done";
        let job = job_id(&caller.ok("spawn", json!({"host": host, "command": command})));

        let lines = canonical_loop(&callers, &job);

        let expected: Vec<_> =
            (1..=2000).map(|number| (number, format!("line {number}"))).collect();
        assert_eq!(lines, expected);
        for caller in &callers {
            let found = caller.ok("search", json!({"job_id": job, "pattern": "line 1999$"}));
            assert_eq!(found["matches"][0]["line_no"], 1999, "{found}");
            let listed = caller.ok("jobs", json!({"host": host}));
            assert_eq!(listed["jobs"][0]["job_id"], job, "{listed}");
        }
    }
}

#[tokio::test]
async fn every_replica_writes_to_a_job_signals_it_and_forgets_it() {
    let cluster = Cluster::start(3).await;
    let callers = cluster.callers("ci", &[]);
    for (durable, starter) in [(false, 0), (true, 1), (false, 2)] {
        let request = json!({"host": HOST, "command": "cat; sleep 60", "durable": durable});
        let job = job_id(&callers[starter].ok("spawn", request));

        for (number, caller) in callers.iter().enumerate() {
            let text = format!("from {number}\n");
            caller.ok("write", json!({"job_id": job, "data": text}));
        }
        callers[0].ok(
            "write",
            json!({"job_id": job, "data": "", "close_after": true}),
        );
        let read = callers[1].ok(
            "tail",
            json!({"job_id": job, "since_line_no": 0, "until": "from 2", "wait_ms": 10_000}),
        );
        let lines: Vec<&str> = read["lines"]
            .as_array()
            .unwrap()
            .iter()
            .map(|line| line.as_str().unwrap())
            .collect();
        assert!(
            lines.concat().contains("from 0") && lines.concat().contains("from 2"),
            "{read}"
        );

        let signalled = callers[2].ok("signal", json!({"job_id": job, "grace_ms": 2000}));
        support::assert_dead(&signalled);
        let waited = callers[0].ok("wait", json!({"job_ids": [&job], "wait_ms": 10_000}));
        assert_eq!(waited["ended"], 1, "{waited}");
        callers[1].ok("forget", json!({"job_id": job}));
        for caller in &callers {
            eventually("the job is forgotten", async || {
                caller.call("tail", json!({"job_id": job, "since_line_no": 0})).0 != 200
            })
            .await;
        }
    }
}

#[tokio::test]
async fn a_call_is_approved_at_any_replica_and_goes_through_at_one() {
    let policy = "[[rules]]\nname = \"all\"\ncommands = \"any\"\napproval = \"person\"\n\
                  [[approvers]]\ncallers = [\"alice\"]\n";
    let cluster = Cluster::with_policy(policy, 3).await;
    let agents = cluster.callers("agent", &[]).into_iter().map(Caller::impatient);
    let agents: Vec<Caller> = agents.collect();
    let approvers = cluster.callers("alice", &[]);
    let file = cluster.sshd.path("ran");
    let request = json!({"host": "h3", "command": format!("echo once >> {}", file.display())});
    let call = |agent: &Caller| agent.call("run", request.clone());

    let ids: Vec<Value> = agents.iter().map(|agent| call(agent).1["approval_id"].clone()).collect();
    assert!(
        ids[0].is_string() && ids.iter().all(|id| *id == ids[0]),
        "{ids:?}"
    );
    let id = ids[0].as_str().unwrap();
    let (status, reply) =
        approvers[1].call(&format!("approvals/{id}"), json!({"decision": "approve"}));
    assert_eq!(status, 200, "{reply}");

    let calls: Vec<_> = agents
        .iter()
        .map(|agent| {
            let agent = agent.clone();
            let request = request.clone();
            std::thread::spawn(move || agent.call("run", request).0)
        })
        .collect();
    let mut statuses: Vec<u16> = calls.into_iter().map(|call| call.join().unwrap()).collect();
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 409, 409]);
    assert_eq!(std::fs::read_to_string(file).unwrap(), "once\n");
}

#[tokio::test]
async fn a_key_is_one_jobs_at_all_replicas() {
    let cluster = Cluster::start(3).await;
    let callers = cluster.callers("ci", &[]);

    let request = json!({"host": "h7", "command": "echo once >> $HOME/ran", "env": {"HOME": cluster.sshd.path("")},
        "idempotency_key": "k1"});
    let ids: Vec<String> = callers
        .iter()
        .map(|caller| job_id(&caller.ok("spawn", request.clone())))
        .collect();

    assert!(ids.iter().all(|id| *id == ids[0]), "{ids:?}");
    canonical_loop(&callers, &ids[0]);
    assert_eq!(
        std::fs::read_to_string(cluster.sshd.path("ran")).unwrap(),
        "once\n"
    );

    callers[0].ok("forget", json!({"job_id": ids[0]}));
    for caller in &callers {
        let (status, reply) = caller.call("tail", json!({"job_id": ids[0], "since_line_no": 0}));
        assert_eq!(
            (status, &reply["code"]),
            (410, &json!("expired_job")),
            "{reply}"
        );
        let (status, reply) = caller.call("spawn", request.clone());
        assert_eq!(
            (status, &reply["code"]),
            (410, &json!("expired_job")),
            "{reply}"
        );
    }
}

#[tokio::test]
async fn a_revoked_token_and_changed_hosts_take_effect_at_every_replica() {
    let cluster = Cluster::start(3).await;
    let callers = cluster.callers("ci", &["--hosts", "h*"]);
    for caller in &callers {
        assert_eq!(caller.call("jobs", json!({})).0, 200);
        let refused = caller.call("run", json!({"host": HOST, "command": "true"}));
        assert_eq!(refused.0, 403, "{refused:?}");
    }

    cluster.token(&["revoke", "ci"]);

    tokio::time::sleep(Duration::from_secs(1)).await;
    for caller in &callers {
        assert_eq!(caller.call("jobs", json!({})).0, 401);
    }

    let callers = cluster.callers("ci", &["--hosts", HOST]);
    for caller in &callers {
        eventually("the new token is known", async || {
            caller.call("jobs", json!({})).0 == 200
        })
        .await;
        let refused = caller.call("run", json!({"host": "h1", "command": "true"}));
        assert_eq!(refused.0, 403, "{refused:?}");
        caller.ok("run", json!({"host": HOST, "command": "true"}));
    }
}

#[tokio::test]
async fn files_are_read_and_written_through_every_replica() {
    let cluster = Cluster::start(3).await;
    let callers = cluster.callers("ci", &[]);
    // So that a replica holds the host.
    callers[0].ok("run", json!({"host": HOST, "command": "true"}));
    let path = cluster.sshd.path("file");
    let content: Vec<u8> = (0..1_500_000_u32).map(|number| (number % 251) as u8).collect();

    for caller in &callers {
        std::fs::remove_file(&path).ok();
        let url = format!("{}/v1/hosts/{HOST}/files{}", caller.url, path.display());
        let put = ureq::put(&url)
            .header("Authorization", format!("Bearer {}", caller.token))
            .send(&content[..])
            .unwrap();
        assert!(put.status().is_success());
        assert_eq!(std::fs::read(&path).unwrap(), content);

        let part = caller.get_with(
            &format!("/v1/hosts/{HOST}/files{}", path.display()),
            &[("Range", "bytes=1000000-1000999")],
        );
        assert_eq!(part.status(), 206);
        let part = part.into_body().read_to_vec().unwrap();
        assert_eq!(part, content[1_000_000..1_001_000]);

        let edited = caller.ok("get", json!({"host": HOST, "path": path, "max_bytes": 10}));
        assert!(edited.is_object());
    }
}

#[tokio::test]
async fn a_durable_job_of_a_killed_replica_is_followed_by_another_one() {
    let mut cluster = Cluster::start(3).await;
    let callers = cluster.callers("ci", &[]);
    let command = "for i in $(seq 1 60); do echo line $i; sleep 0.2; done";
    let mut jobs = Vec::new();
    for (number, caller) in callers.iter().enumerate() {
        let host = format!("h{number}");
        let request = json!({"host": host, "command": command, "durable": true});
        jobs.push(job_id(&caller.ok("spawn", request)));
    }
    let attached = json!({"host": "h50", "command": "sleep 300"});
    let attached = job_id(&callers[0].ok("spawn", attached));

    // Kills one after the other, except the last one.
    let killed = cluster.replicas.remove(0);
    drop(killed);
    tokio::time::sleep(Duration::from_secs(2)).await;
    let killed = cluster.replicas.remove(0);
    drop(killed);

    for job in &jobs {
        let lines = canonical_loop(&callers[2..], job);
        let expected: Vec<_> = (1..=60).map(|number| (number, format!("line {number}"))).collect();
        assert_eq!(lines, expected);
    }
    let all = callers[2].ok("jobs", json!({}));
    let states: Vec<(&str, &str)> = all["jobs"]
        .as_array()
        .unwrap()
        .iter()
        .map(|job| {
            (
                job["job_id"].as_str().unwrap(),
                job["state"].as_str().unwrap(),
            )
        })
        .collect();
    for job in &jobs {
        assert!(states.contains(&(job, "exited")), "{states:?}");
    }
    // Its replica may be the one that lives.
    let state = states.iter().find(|(id, _)| *id == attached).unwrap().1;
    assert!(state == "lost" || state == "running", "{states:?}");
}

#[tokio::test]
async fn a_command_is_followed_through_every_replica_by_our_own_client() {
    let cluster = Cluster::start(3).await;
    let token = cluster.token(&["new", "ci"]);
    for replica in &cluster.replicas {
        let mut client = std::process::Command::new(env!("CARGO_BIN_EXE_sshjobs"))
            .args([
                "--server",
                &replica.url,
                "run",
                HOST,
                "--",
                "tr a-z A-Z; exit 3",
            ])
            .env("SSHJOBS_TOKEN", &token)
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdin = client.stdin.take().unwrap();
        std::io::Write::write_all(&mut stdin, b"hello\n").unwrap();
        drop(stdin);

        let output = client.wait_with_output().unwrap();

        assert_eq!(String::from_utf8_lossy(&output.stdout), "HELLO\n");
        assert_eq!(output.status.code(), Some(3));
    }
}

#[tokio::test]
async fn a_task_that_is_cancelled_at_one_replica_is_cancelled_at_all() {
    let cluster = Cluster::start(3).await;
    let callers = cluster.callers("ci", &[]);
    let run = json!({"name": "ssh_run", "arguments": {"host": HOST, "command": "sleep 60"}});
    let task = callers[0].result("tools/call", run)["taskId"].clone();

    callers[1].result("tasks/cancel", json!({"taskId": task}));

    for caller in &callers {
        let asked = caller.result("tasks/get", json!({"taskId": task}));
        assert_eq!(asked["status"], "cancelled", "{asked}");
    }
}

#[tokio::test]
async fn a_session_of_mcp_continues_at_every_replica() {
    let cluster = Cluster::start(3).await;
    let callers = cluster.callers("ci", &[]);
    let hello = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "0"}}});
    let response = callers[0].mcp(hello, &[]);
    let session = response.headers()["mcp-session-id"].to_str().unwrap().to_owned();
    let headers = [
        ("Mcp-Session-Id", session.as_str()),
        ("MCP-Protocol-Version", "2025-11-25"),
    ];
    let ready = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
    assert_eq!(callers[1].mcp(ready, &headers).status(), 202);

    for (number, caller) in callers.iter().enumerate() {
        let call = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {
            "name": "ssh_run", "arguments": {"host": format!("h{number}"), "command": "echo from here"}}});
        let body = caller.mcp(call, &headers).into_body().read_to_string().unwrap();
        let result = support::server::result_in(&body);
        assert_eq!(
            result["structuredContent"]["head"][0], "from here",
            "{body}"
        );
    }

    // Another caller can't use it.
    let stranger = cluster.callers("stranger", &[]);
    let list = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"});
    assert_eq!(stranger[1].mcp(list, &headers).status(), 404);
}

fn signal(pid: u32, signal: nix::sys::signal::Signal) {
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid.cast_signed()), signal).unwrap();
}

/// A command that prints numbered lines to both streams.
const TWO_STREAMS: &str =
    "for i in $(seq 1 100); do echo out $i; echo err $i >&2; sleep 0.15; done";

/// The replica that holds the host of a job: the one that its record names.
fn owner(cluster: &Cluster, callers: &[Caller], host: &str) -> usize {
    let entry = |caller: &Caller| caller.ok("hosts", json!({}));
    let is_connected = |caller: &Caller| {
        entry(caller)["hosts"]
            .as_array()
            .unwrap()
            .iter()
            .any(|known| known["name"] == host && known["connected"] == true)
    };
    assert_eq!(cluster.replicas.len(), callers.len());
    callers.iter().position(is_connected).expect("a replica is connected")
}

#[tokio::test]
async fn a_replica_that_was_paused_gives_its_jobs_up() {
    let cluster = Cluster::start(3).await;
    let callers = cluster.callers("ci", &[]);
    let request = json!({"host": "h9", "command": TWO_STREAMS, "durable": true});
    let job = job_id(&callers[0].ok("spawn", request));
    let paused = owner(&cluster, &callers, "h9");
    let others: Vec<Caller> = (0..3).filter(|n| *n != paused).map(|n| callers[n].clone()).collect();

    signal(
        cluster.replicas[paused].pid(),
        nix::sys::signal::Signal::SIGSTOP,
    );
    let lines = canonical_loop(&others, &job);
    signal(
        cluster.replicas[paused].pid(),
        nix::sys::signal::Signal::SIGCONT,
    );

    assert_eq!(lines.len(), 200, "{lines:?}");
    eventually(
        "the paused replica reads what the others read",
        async || {
            let reply = callers[paused].call("tail", json!({"job_id": job, "since_line_no": 0}));
            reply.0 == 200 && reply.1["still_running"] == false
        },
    )
    .await;
    assert_eq!(canonical_loop(&callers[paused..=paused], &job), lines);
}

#[tokio::test]
async fn output_waits_while_nats_is_out_of_reach() {
    // Longer than NATS is away, on a busy machine, too: no replica loses its hosts.
    let mut cluster = Cluster::with_leases_of(60, 2).await;
    let callers = cluster.callers("ci", &[]);
    let durable = json!({"host": "h1", "command": TWO_STREAMS, "durable": true});
    let durable = job_id(&callers[0].ok("spawn", durable));
    let attached = json!({"host": "h2", "command": TWO_STREAMS});
    let attached = job_id(&callers[1].ok("spawn", attached));
    let go = cluster.sshd.path("go");
    let ends_meanwhile = format!("until [ -e {} ]; do sleep 0.05; done; seq 50", go.display());
    let ends_meanwhile = json!({"host": "h2", "command": ends_meanwhile});
    let ends_meanwhile = job_id(&callers[1].ok("spawn", ends_meanwhile));
    let readers = [(&callers[0], &durable), (&callers[1], &durable)];
    for (caller, job) in readers {
        let some = json!({"job_id": job, "since_line_no": 0, "until": "err 20", "wait_ms": 10_000});
        caller.ok("tail", some);
    }

    cluster.nats[0].kill().unwrap();
    let ready =
        |caller: &Caller| caller.try_get("/readyz", &[]).is_ok_and(|answer| answer.status() == 200);
    eventually("the replicas are not ready", async || {
        !callers.iter().any(ready)
    })
    .await;
    for durable in [true, false] {
        let refused = json!({"host": "h3", "command": "true", "durable": durable});
        let (status, reply) = callers[0].call("spawn", refused);
        assert!(status >= 500 && reply["retryable"] == true, "{reply}");
    }
    let is_stale = |(caller, job): (&Caller, &String)| {
        caller.ok("tail", json!({"job_id": job, "since_line_no": 0}))["stale"] == true
    };
    eventually(
        "readers are told that there may be newer output",
        async || readers.into_iter().all(is_stale),
    )
    .await;
    std::fs::write(&go, "").unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    cluster.nats[0].start_again().unwrap();

    let lines = canonical_loop(&callers, &durable);
    let numbers: Vec<u64> = lines.iter().map(|(number, _)| *number).collect();
    assert_eq!(numbers, (1..=200).collect::<Vec<u64>>());
    for stream in ["out", "err"] {
        let of_stream: Vec<&str> = lines
            .iter()
            .map(|(_, text)| text.as_str())
            .filter(|text| text.starts_with(stream))
            .collect();
        let expected: Vec<String> = (1..=100).map(|number| format!("{stream} {number}")).collect();
        assert_eq!(of_stream, expected);
    }
    assert!(callers.iter().all(ready));
    eventually("no reader is told so", async || {
        !readers.into_iter().any(is_stale)
    })
    .await;
    for (job, lines) in [(&attached, 200), (&ends_meanwhile, 50)] {
        for caller in &callers {
            let ended = caller.ok("wait", json!({"job_ids": [job], "wait_ms": 30_000}));
            assert_eq!(ended["jobs"][0]["state"], "exited", "{ended}");
            assert_eq!(ended["jobs"][0]["total_lines"], lines, "{ended}");
            let numbers = canonical_loop(std::slice::from_ref(caller), job);
            let numbers: Vec<u64> = numbers.into_iter().map(|(number, _)| number).collect();
            assert_eq!(numbers, (1..=lines).collect::<Vec<u64>>());
        }
    }
}

/// Reads a job as it runs, and returns the longest time between two lines.
fn longest_gap(caller: &Caller, job: &str) -> (Vec<u64>, Duration) {
    let mut numbers = Vec::new();
    let mut cursor = 0;
    let mut longest = Duration::ZERO;
    let mut last = None::<tokio::time::Instant>;
    loop {
        let request =
            json!({"job_id": job, "since_line_no": cursor, "wait_ms": 5000, "format": "records"});
        let reply = caller.ok("tail", request);
        for record in reply["records"].as_array().into_iter().flatten() {
            numbers.push(record["line_no"].as_u64().unwrap());
            let now = tokio::time::Instant::now();
            longest = longest.max(last.map_or(Duration::ZERO, |last| now.duration_since(last)));
            last = Some(now);
        }
        cursor = reply["last_line_no"].as_u64().unwrap();
        if reply["still_running"] == false {
            return (numbers, longest);
        }
    }
}

#[tokio::test]
async fn a_replica_that_is_told_to_end_hands_its_hosts_over() {
    let mut cluster = Cluster::with_leases_of(60, 3).await;
    let callers = cluster.callers("ci", &[]);
    let request = json!({"host": "h9", "durable": true, "command":
        "for i in $(seq 1 100); do echo out $i; sleep 0.05; done"});
    let job = job_id(&callers[0].ok("spawn", request));
    let ending = owner(&cluster, &callers, "h9");
    let reader = callers[(ending + 1) % 3].clone();

    let reading = tokio::task::spawn_blocking({
        let job = job.clone();
        move || longest_gap(&reader, &job)
    });
    tokio::time::sleep(Duration::from_millis(1500)).await;
    let replica = cluster.replicas.remove(ending);
    assert_eq!(replica.stop().await, Some(0));
    let (numbers, longest) = reading.await.unwrap();

    assert_eq!(numbers, (1..=100).collect::<Vec<u64>>());
    // A take-over would have waited for the lease.
    assert!(longest < Duration::from_secs(30), "{longest:?}");
    eprintln!("the longest gap: {longest:?}");
}

#[tokio::test]
async fn a_new_replica_takes_its_share_of_the_hosts_and_no_attached_job() {
    let mut cluster = Cluster::start(1).await;
    let caller = cluster.callers("ci", &[]).remove(0);
    // The jobs run until the new replica is there, however long it takes to start.
    let go = cluster.sshd.path("go");
    let command = format!(
        "until [ -e {} ]; do sleep 0.2; done; echo done",
        go.display()
    );
    let mut jobs = Vec::new();
    for number in 0..12 {
        let durable = number % 2 == 0;
        let request = json!({"host": format!("h{number}"), "command": command, "durable": durable});
        jobs.push((job_id(&caller.ok("spawn", request)), durable));
    }

    cluster.add_replica();
    let second = Caller::new(&cluster.replicas[1].url, &caller.token);

    eventually("the new replica has hosts", async || {
        second.ok("hosts", json!({}))["hosts"]
            .as_array()
            .unwrap()
            .iter()
            .any(|host| host["connected"] == true)
    })
    .await;
    std::fs::write(&go, "").unwrap();
    for (job, _) in &jobs {
        let waited = second.ok("wait", json!({"job_ids": [job], "wait_ms": 30_000}));
        assert_eq!(waited["jobs"][0]["state"], "exited", "{waited}");
        assert_eq!(waited["jobs"][0]["total_lines"], 1, "{waited}");
    }
}

#[tokio::test]
async fn a_fleet_runs_on_hosts_of_several_replicas() {
    let cluster = Cluster::start(3).await;
    let callers = cluster.callers("ci", &[]);
    for (number, caller) in callers.iter().enumerate() {
        // So that each replica holds some of the hosts.
        for host in [number, number + 3] {
            caller.ok(
                "run",
                json!({"host": format!("h{host}"), "command": "true"}),
            );
        }
    }

    for (caller, durable) in callers.iter().zip([false, true, false]) {
        let request = json!({"hosts": ["h0", "h1", "h2", "h3", "h4", "h5"], "command": "echo ready",
            "durable": durable, "wait_ms": 30_000});
        let reply = caller.ok("run", request);
        assert_eq!(reply["members"]["ok"], 6, "{reply}");
    }
}

#[tokio::test]
async fn the_end_of_a_fleet_is_told_with_its_members_at_every_replica() {
    let cluster = Cluster::start(3).await;
    let callers = cluster.callers("ci", &[]);
    for starter in &callers {
        let fleet = json!({"hosts": ["h0", "h1", "h2"], "command": "sleep 0.5; echo ready"});
        let fleet = job_id(&starter.ok("spawn", fleet));
        let wait = json!({"job_ids": [fleet], "wait_ms": 20_000});
        let answers: Vec<Value> = std::thread::scope(|scope| {
            let ask = |caller: &'_ Caller| {
                let (caller, wait) = (caller.clone(), wait.clone());
                scope.spawn(move || caller.ok("wait", wait))
            };
            let waiting: Vec<_> = callers.iter().map(ask).collect();
            waiting.into_iter().map(|answer| answer.join().unwrap()).collect()
        });
        for answer in answers {
            assert_eq!(answer["jobs"][0]["members"]["ok"], 3, "{answer}");
        }
    }
}

#[tokio::test]
async fn deleted_output_is_gone_from_every_replica() {
    let cluster = Cluster::start(3).await;
    let callers = cluster.callers("ci", &[]);
    let secret = json!({"host": HOST, "command": "echo secret; sleep 60"});
    let job = job_id(&callers[0].ok("spawn", secret));
    let from_start =
        json!({"job_id": job, "since_line_no": 0, "until": "secret", "wait_ms": 10_000});
    for caller in &callers {
        assert_eq!(caller.ok("tail", from_start.clone())["lines"][0], "secret");
    }

    callers[1].ok("forget", json!({"job_id": job, "what": "output"}));
    let from_start = json!({"job_id": job, "since_line_no": 0});
    for caller in &callers {
        eventually("the line is gone", async || {
            let reply = caller.ok("tail", from_start.clone());
            reply["dropped_lines"] == 1 && !reply.to_string().contains("secret")
        })
        .await;
    }
}
