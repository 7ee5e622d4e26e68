//! Secrets by name: commands get their values, and nothing else ever shows them.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use serde_json::{Value, json};

use crate::support::command::{command, sshjobs, told};
use crate::support::server::{Caller, Server, answer, token};
use crate::support::{Sshd, eventually};

const VALUE: &str = "hunter2 & 'so' on";
const ROTATED: &str = "another-value";

/// An sshd, a configuration with secrets, and a server.
struct Fixture {
    sshd: Sshd,
    server: Server,
    agent: Caller,
}

impl Fixture {
    async fn start() -> Self {
        let sshd = configured().await;
        let server = Server::with(&sshd, &["--config", &config(&sshd)]);
        let agent = server.caller(&sshd, "agent1", &[]);
        Self {
            sshd,
            server,
            agent,
        }
    }

    /// The lines of a command that gets secrets.
    fn run(&self, request: Value) -> Vec<String> {
        lines(&self.agent.ok("run", on_prod(request)))
    }
}

/// An sshd with two names, and the configuration.
async fn configured() -> Sshd {
    let sshd = Sshd::start().await;
    sshd.alias(["prod1", "web1"]);
    write_secret(&sshd.path("db.secret"), VALUE);
    write_secret(&sshd.path("key.secret"), "first line\nsecond line");
    write_secret(&sshd.path("short.secret"), "abc");
    let text = r#"
[secrets.db]
file = "db.secret"
hosts = ["prod*"]
callers = ["agent*", "local"]

[secrets.token]
command = "printf 'token-from-a-command'"
callers = ["role:run"]

[secrets.key]
file = "key.secret"

[secrets.shown]
command = "echo shown-value"
scrub = false

[secrets.short]
file = "short.secret"

[secrets.missing]
file = "missing.secret"

[secrets.admins]
command = "echo nobody-sees-this"
callers = ["alice"]
"#;
    fs::write(sshd.path("config.toml"), text).unwrap();
    sshd
}

fn config(sshd: &Sshd) -> String {
    sshd.path("config.toml").display().to_string()
}

fn write_secret(file: &Path, value: &str) {
    fs::write(file, format!("{value}\n")).unwrap();
    fs::set_permissions(file, fs::Permissions::from_mode(0o600)).unwrap();
}

fn on_prod(mut request: Value) -> Value {
    request["host"] = json!("prod1");
    request
}

fn lines(reply: &Value) -> Vec<String> {
    let lines = reply["lines"].as_array().or(reply["head"].as_array());
    let lines = lines.unwrap_or_else(|| panic!("no lines: {reply}"));
    lines.iter().map(|line| line.as_str().unwrap().to_owned()).collect()
}

/// Fails if any file below a directory has a value.
fn assert_absent(directory: &Path, value: &str) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            assert_absent(&path, value);
        } else if let Ok(bytes) = fs::read(&path) {
            let has_it = bytes.windows(value.len()).any(|window| window == value.as_bytes());
            assert!(!has_it, "{} has the value", path.display());
        }
    }
}

#[tokio::test]
async fn a_command_gets_secrets_and_its_output_shows_their_names() {
    let fixture = Fixture::start().await;
    let command = "printf '%s' \"$P\" | wc -c; echo \"p=$P\" >&2; cat";
    let request = json!({"command": command, "secret_env": {"P": "db"}, "secret_stdin": "token"});
    let bytes = VALUE.len().to_string();
    let mut shown = fixture.run(request);
    shown.sort();
    let mut expected = vec![
        bytes,
        "[secret token]".to_owned(),
        "p=[secret db]".to_owned(),
    ];
    expected.sort();
    assert_eq!(shown, expected);
}

#[tokio::test]
async fn every_printed_form_of_a_secret_becomes_its_name() {
    let fixture = Fixture::start().await;
    for form in [
        "printf '%s\\n' \"$P\"",
        "printf '%s' \"$P\" | base64",
        "printf '%s' \"$P\" | od -An -tx1 -v | tr -d ' \\n' | sed 's/../%&/g'; echo",
        "bash -c 'printf \"%q\\n\" \"$P\"'",
        "python3 -c 'import os,shlex,json,urllib.parse as u; p=os.environ[\"P\"]; print(shlex.quote(p)); print(json.dumps(p)); print(u.quote(p)); print(u.quote_plus(p))'",
        "sh -xc ': \"$P\"' 2>&1",
        "for c in hun ter '2 & ' \"'so' on\"; do printf '%s' \"$c\"; sleep 0.1; done; echo",
        "printf 'hunter2 & \\n'; printf \"'so' on\\n\"",
    ] {
        let request = json!({"command": form, "secret_env": {"P": "db"}});
        let shown = fixture.run(request).join("\n");
        // Of a value that is printed piece by piece, the first piece is shown at once.
        assert!(shown.contains("cret db]"), "{form}: {shown}");
        assert!(
            !shown.contains("unter2") && !shown.contains("so' on"),
            "{form}: {shown}"
        );
    }
    let request = json!({"command": "echo \"$K\"; echo \"$S\"",
        "secret_env": {"K": "key", "S": "shown"}});
    assert_eq!(fixture.run(request), ["[secret key]", "shown-value"]);
}

#[tokio::test]
async fn a_secret_that_is_written_to_a_terminal_is_hidden_in_its_echo() {
    let fixture = Fixture::start().await;
    let agent = &fixture.agent;
    let command = "printf 'Password: '; read p; printf 'got %s\\n' \"$p\"; read q; echo end";
    let job = agent.ok(
        "spawn",
        json!({"host": "prod1", "command": command, "pty": true}),
    );
    let id = job["job_id"].as_str().unwrap();
    // Before the prompt, the terminal would echo the secret in front of it.
    agent.ok(
        "tail",
        json!({"job_id": id, "until": "Password: ", "wait_ms": 20_000}),
    );
    let written = agent.ok(
        "write",
        json!({"job_id": id, "secret_name": "db", "newline": true, "wait_ms": 5000, "quiet_ms": 300}),
    );
    let shown = lines(&written["tail"]);
    assert_eq!(
        shown,
        ["Password: [secret db]", "got [secret db]"],
        "{written}"
    );
    let screen = agent.ok("read", json!({"job_id": id, "unit": "screen"}));
    assert!(!screen.to_string().contains("hunter2"), "{screen}");

    let (status, refused) = agent.call("write", json!({"job_id": id, "secret_name": "admins"}));
    assert_eq!(
        (status, &refused["code"]),
        (403, &json!("secret_denied")),
        "{refused}"
    );
    agent.ok("signal", json!({"job_id": id, "signal": "KILL"}));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_prompt_that_begins_like_a_secret_is_shown_after_a_second() {
    let fixture = Fixture::start().await;
    let started = fixture.agent.ok(
        "spawn",
        on_prod(json!({
            "command": "printf hunter; read a; printf \"2 & 'so' on|\"; read b",
            "secret_env": {"DB": "db"},
        })),
    );
    let job = &started["job_id"];
    let until = |text: &str| {
        fixture.agent.ok(
            "tail",
            json!({"job_id": job, "until": text, "wait_ms": 20_000}),
        )
    };
    let prompt = until("hunter$");
    assert_eq!(prompt["returned_because"], "matched", "{prompt}");
    fixture.agent.ok("write", json!({"job_id": job, "newline": true}));
    // The value is complete now. What was shown of it takes the place of the first part of its name.
    let rest = until(r"\|$");
    assert_eq!(rest["partial"]["stdout"], "huntert db]|", "{rest}");
    fixture.agent.ok("write", json!({"job_id": job, "newline": true}));
}

#[tokio::test]
async fn a_secret_is_for_the_callers_and_hosts_that_the_configuration_names() {
    let fixture = Fixture::start().await;
    let with = |host: &str, secret: &str| {
        json!({"host": host, "command": "touch ran", "cwd": fixture.sshd.path(""),
            "secret_env": {"P": secret}})
    };
    let other = fixture.server.caller(&fixture.sshd, "other", &[]);
    let reader = fixture.server.caller(&fixture.sshd, "agent2", &["--role", "read"]);
    for (caller, host, secret) in [
        (&fixture.agent, "web1", "db"),
        (&fixture.agent, "prod1", "admins"),
        (&fixture.agent, "prod1", "no-such"),
        (&other, "prod1", "db"),
    ] {
        for verb in ["run", "spawn"] {
            let (status, refused) = caller.call(verb, with(host, secret));
            assert_eq!(
                (status, &refused["code"]),
                (403, &json!("secret_denied")),
                "{refused}"
            );
            let hint = refused["hint"].as_str().unwrap();
            assert!(
                hint.contains("token") && !hint.contains("admins"),
                "{refused}"
            );
        }
    }
    let (status, refused) = reader.call("run", with("prod1", "db"));
    assert_eq!(
        (status, &refused["code"]),
        (403, &json!("policy_denied")),
        "{refused}"
    );
    let hosts = json!({"hosts": ["prod1", "web1"], "command": "true", "secret_env": {"P": "db"}});
    let (status, refused) = fixture.agent.call("run", hosts);
    assert_eq!(
        (status, &refused["code"]),
        (403, &json!("secret_denied")),
        "{refused}"
    );

    for (secret, message) in [
        ("missing", "can't be read"),
        ("short", "fewer than 4 bytes"),
    ] {
        let (status, refused) = fixture.agent.call("run", with("prod1", secret));
        assert_eq!(
            (status, &refused["code"]),
            (503, &json!("secret_unavailable")),
            "{refused}"
        );
        assert!(
            refused["message"].as_str().unwrap().contains(message),
            "{refused}"
        );
    }
    let both =
        json!({"host": "prod1", "command": "true", "env": {"P": "x"}, "secret_env": {"P": "db"}});
    let (status, refused) = fixture.agent.call("run", both);
    assert_eq!(
        (status, &refused["code"]),
        (400, &json!("invalid_argument")),
        "{refused}"
    );
    assert!(!fixture.sshd.path("ran").exists());
}

#[tokio::test]
async fn no_file_log_process_list_or_audit_line_has_the_value() {
    let sshd = configured().await;
    let audit = format!(
        "[[rules]]\nname = \"all\"\nverbs = [\"run\", \"spawn\", \"write\", \"signal\", \"tail\", \"read\", \"jobs\"]\ncommands = \"any\"\n\n[audit]\nfile = {:?}\nkey = {:?}\n",
        sshd.path("audit.jsonl"),
        sshd.path("keys/audit.key"),
    );
    fs::write(sshd.path("policy.toml"), audit).unwrap();
    let policy = sshd.path("policy.toml").display().to_string();
    let server = Server::with(&sshd, &["--config", &config(&sshd), "--policy", &policy]);
    let agent = server.caller(&sshd, "agent1", &[]);
    let spawned = agent.ok(
        "spawn",
        json!({"host": "prod1", "secret_env": {"P": "db"}, "secret_stdin": "db",
            "command": "cat >/dev/null; echo \"$P\"; sleep 60"}),
    );
    let id = spawned["job_id"].as_str().unwrap();
    let tail = agent.ok("tail", json!({"job_id": id, "wait_ms": 10000}));
    assert_eq!(lines(&tail), ["[secret db]"]);

    // From outside of the job, whose output would be scrubbed.
    let processes = std::process::Command::new("ps").args(["axww", "-o", "args"]).output().unwrap();
    let processes = String::from_utf8_lossy(&processes.stdout).into_owned();
    assert!(
        processes.contains("sleep 60") && !processes.contains("hunter2"),
        "{processes}"
    );
    agent.ok("signal", json!({"job_id": id, "signal": "KILL"}));
    let listed = agent.ok("jobs", json!({})).to_string();
    assert!(listed.contains(id) && !listed.contains("hunter2"));
    let audited = fs::read_to_string(sshd.path("audit.jsonl")).unwrap();
    assert!(audited.contains("\"secrets\":[\"db\"]"), "{audited}");
    assert!(!audited.contains("hunter2"));
    assert_eq!(server.stop().await, Some(0));
    assert_absent(&sshd.path("state"), "hunter2");
    assert_absent(&sshd.path("state"), VALUE);
}

#[tokio::test]
async fn an_approver_sees_the_name_of_a_secret_that_is_written_and_the_input_beside_it() {
    let sshd = configured().await;
    let rules = r#"
[[rules]]
name = "free"
callers = ["agent*"]
verbs = ["run", "spawn", "tail", "read", "jobs", "signal"]
commands = "any"

[[rules]]
name = "writes are asked for"
callers = ["agent*"]
verbs = ["write"]
commands = "any"
approval = "person"

[[approvers]]
callers = ["alice"]
"#;
    fs::write(sshd.path("policy.toml"), rules).unwrap();
    let policy = sshd.path("policy.toml").display().to_string();
    let server = Server::with(&sshd, &["--config", &config(&sshd), "--policy", &policy]);
    let agent = server.caller(&sshd, "agent1", &[]).impatient();
    let alice = server.caller(&sshd, "alice", &[]);
    let job = agent.ok("spawn", json!({"host": "prod1", "command": "cat"}));
    let id = &job["job_id"];
    let asked = |request: Value| {
        let (status, reply) = agent.call("write", request);
        assert_eq!(
            (status, &reply["code"]),
            (409, &json!("approval_pending")),
            "{reply}"
        );
        let text = answer(alice.get("/v1/approvals")).1;
        text.to_string()
    };

    let request = json!({"job_id": id, "secret_name": "db", "data": "rm -rf / #"});
    let shown = asked(request);
    assert!(
        shown.contains("secret db and other input: rm -rf / #"),
        "{shown}"
    );

    // The same bytes, guessed: another call.
    let before = asked(json!({"job_id": id, "secret_name": "db"}));
    let after = asked(json!({"job_id": id, "data": VALUE, "secret": true}));
    let count = |text: &str| text.matches("\"id\"").count();
    assert_eq!(count(&after), count(&before) + 1, "{after}");
    assert!(
        before.contains("\"secret db\"") || before.contains("\\\"secret db"),
        "{before}"
    );
    agent.ok("signal", json!({"job_id": id, "signal": "KILL"}));
}

#[tokio::test]
async fn a_rotated_secret_does_not_change_the_request_of_an_idempotency_key() {
    let fixture = Fixture::start().await;
    let request = json!({"host": "prod1", "command": "sleep 60", "idempotency_key": "k",
        "secret_env": {"P": "db"}});
    let first = fixture.agent.ok("spawn", request.clone());
    write_secret(&fixture.sshd.path("db.secret"), ROTATED);
    let second = fixture.agent.ok("spawn", request);
    assert_eq!(first["job_id"], second["job_id"]);
}

/// Kills a server in the middle of a durable job's output, and returns the lines that the next one has.
async fn after_a_kill(prepare: impl FnOnce(&Sshd)) -> Vec<String> {
    let sshd = configured().await;
    let token = token(&sshd, "agent1", &[]);
    let server = Server::with(&sshd, &["--config", &config(&sshd)]);
    let agent = Caller::new(&server.url, &token);
    let command = "i=0; while [ $i -lt 60 ]; do i=$((i+1)); echo \"$i $P\"; sleep 0.05; done";
    let request = json!({"host": "prod1", "command": command, "durable": true,
        "secret_env": {"P": "db"}});
    let id = agent.ok("spawn", request)["job_id"].as_str().unwrap().to_owned();
    let seen = agent.ok(
        "tail",
        json!({"job_id": id, "wait_ms": 10000, "until": "^20 "}),
    );
    assert!(
        lines(&seen).contains(&"20 [secret db]".to_owned()),
        "{seen}"
    );
    // Kills it.
    drop(server);
    prepare(&sshd);

    let server = Server::with(&sshd, &["--config", &config(&sshd)]);
    let agent = Caller::new(&server.url, &token);
    let mut all = Vec::new();
    let mut cursor = json!(0);
    loop {
        let request = json!({"job_id": id, "since_line_no": cursor, "wait_ms": 10000});
        let tail = agent.ok("tail", request);
        all.extend(lines(&tail));
        cursor = tail["last_line_no"].clone();
        if tail["still_running"] == false {
            assert_eq!(tail["state"], "exited", "{tail}");
            return all;
        }
    }
}

#[tokio::test]
async fn another_process_continues_the_scrubbed_output_of_a_durable_job_exactly() {
    let all = after_a_kill(|_| ()).await;
    let expected: Vec<_> = (1..=60).map(|i| format!("{i} [secret db]")).collect();
    assert_eq!(all, expected);
}

#[tokio::test]
async fn output_is_withheld_when_its_secret_has_changed_since_the_start() {
    let all = after_a_kill(|sshd| write_secret(&sshd.path("db.secret"), ROTATED)).await;
    let text = all.join("\n");
    assert!(!text.contains("hunter2") && !text.contains("60 "), "{text}");
}

#[tokio::test]
async fn output_that_a_process_could_not_show_is_there_for_one_that_has_the_secret() {
    let sshd = configured().await;
    let config = config(&sshd);
    let spawn = &[
        "--config",
        &config,
        "spawn",
        "--secret-env",
        "P=db",
        "prod1",
        "--",
        "echo first; sleep 1; echo \"$P\"; echo last",
    ];
    let id = told(&sshjobs(&sshd, spawn)).trim().to_owned();

    for verb in [
        &["tail", "--follow", "--since", "0", &id][..],
        &["wait", &id],
    ] {
        let without = sshjobs(&sshd, verb);
        assert_eq!(without.status.code(), Some(0), "{verb:?}");
        let warned = String::from_utf8_lossy(&without.stderr);
        assert!(warned.contains("output is withheld"), "{verb:?}: {warned}");
        assert!(!String::from_utf8_lossy(&without.stdout).contains("last"));
    }

    let log = told(&sshjobs(&sshd, &["--config", &config, "log", &id]));
    assert_eq!(log, "first\n[secret db]\nlast\n");
    // Now it is stored, and no secret is needed to read it.
    assert_eq!(told(&sshjobs(&sshd, &["log", &id])), log);
}

#[tokio::test]
async fn a_durable_job_takes_only_secrets_that_it_was_started_with() {
    let fixture = Fixture::start().await;
    let agent = &fixture.agent;
    let request = json!({"host": "prod1", "command": "while read l; do echo \"got $l\"; done",
        "durable": true, "secret_env": {"P": "db"}});
    let id = agent.ok("spawn", request)["job_id"].as_str().unwrap().to_owned();
    let write =
        |name: &str| json!({"job_id": id, "secret_name": name, "newline": true, "wait_ms": 5000});
    let written = agent.ok("write", write("db"));
    assert_eq!(lines(&written["tail"]), ["got [secret db]"]);
    let (status, refused) = agent.call("write", write("token"));
    assert_eq!(
        (status, &refused["code"]),
        (501, &json!("unsupported")),
        "{refused}"
    );
    let written = agent.ok("write", write("shown"));
    assert_eq!(lines(&written["tail"]), ["got shown-value"]);

    // A process that takes the job over could not hide another value.
    write_secret(&fixture.sshd.path("db.secret"), ROTATED);
    let (status, refused) = agent.call("write", write("db"));
    assert_eq!(
        (status, &refused["code"]),
        (501, &json!("unsupported")),
        "{refused}"
    );
}

#[tokio::test]
async fn a_fleet_hides_secrets_in_the_output_of_each_member() {
    let fixture = Fixture::start().await;
    let request = json!({"hosts": ["prod1", "web1"], "command": "echo \"$P\"; read l; echo \"$l\"",
        "secret_env": {"P": "token"}});
    let spawned = fixture.agent.ok("spawn", request);
    let id = spawned["job_id"].as_str().unwrap();
    let count = || {
        let tail = fixture.agent.ok("tail", json!({"job_id": id, "wait_ms": 500}));
        lines(&tail).len()
    };
    eventually("both members run", async || count() == 2).await;
    let write = json!({"job_id": id, "secret_name": "key", "newline": true});
    fixture.agent.ok("write", write);
    eventually("both members have read it", async || count() == 4).await;
    let tail = fixture.agent.ok("tail", json!({"job_id": id}));
    let text = lines(&tail).join("\n");
    assert_eq!(text.matches("[secret token]").count(), 2, "{text}");
    assert!(
        !text.contains("token-from") && !text.contains("first line"),
        "{text}"
    );
}

#[tokio::test]
async fn the_command_line_uses_secrets_of_its_configuration() {
    let sshd = configured().await;
    let config = config(&sshd);
    let run = |arguments: &[&str]| sshjobs(&sshd, &[&["--config", &config], arguments].concat());
    let output = run(&[
        "run",
        "--secret-env",
        "P=db",
        "--secret-stdin",
        "token",
        "prod1",
        "--",
        "echo \"$P\"; cat",
    ]);
    assert_eq!(told(&output), "[secret db]\n[secret token]");
    let spawned = run(&[
        "spawn",
        "--secret-env",
        "P=db",
        "--stdin",
        "prod1",
        "--",
        "read l; echo $l",
    ]);
    let id = told(&spawned).trim().to_owned();
    told(&run(&["write", &id, "--secret", "db"]));
    let log = run(&["log", &id, "--follow"]);
    assert_eq!(told(&log), "[secret db]\n");
    let refused = run(&["run", "--secret-env", "P=admins", "prod1", "--", "true"]);
    let why = String::from_utf8_lossy(&refused.stderr);
    assert!(
        why.contains("secrets that you may use on this host: db, key"),
        "{why}"
    );
    let mut stopped = command(
        &sshd,
        &[
            "--config",
            &config,
            "run",
            "-t",
            "--secret-stdin",
            "db",
            "prod1",
        ],
    );
    assert_eq!(stopped.output().unwrap().status.code(), Some(2));
}
