//! The container image of packaging/: built, and run beside the fleet. `make test-containers`
//! brings that up.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "tests"
)]

mod support;

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::json;
use support::docker::{Container, Image, docker, dot_ssh};
use support::server::Caller;
use support::{eventually, eventually_within};

/// User id of the image.
const USER: u32 = 10001;

/// A port that is free just now.
fn free_port() -> u16 {
    let free = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    free.local_addr().unwrap().port()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_image_serves_a_team_and_ends_when_it_is_told_to() {
    let config = std::env::var_os("SSHJOBS_TEST_SSH_CONFIG");
    let config =
        PathBuf::from(config.expect("this test needs the fleet: run it by `make test-containers`"));
    let ssh = dot_ssh(&config, USER);
    let image = Image::build(
        concat!(env!("CARGO_MANIFEST_DIR"), "/packaging/Dockerfile"),
        Path::new(env!("CARGO_BIN_EXE_sshjobs")),
    );
    let port = free_port();
    let (address, mount) = (
        format!("127.0.0.1:{port}"),
        format!("{}:/home/sshjobs/.ssh:ro", ssh.path().display()),
    );
    let id = docker(&[
        "run",
        "-d",
        "--network",
        "host",
        "-v",
        &mount,
        &image.name,
        "serve",
        "--http",
        &address,
    ]);
    let container = Container { id };
    eventually("the server is ready", async || {
        ureq::get(format!("http://{address}/readyz")).call().is_ok()
    })
    .await;
    let make = [
        "exec",
        &container.id,
        "sshjobs",
        "--state-dir",
        "/var/lib/sshjobs",
        "token",
        "new",
        "ci",
    ];
    let caller = Caller::new(&format!("http://{address}"), &docker(&make));
    let ran = caller.ok("run", json!({"host": "web1", "command": "id -un"}));
    assert_eq!(ran["head"], json!(["jobber"]), "{ran}");
    docker(&["stop", "--time", "20", &container.id]);
    let ended = container.inspect("{{.State.ExitCode}} {{.Config.User}}");
    assert_eq!(ended, "0 sshjobs");
}

/// Time limit for the cluster to start. A replica gives up after half a minute without NATS, and Docker starts it
/// again.
const CLUSTER_START: Duration = Duration::from_secs(300);

/// `docker compose` for packaging/compose.yml. Taken down when dropped.
struct Composed {
    project: String,
    port: u16,
    /// The program, and the server's configuration.
    binary: tempfile::TempDir,
    ssh: PathBuf,
}

impl Composed {
    fn compose(&self, arguments: &[&str]) -> std::process::Output {
        let has_plugin = Command::new("docker")
            .args(["compose", "version"])
            .output()
            .is_ok_and(|output| output.status.success());
        let mut command = if has_plugin {
            let mut command = Command::new("docker");
            command.arg("compose");
            command
        } else {
            Command::new("docker-compose")
        };
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/packaging/compose.yml");
        command
            .args(["-f", file, "-p", &self.project, "--profile", "replicas"])
            .args(arguments)
            .env("SSHJOBS_BINARY_DIR", self.binary.path())
            .env(
                "SSHJOBS_DOCKERFILE",
                concat!(env!("CARGO_MANIFEST_DIR"), "/packaging/Dockerfile"),
            )
            .env("SSHJOBS_SSH_DIR", &self.ssh)
            .env("SSHJOBS_CONFIG_DIR", self.binary.path())
            .env("SSHJOBS_PORT", self.port.to_string())
            .output()
            .expect("docker compose")
    }

    fn told(&self, arguments: &[&str]) -> String {
        let output = self.compose(arguments);
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "compose {arguments:?}: {told}");
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    /// Waits until the proxy has a replica that is ready.
    async fn wait_until_ready(&self, url: &str) {
        // The proxy may give a request to a replica that is still starting.
        let config = ureq::Agent::config_builder().timeout_global(Some(Duration::from_secs(5)));
        let agent = ureq::Agent::new_with_config(config.build());
        let deadline = Instant::now() + CLUSTER_START;
        while let Err(error) = agent.get(format!("{url}/readyz")).call() {
            assert!(Instant::now() < deadline, "no replica is ready: {error}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}

impl Drop for Composed {
    #[expect(clippy::print_stderr, reason = "a failed test shows its logs")]
    fn drop(&mut self) {
        // Before `down` removes the containers.
        if std::thread::panicking() {
            for arguments in [
                &["ps", "--all"][..],
                &["logs", "--tail", "40", "--timestamps"],
            ] {
                let output = self.compose(arguments);
                eprintln!("{}", String::from_utf8_lossy(&output.stdout));
                eprintln!("{}", String::from_utf8_lossy(&output.stderr));
            }
        }
        self.compose(&["down", "--volumes", "--rmi", "local", "--timeout", "5"]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_containers_of_a_cluster_answer_through_their_proxy() {
    let binary = tempfile::tempdir().unwrap();
    std::fs::copy(env!("CARGO_BIN_EXE_sshjobs"), binary.path().join("sshjobs")).unwrap();
    std::fs::write(binary.path().join("config"), "Host web1\n").unwrap();
    std::fs::set_permissions(binary.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let cluster = Composed {
        project: format!("sshjobs-cluster-test-{}", std::process::id()),
        port: free_port(),
        ssh: binary.path().to_owned(),
        binary,
    };

    cluster.told(&["up", "--build", "--detach", "proxy"]);

    let url = format!("http://127.0.0.1:{}", cluster.port);
    cluster.wait_until_ready(&url).await;
    let nats = "--cluster=nats://nats1:4222";
    let inside = ["exec", "-T", "replica1", "sshjobs"];
    let run = |words: &[&str]| cluster.told(&[&inside, words, &[nats]].concat());
    eventually_within(CLUSTER_START, "all replicas are there", async || {
        let status = run(&["cluster", "status", "--json"]);
        let status: serde_json::Value = serde_json::from_str(&status).unwrap();
        let replicas = status["replicas"].as_array().unwrap();
        replicas.iter().filter(|replica| replica["state"] == "active").count() == 3
    })
    .await;
    let token = cluster.told(&[&inside[..], &["token", nats, "new", "ci"]].concat());
    let caller = Caller::new(&url, &token);
    for _ in 0..6 {
        assert_eq!(caller.ok("hosts", json!({}))["hosts"][0]["name"], "web1");
    }
}

/// A small policy with an audit log.
const POLICY: &str = r#"
[audit]
file = "/var/lib/sshjobs/audit.jsonl"
key = "/var/lib/sshjobs/audit.key"

[[rules]]
name = "look"
verbs = ["hosts", "run"]
commands = ["whoami"]

[templates.whoami]
command = "id -un"
"#;

#[tokio::test(flavor = "multi_thread")]
async fn the_composed_server_has_tls_a_policy_and_an_audit_log() {
    let config = std::env::var_os("SSHJOBS_TEST_SSH_CONFIG");
    let config =
        PathBuf::from(config.expect("this test needs the fleet: run it by `make test-containers`"));
    let ssh = dot_ssh(&config, USER);
    let binary = tempfile::tempdir().unwrap();
    let file = |name: &str| binary.path().join(name);
    std::fs::copy(env!("CARGO_BIN_EXE_sshjobs"), file("sshjobs")).unwrap();
    std::fs::write(file("policy.toml"), POLICY).unwrap();
    let (certificate, key) = (file("tls.crt"), file("tls.key"));
    support::server::write_certificate("localhost", &certificate, &key);
    std::os::unix::fs::chown(&key, Some(USER), None).unwrap();
    std::fs::set_permissions(binary.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let server = Composed {
        project: format!("sshjobs-server-test-{}", std::process::id()),
        port: free_port(),
        ssh: ssh.path().to_owned(),
        binary,
    };

    server.told(&["up", "--build", "--detach", "server"]);

    let inside =
        |words: &[&str]| server.told(&[&["exec", "-T", "server", "sshjobs"], words].concat());
    let token = inside(&["token", "new", "alice"]);
    let url = format!("https://localhost:{}", server.port);
    let call = |words: &[&str]| {
        Command::new(env!("CARGO_BIN_EXE_sshjobs"))
            .args(["--server", &url])
            .args(words)
            .env("SSHJOBS_TOKEN", &token)
            .env("SSL_CERT_FILE", &certificate)
            .output()
            .unwrap()
    };
    eventually_within(CLUSTER_START, "the server answers over TLS", async || {
        String::from_utf8_lossy(&call(&["hosts"]).stdout).contains("web1")
    })
    .await;
    let refused = call(&["run", "web1", "--", "reboot"]);
    assert!(
        String::from_utf8_lossy(&refused.stderr).contains("policy_denied"),
        "{refused:?}"
    );
    let audited = inside(&[
        "audit",
        "show",
        "--denied",
        "--policy",
        "/config/policy.toml",
    ]);
    assert!(audited.contains("reboot"), "{audited}");
}
