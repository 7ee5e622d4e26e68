//! Notifications: who gets them, when, and what happens if a receiver does not answer.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use serde_json::{Value, json};
use sha2::Sha256;

use crate::support::command::{sshjobs, told};
use crate::support::server::Server;
use crate::support::{HOST, Sshd, eventually};

/// A receiver of webhooks, which answers with one status after the other, and then with 204.
struct Hook {
    url: String,
    received: Receiver<Post>,
}

/// A request that it has received.
struct Post {
    path: String,
    headers: Vec<(String, String)>,
    body: String,
}

impl Post {
    fn header(&self, name: &str) -> &str {
        let found = self.headers.iter().find(|(known, _)| known == name);
        found.map_or("", |(_, value)| value.as_str())
    }

    fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap()
    }
}

/// Time limit for a notification to arrive, with two pauses after failures.
const PATIENCE: Duration = Duration::from_secs(40);

impl Hook {
    fn start(statuses: &'static [&'static str]) -> Self {
        Self::on(TcpListener::bind("127.0.0.1:0").unwrap(), statuses)
    }

    /// The thread ends with the process of the test.
    fn on(listener: TcpListener, statuses: &'static [&'static str]) -> Self {
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (sender, received) = channel();
        std::thread::spawn(move || {
            let mut statuses = statuses.iter();
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let mut reader = BufReader::new(stream.try_clone().unwrap());
                let mut line = String::new();
                reader.read_line(&mut line).unwrap();
                let path = line.split(' ').nth(1).unwrap_or_default().to_owned();
                let mut headers = Vec::new();
                loop {
                    let mut line = String::new();
                    reader.read_line(&mut line).unwrap();
                    let Some((name, value)) = line.trim().split_once(": ") else { break };
                    headers.push((name.to_ascii_lowercase(), value.to_owned()));
                }
                let length = headers.iter().find(|(name, _)| name == "content-length");
                let length = length.map_or(0, |(_, value)| value.parse().unwrap());
                let mut body = vec![0; length];
                reader.read_exact(&mut body).unwrap();
                let status = statuses.next().copied().unwrap_or("204 No Content");
                write!(
                    stream,
                    "HTTP/1.1 {status}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
                )
                .unwrap();
                let body = String::from_utf8(body).unwrap();
                if sender
                    .send(Post {
                        path,
                        headers,
                        body,
                    })
                    .is_err()
                {
                    return;
                }
            }
        });
        Self { url, received }
    }

    fn next(&self) -> Post {
        self.received.recv_timeout(PATIENCE).expect("a notification in time")
    }

    /// Waits longer than a server between two looks for a prompt.
    fn gets_nothing_more(&self) -> bool {
        self.received.recv_timeout(Duration::from_millis(2500)).is_err()
    }
}

/// Writes a configuration. Returns its path.
fn configured(sshd: &Sshd, text: &str) -> String {
    let file = sshd.path("notify.toml");
    std::fs::write(&file, text).unwrap();
    file.display().to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_end_of_a_run_is_posted_with_its_facts() {
    let sshd = Sshd::start().await;
    let hook = Hook::start(&[]);
    let url = format!("{}/T0/secret", hook.url);

    let output = sshjobs(
        &sshd,
        &[
            "run",
            "--notify",
            &url,
            HOST,
            "--",
            "echo one; echo two; exit 3",
        ],
    );

    assert_eq!(output.status.code(), Some(3));
    let post = hook.next();
    assert_eq!(post.path, "/T0/secret");
    assert_eq!(post.header("content-type"), "application/json");
    let body = post.json();
    assert_eq!(body["event"], "ended");
    assert_eq!(body["id"], post.header("webhook-id"));
    assert_eq!(body["job"]["exit_status"], 3);
    assert_eq!(body["job"]["has_failed"], true);
    assert_eq!(body["job"]["last_lines"], json!(["one", "two"]));
    assert!(hook.gets_nothing_more());
    let listed = told(&sshjobs(&sshd, &["jobs", "--notify"]));
    assert!(listed.contains("delivered"), "{listed}");
    assert!(!listed.contains("secret"), "{listed}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_gets_the_notification_on_its_stdin() {
    let sshd = Sshd::start().await;
    let file = sshd.path("notified.json").display().to_string();

    told(&sshjobs(
        &sshd,
        &[
            "run",
            "--notify",
            &format!("cat > {file}"),
            HOST,
            "--",
            "true",
        ],
    ));

    let body: Value = serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
    assert_eq!(body["job"]["state"], "exited");
    assert_eq!(body["job"]["has_failed"], false);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_retry_has_the_same_id_and_a_valid_signature() {
    let sshd = Sshd::start().await;
    let hook = Hook::start(&["500 Internal Server Error"]);
    let key = [7; 32];
    let text = format!("whsec_{}\n", BASE64_STANDARD.encode(key));
    std::fs::write(sshd.path("hook.key"), text).unwrap();
    let config = configured(
        &sshd,
        &format!(
            "[notify.targets.ops]\nurl = \"{}\"\nsigning_key_file = \"hook.key\"\n\
             allow_private_addresses = true\n",
            hook.url
        ),
    );
    let server = Server::with(&sshd, &["--config", &config]);
    let caller = server.caller(&sshd, "ci", &[]);

    caller.ok(
        "spawn",
        json!({"host": HOST, "command": "true", "notify": ["ops"]}),
    );

    let first = hook.next();
    let second = hook.next();
    assert_eq!(first.header("webhook-id"), second.header("webhook-id"));
    for post in [first, second] {
        let mut hash = Hmac::<Sha256>::new_from_slice(&key).unwrap();
        let sent_at = post.header("webhook-timestamp");
        hash.update(format!("{}.{sent_at}.{}", post.header("webhook-id"), post.body).as_bytes());
        let expected = format!(
            "v1,{}",
            BASE64_STANDARD.encode(hash.finalize().into_bytes())
        );
        assert_eq!(post.header("webhook-signature"), expected);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_notification_survives_a_restart_of_the_server() {
    let sshd = Sshd::start().await;
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    // No process listens now.
    drop(listener);
    let config = configured(
        &sshd,
        &format!(
            "[notify.targets.ops]\nurl = \"http://{address}\"\nallow_private_addresses = true\n\
             [[notify.rules]]\ntargets = [\"ops\"]\nlabels = [\"deploy\"]\non = [\"failure\"]\n"
        ),
    );
    let server = Server::with(&sshd, &["--config", &config]);
    let caller = server.caller(&sshd, "ci", &[]);
    let spawn = |command: &str, label: &str| {
        let request = json!({"host": HOST, "command": command, "label": label});
        caller.ok("spawn", request)["job_id"].as_str().unwrap().to_owned()
    };
    spawn("exit 0", "deploy");
    spawn("exit 1", "test");
    let failed = spawn("exit 1", "deploy");
    eventually("an attempt has failed", async || {
        let listed = told(&sshjobs(&sshd, &["jobs", "--notify", "--json"]));
        listed.contains("last_error")
    })
    .await;
    server.stop().await;

    let hook = Hook::on(TcpListener::bind(address).unwrap(), &[]);
    let _server = Server::with(&sshd, &["--config", &config]);

    let post = hook.next();
    assert_eq!(post.json()["job"]["job_id"], failed.as_str());
    assert!(hook.gets_nothing_more());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_private_address_is_not_called_and_a_redirect_is_not_followed() {
    let sshd = Sshd::start().await;
    let inner = Hook::start(&[]);
    let location: &'static str = Box::leak(
        format!("307 Temporary Redirect\r\nlocation: {}/stolen", inner.url).into_boxed_str(),
    );
    let statuses: &'static [&'static str] = Box::leak(Box::new([location]));
    let outer = Hook::start(statuses);
    let config = configured(
        &sshd,
        &format!(
            "[notify.targets.private]\nurl = \"{}\"\n[notify.targets.redirect]\nurl = \"{}\"\n\
             allow_private_addresses = true\n",
            inner.url, outer.url
        ),
    );
    let server = Server::with(&sshd, &["--config", &config]);
    let caller = server.caller(&sshd, "ci", &[]);

    caller.ok(
        "spawn",
        json!({"host": HOST, "command": "true", "notify": ["private", "redirect"]}),
    );

    outer.next();
    eventually("both attempts have failed", async || {
        let listed = told(&sshjobs(&sshd, &["jobs", "--notify"]));
        listed.contains("private") && listed.contains("given up") && listed.contains("redirects")
    })
    .await;
    assert!(inner.gets_nothing_more());
}

#[tokio::test(flavor = "multi_thread")]
async fn callers_of_a_server_name_only_targets_of_its_configuration() {
    let sshd = Sshd::start().await;
    let config = configured(
        &sshd,
        "[notify.targets.ops]\nurl = \"https://example.com\"\n",
    );
    let server = Server::with(&sshd, &["--config", &config]);
    let caller = server.caller(&sshd, "ci", &[]);

    for target in ["http://127.0.0.1:1/", "touch /tmp/x", "opps"] {
        let request = json!({"host": HOST, "command": "true", "notify": [target]});
        let (status, body) = caller.call("spawn", request);
        assert_eq!(
            (status, &body["code"]),
            (400, &json!("invalid_argument")),
            "{target}"
        );
        assert!(body["hint"].as_str().unwrap().contains("ops"), "{body}");
    }
    assert_eq!(caller.ok("jobs", json!({}))["total"], 0);
}

/// A server with one rule, whose messages go to a receiver.
fn server_with_rule(sshd: &Sshd, hook: &Hook, rule: &str) -> Server {
    let config = configured(
        sshd,
        &format!(
            "[notify]\npage_url = \"https://jobs.example.com\"\n\
             [notify.targets.ops]\nurl = \"{}\"\nallow_private_addresses = true\n\
             [[notify.rules]]\ntargets = [\"ops\"]\n{rule}\n",
            hook.url
        ),
    );
    Server::with(sshd, &["--config", &config])
}

#[tokio::test(flavor = "multi_thread")]
async fn a_prompt_notifies_once_with_a_link_to_the_job() {
    let sshd = Sshd::start().await;
    let hook = Hook::start(&[]);
    let server = server_with_rule(&sshd, &hook, "on = [\"prompt\"]");
    let caller = server.caller(&sshd, "ci", &[]);

    let command = "printf 'Name? '; read a; printf 'Age? '; read b; sleep 60";
    let job = caller.ok("spawn", json!({"host": HOST, "command": command}));
    let job = job["job_id"].as_str().unwrap();

    let first = hook.next().json();
    assert_eq!(
        (&first["event"], &first["text"]),
        (&json!("prompt"), &json!("Name? "))
    );
    assert_eq!(
        first["job"]["url"],
        format!("https://jobs.example.com/?job={job}")
    );
    caller.ok("write", json!({"job_id": job, "data": "Ada\n"}));
    // Without a terminal, nothing echoes the line feed: both prompts are one unfinished line.
    assert_eq!(hook.next().json()["text"], "Name? Age? ");
    assert!(hook.gets_nothing_more());
    caller.ok("signal", json!({"job_id": job, "signal": "KILL"}));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_silence_notifies_once_until_there_is_output_again() {
    let sshd = Sshd::start().await;
    let hook = Hook::start(&[]);
    let server = server_with_rule(&sshd, &hook, "on = [\"silence\"]\nsilence_s = 1");
    let caller = server.caller(&sshd, "ci", &[]);

    let command = "echo one; sleep 3; echo two; sleep 60";
    let job = caller.ok("spawn", json!({"host": HOST, "command": command}));

    for last_line in ["one", "two"] {
        let body = hook.next().json();
        assert_eq!(
            (&body["event"], &body["seconds"]),
            (&json!("silent"), &json!(1))
        );
        let lines = body["job"]["last_lines"].as_array().unwrap();
        assert_eq!(lines.last(), Some(&json!(last_line)));
    }
    assert!(hook.gets_nothing_more());
    caller.ok("signal", json!({"job_id": job["job_id"], "signal": "KILL"}));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_matching_line_notifies_also_of_a_job_that_ends_at_once() {
    let sshd = Sshd::start().await;
    let hook = Hook::start(&[]);
    let rule = "on = [\"match\"]\npattern = \"^error: \"\nlabels = [\"build\"]";
    let server = server_with_rule(&sshd, &hook, rule);
    let caller = server.caller(&sshd, "ci", &[]);
    let spawn = |label: &str| {
        // Two lines match; the second one comes within the pause.
        let command = "seq 5000; echo 'error: disk full'; seq 5000; echo 'error: again'";
        caller.ok(
            "spawn",
            json!({"host": HOST, "command": command, "label": label}),
        );
    };

    spawn("test");
    spawn("build");

    let body = hook.next().json();
    assert_eq!(body["event"], "matched");
    assert_eq!(body["line_no"], 5001);
    assert_eq!(body["text"], "error: disk full");
    assert_eq!(body["job"]["label"], "build");
    assert!(hook.gets_nothing_more());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_line_that_was_printed_while_the_server_was_down_notifies_later() {
    let sshd = Sshd::start().await;
    let hook = Hook::start(&[]);
    let rule = "on = [\"match\"]\npattern = \"^ready\"";
    let gate = sshd.path("gate").display().to_string();
    let command = format!("until [ -e {gate} ]; do sleep 0.1; done; echo ready; sleep 60");
    let server = server_with_rule(&sshd, &hook, rule);
    let request = json!({"host": HOST, "command": command, "durable": true});
    let job = server.caller(&sshd, "ci", &[]).ok("spawn", request);
    server.stop().await;
    std::fs::write(&gate, "").unwrap();

    let _server = server_with_rule(&sshd, &hook, rule);

    assert_eq!(hook.next().json()["text"], "ready");
    let job = job["job_id"].as_str().unwrap();
    told(&sshjobs(&sshd, &["signal", job, "KILL"]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_is_lost_with_its_server_notifies() {
    let sshd = Sshd::start().await;
    let hook = Hook::start(&[]);
    let server = server_with_rule(&sshd, &hook, "on = [\"failure\"]");
    let caller = server.caller(&sshd, "ci", &[]);
    let job = caller.ok(
        "spawn",
        json!({"host": HOST, "command": "echo x; sleep 60"}),
    );
    // With SIGKILL.
    drop(server);

    let _server = server_with_rule(&sshd, &hook, "on = [\"failure\"]");

    let body = hook.next().json();
    assert_eq!(body["job"]["job_id"], job["job_id"]);
    assert_eq!(
        (&body["job"]["state"], &body["job"]["has_failed"]),
        (&json!("lost"), &json!(true))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_has_succeeded_when_it_exits_and_its_output_is_not_shown() {
    let sshd = Sshd::start().await;
    let run = |command: &str| sshjobs(&sshd, &["run", "--notify", command, HOST, "--", "true"]);

    // The child keeps the descriptors of the command open.
    assert!(run("sleep 5 & exit 0").status.success());
    let failed = run("echo secret-word >&2; exit 7");

    let words = String::from_utf8_lossy(&failed.stderr);
    assert!(words.contains("exit code 7"), "{words}");
    let listed = told(&sshjobs(&sshd, &["jobs", "--notify"]));
    assert!(
        listed.contains("delivered") && listed.contains("exit code 7"),
        "{listed}"
    );
    assert!(
        !listed.contains("secret-word") && !words.contains("secret-word"),
        "{listed}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mistyped_name_starts_nothing() {
    let sshd = Sshd::start().await;

    let output = sshjobs(&sshd, &["run", "--notify", "opz", HOST, "--", "true"]);

    assert_eq!(output.status.code(), Some(2));
    let words = String::from_utf8_lossy(&output.stderr);
    assert!(words.contains("no target has this name"), "{words}");
    assert_eq!(told(&sshjobs(&sshd, &["jobs", "--json"])), "");
}
