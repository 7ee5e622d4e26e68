//! The audit log, over every face: what is recorded, and what a check of it finds.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};

use crate::support::command::{sshjobs, told};
use crate::support::server::{Caller, Server};
use crate::support::{McpClient, Sshd, eventually};

const RULES: &str = r#"
[[rules]]
name = "agents run"
callers = ["agent*", "local"]
hosts = ["app1"]
commands = "any"
verbs = [
  "hosts", "jobs", "tail", "read", "search", "wait", "run", "spawn", "write", "signal", "get",
  "put", "forward", "forget",
]

[[rules]]
name = "starts without reading"
callers = ["starter"]
verbs = ["spawn"]
commands = "any"

[[rules]]
name = "templates"
callers = ["agent*"]
commands = ["say"]

[templates.say]
command = "echo {word}"
parameters.word = { text = 20 }
"#;

/// An sshd with two names, and a policy with a log.
struct Fixture {
    sshd: Sshd,
}

impl Fixture {
    /// With further lines in the table `[audit]`.
    async fn with(settings: &str) -> Self {
        let sshd = Sshd::start().await;
        sshd.alias(["app1", "other1"]);
        let fixture = Self { sshd };
        fixture.set_policy(settings);
        fixture
    }

    fn set_policy(&self, settings: &str) {
        let text = format!(
            "{RULES}\n[audit]\nfile = {:?}\nkey = {:?}\n{settings}\n",
            self.log(),
            self.sshd.path("keys/audit.key")
        );
        fs::write(self.sshd.path("policy.toml"), text).unwrap();
    }

    fn log(&self) -> PathBuf {
        self.sshd.path("audit.jsonl")
    }

    fn policy(&self) -> String {
        self.sshd.path("policy.toml").display().to_string()
    }

    fn server(&self) -> Server {
        Server::with(&self.sshd, &["--policy", &self.policy()])
    }

    /// Runs the command line with the policy. Returns its exit code and what it printed.
    fn run(&self, arguments: &[&str]) -> (i32, String) {
        let policy = self.policy();
        let output = sshjobs(&self.sshd, &[&["--policy", &policy], arguments].concat());
        (
            output.status.code().unwrap(),
            String::from_utf8(output.stdout).unwrap(),
        )
    }

    fn lines(&self) -> Vec<Value> {
        let text = fs::read_to_string(self.log()).unwrap_or_default();
        // The last line may just be written.
        let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
        whole.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// The decisions, without the fields that are about the whole log.
    fn decisions(&self) -> Vec<Value> {
        let lines = self.lines().into_iter();
        lines.filter(|line| line["event"] == "decision").collect()
    }

    /// The lines about an event, once there are so many of them.
    async fn events(&self, event: &str, count: usize) -> Vec<Value> {
        let found = || {
            let lines = self.lines().into_iter().filter(|line| line["event"] == event);
            lines.collect::<Vec<_>>()
        };
        eventually(&format!("{count} lines about {event}"), async || {
            found().len() >= count
        })
        .await;
        found()
    }
}

#[tokio::test]
async fn a_start_is_recorded_with_its_machine_its_rule_and_its_end() {
    let fixture = Fixture::with("").await;
    let server = fixture.server();
    let agent = server.caller(&fixture.sshd, "agent1", &[]);

    let request = json!({"host": "app1", "command": "echo secretly; exit 3", "cwd": "/tmp",
        "env": {"TOKEN": "hidden-value"}, "stdin": "hidden-too"});
    let reply = agent.ok("run", request);
    let job = &reply["job_id"];

    let ended = &fixture.events("ended", 1).await[0];
    let decision = &fixture.decisions()[0];
    assert_eq!(decision["allowed"], true);
    assert_eq!(decision["caller"], "agent1");
    assert_eq!(decision["role"], "run");
    assert_eq!(decision["verb"], "run");
    assert_eq!(decision["rules"], json!(["agents run"]));
    assert_eq!(decision["command"], "echo secretly; exit 3");
    assert_eq!(decision["cwd"], "/tmp");
    assert_eq!(decision["env"], json!(["TOKEN"]));
    let machine = decision["machine"].as_array().unwrap();
    assert!(machine.contains(&json!("127.0.0.1")), "{decision}");
    assert_eq!(decision["users"].as_array().unwrap().len(), 1, "{decision}");
    let started = &fixture.events("started", 1).await[0];
    assert_eq!(
        (&started["decision"], &started["job"]),
        (&decision["seq"], job)
    );
    assert_eq!((&ended["job"], &ended["exit_code"]), (job, &json!(3)));
    assert_eq!((&ended["lines"], &ended["bytes"]), (&json!(1), &json!(9)));
    // Values of variables and stdin may be secrets.
    assert!(!fs::read_to_string(fixture.log()).unwrap().contains("hidden"));
    assert_eq!(
        fs::metadata(fixture.log()).unwrap().permissions().mode() & 0o777,
        0o600
    );
}

#[tokio::test]
async fn every_verb_and_every_refusal_is_recorded() {
    let fixture = Fixture::with("").await;
    let server = fixture.server();
    let agent = server.caller(&fixture.sshd, "agent1", &["--hosts", "app1,other1"]);
    let reader = server.caller(&fixture.sshd, "agent2", &["--role", "read"]);
    let stranger = server.caller(&fixture.sshd, "agent3", &["--hosts", "other1"]);

    let job = agent.ok("spawn", json!({"host": "app1", "command": "cat"}));
    let job = job["job_id"].as_str().unwrap();
    agent.ok("write", json!({"job_id": job, "data": "x\n"}));
    agent.ok("tail", json!({"job_id": job, "since_line_no": 0}));
    agent.ok("signal", json!({"job_id": job, "signal": "KILL"}));
    let file = fixture.sshd.path("file").display().to_string();
    agent.ok("put", json!({"host": "app1", "path": file, "text": "x"}));
    agent.ok("get", json!({"host": "app1", "path": file}));
    let say = json!({"host": "app1", "template": "say", "params": {"word": "hi"}});
    agent.ok("run", say);
    let denied = |caller: &Caller, verb: &str, request: Value| {
        assert_eq!(caller.call(verb, request).0, 403, "{verb}");
    };
    denied(&agent, "run", json!({"host": "other1", "command": "true"}));
    denied(&reader, "run", json!({"host": "app1", "command": "true"}));
    denied(&stranger, "run", json!({"host": "app1", "command": "true"}));
    let with_cwd = json!({"host": "app1", "template": "say", "params": {"word": "hi"}, "cwd": "/"});
    denied(&agent, "run", with_cwd);

    let told: Vec<(String, String, bool)> = fixture
        .decisions()
        .iter()
        .map(|decision| {
            let word = |name: &str| decision[name].as_str().unwrap_or_default().to_owned();
            (word("caller"), word("verb"), decision["allowed"] == true)
        })
        .collect();
    let expected = [
        ("agent1", "spawn", true),
        ("agent1", "write", true),
        ("agent1", "tail", true),
        ("agent1", "signal", true),
        // It also looks at the old content.
        ("agent1", "put", true),
        ("agent1", "put", true),
        ("agent1", "get", true),
        ("agent1", "run", true),
        ("agent1", "run", false),
        ("agent2", "run", false),
        ("agent3", "run", false),
        ("agent1", "run", false),
    ];
    let expected =
        expected.map(|(caller, verb, allowed)| (caller.to_owned(), verb.to_owned(), allowed));
    assert_eq!(told, expected);
    let decisions = fixture.decisions();
    assert_eq!(decisions[1]["job"], job);
    assert_eq!(decisions[5]["path"], file.as_str());
    assert_eq!(decisions[1]["address"], "127.0.0.1");
    assert_eq!(
        (&decisions[7]["template"], &decisions[7]["params"]),
        (&json!("say"), &json!({"word": "hi"}))
    );
    let why = |number: usize| decisions[number]["why"].as_str().unwrap();
    assert!(
        why(8).contains("no rule of the policy allows it"),
        "{}",
        why(8)
    );
    assert!(why(9).contains("it has the role read"), "{}", why(9));
    assert!(why(10).contains("may not use"), "{}", why(10));
    assert!(
        why(11).contains("does not let a call set cwd"),
        "{}",
        why(11)
    );
}

#[tokio::test]
async fn the_command_line_and_mcp_are_recorded_in_the_same_log() {
    let fixture = Fixture::with("").await;

    assert_eq!(fixture.run(&["run", "app1", "--", "true"]).0, 0);
    assert_eq!(fixture.run(&["run", "other1", "--", "true"]).0, 255);
    let policy = fixture.policy();
    let mut client = McpClient::with_options(&fixture.sshd.ssh_config(), &["--policy", &policy]);
    client.ok("ssh_run", json!({"host": "app1", "command": "echo mcp"}));
    drop(client);

    let decisions = fixture.decisions();
    let runs = decisions.iter().filter(|decision| decision["verb"] == "run");
    let commands: Vec<&Value> = runs.map(|decision| &decision["command"]).collect();
    assert_eq!(commands, ["true", "true", "echo mcp"]);
    fixture.events("ended", 2).await;
    let (code, report) = fixture.run(&["audit", "verify"]);
    assert_eq!(code, 0, "{report}");
    assert!(report.contains("nothing is wrong"), "{report}");
}

#[tokio::test]
async fn the_log_is_shown_by_caller_host_job_and_time() {
    let fixture = Fixture::with("").await;
    let server = fixture.server();
    let [first, second] = ["agent1", "agent2"].map(|name| server.caller(&fixture.sshd, name, &[]));
    let job = first.ok(
        "run",
        json!({"host": "app1", "command": "echo one\u{1b}[2J"}),
    );
    let job = job["job_id"].as_str().unwrap();
    second.ok("run", json!({"host": "app1", "command": "echo two"}));
    assert_eq!(
        second.call("run", json!({"host": "other1", "command": "id"})).0,
        403
    );
    fixture.events("ended", 2).await;

    let shown = |options: &[&str]| fixture.run(&[&["audit", "show"], options].concat()).1;
    let by_caller = shown(&["--caller", "agent1"]);
    assert!(
        by_caller.contains("echo one") && !by_caller.contains("echo two"),
        "{by_caller}"
    );
    assert!(!by_caller.contains('\u{1b}'), "{by_caller:?}");
    let by_host = shown(&["--host", "other1"]);
    assert!(
        by_host.contains("DENIED agent2 run other1") && !by_host.contains("echo"),
        "{by_host}"
    );
    let by_job = shown(&["--job", job]);
    assert_eq!(
        by_job.lines().count(),
        3,
        "decision, start and end: {by_job}"
    );
    assert_eq!(shown(&["--denied"]).lines().count(), 1);
    assert_eq!(shown(&["--until", "2026-01-01"]), "");
    assert!(shown(&["--since", "1h"]).contains("echo two"));
    let raw = shown(&["--job", job, "--json"]);
    let first: Value = serde_json::from_str(raw.lines().next().unwrap()).unwrap();
    assert_eq!(first["event"], "decision");
}

#[tokio::test]
async fn a_check_finds_what_was_done_to_the_log() {
    let fixture = Fixture::with("").await;
    for word in ["one", "two", "three"] {
        assert_eq!(fixture.run(&["run", "app1", "--", "echo", word]).0, 0);
    }
    let text = fs::read_to_string(fixture.log()).unwrap();
    let (code, report) = fixture.run(&["audit", "verify"]);
    assert_eq!(code, 0, "{report}");
    let head = report.lines().find_map(|line| line.strip_prefix("head ")).unwrap();

    fs::write(fixture.log(), text.replace("echo two", "echo 2  ")).unwrap();
    let (code, report) = fixture.run(&["audit", "verify"]);
    assert_eq!(code, 1, "{report}");
    assert!(
        report.contains("was changed after it was written"),
        "{report}"
    );

    // Cut off up to a checkpoint: only a known head shows it.
    let end = text.rfind("{\"seq\":").unwrap();
    let before = text.get(..end).unwrap();
    let end = before
        .rfind("checkpoint")
        .map(|at| at + before.get(at..).unwrap().find('\n').unwrap() + 1);
    fs::write(fixture.log(), before.get(..end.unwrap()).unwrap()).unwrap();
    assert_eq!(fixture.run(&["audit", "verify"]).0, 0);
    let (code, report) = fixture.run(&["audit", "verify", "--head", head]);
    assert_eq!(code, 1, "{report}");
    assert!(report.contains("its tail was cut off"), "{report}");

    // With another key.
    fs::write(fixture.log(), &text).unwrap();
    let other = BASE64_STANDARD.encode([1; 32]);
    let (code, report) = fixture.run(&["audit", "verify", "--public-key", &other]);
    assert_eq!(code, 1, "{report}");
    assert!(report.contains("is not signed with the key"), "{report}");
    let file = fixture.log().display().to_string();
    assert_eq!(fixture.run(&["audit", "verify", &format!("{file}x")]).0, 2);
}

/// sha256sum and OpenSSL find the chain and its signatures right, too.
#[tokio::test]
async fn other_programs_can_check_the_log() {
    let fixture = Fixture::with("").await;
    assert_eq!(fixture.run(&["run", "app1", "--", "true"]).0, 0);
    let key = fixture.run(&["audit", "key"]).1;
    let mut der = b"\x30\x2a\x30\x05\x06\x03\x2b\x65\x70\x03\x21\x00".to_vec();
    der.extend(BASE64_STANDARD.decode(key.trim()).unwrap());
    let path = |name: &str| fixture.sshd.path(name).display().to_string();
    fs::write(path("key.der"), der).unwrap();

    let text = fs::read_to_string(fixture.log()).unwrap();
    let mut prev = "0".repeat(64);
    let mut checked = 0;
    for line in text.lines() {
        let read: Value = serde_json::from_str(line).unwrap();
        assert_eq!(read["prev"], prev.as_str());
        if read["event"] == "checkpoint" {
            let signature = read["signature"].as_str().unwrap();
            fs::write(
                path("signature"),
                BASE64_STANDARD.decode(signature).unwrap(),
            )
            .unwrap();
            fs::write(
                path("text"),
                format!("sshjobs-audit-1\n{}\n{prev}\n", read["seq"]),
            )
            .unwrap();
            let openssl = Command::new("openssl")
                .args(["pkeyutl", "-verify", "-pubin", "-keyform", "DER", "-rawin"])
                .args([
                    "-inkey",
                    &path("key.der"),
                    "-in",
                    &path("text"),
                    "-sigfile",
                    &path("signature"),
                ])
                .output()
                .unwrap();
            assert!(openssl.status.success(), "{openssl:?}");
            checked += 1;
        }
        prev = sha256sum(line);
    }
    assert_eq!(checked, 2, "at the start and at the end");
}

fn sha256sum(line: &str) -> String {
    let mut child = Command::new("sha256sum")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(line.as_bytes()).unwrap();
    told(&child.wait_with_output().unwrap())
        .split_whitespace()
        .next()
        .unwrap()
        .to_owned()
}

#[tokio::test]
async fn a_call_that_cannot_be_recorded_is_refused_unless_the_policy_says_otherwise() {
    let fixture = Fixture::with("").await;
    // A log that is a directory can't be written, not even by root.
    fs::create_dir(fixture.log()).unwrap();
    let server = fixture.server();
    let agent = server.caller(&fixture.sshd, "agent1", &[]);
    let marker = fixture.sshd.path("was-run");
    let touch = json!({"host": "app1", "command": format!("touch {}", marker.display())});

    let (status, reply) = agent.call("run", touch.clone());
    assert_eq!(
        (status, &reply["code"]),
        (503, &json!("audit_failed")),
        "{reply}"
    );
    assert!(!marker.exists(), "the command was run");

    fixture.set_policy("on_failure = \"warn\"");
    eventually("the call is allowed without a record", async || {
        agent.call("run", touch.clone()).0 == 200
    })
    .await;
    assert!(marker.exists());

    fs::remove_dir(fixture.log()).unwrap();
    agent.ok("run", touch);
    let missed = &fixture.events("missed", 1).await[0];
    assert!(missed["lines"].as_u64().unwrap() >= 1, "{missed}");
}

#[tokio::test]
async fn the_head_is_copied_to_anchors() {
    let fixture = Fixture::with("").await;
    let path = |name: &str| fixture.sshd.path(name).display().to_string();
    let socket = std::os::unix::net::UnixDatagram::bind(path("log.sock")).unwrap();
    socket.set_read_timeout(Some(crate::support::PATIENCE)).unwrap();
    fixture.set_policy(&format!(
        "anchors = [{{ file = {:?} }}, {{ syslog = {:?} }}, {{ command = {:?} }}]",
        path("heads"),
        path("log.sock"),
        format!("cat >> {}", path("from-command"))
    ));

    let server = fixture.server();
    let agent = server.caller(&fixture.sshd, "agent1", &[]);
    agent.ok("run", json!({"host": "app1", "command": "true"}));
    server.stop().await;

    let mut message = [0; 200];
    let length = socket.recv(&mut message).unwrap();
    let message = std::str::from_utf8(&message[..length]).unwrap();
    let head = message.strip_prefix("<86>sshjobs-audit: ").unwrap().to_owned();
    for name in ["heads", "from-command"] {
        eventually("the head is there", async || {
            fs::read_to_string(path(name)).is_ok_and(|text| text.lines().any(|line| line == head))
        })
        .await;
    }
    let (code, report) = fixture.run(&["audit", "verify", "--head", &head]);
    assert_eq!(code, 0, "{report}");
}

/// A server that is killed at any moment leaves a log that holds together, and whose every start was
/// recorded before it.
#[tokio::test]
async fn a_killed_server_leaves_a_log_that_holds_together() {
    let fixture = Fixture::with("").await;
    for round in 0..4 {
        let server = fixture.server();
        let agent = server.caller(&fixture.sshd, &format!("agent{round}"), &[]);
        let calls: Vec<_> = (0..4)
            .map(|number| {
                let agent = agent.clone();
                let marker =
                    fixture.sshd.path(&format!("ran-{round}-{number}")).display().to_string();
                std::thread::spawn(move || {
                    for turn in 0.. {
                        let command = format!("echo {turn} >> {marker}");
                        let request = json!({"host": "app1", "command": command});
                        if agent.try_call("run", &request).is_err() {
                            return;
                        }
                    }
                })
            })
            .collect();
        let before = fixture.decisions().len();
        eventually("some calls are recorded", async || {
            fixture.decisions().len() > before + 3 * (round + 1)
        })
        .await;
        drop(server);
        calls.into_iter().for_each(|call| call.join().unwrap());
    }

    let (code, report) = fixture.run(&["audit", "verify"]);
    // The last writer may have been killed in the middle of a line: the next one cuts it off.
    assert!(
        code == 0 || report.contains("the line is cut off"),
        "{report}"
    );
    assert_eq!(fixture.run(&["run", "app1", "--", "true"]).0, 0);
    let (code, report) = fixture.run(&["audit", "verify"]);
    assert_eq!(code, 0, "{report}");

    let mut allowed: BTreeMap<String, usize> = BTreeMap::new();
    for decision in fixture.decisions() {
        if let Some(command) = decision["command"].as_str() {
            *allowed.entry(command.to_owned()).or_default() += 1;
        }
    }
    let mut ran = 0;
    for round in 0..4 {
        for number in 0..4 {
            let marker = fixture.sshd.path(&format!("ran-{round}-{number}")).display().to_string();
            for turn in fs::read_to_string(&marker).unwrap_or_default().lines() {
                let command = format!("echo {turn} >> {marker}");
                assert_eq!(
                    allowed.get(&command),
                    Some(&1),
                    "{command} ran without a record"
                );
                ran += 1;
            }
        }
    }
    assert!(ran > 10, "{ran} commands ran");
}

#[tokio::test]
async fn a_caller_can_neither_forge_a_line_nor_fill_the_disk() {
    let fixture = Fixture::with("").await;
    let server = fixture.server();
    let agent = server.caller(&fixture.sshd, "agent1", &[]);
    let forged = "a\n2026-11-25T19:59:00.000Z 999 allowed alice run app1 \"id\"";

    let _ = agent.call("run", json!({"host": "app1", "template": forged}));

    let long = json!({"host": "other1", "command": "x".repeat(100_000)});
    assert_eq!(agent.call("run", long).0, 403);

    fixture.events("decision", 2).await;
    let shown = fixture.run(&["audit", "show", "--denied"]).1;
    assert_eq!(shown.lines().count(), 2, "{shown}");
    assert!(fs::metadata(fixture.log()).unwrap().len() < 10_000);
}

#[tokio::test]
async fn a_policy_that_ends_the_log_is_recorded_as_its_last_act() {
    let fixture = Fixture::with("").await;
    let server = fixture.server();
    let agent = server.caller(&fixture.sshd, "agent1", &[]);
    let command = json!({"host": "app1", "command": "true"});
    agent.ok("run", command.clone());

    fs::write(fixture.sshd.path("policy.toml"), RULES).unwrap();

    eventually("the log is closed", async || {
        agent.ok("run", command.clone());
        fixture.lines().iter().any(|line| line["event"] == "closed")
    })
    .await;
    let lines = fixture.events("checkpoint", 2).await;
    assert_eq!(fixture.lines().last(), lines.last(), "the end is signed");
    let before = fixture.lines().len();
    agent.ok("run", command);
    assert_eq!(fixture.lines().len(), before);
}

#[tokio::test]
async fn a_start_that_fails_is_recorded() {
    let fixture = Fixture::with("").await;
    let config = fixture.sshd.ssh_config();
    let text = fs::read_to_string(&config).unwrap();
    fs::write(&config, format!("Host app1\n  Port 1\n{text}")).unwrap();

    assert_eq!(fixture.run(&["run", "app1", "--", "true"]).0, 255);

    let failed = &fixture.events("failed", 1).await[0];
    let decision = fixture.decisions().into_iter().find(|line| line["verb"] == "run").unwrap();
    assert_eq!(failed["decision"], decision["seq"]);
}

#[tokio::test]
async fn a_fleet_that_is_refused_because_of_its_output_is_recorded() {
    let fixture = Fixture::with("").await;
    let server = fixture.server();
    let starter = server.caller(&fixture.sshd, "starter", &[]);

    let (status, reply) = starter.call("run", json!({"hosts": ["app1"], "command": "true"}));

    assert_eq!(status, 403, "{reply}");
    let decision = &fixture.events("decision", 1).await[0];
    assert_eq!(
        (&decision["verb"], &decision["host"], &decision["allowed"]),
        (&json!("run"), &json!("app1"), &json!(false)),
        "{decision}"
    );
}
