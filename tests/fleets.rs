//! One command on many hosts as one job: names that all lead to a few private sshds.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::time::{Duration, Instant};

use crate::support::command::{command, sshjobs, told};
use crate::support::server::Server;
use crate::support::{HIDDEN, McpClient, Sshd, assert_dead, eventually, exit_of};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

/// An sshd that answers to `names`, and to some that it does not answer to: `dead` refuses
/// connections, `changed` has another key.
async fn fleet(names: impl IntoIterator<Item = String>) -> Sshd {
    let sshd = Sshd::with("MaxStartups 1000:30:2000\nMaxSessions 10\n").await;
    let (port, dir) = (sshd.port(), sshd.path("").display().to_string());
    let user = nix::unistd::User::from_uid(nix::unistd::getuid()).unwrap().unwrap().name;
    let mut config = String::new();
    for name in names {
        writeln!(config, "Host {name}").unwrap();
    }
    writeln!(
        config,
        "Host dead\n  Port 1\nHost changed\n  UserKnownHostsFile {dir}/changed_hosts\nHost *\n  HostName 127.0.0.1\n  Port {port}\n  \
         User {user}\n  IdentityFile {dir}/id\n  IdentitiesOnly yes\n  IdentityAgent none\n  HostKeyAlias fleet\n  \
         UserKnownHostsFile {dir}/known_hosts\n  GlobalKnownHostsFile none\n  ConnectTimeout 10"
    )
    .unwrap();
    std::fs::write(sshd.ssh_config(), config).unwrap();
    let key = |file: &str| std::fs::read_to_string(sshd.path(file)).unwrap();
    sshd.write_known_hosts(&format!("fleet {}", key("host.pub")));
    std::fs::write(
        sshd.path("changed_hosts"),
        format!("fleet {}", key("other.pub")),
    )
    .unwrap();
    sshd
}

fn web(count: usize) -> impl Iterator<Item = String> {
    (1..=count).map(|n| format!("web{n}"))
}

/// All lines of a job as records.
fn records(client: &mut McpClient, id: &str) -> Vec<Value> {
    let (mut records, mut cursor) = (Vec::new(), json!(0));
    loop {
        let arguments = json!({"job_id": id, "since_line_no": cursor, "wait_ms": 20_000, "format": "records", "max_lines": 10_000});
        let reply = client.ok("ssh_tail", arguments);
        assert!(reply["dropped_lines"].is_null(), "{reply}");
        records.extend(reply["records"].as_array().unwrap().iter().cloned());
        cursor = reply["last_line_no"].clone();
        if reply["still_running"] == false {
            return records;
        }
    }
}

fn by_member(records: &[Value]) -> BTreeMap<String, Vec<String>> {
    let mut by_member: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for record in records {
        let text = record["text"].as_str().unwrap().to_owned();
        by_member
            .entry(record["member"].as_str().unwrap().to_owned())
            .or_default()
            .push(text);
    }
    by_member
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_hosts_are_one_job_whatever_becomes_of_each() {
    let sshd = fleet(web(100)).await;
    let mut client = McpClient::start(&sshd.ssh_config());
    // Members differ by their process ids.
    let command = "echo one; echo two >&2; [ $(($$ % 2)) = 0 ] && exit 7; echo three";
    let hosts = json!(["web*", "dead", "changed", "!web13"]);
    let spawned = client.ok("ssh_spawn", json!({"hosts": hosts, "command": command}));
    let id = spawned["job_id"].as_str().unwrap().to_owned();
    assert!(id.starts_with("fleet-"), "{spawned}");
    let lines = by_member(&records(&mut client, &id));
    assert_eq!(lines.len(), 99);
    let reply = client.ok("ssh_wait", json!({"job_ids": [id], "wait_ms": 20_000}));
    let entry = &reply["jobs"][0];
    let failed = lines.values().filter(|lines| lines.len() == 2).count();
    let members = json!({"ok": 99 - failed, "failed": failed, "unreachable": 2});
    assert_eq!(entry["members"], members, "{entry}");
    assert_eq!(
        (&entry["state"], &entry["exit_status"]),
        (&json!("exited"), &json!(failed + 2))
    );
    let groups = reply["groups"].as_array().unwrap();
    let ends: Vec<_> = groups.iter().map(|group| group["end"].as_str().unwrap()).collect();
    assert_eq!(&ends[..2], ["exited with status 0", "exited with status 7"]);
    assert!(
        ends[2..].iter().any(|end| end.contains("Connection refused")),
        "{ends:?}"
    );
    assert!(ends[2..].iter().any(|end| end.contains("key")), "{ends:?}");
    assert_eq!(groups[1]["count"], failed);
    assert_eq!(groups[1]["last_lines"], json!(["one", "two"]));
    // A member is a job of its own, under the fleet's name; it is not listed among the others.
    let alone = client.ok("ssh_tail", json!({"job_id": format!("{id}/web1")}));
    assert_eq!(alone["lines"][0], "one");
    assert_eq!(client.ok("ssh_jobs", json!({}))["total"], 1);
    assert_eq!(
        client.ok("ssh_jobs", json!({"fleet": id, "limit": 1000}))["total"],
        101
    );
    assert_eq!(
        client.ok(
            "ssh_search",
            json!({"job_id": id, "pattern": "^web1: three|^web1: two"})
        )["matches"]
            .as_array()
            .unwrap()
            .len(),
        lines["web1"].len() - 1
    );
    for (member, code) in [
        ("web13", "unknown_job"),
        ("wbe1", "unknown_job"),
        ("dead", "unknown_job"),
    ] {
        let error = client.call("ssh_tail", json!({"job_id": format!("{id}/{member}")}));
        assert_eq!(error["_meta"]["sshjobs/error"]["code"], code, "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fleet_loses_no_line_of_members_that_print_much_at_once() {
    let sshd = fleet(web(8)).await;
    let mut client = McpClient::start(&sshd.ssh_config());
    let command = "seq 1 20000; seq 1 1000 >&2";
    let spawned = client.ok(
        "ssh_spawn",
        json!({"hosts": ["web[1-8]"], "command": command}),
    );
    let id = spawned["job_id"].as_str().unwrap().to_owned();
    let records = records(&mut client, &id);
    let (mut out, mut err): (BTreeMap<String, u64>, BTreeMap<String, u64>) = Default::default();
    for record in &records {
        let of = if record["stream"] == "stderr" {
            &mut err
        } else {
            &mut out
        };
        let last = of.entry(record["member"].as_str().unwrap().to_owned()).or_default();
        *last += 1;
        assert_eq!(record["text"], last.to_string(), "in order, none twice");
    }
    assert!(
        out.len() == 8 && out.values().all(|last| *last == 20_000),
        "{out:?}"
    );
    assert!(
        err.len() == 8 && err.values().all(|last| *last == 1000),
        "{err:?}"
    );
}

#[tokio::test]
async fn a_fleet_waits_for_room_under_the_limit_on_jobs() {
    let sshd = fleet(web(6)).await;
    std::fs::write(sshd.path("config.toml"), "[limits]\nmax_jobs = 2\n").unwrap();
    let config = sshd.path("config.toml").display().to_string();
    let words = ["--config", &config, "run", "-j", "6", "web[1-6]", "--"];
    let run = sshjobs(&sshd, &[&words[..], &["sleep 0.2; echo done"]].concat());
    assert_eq!(told(&run).matches("done").count(), 6);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_text_of_a_run_on_many_hosts_says_each_line_once() {
    let sshd = fleet(web(3)).await;
    let mut client = McpClient::start(&sshd.ssh_config());
    let mut text_of = |command: &str| {
        let run = json!({"hosts": ["web*"], "command": command, "wait_ms": 20_000});
        client.call("ssh_run", run)["content"][0]["text"].as_str().unwrap().to_owned()
    };
    let equal = text_of("echo equal; echo lines");
    assert_eq!(equal.matches("equal").count(), 1, "{equal}");
    let different = text_of("echo process $$; [ $(($$ % 2)) = 0 ]");
    assert_eq!(different.matches("process").count(), 3, "{different}");
    // A group shows the last lines only, and cuts long ones.
    for long in ["seq 1000 1100", "printf '%2000s\\n' end"] {
        let text = text_of(long);
        assert!(text.contains("web1: ") && text.contains("web3: "), "{text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_roll_out_is_bounded_begins_with_canaries_and_stops() {
    let sshd = fleet(web(12)).await;
    let mut client = McpClient::start(&sshd.ssh_config());
    let start = |client: &mut McpClient, arguments: Value| {
        let mut all = json!({"hosts": ["web*"], "wait_ms": 30_000});
        all.as_object_mut().unwrap().extend(arguments.as_object().unwrap().clone());
        client.ok("ssh_run", all)
    };
    let marks = sshd.path("marks");
    let three_at_once = sshd.path("three-at-once");
    // The first wait for each other, so that as many run at a time as may.
    let at_most = format!(
        "mkdir -p {marks}; mkdir {marks}/$$; i=0; until [ -e {seen} ] || [ $i -ge 600 ]; do \
         [ $(ls {marks} | wc -l) -lt 3 ] || : > {seen}; sleep 0.05; i=$((i+1)); done; \
         ls {marks} | wc -l; sleep 0.3; rmdir {marks}/$$",
        marks = marks.display(),
        seen = three_at_once.display(),
    );
    let bounded = start(
        &mut client,
        json!({"command": at_most, "max_parallel": 3, "max_bytes": 100_000}),
    );
    let counts: Vec<u32> = bounded["head"]
        .as_array()
        .unwrap()
        .iter()
        .map(|line| line.as_str().unwrap().rsplit(' ').next().unwrap().parse().unwrap())
        .collect();
    assert_eq!(
        (counts.len(), counts.iter().max()),
        (12, Some(&3)),
        "{counts:?}"
    );
    let canary = start(&mut client, json!({"command": "exit 1", "canary": 2}));
    let members = &canary["members"];
    assert_eq!(
        members["failed"].as_u64().unwrap() + members["not_started"].as_u64().unwrap(),
        12,
        "{canary}"
    );
    assert!(members["failed"].as_u64().unwrap() <= 2, "{canary}");
    let stopped = start(
        &mut client,
        json!({"command": "exit 1", "stop_after_failures": "25%", "max_parallel": 1}),
    );
    assert_eq!(
        stopped["members"],
        json!({"failed": 3, "not_started": 9}),
        "{stopped}"
    );
    assert_eq!(stopped["exit_status"], 12);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_written_goes_to_all_and_a_signal_ends_all() {
    let sshd = fleet(web(5)).await;
    let mut client = McpClient::start(&sshd.ssh_config());
    let command = "read line; echo got $line; sleep 100 & sleep 100";
    let spawned = client.ok("ssh_spawn", json!({"hosts": ["web*"], "command": command}));
    let id = spawned["job_id"].as_str().unwrap().to_owned();
    let running = |client: &mut McpClient| {
        client.ok("ssh_wait", json!({"job_ids": [id], "wait_ms": 0}))["jobs"][0]["members"]["running"].clone()
    };
    let deadline = Instant::now() + Duration::from_secs(20);
    while client.ok("ssh_jobs", json!({"fleet": id}))["jobs"]
        .as_array()
        .unwrap()
        .iter()
        .any(|job| job["state"] != "running")
    {
        assert!(Instant::now() < deadline, "they start");
    }
    client.ok(
        "ssh_write",
        json!({"job_id": format!("{id}/web1"), "data": "alone", "newline": true}),
    );
    client.ok(
        "ssh_tail",
        json!({"job_id": id, "until": "got alone", "wait_ms": 20_000}),
    );
    assert_eq!(running(&mut client), 5);
    client.ok(
        "ssh_write",
        json!({"job_id": id, "data": "all", "newline": true}),
    );
    let ended = client.ok("ssh_signal", json!({"job_id": id}));
    assert_dead(&ended);
    let records = records(&mut client, &id);
    let got: BTreeSet<_> = records.iter().filter_map(|record| record["text"].as_str()).collect();
    assert!(got.contains("got alone"), "{got:?}");
    let lean = client.ok("ssh_tail", json!({"job_id": id, "filter": "^web1: got"}));
    assert_eq!(lean["lines"], json!(["web1: got alone"]));
    let found = client.ok(
        "ssh_search",
        json!({"job_id": id, "pattern": "^web1: got alone"}),
    );
    assert_eq!(found["matches"][0]["text"], "web1: got alone", "{found}");
    let read = client.ok("ssh_read", json!({"job_id": id, "length": 1}));
    assert_eq!(read["lines"], json!(["web1: got alone"]), "{read}");
    let reply = client.ok("ssh_wait", json!({"job_ids": [id], "wait_ms": 20_000}));
    assert_eq!(reply["jobs"][0]["members"], json!({"failed": 5}), "{reply}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_durable_fleet_continues_when_its_server_is_killed_and_runs_no_member_twice() {
    let sshd = fleet(web(12)).await;
    let mut client = McpClient::start(&sshd.ssh_config());
    let ran = sshd.path("ran");
    std::fs::create_dir(&ran).unwrap();
    let command = format!(
        "mktemp {}/XXXXXXXX > /dev/null; for i in 1 2 3 4; do echo line $i; sleep 0.3; done",
        ran.display()
    );
    let spawned = client.ok(
        "ssh_spawn",
        json!({"hosts": ["web*"], "command": command, "durable": true, "max_parallel": 3}),
    );
    let id = spawned["job_id"].as_str().unwrap().to_owned();
    let mut known = Vec::new();
    for _ in 0..3 {
        let deadline = Instant::now() + Duration::from_millis(900);
        while Instant::now() < deadline {
            let arguments = json!({"job_id": id, "since_line_no": known.len(), "wait_ms": 100, "max_lines": 10_000});
            let reply = client.ok("ssh_tail", arguments);
            known.extend(
                reply["lines"]
                    .as_array()
                    .unwrap()
                    .iter()
                    .map(|line| line.as_str().unwrap().to_owned()),
            );
        }
        kill(Pid::from_raw(client.pid().cast_signed()), Signal::SIGKILL).unwrap();
        client = McpClient::start(&sshd.ssh_config());
    }
    let all = records(&mut client, &id);
    let texts: Vec<String> = all
        .iter()
        .map(|record| {
            format!(
                "{}: {}",
                record["member"].as_str().unwrap(),
                record["text"].as_str().unwrap()
            )
        })
        .collect();
    assert_eq!(
        texts.get(..known.len()).unwrap(),
        &known[..],
        "no line that was shown has changed"
    );
    let lines = by_member(&all);
    let reply = client.ok("ssh_wait", json!({"job_ids": [id], "wait_ms": 20_000}));
    assert_eq!(reply["jobs"][0]["members"], json!({"ok": 12}), "{reply}");
    assert_eq!(lines.len(), 12);
    for (member, lines) in lines {
        assert_eq!(lines, ["line 1", "line 2", "line 3", "line 4"], "{member}");
    }
    assert_eq!(
        std::fs::read_dir(&ran).unwrap().count(),
        12,
        "each has run once"
    );
}

#[tokio::test]
async fn a_joblog_that_can_not_be_written_is_refused_before_anything_runs() {
    let sshd = Sshd::start().await;
    let ran = sshd.path("ran");
    let joblog = sshd.path("missing/joblog").display().to_string();
    let command = format!("touch {}", ran.display());

    let run = sshjobs(
        &sshd,
        &["run", "web1,web2", "--joblog", &joblog, "--", &command],
    );

    assert_eq!(run.status.code(), Some(255));
    assert!(
        String::from_utf8_lossy(&run.stderr).contains("joblog"),
        "{run:?}"
    );
    assert!(!ran.exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_command_line_shows_who_says_what_and_ends_with_the_number_of_failures() {
    let sshd = fleet(web(4)).await;
    let log = sshd.path("joblog").display().to_string();
    let junit = sshd.path("junit.xml").display().to_string();
    let command = "echo hello; echo 東京 >&2; test ! -e DIR/bad"
        .replace("DIR", &sshd.path("").display().to_string());
    std::fs::write(sshd.path("bad"), "").unwrap();
    let run = |extra: &[&str]| {
        let own = ["run", "web1,web2,dead", "--joblog", &log, "--junit", &junit];
        sshjobs(&sshd, &[&own, extra, &["--", &command]].concat())
    };
    let output = run(&[]);
    let (stdout, stderr) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert_eq!(output.status.code(), Some(3), "{stderr}");
    let lines: BTreeSet<&str> = stdout.lines().collect();
    assert_eq!(
        lines,
        BTreeSet::from(["web1 | hello", "web1 | 東京", "web2 | hello", "web2 | 東京"])
    );
    assert!(
        stderr.contains("web[1-2] (2): exited with status 1, 2 lines\n    hello\n    東京\n"),
        "{stderr}"
    );
    assert!(
        stderr.contains("3 hosts: 2 failed, 1 could not be started"),
        "{stderr}"
    );
    let junit_text = std::fs::read_to_string(&junit).unwrap();
    assert!(
        junit_text.contains("tests=\"3\"") && junit_text.contains("failures=\"2\""),
        "{junit_text}"
    );
    let columns = std::fs::read_to_string(&log).unwrap();
    assert_eq!(columns.lines().count(), 4, "{columns}");
    // Failed members run again, and then only the dead one is left.
    std::fs::remove_file(sshd.path("bad")).unwrap();
    let again = run(&["--resume-failed"]);
    assert_eq!(
        again.status.code(),
        Some(1),
        "{}",
        String::from_utf8_lossy(&again.stderr)
    );
    let rest = run(&["--resume-failed"]);
    assert!(String::from_utf8_lossy(&rest.stderr).contains("1 host: 1 could not be started"));
    let grouped = told(&sshjobs(
        &sshd,
        &["run", "--group", "web*", "--", "echo a; sleep 0.2; echo b"],
    ));
    let names: Vec<_> = grouped.lines().map(|line| line.split(' ').next().unwrap()).collect();
    assert!(names.chunks(2).all(|pair| pair[0] == pair[1]), "{grouped}");
    let json = sshjobs(&sshd, &["run", "--json", "web*", "--", "true"]);
    let told: Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(
        (&told["members"], &told["groups"][0]["members"]),
        (&json!({"ok": 4}), &json!("web[1-4]"))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn ctrl_c_ends_a_fleet_everywhere_and_starts_no_more() {
    let sshd = fleet(web(6)).await;
    let marks = sshd.path("marks");
    std::fs::create_dir(&marks).unwrap();
    let remote = format!("mktemp {}/XXXXXX > /dev/null; sleep 100", marks.display());
    let mut child = command(&sshd, &["run", "web*", "-j", "2", "--", &remote]).spawn().unwrap();
    let begun = || std::fs::read_dir(&marks).unwrap().count();
    eventually("two have begun", async || begun() == 2).await;
    kill(Pid::from_raw(child.id().cast_signed()), Signal::SIGINT).unwrap();
    let ended = crate::support::exit_of(&mut child).await;
    assert_eq!(
        (ended, begun()),
        (Some(6), 2),
        "two failed, four never started"
    );
}

/// A fleet with two hosts that accept connections and never answer.
async fn fleet_with_silent_hosts() -> (Sshd, std::net::TcpListener) {
    let sshd = fleet(web(2)).await;
    let silent = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let config = std::fs::read_to_string(sshd.ssh_config()).unwrap();
    let port = silent.local_addr().unwrap().port();
    std::fs::write(
        sshd.ssh_config(),
        format!("Host silent silent2\n  Port {port}\n  ConnectTimeout 300\n{config}"),
    )
    .unwrap();
    (sshd, silent)
}

#[tokio::test]
async fn what_is_just_starting_is_ended_with_its_fleet() {
    let (sshd, _silent) = fleet_with_silent_hosts().await;
    let mut client = McpClient::start(&sshd.ssh_config());
    let arguments = json!({"hosts": ["web1", "silent"], "command": "sleep 100"});
    let id = client.ok("ssh_spawn", arguments)["job_id"].as_str().unwrap().to_owned();
    let began = Instant::now();
    while client.ok("ssh_jobs", json!({"fleet": id}))["jobs"][0]["state"] != "running" {
        assert!(began.elapsed() < Duration::from_secs(20));
    }

    client.ok("ssh_signal", json!({"job_id": id, "signal": "KILL"}));

    // Much shorter than the host's ConnectTimeout.
    let reply = client.ok("ssh_wait", json!({"job_ids": [id], "wait_ms": 30_000}));
    let members = json!({"failed": 1, "unreachable": 1});
    assert_eq!(reply["jobs"][0]["members"], members, "{reply}");
}

#[tokio::test]
async fn a_host_that_does_not_answer_takes_the_place_of_no_other() {
    let (sshd, _silent) = fleet_with_silent_hosts().await;
    let mut client = McpClient::start(&sshd.ssh_config());
    let arguments = json!({"hosts": ["silent", "silent2", "web1", "web2"], "command": "true", "max_parallel": 2});
    let id = client.ok("ssh_spawn", arguments)["job_id"].as_str().unwrap().to_owned();
    let began = Instant::now();
    let jobs = json!({"fleet": id});
    loop {
        let members = client.ok("ssh_jobs", jobs.clone())["jobs"].clone();
        if [2, 3].iter().all(|member| members[*member]["state"] == "exited") {
            break;
        }
        assert!(began.elapsed() < Duration::from_secs(20));
    }

    client.ok("ssh_signal", json!({"job_id": id, "signal": "KILL"}));

    let reply = client.ok("ssh_wait", json!({"job_ids": [id], "wait_ms": 30_000}));
    let members = json!({"ok": 2, "not_started": 2});
    assert_eq!(reply["jobs"][0]["members"], members, "{reply}");
}

#[tokio::test(flavor = "multi_thread")]
async fn callers_have_fleets_of_their_own_on_hosts_that_they_may_use() {
    let sshd = fleet(web(4)).await;
    let server = Server::start(&sshd);
    let (few, all) = (
        server.caller(&sshd, "few", &["--hosts", "web1,web2"]),
        server.caller(&sshd, "all", &[]),
    );
    let (status, error) = few.call("run", json!({"hosts": ["web1", "web3"], "command": "true"}));
    assert_eq!(
        (status, &error["code"]),
        (403, &json!("policy_denied")),
        "{error}"
    );
    let ran = few.ok("run", json!({"hosts": ["web*"], "command": "true"}));
    assert_eq!(ran["groups"][0]["members"], "web[1-2]", "{ran}");
    let spawned = few.ok(
        "spawn",
        json!({"hosts": ["web1", "web2"], "command": "echo here; sleep 100"}),
    );
    let id = spawned["job_id"].as_str().unwrap().to_owned();
    let member = format!("{id}/web1");
    for host in ["web1", "web2"] {
        eventually("it prints", async || {
            few.call("tail", json!({"job_id": format!("{id}/{host}")})).1["total_lines"] == 1
        })
        .await;
    }
    for job in [&id, &member] {
        assert_eq!(all.call("tail", json!({"job_id": job})).0, 404);
        assert_eq!(
            all.get(&format!(
                "/v1/jobs/{}/raw?stream=stdout",
                job.replace('/', "%2F")
            ))
            .status(),
            404
        );
    }
    assert_dead(&few.ok("signal", json!({"job_id": id, "grace_ms": 10_000})));
    eventually("it is over", async || {
        few.ok("wait", json!({"job_ids": [id]}))["ended"] == 1
    })
    .await;
    let raw = few.get(&format!(
        "/v1/jobs/{}/raw?stream=stdout",
        member.replace('/', "%2F")
    ));
    assert_eq!(raw.into_body().read_to_string().unwrap(), "here\n");
    few.ok("forget", json!({"job_id": id}));
    assert_eq!(
        few.ok("jobs", json!({"host": "web1"}))["total"],
        1,
        "the member of the first fleet alone is left"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shell_completes_hosts_and_tags() {
    let sshd = fleet(web(2)).await;
    std::fs::create_dir_all(sshd.path("config/sshjobs")).unwrap();
    let text = format!(
        "ssh_config = {:?}\n[hosts.db1]\ntags = [\"db\"]\n",
        sshd.ssh_config().display().to_string()
    );
    std::fs::write(sshd.path("config/sshjobs/config.toml"), text).unwrap();
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_sshjobs"))
        .args(["--", "sshjobs", "run", ""])
        .env("COMPLETE", "bash")
        .env("_CLAP_COMPLETE_INDEX", "2")
        .env("_CLAP_IFS", "\n")
        .env("XDG_CONFIG_HOME", sshd.path("config"))
        .env("XDG_STATE_HOME", sshd.path("state"))
        .output()
        .unwrap();
    let words = String::from_utf8_lossy(&output.stdout);
    let words: BTreeSet<&str> = words.lines().map(str::trim).collect();
    assert!(
        words.is_superset(&BTreeSet::from(["web1", "web2", "db1", "tag:db"])),
        "{words:?}"
    );
    let script = told(&sshjobs(&sshd, &["completions", "bash"]));
    let checked = std::process::Command::new("bash").args(["-n", "-c", &script]).status().unwrap();
    assert!(checked.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_spawned_fleet_has_started_when_its_id_is_printed_and_another_process_finishes_it() {
    let sshd = fleet(web(4)).await;
    let ran = sshd.path("ran");
    std::fs::create_dir(&ran).unwrap();
    let command = format!(
        "mktemp {}/XXXXXXXX > /dev/null; echo begin; sleep 1; echo end",
        ran.display()
    );
    let id = told(&sshjobs(
        &sshd,
        &["spawn", "web*", "-j", "3", "--", &command],
    ))
    .trim()
    .to_owned();
    // `spawn` has started the last member before it exited: no other process could. The member's
    // supervisor may still need some time on a busy host.
    eventually("the last member runs, too", async || {
        std::fs::read_dir(&ran).unwrap().count() == 4
    })
    .await;
    let waited = sshjobs(&sshd, &["wait", &id]);
    assert_eq!(
        waited.status.code(),
        Some(0),
        "{}",
        String::from_utf8_lossy(&waited.stderr)
    );
    let shown = told(&sshjobs(&sshd, &["tail", "--since", "0", &id]));
    assert_eq!(
        shown
            .lines()
            .filter(|line| line.starts_with("web") && line.ends_with(": end"))
            .count(),
        4,
        "{shown}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_run_of_a_durable_fleet_is_continued_by_another_process() {
    let sshd = fleet(web(5)).await;
    let ran = sshd.path("ran");
    std::fs::create_dir(&ran).unwrap();
    let command_line = format!(
        "mktemp {}/XXXXXXXX > /dev/null; echo begin; sleep 2; echo end",
        ran.display()
    );
    let mut child = command(
        &sshd,
        &["run", "--durable", "web*", "-j", "2", "--", &command_line],
    )
    .spawn()
    .unwrap();
    eventually("two have begun", async || {
        std::fs::read_dir(&ran).unwrap().count() == 2
    })
    .await;
    child.kill().unwrap();
    child.wait().unwrap();
    let jobs = told(&sshjobs(&sshd, &["jobs", "--json"]));
    let id = serde_json::from_str::<Value>(jobs.lines().next().unwrap()).unwrap()["job_id"]
        .as_str()
        .unwrap()
        .to_owned();
    let waited = sshjobs(&sshd, &["wait", &id]);
    let members = told(&sshjobs(&sshd, &["jobs", "--fleet", &id]));
    assert_eq!(waited.status.code(), Some(0), "{members}");
    assert_eq!(
        std::fs::read_dir(&ran).unwrap().count(),
        5,
        "each has run once"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_prints_more_than_is_taken_has_to_wait() {
    let sshd = fleet(web(2)).await;
    let output = sshjobs(&sshd, &["run", "web*", "--", "seq 200000"]);
    let shown = String::from_utf8(output.stdout).unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(
        stderr.contains("200000 lines") && !stderr.contains("gone"),
        "{stderr}"
    );
    for name in ["web1", "web2"] {
        let numbers = shown
            .lines()
            .filter_map(|line| line.strip_prefix(name)?.strip_prefix(" | ")?.parse::<u32>().ok());
        assert!(numbers.eq(1..=200_000), "{name} has them all, in order");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_signal_by_another_process_ends_a_fleet_and_starts_no_more() {
    let sshd = fleet(web(4)).await;
    let mut running =
        command(&sshd, &["run", "web*", "-j", "1", "--", "sleep 30"]).spawn().unwrap();
    let running_fleet = || {
        let listed = told(&sshjobs(&sshd, &["jobs", "--json"]));
        let mut jobs = listed.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let fleet = jobs.find(|job| job["members"]["running"] == 1)?;
        Some(fleet["job_id"].as_str()?.to_owned())
    };
    eventually("the first member runs", async || running_fleet().is_some()).await;
    let id = running_fleet().unwrap();

    told(&sshjobs(&sshd, &["signal", &id, "TERM"]));

    assert_eq!(exit_of(&mut running).await, Some(4));
    let jobs = told(&sshjobs(&sshd, &["jobs", "--fleet", &id, "--json"]));
    let waiting = jobs.lines().filter(|line| line.contains("\"state\":\"starting\"")).count();
    assert_eq!(waiting, 3, "{jobs}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_an_ended_fleet_has_left_on_its_hosts_can_be_signalled() {
    let sshd = fleet(web(2)).await;
    let alive = sshd.path("alive");
    let beat = format!(
        "while :; do date +%s%N > {}; sleep 0.1; done",
        alive.display()
    );
    let command = format!("setsid sh -c '{beat}' </dev/null >/dev/null 2>&1 &");
    let id = told(&sshjobs(&sshd, &["spawn", "web*", "--", &command]));
    let id = id.trim();
    assert_eq!(sshjobs(&sshd, &["wait", id]).status.code(), Some(0));
    eventually("a process is left", async || alive.exists()).await;

    told(&sshjobs(&sshd, &["signal", id, "KILL"]));

    let before = std::fs::read(&alive).unwrap();
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(std::fs::read(&alive).unwrap(), before);
    let again = sshjobs(&sshd, &["signal", id, "KILL"]);
    let told = String::from_utf8_lossy(&again.stderr);
    // An ordinary user does not see all processes, and so can't be sure.
    assert!(
        told.contains("job_ended") || told.contains(HIDDEN),
        "{again:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_written_to_a_durable_fleet_that_no_process_follows_arrives() {
    let sshd = fleet(web(2)).await;
    let command = "while read line; do echo got $line; done";
    let id = told(&sshjobs(
        &sshd,
        &["spawn", "web*", "--stdin", "--", command],
    ));
    let id = id.trim();

    told(&sshjobs(&sshd, &["write", id, "one"]));
    told(&sshjobs(&sshd, &["write", "--close", id]));

    let waited = sshjobs(&sshd, &["wait", id]);
    assert_eq!(waited.status.code(), Some(0));
    let shown = told(&sshjobs(&sshd, &["tail", "--since", "0", id]));
    let mut lines: Vec<&str> = shown.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["web1: got one", "web2: got one"]);
}
