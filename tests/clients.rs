//! Clients and servers that are not ours: MCP's own SDKs and its Inspector call every tool on stdio
//! and over HTTP, its conformance suite tries both revisions, and a server in Python proves its
//! host key as none should. `make test-clients` installs them, and says where they are in CLIENTS.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "tests"
)]

mod support;

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::json;
use sshjobs_core::jobs::Limits;
use sshjobs_wire::{Code, HostsRequest, SpawnRequest};
use support::server::{Caller, Server};
use support::{HOST, Sshd, keygen, service};

fn clients() -> PathBuf {
    std::env::var_os("CLIENTS")
        .expect("`make test-clients` sets CLIENTS, and runs this")
        .into()
}

/// A client program, with its environment.
fn program(sshd: &Sshd, interpreter: &str) -> Command {
    let mut command = Command::new(clients().join("venv/bin").join(interpreter));
    command
        .current_dir(clients())
        .env("SSHJOBS", env!("CARGO_BIN_EXE_sshjobs"))
        .env("SSH_CONFIG", sshd.ssh_config())
        .env("XDG_CONFIG_HOME", sshd.path("no-config"))
        .env("XDG_STATE_HOME", sshd.path("state"))
        .env("HOME", sshd.path("home"))
        .stdin(Stdio::null());
    command
}

/// The same for a server that is called over HTTP.
fn over_http(sshd: &Sshd, server: &Server, caller: &Caller, interpreter: &str) -> Command {
    let mut command = program(sshd, interpreter);
    command
        .env("SSHJOBS_URL", format!("{}/mcp", server.url))
        .env("SSHJOBS_TOKEN", &caller.token);
    command
}

/// Runs it to its end, which must be successful and without stderr. Returns its stdout.
fn told(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let (stdout, stderr) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr).into_owned(),
    );
    assert!(
        output.status.success() && stderr.trim().is_empty(),
        "{}\n{stdout}\n{stderr}",
        output.status
    );
    stdout.into_owned()
}

/// How a client and a server come together: as before 2026-07-28, as they both can, and as since
/// then.
const ERAS: [&str; 3] = ["legacy", "auto", "2026-07-28"];

#[tokio::test]
async fn the_python_sdk_makes_every_call() {
    let sshd = Sshd::start().await;
    let server = Server::start(&sshd);
    let caller = server.caller(&sshd, "python", &[]);
    for era in ERAS {
        assert!(told(program(&sshd, "python").args(["python.py", era])).contains("38 calls"));
        let mut client = over_http(&sshd, &server, &caller, "python");
        assert!(told(client.args(["python.py", era])).contains("38 calls"));
    }
}

#[tokio::test]
async fn fastmcp_follows_a_job_from_its_start_to_its_end() {
    let sshd = Sshd::start().await;
    let server = Server::start(&sshd);
    let caller = server.caller(&sshd, "fastmcp", &[]);
    told(over_http(&sshd, &server, &caller, "python").arg("fastmcp_client.py"));
}

#[tokio::test]
async fn version_1_of_the_typescript_sdk_makes_every_call() {
    let sshd = Sshd::start().await;
    let server = Server::start(&sshd);
    let caller = server.caller(&sshd, "typescript1", &[]);
    assert!(told(program(&sshd, "node").arg("typescript1.mjs")).contains("38 calls"));
    assert!(
        told(over_http(&sshd, &server, &caller, "node").arg("typescript1.mjs"))
            .contains("38 calls")
    );
}

#[tokio::test]
async fn version_2_of_the_typescript_sdk_makes_every_call() {
    let sshd = Sshd::start().await;
    let server = Server::start(&sshd);
    let caller = server.caller(&sshd, "typescript2", &[]);
    for era in ERAS {
        assert!(told(program(&sshd, "node").args(["typescript2.mjs", era])).contains("38 calls"));
        let mut client = over_http(&sshd, &server, &caller, "node");
        assert!(told(client.args(["typescript2.mjs", era])).contains("38 calls"));
    }
}

/// The library that changes the clocks of a program, by a file.
fn faketime() -> PathBuf {
    let libraries = std::fs::read_dir("/usr/lib").unwrap();
    let library = libraries
        .map(|entry| entry.unwrap().path().join("faketime/libfaketime.so.1"))
        .find(|library| library.exists());
    library.expect("`make test-clients` installs faketime")
}

/// The clock of the server jumps by an hour, and then the server is another one.
#[tokio::test]
async fn sdks_wait_by_a_task_over_an_hour_and_a_restart() {
    for (interpreter, program) in [("python", "task.py"), ("node", "task.mjs")] {
        let sshd = Sshd::start().await;
        let clock = sshd.path("clock");
        std::fs::write(&clock, "+0").unwrap();
        let library = faketime();
        let variables = [
            ("LD_PRELOAD", library.as_path()),
            ("FAKETIME_TIMESTAMP_FILE", clock.as_path()),
            ("FAKETIME_NO_CACHE", Path::new("1")),
        ];
        let server = Server::in_environment(&sshd, "127.0.0.1:0", &[], &variables);
        let address = server.address().to_owned();
        let caller = server.caller(&sshd, "agent", &[]);
        let spawn = json!({"host": HOST, "command": "read go; exit 5", "durable": true});
        let job = caller.ok("spawn", spawn)["job_id"].as_str().unwrap().to_owned();
        let ask = |server: &Server, verb: &str, name: &str| {
            let mut client = over_http(&sshd, server, &caller, interpreter);
            told(client.args([program, verb, name])).trim().to_owned()
        };

        let task = ask(&server, "begin", &job);
        std::fs::write(&clock, "+1h").unwrap();
        tokio::time::sleep(Duration::from_secs(3)).await;
        assert_eq!(ask(&server, "status", &task), "working");
        let later = caller.ok("spawn", json!({"host": HOST, "command": "true"}));
        let ahead = Duration::from_millis(later["started_at"].as_u64().unwrap())
            - SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        assert!(ahead > Duration::from_mins(50), "{ahead:?}");
        assert_eq!(server.stop().await, Some(0));

        let server = Server::at(&sshd, &address, &[]);
        assert_eq!(ask(&server, "status", &task), "working");
        caller.ok(
            "write",
            json!({"job_id": job, "data": "go", "newline": true}),
        );
        assert_eq!(ask(&server, "finish", &task), "5");
    }
}

#[tokio::test]
async fn the_conformance_suite_of_both_revisions_finds_only_what_is_expected() {
    let sshd = Sshd::start().await;
    let server = Server::with(&sshd, &["--no-auth"]);
    conformance(&sshd, &server.url, "");
}

/// Runs the suite of each revision. Expected failures are in a file whose name begins with
/// `prefix`.
fn conformance(sshd: &Sshd, url: &str, prefix: &str) {
    for revision in ["2025-11-25", "2026-07-28"] {
        let output = program(sshd, "node")
            .args([
                "node_modules/.bin/conformance",
                "server",
                "--requirements",
                revision,
            ])
            .args(["--url", &format!("{url}/mcp")])
            .args([
                "--expected-failures",
                &format!("{prefix}expected-failures-{revision}.yml"),
            ])
            .output()
            .unwrap();
        let shown = String::from_utf8_lossy(&output.stdout);
        let summary = shown.split("=== SUMMARY").last().unwrap();
        assert!(output.status.success(), "{revision}: {summary}");
    }
}

/// A child that is killed when dropped.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

#[tokio::test]
async fn the_suites_own_fixtures_pass_on_our_http_server() {
    let sshd = Sshd::start().await;
    let example = Path::new(env!("CARGO_BIN_EXE_sshjobs"))
        .with_file_name("examples")
        .join("conformance");
    let mut command = Command::new(example);
    let mut child = Killed(
        command
            .arg("127.0.0.1:0")
            .stderr(Stdio::piped())
            .spawn()
            .expect("make test-clients builds it"),
    );
    let mut line = String::new();
    BufReader::new(child.0.stderr.take().unwrap()).read_line(&mut line).unwrap();
    let url = line.split_whitespace().find(|word| word.starts_with("http")).expect("a URL");
    conformance(&sshd, &url.replace("127.0.0.1", "localhost"), "fixtures-");
}

#[tokio::test]
async fn a_public_validator_finds_nothing_wrong_with_the_description_of_the_api() {
    let sshd = Sshd::start().await;
    let server = Server::start(&sshd);
    let document = server
        .caller(&sshd, "ci", &[])
        .get("/v1/openapi.json")
        .into_body()
        .read_to_vec()
        .unwrap();
    let mut validator = program(&sshd, "python")
        .arg("openapi.py")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    validator.stdin.take().unwrap().write_all(&document).unwrap();
    let output = validator.wait_with_output().unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

#[tokio::test]
async fn a_foreign_fuzzer_finds_that_the_api_is_what_its_description_says() {
    let sshd = Sshd::start().await;
    let server = Server::start(&sshd);
    // A caller that can't start anything: only the door is fuzzed.
    let caller = server.caller(&sshd, "fuzzer", &["--hosts", "nowhere"]);
    let output = program(&sshd, "st")
        .args(["--config-file", "schemathesis.toml", "run"])
        .arg(format!("{}/v1/openapi.json", server.url))
        .args(["--url", &format!("{}/v1", server.url)])
        .args([
            "--header",
            &format!("Authorization: Bearer {}", caller.token),
        ])
        .args(["--seed", "1"])
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stdout)
    );
}

fn inspector(sshd: &Sshd) -> Command {
    let mut command = program(sshd, "node");
    let no_config = format!("XDG_CONFIG_HOME={}", sshd.path("no-config").display());
    command.args(["node_modules/.bin/mcp-inspector", "--cli", "-e", &no_config]);
    command
}

/// The Inspector's last argument: how the server is started.
fn server(sshd: &Sshd) -> [String; 5] {
    let config = sshd.ssh_config().display().to_string();
    [
        "--",
        env!("CARGO_BIN_EXE_sshjobs"),
        "--ssh-config",
        &config,
        "serve",
    ]
    .map(str::to_owned)
}

#[tokio::test]
async fn the_inspector_finds_nothing_wrong_with_a_schema() {
    let sshd = Sshd::start().await;
    let http = Server::start(&sshd);
    let caller = http.caller(&sshd, "inspector", &[]);
    let (token, url) = (
        format!("Authorization: Bearer {}", caller.token),
        format!("{}/mcp", http.url),
    );
    for era in ["legacy", "modern"] {
        let strict = ["--strict", "--protocol-era", era, "--method", "tools/list"];
        let tools = told(inspector(&sshd).args(strict).args(server(&sshd)));
        assert!(tools.contains("ssh_forget"), "{tools}");
        let over_http = [
            "--transport",
            "http",
            "--header",
            &token,
            "--server-url",
            &url,
        ];
        let tools = told(inspector(&sshd).args(strict).args(over_http));
        assert!(tools.contains("ssh_forget"), "{tools}");
    }
}

#[tokio::test]
async fn the_inspector_shows_an_error_with_its_hint() {
    let sshd = Sshd::start().await;
    let call = [
        "--method",
        "tools/call",
        "--tool-name",
        "ssh_run",
        "--tool-arg",
        "host=wbe1",
        "command=uptime",
    ];
    let output = inspector(&sshd).args(call).args(server(&sshd)).output().unwrap();
    let shown = String::from_utf8_lossy(&output.stdout);
    assert!(
        shown.contains("did you mean") && shown.contains("unknown_host"),
        "{shown}"
    );
}

/// The code of a login to a server that agrees on one host key algorithm and does something else.
async fn code(agreed: &str, does: &str) -> Result<(), Code> {
    let sshd = Sshd::start().await;
    keygen(&sshd.path("rsa"), &["-t", "rsa", "-b", "3072"]);
    keygen(&sshd.path("ed25519"), &["-t", "ed25519"]);
    let directory = sshd.path("").display().to_string();
    let mut server = program(&sshd, "python")
        .args(["hostile_server.py", &directory, agreed, does])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut port = String::new();
    BufReader::new(server.stdout.take().unwrap()).read_line(&mut port).unwrap();
    let port = port.trim();
    let keys =
        ["rsa.pub", "ed25519.pub"].map(|key| std::fs::read_to_string(sshd.path(key)).unwrap());
    sshd.write_known_hosts(&keys.map(|key| format!("[127.0.0.1]:{port} {key}")).concat());
    let own = format!("Port {}", sshd.port());
    let config = std::fs::read_to_string(sshd.ssh_config())
        .unwrap()
        .replace(&own, &format!("Port {port}"));
    std::fs::write(sshd.ssh_config(), config).unwrap();
    let service = service(&sshd.ssh_config(), Limits::default());
    let probe = HostsRequest {
        host: Some(HOST.to_owned()),
        ..HostsRequest::default()
    };
    let host = service.hosts(probe).await.unwrap().hosts.remove(0);
    let result = if host.connected {
        Ok(())
    } else {
        Err(service.spawn(SpawnRequest::new(HOST, "true")).await.unwrap_err().code)
    };
    service.shutdown().await;
    drop(server.stdin.take());
    server.wait().unwrap();
    result
}

#[tokio::test]
async fn a_host_key_is_proved_with_what_was_agreed_on_and_nothing_else() {
    assert_eq!(code("rsa-sha2-512", "nothing").await, Ok(()));
    assert_eq!(code("ssh-ed25519", "nothing").await, Ok(()));
    for (agreed, does) in [
        ("rsa-sha2-512", "ssh-rsa"),
        ("rsa-sha2-512", "rsa-sha2-256"),
        ("ssh-ed25519", "other-key"),
    ] {
        assert_eq!(
            code(agreed, does).await,
            Err(Code::HostKeyWeak),
            "{does} for {agreed}"
        );
    }
}

/// An issuer that is not ours, which ends with its test.
struct Issuer {
    process: Child,
    url: String,
}

impl Drop for Issuer {
    fn drop(&mut self) {
        self.process.kill().ok();
        self.process.wait().ok();
    }
}

impl Issuer {
    fn start(sshd: &Sshd) -> Self {
        let mut process = program(sshd, "node");
        process.arg("issuer.mjs").stdin(Stdio::piped());
        process.stdout(Stdio::piped()).stderr(Stdio::null());
        let mut process = process.spawn().unwrap();
        let stdout = process.stdout.take().unwrap();
        let mut issuer = Self {
            process,
            url: String::new(),
        };
        let mut lines = BufReader::new(stdout).lines();
        let url = lines.next().expect("a line").unwrap();
        assert!(url.starts_with("http://"), "{url}");
        issuer.url = url;
        issuer
    }

    /// An access token for a resource.
    fn token(&self, resource: &str, scope: &str) -> String {
        let form = [
            ("grant_type", "client_credentials"),
            ("resource", resource),
            ("scope", scope),
        ];
        // As in issuer.mjs.
        let client = BASE64_STANDARD.encode("ci:the-secret-of-the-client");
        let mut response = ureq::post(format!("{}/token", self.url))
            .header("authorization", format!("Basic {client}"))
            .send_form(form)
            .unwrap();
        let text = response.body_mut().read_to_string().unwrap();
        let reply: serde_json::Value = serde_json::from_str(&text).unwrap();
        reply["access_token"].as_str().unwrap().to_owned()
    }
}

#[tokio::test]
async fn access_tokens_of_a_real_issuer_are_accepted_if_they_are_for_this_server() {
    let sshd = Sshd::start().await;
    let issuer = Issuer::start(&sshd);
    let audience = "https://jobs.example.com/mcp";
    let configuration = format!(
        "[[oidc.issuers]]\nissuer = \"{}\"\naudiences = [\"{audience}\"]\n",
        issuer.url
    );
    std::fs::write(sshd.path("config.toml"), configuration).unwrap();
    let config = sshd.path("config.toml").display().to_string();
    let public_url = "https://jobs.example.com";
    let server = Server::with(&sshd, &["--config", &config, "--public-url", public_url]);
    // Clients of MCP ask for a token for this resource.
    let metadata = format!("{}/.well-known/oauth-protected-resource/mcp", server.url);
    let metadata = ureq::get(metadata).call().unwrap().body_mut().read_to_string().unwrap();
    assert!(
        metadata.contains(&format!("\"resource\":\"{audience}\"")),
        "{metadata}"
    );
    let with =
        |resource: &str, scope: &str| Caller::new(&server.url, &issuer.token(resource, scope));
    let run = serde_json::json!({"host": HOST, "command": "true"});

    let runs = with(audience, "sshjobs:read sshjobs:run");
    assert_eq!(runs.call("run", run.clone()).0, 200);
    let reads = with(audience, "sshjobs:read");
    assert_eq!(reads.call("jobs", serde_json::json!({})).0, 200);
    assert_eq!(reads.call("run", run.clone()).0, 403);
    let other = with("https://other.example.com", "sshjobs:run");
    let (status, refused) = other.call("run", run);
    assert_eq!(status, 401);
    assert!(
        refused["message"].as_str().unwrap().contains("another audience"),
        "{refused}"
    );
}
