//! The policy, over every face: who may do what on which host.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use crate::support::command::{sshjobs, told};
use crate::support::server::{Caller, Server};
use crate::support::{McpClient, Sshd, eventually};
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::TestRunner;
use serde_json::{Value, json};
use sshjobs_core::jobs::{
    self, Access, Error, Jobs, LineNo, PageQuery, ReadQuery, Refusal, Render, SearchQuery,
    Selection, Unit, Wait,
};
use sshjobs_policy::quote_for_any_shell;

/// Names of one sshd, with the tag of each.
const HOSTS: [(&str, &str); 2] = [("app1", "staging"), ("other1", "prod")];

const RULES: &str = r#"
[[rules]]
name = "agents look everywhere"
callers = ["agent*"]
hosts = ["app*"]
verbs = ["hosts", "jobs", "tail", "read", "search", "wait"]

[[rules]]
name = "agents use templates"
callers = ["agent*"]
hosts = ["tag:staging"]
commands = ["say", "count"]
limits = { jobs = 2, timeout_s = 60, starts_per_minute = 10_000 }

[[rules]]
name = "people do anything"
callers = ["alice", "local"]
verbs = [
  "hosts", "jobs", "tail", "read", "search", "wait", "run", "spawn", "write", "signal", "get",
  "put", "edit", "forward", "probe", "trust", "forget",
]
commands = "any"

[[rules]]
name = "a minute at most"
callers = ["timed"]
commands = "any"
limits = { timeout_s = 60, starts_per_minute = 2 }

[[rules]]
name = "small files"
callers = ["uploader"]
verbs = ["put", "get"]
limits = { bytes = 10 }

[templates.say]
description = "Print a word"
command = "printf '%s\\n' {word}"
parameters.word = { text = 100 }

[templates.count]
command = "seq {from} {to}; sleep {pause}"
parameters.from = { int = [1, 10], default = "1" }
parameters.to = { int = [1, 100] }
parameters.pause = { int = [0, 60], default = "0" }
timeout_s = 30

[[tests]]
caller = "agent1"
host = "app1"
template = "say"
params = { word = "hello" }
expect = "allow"
rule = "agents use templates"

[[tests]]
caller = "agent1"
host = "app1"
expect = "deny"
"#;

/// An sshd with some names and tags, and a policy file.
async fn sshd_with(policy: &str) -> (Sshd, PathBuf) {
    let sshd = Sshd::start().await;
    sshd.alias(HOSTS.map(|(name, _)| name));
    let tags: String = HOSTS
        .iter()
        .map(|(name, tag)| format!("[hosts.{name}]\ntags = [{tag:?}]\n"))
        .collect();
    std::fs::write(sshd.path("config.toml"), tags).unwrap();
    let file = sshd.path("policy.toml");
    std::fs::write(&file, policy).unwrap();
    (sshd, file)
}

/// The options that name the configuration and the policy.
fn options(sshd: &Sshd) -> [String; 4] {
    let path = |file: &str| sshd.path(file).display().to_string();
    [
        "--config".to_owned(),
        path("config.toml"),
        "--policy".to_owned(),
        path("policy.toml"),
    ]
}

fn server(sshd: &Sshd) -> Server {
    let options = options(sshd);
    Server::with(sshd, &options.each_ref().map(String::as_str))
}

fn policy_command(sshd: &Sshd, arguments: &[&str]) -> (i32, String, String) {
    let options = options(sshd);
    let options = options.each_ref().map(String::as_str);
    let output = sshjobs(sshd, &[&options[..], &["policy"], arguments].concat());
    (
        output.status.code().unwrap(),
        String::from_utf8(output.stdout).unwrap(),
        String::from_utf8(output.stderr).unwrap(),
    )
}

#[track_caller]
fn check_denied(caller: &Caller, verb: &str, request: Value, words: &str) {
    let (status, reply) = caller.call(verb, request);
    assert_eq!(
        (status, &reply["code"]),
        (403, &json!("policy_denied")),
        "{verb}: {reply}"
    );
    let message = reply["message"].as_str().unwrap();
    assert!(message.contains(words), "{verb}: {message}");
}

#[tokio::test]
async fn a_verb_that_no_rule_allows_is_denied_over_http() {
    let (sshd, _) = sshd_with(RULES).await;
    let server = server(&sshd);
    let (agent, alice) = (
        server.caller(&sshd, "agent1", &[]),
        server.caller(&sshd, "alice", &[]),
    );
    let no_rule = "no rule of the policy allows it";

    let free = |host: &str| json!({"host": host, "command": "true"});
    for verb in ["run", "spawn"] {
        check_denied(&agent, verb, free("app1"), no_rule);
        alice.ok(verb, free("app1"));
    }
    let file = sshd.path("file").display().to_string();
    let put = json!({"host": "app1", "path": file, "text": "x"});
    check_denied(&agent, "put", put.clone(), no_rule);
    alice.ok("put", put);
    let get = json!({"host": "app1", "path": file});
    check_denied(&agent, "get", get.clone(), no_rule);
    alice.ok("get", get);
    check_denied(&agent, "hosts", json!({"host": "app1"}), no_rule);
    let forward = json!({"action": "open", "host": "app1", "target": "127.0.0.1:1"});
    check_denied(&agent, "forward", forward, no_rule);

    let job = agent.ok(
        "run",
        json!({"host": "app1", "template": "say", "params": {"word": "x"}}),
    );
    let job = json!({"job_id": job["job_id"]});
    check_denied(&agent, "forget", job.clone(), no_rule);
    let listed = agent.ok("jobs", json!({}));
    assert_eq!(listed["total"], 1, "{listed}");
}

#[tokio::test]
async fn a_job_is_read_only_where_the_policy_allows_it() {
    let (sshd, file) = sshd_with(RULES).await;
    let server = server(&sshd);
    let agent = server.caller(&sshd, "agent1", &[]);
    let started = agent.ok(
        "run",
        json!({"host": "app1", "template": "say", "params": {"word": "x"}}),
    );
    let id = started["job_id"].as_str().unwrap().to_owned();
    let job = json!({"job_id": id});
    assert_eq!(agent.ok("read", job.clone())["lines"][0], "x");

    // Now nothing but templates.
    let rules = RULES.replace("hosts = [\"app*\"]\n", "hosts = [\"other*\"]\n");
    std::fs::write(&file, rules).unwrap();
    eventually("the new policy is in force", async || {
        agent.call("read", job.clone()).0 == 403
    })
    .await;

    let no_rule = "no rule of the policy allows it";
    check_denied(
        &agent,
        "tail",
        json!({"job_id": id, "since_line_no": 0}),
        no_rule,
    );
    check_denied(
        &agent,
        "search",
        json!({"job_id": id, "pattern": "x"}),
        no_rule,
    );
    check_denied(&agent, "wait", json!({"job_ids": [id]}), no_rule);
    assert_eq!(agent.ok("jobs", json!({}))["total"], 0);
    for path in ["raw?stream=stdout", "stream", "screen"] {
        let status = agent.get(&format!("/v1/jobs/{id}/{path}")).status();
        assert_eq!(status, 403, "{path}");
    }
    let uri = format!("ssh-job://{id}/log");
    let resource = agent.modern("resources/read", json!({"uri": uri}));
    assert!(
        resource.contains("no rule of the policy allows it"),
        "{resource}"
    );
    let listed = agent.modern("resources/list", json!({}));
    assert!(!listed.contains(&id), "{listed}");
}

/// Rules for a caller who may know how jobs ended, and none of their lines.
const WITHOUT_LINES: &str = r#"
[[rules]]
name = "start"
callers = ["watcher", "local"]
verbs = ["spawn", "jobs", "wait", "hosts"]
commands = "any"
"#;

#[tokio::test]
async fn no_reply_shows_lines_to_a_caller_who_may_neither_tail_nor_read() {
    let (sshd, _) = sshd_with(WITHOUT_LINES).await;
    let server = server(&sshd);
    let watcher = server.caller(&sshd, "watcher", &[]);
    // The word is not in the command, which a list of jobs shows.
    let command = "printf 'the-%s\\n' word; exit 3";
    let fleet = watcher.ok(
        "spawn",
        json!({"hosts": ["app1", "other1"], "command": command}),
    );
    let fleet = fleet["job_id"].as_str().unwrap();
    let single = watcher.ok("spawn", json!({"host": "app1", "command": command}));
    let single = single["job_id"].as_str().unwrap();
    let both = json!({"job_ids": [fleet, single], "last_lines": 5, "last_lines_of": "all"});
    assert_eq!(watcher.ok("wait", both.clone())["ended"], 2);

    for (verb, request) in [
        ("wait", both),
        ("wait", json!({"job_ids": [fleet]})),
        ("wait", json!({"job_ids": [fleet], "last_lines": 5})),
        ("jobs", json!({})),
        ("jobs", json!({"fleet": fleet})),
        ("jobs", json!({"job_id": single})),
        ("jobs", json!({"job_id": single, "detail": "processes"})),
        ("jobs", json!({"job_id": format!("{fleet}/app1")})),
    ] {
        let (_, reply) = watcher.call(verb, request.clone());
        assert!(
            !reply.to_string().contains("the-word"),
            "{verb} {request}: {reply}"
        );
    }
    for path in ["stream", "raw?stream=stdout", "screen", "export"] {
        let status = watcher.get(&format!("/v1/jobs/{single}/{path}")).status();
        assert_eq!(status, 403, "{path}");
    }
}

/// Also of a handle from the program's own start: to start a job is not to read it.
#[tokio::test]
async fn a_handle_reads_only_by_verbs_that_the_policy_allows() {
    let (sshd, file) = sshd_with(WITHOUT_LINES).await;
    let mut config = sshd.config();
    config.policy.file = Some(file.clone());
    let jobs = Jobs::new(config, Access::Listed);
    let started = jobs.spawn("app1", jobs::Command::shell("echo a word")).await.unwrap();
    let outcome = started.wait().await;
    let found = jobs.job(started.id()).await.unwrap();

    assert_eq!(outcome.exit_status(), Some(0));
    let pattern = regex::Regex::new("word").unwrap();
    for job in [&started, &found] {
        let query = PageQuery::after(LineNo::START);
        let page = ReadQuery {
            unit: Unit::Lines,
            offset: 0,
            length: 10,
            max_bytes: 1000,
            selection: Selection::Both,
            render: Render::Clean,
        };
        let search = SearchQuery {
            cursor: LineNo::START,
            last: None,
            selection: Selection::Both,
            context: 0,
            max_matches: 1,
            max_bytes: 1000,
        };
        let refusals = [
            ("tail", job.tail(&query, &Wait::default()).await.err()),
            ("read", job.read(&page).await.err()),
            ("search", job.search(search, pattern.clone()).await.err()),
            ("lines", job.lines().await.err()),
            ("follow", job.follow().await.err()),
            ("processes", job.processes().await.err()),
        ];
        for (read, refused) in refusals {
            assert!(
                matches!(refused, Some(Error::Refused(Refusal::Policy(_)))),
                "{read}: {refused:?}"
            );
        }
    }

    let readable = WITHOUT_LINES.replace("\"wait\"", "\"wait\", \"tail\"");
    std::fs::write(&file, readable).unwrap();
    jobs.reload_policy().await;
    let mut lines = started.lines().await.unwrap();
    assert_eq!(lines.next().await.unwrap().unwrap().text, "a word");
    jobs.shutdown().await;
}

#[tokio::test]
async fn a_caller_does_not_learn_of_hosts_and_templates_that_it_may_not_use() {
    let hidden = r#"
[templates.secret-restart]
command = "echo {zone}"
parameters.zone = { text = 10 }
"#;
    let (sshd, _) = sshd_with(&format!("{RULES}{hidden}")).await;
    let server = server(&sshd);
    let agent = server.caller(&sshd, "agent1", &[]);

    let mut replies = Vec::new();
    for template in ["secret-restart", "secret-restrat"] {
        let request = json!({"host": "app1", "template": template, "params": {"nowhere": "x"}});
        let (status, reply) = agent.call("run", request);
        let text = reply.to_string();
        assert!(
            !text.contains("zone") && !text.contains("did you mean"),
            "{text}"
        );
        replies.push((status, reply["code"].clone()));
    }
    assert_eq!(replies[0], replies[1], "hidden, and missing");
    let to = |host: &str| json!({"host": host, "command": "true"});
    let to_list = |host: &str| json!({"hosts": [host], "command": "true"});
    let with_secret = |host: &str| json!({"host": host, "command": "true", "secret_stdin": "db"});
    let list_with_secret =
        |host: &str| json!({"hosts": [host], "command": "true", "secret_stdin": "db"});
    let requests: [&dyn Fn(&str) -> Value; 4] = [&to, &to_list, &with_secret, &list_with_secret];
    let calls = requests.iter().flat_map(|request| [("run", request), ("spawn", request)]);
    for (verb, request) in calls {
        let [hidden, missing] = ["other1", "other9"].map(|host| {
            let (status, reply) = agent.call(verb, request(host));
            (status, reply.to_string().replace(host, "HOST"))
        });
        assert_eq!(hidden, missing, "{verb}");
        assert!(!hidden.1.contains("did you mean"), "{hidden:?}");
    }
    // A caller who may use them is helped.
    let alice = server.caller(&sshd, "alice", &[]);
    let (_, reply) = alice.call("run", json!({"host": "othr1", "command": "true"}));
    assert!(
        reply["hint"].as_str().unwrap().contains("other1"),
        "{reply}"
    );
}

#[tokio::test]
async fn a_file_is_not_read_by_the_errors_of_a_caller_who_may_only_write_it() {
    let writer = r#"
[[rules]]
name = "write"
callers = ["writer", "local"]
verbs = ["put", "edit"]
"#;
    let (sshd, _) = sshd_with(writer).await;
    let server = server(&sshd);
    let writer = server.caller(&sshd, "writer", &[]);
    let file = sshd.path("secrets");
    let content = "password = hunter2\n";
    std::fs::write(&file, content).unwrap();
    let path = file.display().to_string();

    let edit = json!({
        "host": "app1", "path": path, "edits": [{"old": "password = x", "new": "y"}],
    });
    let (_, reply) = writer.call("put", edit);
    assert_eq!(reply["code"], "edit_not_found", "{reply}");
    assert!(!reply.to_string().contains("hunter2"), "{reply}");
    let digest = sshjobs_core::jobs::Digest::of(content.as_bytes()).to_string();
    let none = "0".repeat(64);
    for change in [
        json!({"text": "new"}),
        json!({"edits": [{"old": "password", "new": "y"}]}),
    ] {
        let mut request = json!({"host": "app1", "path": path, "if_sha256": none});
        request.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        let (_, reply) = writer.call("put", request);
        assert_eq!(reply["code"], "changed_meanwhile", "{reply}");
        assert!(!reply.to_string().contains(&digest), "{reply}");
    }
    let options = options(&sshd);
    let options = options.each_ref().map(String::as_str);
    let edited = sshjobs(
        &sshd,
        &[&options[..], &["edit", &format!("app1:{path}")]].concat(),
    );
    let stderr = String::from_utf8_lossy(&edited.stderr);
    assert!(stderr.contains("may not use \"get\""), "{stderr}");
}

#[tokio::test]
async fn run_on_several_hosts_takes_the_verb_spawn_too() {
    let rules = r#"
[[rules]]
name = "run"
callers = ["runner"]
verbs = ["run", "wait", "tail", "read"]
commands = "any"

[[rules]]
name = "spawn"
callers = ["spawner"]
verbs = ["spawn"]
commands = "any"

[[rules]]
name = "both"
callers = ["both"]
verbs = ["run", "spawn"]
commands = "any"
"#;
    let (sshd, _) = sshd_with(rules).await;
    let server = server(&sshd);
    let on_many = json!({"hosts": ["app1"], "command": "true"});
    let caller = |name| server.caller(&sshd, name, &[]);
    let runner = caller("runner");

    check_denied(&runner, "run", on_many.clone(), "may not use \"spawn\"");
    check_denied(
        &caller("spawner"),
        "run",
        on_many.clone(),
        "may not use \"run\"",
    );
    caller("both").ok("run", on_many);
    runner.ok("run", json!({"host": "app1", "command": "true"}));
}

#[tokio::test]
async fn files_of_rules_that_every_user_may_change_are_refused() {
    let (sshd, file) = sshd_with(RULES).await;
    for name in ["policy.toml", "config.toml"] {
        let file = file.with_file_name(name);
        std::fs::set_permissions(&file, PermissionsExt::from_mode(0o666)).unwrap();

        let (code, _, stderr) = policy_command(&sshd, &["check"]);

        assert_ne!(code, 0, "{name}");
        assert!(stderr.contains("all users may change it"), "{stderr}");
        std::fs::set_permissions(&file, PermissionsExt::from_mode(0o644)).unwrap();
    }
    assert_eq!(policy_command(&sshd, &["check"]).0, 0);
}

#[tokio::test]
async fn a_template_is_listed_and_run_with_its_parameters_by_an_agent() {
    let (sshd, _) = sshd_with(RULES).await;
    let server = server(&sshd);
    let agent = server.caller(&sshd, "agent1", &[]);

    let listed = agent.ok("hosts", json!({}));
    assert_eq!(listed["hosts"].as_array().unwrap().len(), 1, "{listed}");
    assert_eq!(listed["hosts"][0]["templates"], json!(["count", "say"]));
    assert_eq!(listed["templates"][1]["description"], "Print a word");
    assert_eq!(
        listed["templates"][0]["params"]["from"],
        "a whole number from 1 to 10; default 1"
    );

    let word = r#"a'b "c" $HOME `id` \ ! ; *"#;
    let say = json!({"host": "app1", "template": "say", "params": {"word": word}});
    assert_eq!(agent.ok("run", say)["head"], json!([word]));
    let count = json!({"host": "app1", "template": "count", "params": {"to": 3}});
    assert_eq!(agent.ok("run", count)["head"], json!(["1", "2", "3"]));
}

#[tokio::test]
async fn what_a_template_does_not_accept_is_refused() {
    let (sshd, _) = sshd_with(RULES).await;
    let server = server(&sshd);
    let agent = server.caller(&sshd, "agent1", &[]);
    let of = |params: Value| json!({"host": "app1", "template": "count", "params": params});
    for (request, code, words) in [
        (
            of(json!({})),
            "invalid_argument",
            "the parameter to is missing",
        ),
        (
            of(json!({"to": 101})),
            "invalid_argument",
            "a whole number from 1 to 100",
        ),
        (
            of(json!({"to": "3; id"})),
            "invalid_argument",
            "a whole number from 1 to 100",
        ),
        (
            of(json!({"to": 3, "x": 1})),
            "invalid_argument",
            "there is no parameter x",
        ),
        (
            json!({"host": "app1", "template": "cuont", "params": {}}),
            "invalid_argument",
            "the policy has no such template",
        ),
        (
            json!({"host": "app1", "template": "count", "command": "id", "params": {"to": 3}}),
            "invalid_argument",
            "command and template are both given",
        ),
        (
            json!({"host": "app1", "template": "count", "params": {"to": 3}, "cwd": "/"}),
            "policy_denied",
            "does not let a call set cwd",
        ),
        (
            json!({"host": "app1", "template": "count", "params": {"to": 3}, "env": {"X": "1"}}),
            "policy_denied",
            "does not let a call set env",
        ),
        (
            json!({"host": "app1", "template": "count", "params": {"to": 3}, "become": "root"}),
            "policy_denied",
            "does not let a call set become",
        ),
        (
            json!({"host": "app1", "template": "count", "params": {"to": 3}, "stdin": "x"}),
            "policy_denied",
            "does not let a call set stdin",
        ),
        (
            json!({"host": "app1", "template": "count", "params": {"to": 3}, "pty": true}),
            "policy_denied",
            "does not let a call set pty",
        ),
    ] {
        let (_, reply) = agent.call("run", request.clone());
        let message = reply["message"].as_str().unwrap_or_default();
        assert_eq!(reply["code"], code, "{request}: {reply}");
        assert!(message.contains(words), "{request}: {message}");
    }
}

#[tokio::test]
async fn a_call_of_a_template_adds_no_commands_and_no_restarts() {
    let (sshd, _) = sshd_with(RULES).await;
    let server = server(&sshd);
    let agent = server.caller(&sshd, "agent1", &[]);
    for (option, value) in [
        ("env_setup", json!("id")),
        ("restart", json!("always")),
        ("warn", json!("KILL@1")),
    ] {
        let mut request =
            json!({"host": "app1", "template": "count", "params": {"to": 3}, "timeout_s": 9});
        request[option] = value;
        let (_, reply) = agent.call("run", request);
        let message = reply["message"].as_str().unwrap_or_default();
        assert_eq!(reply["code"], "policy_denied", "{option}: {reply}");
        let words = format!("does not let a call set {option}");
        assert!(message.contains(&words), "{option}: {message}");
    }
}

#[tokio::test]
async fn a_rule_limits_jobs_time_and_bytes() {
    let (sshd, _) = sshd_with(RULES).await;
    let server = server(&sshd);
    let agent = server.caller(&sshd, "agent1", &[]);
    let slow = json!({"host": "app1", "template": "count", "params": {"to": 1, "pause": 60}});

    let first = agent.ok("spawn", slow.clone());
    agent.ok("spawn", slow.clone());
    check_denied(
        &agent,
        "spawn",
        slow.clone(),
        "allows at most 2 running jobs",
    );
    agent.ok(
        "signal",
        json!({"job_id": first["job_id"], "signal": "KILL"}),
    );
    eventually("the job is over", async || {
        agent.call("spawn", slow.clone()).0 == 200
    })
    .await;

    let timed = server.caller(&sshd, "timed", &[]);
    let long = json!({"host": "app1", "command": "true", "timeout_s": 100});
    check_denied(&timed, "run", long, "allows a time limit of at most 60 s");
    let short = json!({"host": "app1", "command": "true", "timeout_s": 10});
    timed.ok("run", short.clone());
    timed.ok("run", short.clone());
    check_denied(&timed, "run", short, "allows at most 2 starts a minute");

    let uploader = server.caller(&sshd, "uploader", &[]);
    let path = sshd.path("limited").display().to_string();
    let put = |text: &str| json!({"host": "app1", "path": path, "text": text});
    uploader.ok("put", put("0123456789"));
    let words = "has more than 10 bytes, the most that the policy allows";
    check_denied(&uploader, "put", put("0123456789a"), words);
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "0123456789");
    std::fs::write(&path, "0123456789a").unwrap();
    check_denied(
        &uploader,
        "get",
        json!({"host": "app1", "path": path}),
        words,
    );
}

/// Files of /proc have no size, and a host may announce any.
#[tokio::test]
async fn the_limit_on_bytes_holds_for_what_arrives() {
    let (sshd, _) = sshd_with(RULES).await;
    let server = server(&sshd);
    let uploader = server.caller(&sshd, "uploader", &[]);
    let words = "has more than 10 bytes, the most that the policy allows";
    let endless = json!({"host": "app1", "path": "/proc/version"});
    check_denied(&uploader, "get", endless, words);
}

#[tokio::test]
async fn the_limit_on_bytes_holds_for_each_file_of_a_directory() {
    let rules = RULES
        .replace("[\"alice\", \"local\"]", "[\"alice\"]")
        .replace("uploader", "local");
    let (sshd, _) = sshd_with(&rules).await;
    let options = options(&sshd);
    let options = options.each_ref().map(String::as_str);
    let (here, there, back) = (sshd.path("here"), sshd.path("there"), sshd.path("back"));
    std::fs::create_dir(&here).unwrap();
    std::fs::write(here.join("small"), "0123456789").unwrap();
    std::fs::write(here.join("large"), "0123456789a").unwrap();
    let [here_word, there_word, back_word] =
        [&here, &there, &back].map(|path| path.display().to_string());
    let on_host = |path: &str| format!("app1:{path}");

    let put = ["put", "-r", &here_word, &on_host(&there_word)];
    assert!(!sshjobs(&sshd, &[&options[..], &put].concat()).status.success());
    assert!(there.join("small").exists());
    assert!(!there.join("large").exists());
    let get = ["get", "-r", &on_host(&here_word), &back_word];
    assert!(!sshjobs(&sshd, &[&options[..], &get].concat()).status.success());
    assert!(back.join("small").exists());
    assert!(!back.join("large").exists());
}

#[tokio::test]
async fn no_other_name_of_a_denied_machine_is_allowed() {
    let rules = "
[[rules]]
name = \"all\"
commands = \"any\"
[[rules]]
name = \"never production\"
effect = \"deny\"
hosts = [\"tag:prod\"]
";
    let (sshd, _) = sshd_with(rules).await;
    let server = server(&sshd);
    let ci = server.caller(&sshd, "ci", &[]);
    for name in ["other1", "app1", "web1"] {
        let run = json!({"host": name, "command": "true"});
        check_denied(
            &ci,
            "run",
            run,
            "the rule \"never production\" of the policy denies it",
        );
    }
}

#[tokio::test]
async fn a_stdio_agent_and_the_command_line_are_denied_alike() {
    let rules = RULES
        .replace("[\"alice\", \"local\"]", "[\"alice\"]")
        .replace("agent*", "local");
    let (sshd, _) = sshd_with(&rules).await;
    let options = options(&sshd);
    let options = options.each_ref().map(String::as_str);
    let ran = sshjobs(
        &sshd,
        &[&options[..], &["run", "app1", "--", "true"]].concat(),
    );
    assert_eq!(ran.status.code(), Some(255));
    let stderr = String::from_utf8(ran.stderr).unwrap();
    assert!(
        stderr.contains("local may not use \"run\" on \"app1\""),
        "{stderr}"
    );
    let say = [
        "run",
        "app1",
        "--template",
        "say",
        "--param",
        "word=hello world",
    ];
    assert_eq!(
        told(&sshjobs(&sshd, &[&options[..], &say].concat())),
        "hello world\n"
    );
    let spawned = told(&sshjobs(
        &sshd,
        &[
            &options[..],
            &["spawn", "app1", "--template", "say", "--param", "word=x"],
        ]
        .concat(),
    ));
    assert!(spawned.starts_with("app1-"), "{spawned}");

    let mut client = McpClient::with_options(&sshd.ssh_config(), &options);
    let call = client.call("ssh_run", json!({"host": "app1", "command": "true"}));
    assert_eq!(
        call["_meta"]["sshjobs/error"]["code"], "policy_denied",
        "{call}"
    );
    let say = json!({"host": "app1", "template": "say", "params": {"word": "x"}});
    assert_eq!(client.ok("ssh_run", say)["head"], json!(["x"]));
}

#[tokio::test]
async fn a_bad_file_leaves_the_old_policy_in_force_and_is_reported() {
    let (sshd, file) = sshd_with(RULES).await;
    let server = server(&sshd);
    let agent = server.caller(&sshd, "agent1", &[]);
    let say = json!({"host": "app1", "template": "say", "params": {"word": "x"}});
    agent.ok("run", say.clone());

    std::fs::write(&file, "[[rules]]\nname = \"broken\"\nverbs = [\"raed\"]\n").unwrap();
    let ready = || agent.get("/readyz").into_body().read_to_string().unwrap();
    eventually("the mistake is reported", async || {
        ready().contains("error: the policy")
    })
    .await;
    agent.ok("run", say.clone());

    std::fs::write(&file, RULES.replace("agent*", "robot*")).unwrap();
    eventually("the new policy is in force", async || {
        agent.call("run", say.clone()).0 == 403
    })
    .await;
    assert_eq!(ready(), "ready\n");
}

#[tokio::test]
async fn a_server_does_not_start_with_a_bad_policy() {
    let (sshd, _) = sshd_with("[[rules]]\nname = \"broken\"\nverbs = [\"raed\"]\n").await;
    let options = options(&sshd);
    let options = options.each_ref().map(String::as_str);
    let started = sshjobs(
        &sshd,
        &[&options[..], &["serve", "--http", "127.0.0.1:0"]].concat(),
    );
    assert_eq!(started.status.code(), Some(2));
    let stderr = String::from_utf8(started.stderr).unwrap();
    assert!(
        stderr.contains("policy.toml:3: unknown verb \"raed\"; did you mean \"read\"?"),
        "{stderr}"
    );
}

#[tokio::test]
async fn a_caller_who_may_only_start_jobs_gets_their_ids() {
    let policy = "[[rules]]\nname = \"start\"\ncallers = [\"local\"]\nverbs = [\"spawn\"]\ncommands = \"any\"\n";
    let (sshd, _) = sshd_with(policy).await;
    let options = options(&sshd);
    let options = options.each_ref().map(String::as_str);
    for json in [false, true] {
        let arguments: &[&str] = if json {
            &["spawn", "--json"]
        } else {
            &["spawn"]
        };
        let started = sshjobs(
            &sshd,
            &[&options[..], arguments, &["app1", "--", "true"]].concat(),
        );
        let (stdout, stderr) = (
            String::from_utf8_lossy(&started.stdout),
            String::from_utf8_lossy(&started.stderr),
        );
        assert_eq!(started.status.code(), Some(0), "{stderr}");
        assert!(stderr.contains("may not use \"wait\""), "{stderr}");
        let id = if json {
            serde_json::from_str::<Value>(&stdout).unwrap()["job_id"]
                .as_str()
                .unwrap()
                .to_owned()
        } else {
            stdout.trim().to_owned()
        };
        assert!(id.starts_with("app1-"), "{stdout}");
    }
}

#[tokio::test]
async fn a_policy_is_checked_explained_and_tested() {
    let (sshd, file) = sshd_with(RULES).await;
    let (code, stdout, stderr) = policy_command(&sshd, &["check"]);
    assert_eq!((code, stderr.as_str()), (0, ""), "{stdout}");
    assert!(
        stdout.ends_with("policy.toml: 5 rules, no mistake\n"),
        "{stdout}"
    );

    let explain = [
        "explain",
        "agent1",
        "app1",
        "--template",
        "say",
        "--param",
        "word=a b",
    ];
    let (code, stdout, _) = policy_command(&sshd, &explain);
    assert_eq!(code, 0);
    assert!(stdout.contains("allowed: run by agent1"), "{stdout}");
    assert!(stdout.contains("rules    agents use templates"), "{stdout}");
    assert!(stdout.contains(r"command  printf '%s\n' a\ b"), "{stdout}");
    let (code, stdout, _) = policy_command(&sshd, &["explain", "agent1", "app1", "--", "true"]);
    assert_eq!(code, 1);
    assert!(stdout.contains("denied: run by agent1"), "{stdout}");

    let (code, stdout, _) = policy_command(&sshd, &["test"]);
    assert_eq!((code, stdout.as_str()), (0, "2 of 2 cases pass\n"));
    std::fs::write(
        &file,
        RULES.replace("expect = \"deny\"", "expect = \"allow\""),
    )
    .unwrap();
    let (code, stdout, _) = policy_command(&sshd, &["test"]);
    assert_eq!(code, 1);
    assert!(
        stdout.contains("expected allow, decided deny (no rule allows it)"),
        "{stdout}"
    );
    assert!(stdout.ends_with("1 of 2 cases pass\n"), "{stdout}");
}

#[tokio::test]
async fn a_policy_is_reloaded_under_load_without_a_wrong_decision() {
    let (sshd, file) = sshd_with(RULES).await;
    let server = server(&sshd);
    let agent = server.caller(&sshd, "agent1", &[]);
    let writer = std::thread::spawn(move || {
        for round in 0..6 {
            // Both allow the agent's template, and none a free command.
            let other = RULES.replace("agents use templates", "agents use them");
            let rules = if round % 2 == 0 {
                other
            } else {
                RULES.to_owned()
            };
            std::fs::write(&file, rules).unwrap();
            std::thread::sleep(Duration::from_millis(1700));
        }
    });
    let free = json!({"host": "app1", "command": "true"});
    let say = json!({"host": "app1", "template": "say", "params": {"word": "x"}});
    while !writer.is_finished() {
        assert_eq!(agent.call("run", say.clone()).0, 200);
        assert_eq!(agent.call("run", free.clone()).0, 403);
    }
    writer.join().unwrap();
}

/// Shells that may be a login shell. `make test` installs them.
const SHELLS: [&str; 7] = ["sh", "dash", "bash", "ksh", "csh", "tcsh", "fish"];

/// Values with all characters that mean something to a shell, and random ones.
fn values() -> Vec<String> {
    let mut values: Vec<String> = (' '..='~').map(String::from).collect();
    values.extend((' '..='~').map(|c| format!("a{c}{c}b{c}")));
    values.extend(
        [
            "",
            "grün 東京",
            "$(id)",
            "`id`",
            "a\\",
            "!!",
            "~",
            "{a,b}",
            "-n",
            "%self",
            "\u{3000}-version",
            "\u{2003}x",
            "x\u{2003}",
            "\u{1680}\u{2028}",
        ]
        .map(str::to_owned),
    );
    let mut runner = TestRunner::deterministic();
    let any_text = proptest::string::string_regex("[ -~é東\u{a0}\u{2003}\u{3000}]{0,40}").unwrap();
    values.extend((0..500).map(|_| any_text.new_tree(&mut runner).unwrap().current()));
    values
}

#[test]
fn a_value_of_a_template_is_one_word_of_every_shell() {
    let values = values();
    // A command line with all values at once, each on a line of its own in the output.
    let words: Vec<String> = values.iter().map(|value| quote_for_any_shell(value)).collect();
    let command = format!("printf '[%s]\\n' {}", words.join(" "));
    let expected: String = values.iter().map(|value| format!("[{value}]\n")).collect();
    for shell in SHELLS {
        let output = Command::new(shell).args(["-c", &command]).output();
        let output = output.unwrap_or_else(|error| panic!("`make test` installs {shell}: {error}"));
        let printed = String::from_utf8(output.stdout).unwrap();
        for (printed, expected) in printed.lines().zip(expected.lines()) {
            assert_eq!(printed, expected, "{shell}");
        }
        assert_eq!(
            printed,
            expected,
            "{shell}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
}
