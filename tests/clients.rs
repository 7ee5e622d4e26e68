//! Clients and servers that are not ours: MCP's own SDKs and its Inspector call every tool, and a server in Python proves its host
//! key as none should. `make test-clients` installs them, and says where they are in CLIENTS.
#![allow(clippy::unwrap_used, clippy::panic, clippy::disallowed_methods, reason = "tests")]

mod support;

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use sshjobs::jobs::Limits;
use sshjobs::wire::{Code, HostsRequest, SpawnRequest};
use support::{HOST, Sshd, keygen, service};

fn clients() -> PathBuf {
    std::env::var_os("CLIENTS").expect("`make test-clients` sets CLIENTS, and runs this").into()
}

/// A program of the clients', and what it needs to know.
fn program(sshd: &Sshd, interpreter: &str) -> Command {
    let mut command = Command::new(clients().join("venv/bin").join(interpreter));
    command
        .current_dir(clients())
        .env("SSHJOBS", env!("CARGO_BIN_EXE_sshjobs"))
        .env("SSH_CONFIG", sshd.ssh_config())
        .env("XDG_CONFIG_HOME", "/nonexistent")
        .env("XDG_STATE_HOME", sshd.path("state"))
        .env("HOME", sshd.path("home"))
        .stdin(Stdio::null());
    command
}

/// Runs it to its end, which must be a good one, without a word on stderr; returns what it printed.
fn told(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let (stdout, stderr) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr).into_owned());
    assert!(output.status.success() && stderr.trim().is_empty(), "{}\n{stdout}\n{stderr}", output.status);
    stdout.into_owned()
}

#[tokio::test]
async fn the_python_sdk_makes_every_call() {
    let sshd = Sshd::start().await;
    assert!(told(program(&sshd, "python").arg("python.py")).contains("27 calls"));
}

#[tokio::test]
async fn version_1_of_the_typescript_sdk_makes_every_call() {
    let sshd = Sshd::start().await;
    assert!(told(program(&sshd, "node").arg("typescript1.mjs")).contains("27 calls"));
}

#[tokio::test]
async fn version_2_of_the_typescript_sdk_makes_every_call() {
    let sshd = Sshd::start().await;
    assert!(told(program(&sshd, "node").arg("typescript2.mjs")).contains("27 calls"));
}

fn inspector(sshd: &Sshd) -> Command {
    let mut command = program(sshd, "node");
    command.args(["node_modules/.bin/mcp-inspector", "--cli", "-e", "XDG_CONFIG_HOME=/nonexistent"]);
    command
}

/// The Inspector's last argument: how the server is started.
fn server(sshd: &Sshd) -> [String; 5] {
    let config = sshd.ssh_config().display().to_string();
    ["--", env!("CARGO_BIN_EXE_sshjobs"), "--ssh-config", &config, "serve"].map(str::to_owned)
}

#[tokio::test]
async fn the_inspector_finds_nothing_wrong_with_a_schema() {
    let sshd = Sshd::start().await;
    let tools = told(inspector(&sshd).args(["--strict", "--method", "tools/list"]).args(server(&sshd)));
    assert!(tools.contains("ssh_forget"), "{tools}");
}

#[tokio::test]
async fn the_inspector_shows_an_error_with_its_hint() {
    let sshd = Sshd::start().await;
    let call =
        ["--method", "tools/call", "--tool-name", "ssh_run", "--tool-arg", "host=wbe1", "command=uptime"];
    let output = inspector(&sshd).args(call).args(server(&sshd)).output().unwrap();
    let shown = String::from_utf8_lossy(&output.stdout);
    assert!(shown.contains("did you mean") && shown.contains("unknown_host"), "{shown}");
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
    let keys = ["rsa.pub", "ed25519.pub"].map(|key| std::fs::read_to_string(sshd.path(key)).unwrap());
    sshd.write_known_hosts(&keys.map(|key| format!("[127.0.0.1]:{port} {key}")).concat());
    let own = format!("Port {}", sshd.port());
    let config = std::fs::read_to_string(sshd.ssh_config()).unwrap().replace(&own, &format!("Port {port}"));
    std::fs::write(sshd.ssh_config(), config).unwrap();
    let service = service(&sshd.ssh_config(), Limits::default());
    let probe = HostsRequest { host: Some(HOST.to_owned()), ..HostsRequest::default() };
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
    for (agreed, does) in
        [("rsa-sha2-512", "ssh-rsa"), ("rsa-sha2-512", "rsa-sha2-256"), ("ssh-ed25519", "other-key")]
    {
        assert_eq!(code(agreed, does).await, Err(Code::HostKeyWeak), "{does} for {agreed}");
    }
}
