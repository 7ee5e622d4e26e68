//! `ssh_look`: commands that only look, for clients that allow it for good.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::Path;

use serde_json::{Value, json};

use crate::support::McpClient;
use crate::support::Sshd;
use crate::support::server::{Caller, Server};

const RULES: &str = r#"
[[rules]]
name = "looks"
callers = ["agent*"]
verbs = ["look"]

[[rules]]
name = "people restart"
callers = ["person"]
commands = ["restart"]

[templates.logs]
command = "echo log of {unit}"
parameters.unit = { word = "[a-z]+" }
read_only = true

[templates.restart]
command = "echo restarted"
"#;

async fn agent() -> (Sshd, Server, Caller) {
    let sshd = Sshd::start().await;
    let server = Server::start(&sshd);
    let agent = server.caller(&sshd, "agent1", &[]);
    (sshd, server, agent)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_look_runs_without_a_shell_and_is_marked_as_read_only() {
    let sshd = Sshd::start().await;
    std::fs::write(sshd.path("a file"), "one\ntwo $HOME\n").unwrap();
    let mut client = McpClient::start(&sshd.ssh_config());
    let listed = client.request("tools/list", json!({}))["result"]["tools"].clone();
    let tool = listed
        .as_array()
        .unwrap()
        .iter()
        .find(|tool| tool["name"] == "ssh_look")
        .unwrap();
    assert_eq!(tool["annotations"]["readOnlyHint"], true, "{tool}");

    let file = sshd.path("a file").display().to_string();
    let seen = client.call(
        "ssh_look",
        json!({"host": "web1", "argv": ["grep", "-n", "$HOME", file]}),
    );
    assert_eq!(
        seen["structuredContent"]["head"],
        json!(["2:two $HOME"]),
        "{seen}"
    );
    let directory = sshd.path("").display().to_string();
    let seen = client.call(
        "ssh_look",
        json!({"host": "web1", "argv": ["wc", "-l", "a file"], "cwd": directory}),
    );
    assert_eq!(
        seen["structuredContent"]["head"],
        json!(["2 a file"]),
        "{seen}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn what_may_act_is_refused_with_what_to_use() {
    let (sshd, _server, agent) = agent().await;
    let made = sshd.path("made").display().to_string();
    for (argv, instead) in [
        (json!(["touch", made]), "ssh_run"),
        (json!(["find", "/tmp", "-fprint", made]), "-printf"),
        (
            json!(["git", "log", format!("--output={made}")]),
            "--oneline",
        ),
        (json!(["less", "/etc/passwd"]), "head, tail or cat"),
        (json!(["sh", "-c", format!("touch {made}")]), "ssh_run"),
        (json!([]), "begin with one of"),
    ] {
        let (status, refused) = agent.call("look", json!({"host": "web1", "argv": argv}));
        assert_eq!(
            (status, &refused["code"]),
            (400, &json!("not_read_only")),
            "{refused}"
        );
        assert!(
            refused["hint"].as_str().unwrap().contains(instead),
            "{refused}"
        );
    }
    for odd in [
        json!({"argv": ["ls"], "become": "root"}),
        json!({"argv": ["ls"], "stdin": "x"}),
        json!({"argv": ["ls"], "env": {"A": "b"}}),
        json!({"argv": ["ls"], "params": {"a": "b"}}),
    ] {
        let mut request = odd;
        request["host"] = json!("web1");
        assert_eq!(agent.call("look", request.clone()).0, 400, "{request}");
    }
    assert!(!sshd.path("made").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_settings_of_an_account_run_no_program() {
    let (sshd, _server, agent) = agent().await;
    let repository = sshd.path("repository");
    let made = sshd.path("made").display().to_string();
    let script = format!(
        "set -e; git init -q {0}; cd {0}; git config user.email a@b; git config user.name a; echo one > file; \
         git add file; git commit -qm first; echo two > file; \
         printf '#!/bin/sh\\ntouch {made}; cat\\n' > evil; chmod +x evil; \
         for key in core.fsmonitor core.pager diff.external gpg.program diff.x.textconv core.editor; do \
         git config $key {0}/evil; done; git config log.showSignature true; \
         echo 'file diff=x' > .gitattributes",
        repository.display()
    );
    let prepared = agent.ok("run", json!({"host": "web1", "command": script}));
    assert_eq!(prepared["exit_status"], 0, "{prepared}");
    let directory = repository.display().to_string();
    for argv in [
        json!(["git", "status", "--short"]),
        json!(["git", "log", "-p", "-3"]),
        json!(["git", "diff"]),
        json!(["git", "show", "HEAD"]),
    ] {
        let seen = agent.ok(
            "look",
            json!({"host": "web1", "argv": argv, "cwd": directory}),
        );
        assert_eq!(seen["exit_status"], 0, "{seen}");
        assert!(!sshd.path("made").exists(), "{argv}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_policy_decides_on_looks_and_names_templates_that_only_look() {
    let sshd = Sshd::start().await;
    std::fs::write(sshd.path("policy.toml"), RULES).unwrap();
    let policy = sshd.path("policy.toml").display().to_string();
    let server = Server::with(&sshd, &["--policy", &policy]);
    let agent = server.caller(&sshd, "agent1", &[]);
    let other = server.caller(&sshd, "other", &[]);
    let look = |what: Value| {
        let mut request = what;
        request["host"] = json!("web1");
        request
    };

    assert_eq!(
        agent.ok("look", look(json!({"argv": ["uname"]})))["exit_status"],
        0
    );
    let logs = agent.ok(
        "look",
        look(json!({"template": "logs", "params": {"unit": "nginx"}})),
    );
    assert_eq!(logs["head"], json!(["log of nginx"]), "{logs}");
    assert_eq!(
        agent.call("look", look(json!({"template": "restart"}))).0,
        400,
        "unknown"
    );
    assert_eq!(agent.call("run", look(json!({"command": "uname"}))).0, 403);
    assert_eq!(other.call("look", look(json!({"argv": ["uname"]}))).0, 403);
}

#[tokio::test(flavor = "multi_thread")]
async fn files_are_searched_by_pattern_below_a_path() {
    let (sshd, _server, agent) = agent().await;
    let tree = sshd.path("tree");
    std::fs::create_dir_all(tree.join("a b")).unwrap();
    std::fs::write(tree.join("one.conf"), "# none\nlisten 80\nListen 443\n").unwrap();
    std::fs::write(tree.join("a b/two:3.conf"), "x\tlisten 8080\n").unwrap();
    std::fs::write(tree.join("binary"), b"listen\0\x01\x02").unwrap();
    let path = tree.display().to_string();
    let search = |what: Value| {
        let mut request = what;
        request["host"] = json!("web1");
        request["path"] = json!(path);
        agent.ok("search", request)
    };
    let found = |reply: &Value| {
        let mut found: Vec<String> = reply["matches"]
            .as_array()
            .unwrap()
            .iter()
            .map(|one| {
                let file = one["path"].as_str().unwrap().strip_prefix(&path).unwrap().to_owned();
                format!("{file} {} {}", one["line_no"], one["text"])
            })
            .collect();
        found.sort();
        found
    };

    assert_eq!(
        found(&search(json!({"pattern": r"(?i)^\s*listen \d+$"}))),
        ["/one.conf 2 \"listen 80\"", "/one.conf 3 \"Listen 443\""]
    );
    assert_eq!(
        found(&search(json!({"pattern": "listen 8080"}))),
        ["/a b/two:3.conf 1 \"x\\tlisten 8080\""]
    );
    let none = search(json!({"pattern": "nowhere"}));
    assert_eq!(none["matches"], json!([]), "{none}");
    std::fs::write(tree.join("many"), "listen\n".repeat(100_000)).unwrap();
    let cut = search(json!({"pattern": "listen", "max_matches": 7}));
    assert_eq!(
        (cut["matches"].as_array().unwrap().len(), &cut["has_more"]),
        (7, &json!(true)),
        "{cut}"
    );
    for (request, status) in [
        (json!({"host": "web1", "pattern": "x"}), 400),
        (
            json!({"host": "web1", "path": "/", "job_id": "x", "pattern": "x"}),
            400,
        ),
        (json!({"host": "web1", "path": path, "pattern": "("}), 400),
        (
            json!({"host": "web1", "path": "/dev/zero", "pattern": "x"}),
            400,
        ),
        (
            json!({"host": "web1", "path": "/does/not/exist", "pattern": "x"}),
            404,
        ),
    ] {
        let (got, refused) = agent.call("search", request.clone());
        assert_eq!(got, status, "{request}: {refused}");
    }
}

/// Makes a directory with all programs of this machine but ripgrep.
fn without_ripgrep(sshd: &Sshd) {
    let programs = sshd.path("programs");
    std::fs::create_dir(&programs).unwrap();
    for program in std::fs::read_dir("/usr/bin").unwrap() {
        let name = program.unwrap().file_name();
        if name != "rg" {
            symlink(Path::new("/usr/bin").join(&name), programs.join(&name)).unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn file_names_of_any_bytes_are_found_by_ripgrep_and_by_grep() {
    let other = Sshd::start().await;
    without_ripgrep(&other);
    let path = format!("SetEnv PATH={}", other.path("programs").display());
    for (sshd, ripgrep) in [(Sshd::start().await, 0), (Sshd::with(&path).await, 127)] {
        let server = Server::start(&sshd);
        let agent = server.caller(&sshd, "agent", &[]);
        let has_it = agent.ok(
            "run",
            json!({"host": "web1", "command": "command -v rg || exit 127"}),
        );
        assert_eq!(has_it["exit_status"], ripgrep, "{has_it}");
        let tree = sshd.path("tree");
        std::fs::create_dir(&tree).unwrap();
        let names: [&[u8]; 4] = [b"caf\xe9.log", b"two\nlines:3:x", b"a 'b' \"$c\"", b"-n"];
        for name in names {
            let file = tree.join(OsStr::from_bytes(name));
            std::fs::write(file, b"no\nwanted: \xe9\n").unwrap();
        }
        let dashes = json!({"host": "web1", "path": tree, "pattern": "--pre=touch x"});
        assert_eq!(agent.ok("search", dashes)["matches"], json!([]));
        let request = json!({"host": "web1", "path": tree, "pattern": "^wanted"});
        let reply = agent.ok("search", request);
        let matches = reply["matches"].as_array().unwrap();
        let mut found: Vec<&str> = matches
            .iter()
            .map(|one| {
                assert_eq!(
                    (&one["line_no"], &one["text"]),
                    (&json!(2), &json!("wanted: \u{fffd}"))
                );
                one["path"].as_str().unwrap().rsplit('/').next().unwrap()
            })
            .collect();
        found.sort_unstable();
        assert_eq!(
            found,
            ["-n", "a 'b' \"$c\"", r"caf\xe9.log", r"two\nlines:3:x"]
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_command_shows_its_first_error_and_the_next_step() {
    let (sshd, _server, agent) = agent().await;
    let build = "seq 3000; echo 'ok 1' >&2; echo 'src/a.c:3: error: x undeclared' >&2; echo 'note: see b' >&2; \
                 seq 3000; exit 2";
    let failed = agent.ok("run", json!({"host": "web1", "command": build}));
    assert_eq!(
        failed["first_error"]["lines"],
        json!(["ok 1", "src/a.c:3: error: x undeclared", "note: see b"]),
        "{failed}"
    );
    let job = failed["job_id"].clone();
    let waited = agent.ok("wait", json!({"job_ids": [job]}));
    assert_eq!(
        waited["jobs"][0]["first_error"], failed["first_error"],
        "{waited}"
    );
    let detail = agent.ok("jobs", json!({"job_id": job, "detail": "processes"}));
    assert_eq!(
        detail["jobs"][0]["first_error"], failed["first_error"],
        "{detail}"
    );
    let fine = agent.ok(
        "run",
        json!({"host": "web1", "command": "echo error; seq 5000"}),
    );
    assert_eq!(fine["first_error"], Value::Null, "{fine}");

    for (command, said) in [("kill -9 $$", "processes"), ("echo 'it", "argv")] {
        let ran = agent.ok("run", json!({"host": "web1", "command": command}));
        assert!(
            ran["hint"].as_str().unwrap_or_default().contains(said),
            "{ran}"
        );
    }
    drop(sshd);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_reads_times_as_texts_and_what_runs_first() {
    let sshd = Sshd::start().await;
    let mut client = McpClient::start(&sshd.ssh_config());
    let running = client.call("ssh_spawn", json!({"host": "web1", "command": "sleep 100"}));
    let running = running["structuredContent"]["job_id"].clone();
    for _ in 0..3 {
        client.call("ssh_run", json!({"host": "web1", "command": "true"}));
    }

    let listed = client.call("ssh_jobs", json!({"limit": 2}));

    let jobs = listed["structuredContent"]["jobs"].as_array().unwrap();
    assert_eq!((&jobs[0]["job_id"], jobs.len()), (&running, 2), "{listed}");
    assert!(jobs[0]["age"].as_str().unwrap().ends_with('s'), "{listed}");
    assert!(
        jobs[0]["started_at"].is_u64(),
        "programs compute with it: {listed}"
    );
    let text = listed["content"][0]["text"].as_str().unwrap();
    assert!(
        text.contains("\"age\"") && text.contains("Z\"") && !text.contains("started_at\":1"),
        "{text}"
    );
    let capped = client.call("ssh_tail", json!({"job_id": running, "max_bytes": 262_144}));
    assert_eq!(
        capped["structuredContent"]["clamped"][0]["used"], 81_920,
        "{capped}"
    );
}
