//! The packages of `make dist`: their content, and that each of them runs where only its package is installed.
//! `make test-packages` builds them and brings up the hosts.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "tests"
)]

mod support;

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use regex::Regex;
use serde_json::{Value, json};
use support::docker::{Container, docker, dot_ssh};
use support::eventually;
use support::server::Caller;

/// Newest version of glibc's interface that the program may need.
const GLIBC: (u32, u32) = (2, 17);
/// Largest size of the program, in bytes. It has 24.3 MiB now (docs/benchmarks.md).
const LARGEST: u64 = 26 << 20;
/// User id of the image.
const USER: u32 = 10001;

/// The directory with the packages.
fn dist() -> PathBuf {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/dist");
    assert!(
        directory.join("SHA256SUMS").exists(),
        "no packages in {}: run `make dist`",
        directory.display()
    );
    directory
}

/// The package whose name has this end.
fn package(end: &str) -> PathBuf {
    let mut found = std::fs::read_dir(dist())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.to_str().unwrap().ends_with(end));
    let package = found.next().unwrap_or_else(|| panic!("no package {end}"));
    assert!(found.next().is_none(), "two packages {end}");
    package
}

fn text(output: &Output) -> String {
    let (stdout, stderr) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    format!("{stdout}{stderr}")
}

/// Runs a program and returns its stdout. Panics if it fails.
fn run(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().expect(program);
    assert!(
        output.status.success(),
        "{program} {arguments:?}: {}",
        text(&output)
    );
    String::from_utf8(output.stdout).unwrap()
}

/// The content of the archive, unpacked.
fn unpacked() -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let archive = package("x86_64-unknown-linux-gnu.tar.gz");
    run(
        "tar",
        &[
            "-xzf",
            archive.to_str().unwrap(),
            "-C",
            directory.path().to_str().unwrap(),
        ],
    );
    let top = std::fs::read_dir(directory.path()).unwrap().next().unwrap().unwrap().path();
    (directory, top)
}

/// The ssh_config of the hosts in containers.
fn fleet() -> PathBuf {
    let config = std::env::var_os("SSHJOBS_TEST_SSH_CONFIG");
    PathBuf::from(config.expect("this test needs hosts: run it by `make test-packages`"))
}

/// A container of a Debian without sshjobs, with the packages at /dist and ssh's files in its user's home.
fn debian(image: &str, ssh: &Path) -> Container {
    let packages = format!("{}:/dist:ro", dist().display());
    let files = format!("{}:/ssh:ro", ssh.display());
    let id = docker(&[
        "run",
        "-d",
        "--network",
        "host",
        "-v",
        &packages,
        "-v",
        &files,
        image,
        "sleep",
        "600",
    ]);
    let container = Container { id };
    container.run("mkdir -p ~/.ssh && cp /ssh/* ~/.ssh/ && sed -i s,/home/sshjobs,$HOME, ~/.ssh/config && chown -R $(id -u) ~/.ssh");
    container
}

#[test]
fn the_program_needs_an_old_glibc_only_and_is_small() {
    let (_directory, top) = unpacked();
    let program = top.join("sshjobs");
    let needed = run("objdump", &["-T", program.to_str().unwrap()]);

    let version = Regex::new(r"GLIBC_(\d+)\.(\d+)").unwrap();
    let versions = version
        .captures_iter(&needed)
        .map(|found| (found[1].parse().unwrap(), found[2].parse().unwrap()));
    let newest: (u32, u32) = versions.max().expect("versions of glibc");
    assert!(newest <= GLIBC, "it needs glibc {newest:?}");

    let size = std::fs::metadata(&program).unwrap().len();
    assert!(size <= LARGEST, "{size} bytes");
    let symbols = Command::new("nm").arg(&program).output().unwrap();
    assert!(text(&symbols).contains("no symbols"), "it is not stripped");
}

#[test]
fn the_program_names_no_path_of_its_source() {
    let (_directory, top) = unpacked();
    let program = std::fs::read(top.join("sshjobs")).unwrap();

    let root = env!("CARGO_MANIFEST_DIR").as_bytes();
    assert!(!program.windows(root.len()).any(|part| part == root));
}

#[test]
fn the_checksums_are_those_of_the_packages() {
    let packages = dist();
    let output = Command::new("sha256sum")
        .args(["--check", "--strict", "SHA256SUMS"])
        .current_dir(&packages)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", text(&output));

    let listed = std::fs::read_to_string(packages.join("SHA256SUMS")).unwrap().lines().count();
    let files = std::fs::read_dir(&packages).unwrap().count();
    assert_eq!(listed + 1, files, "all but the list itself");
}

#[test]
fn the_bill_of_materials_is_valid_and_has_the_libraries() {
    let file = package(".cdx.json");
    let tools = std::env::var("PACKAGE_TOOLS").expect("run by `make test-packages`");
    let components: usize = run(
        "python3",
        &[&format!("{tools}/check-sbom.py"), file.to_str().unwrap()],
    )
    .trim()
    .parse()
    .unwrap();
    assert!(components > 100, "{components}");

    let bill: Value = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
    let names: Vec<&str> = bill["components"]
        .as_array()
        .unwrap()
        .iter()
        .map(|component| component["name"].as_str().unwrap())
        .collect();
    for name in ["russh", "tokio", "rmcp", "async-nats"] {
        assert!(names.contains(&name), "{name}");
    }
    assert!(!names.contains(&"proptest"), "a library of tests only");
}

#[test]
fn the_entry_for_the_mcp_registry_is_valid_and_names_the_bundle() {
    // skillsaw has the registry's schemas, and finds server.json in the directory that it checks.
    let directory = tempfile::tempdir().unwrap();
    let file = dist().join("server.json");
    std::fs::copy(&file, directory.path().join("server.json")).unwrap();
    run(
        "skillsaw",
        &["lint", "--strict", directory.path().to_str().unwrap()],
    );

    let entry: Value = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
    assert_eq!(entry["version"], env!("CARGO_PKG_VERSION"));
    let bundle = package(".mcpb");
    let sum = run("sha256sum", &[bundle.to_str().unwrap()]);
    assert_eq!(
        entry["packages"][0]["fileSha256"],
        sum.split(' ').next().unwrap()
    );
    let readme = include_str!("../README.md");
    assert!(readme.contains(&format!("mcp-name: {}", entry["name"].as_str().unwrap())));
}

#[test]
fn the_bundle_for_mcp_clients_is_valid_and_starts_the_server() {
    let directory = tempfile::tempdir().unwrap();
    let place = directory.path().to_str().unwrap();
    run(
        "mcpb",
        &["unpack", package(".mcpb").to_str().unwrap(), place],
    );
    run("mcpb", &["validate", &format!("{place}/manifest.json")]);
    let manifest = std::fs::read(directory.path().join("manifest.json")).unwrap();
    let manifest: Value = serde_json::from_slice(&manifest).unwrap();

    // As a client starts it.
    let server = &manifest["server"]["mcp_config"];
    let program = server["command"].as_str().unwrap().replace("${__dirname}", place);
    let arguments = server["args"].as_array().unwrap().iter().map(|word| word.as_str().unwrap());
    let mut started = Command::new(program)
        .args(arguments)
        .env_clear()
        .env("HOME", place)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = started.stdin.take().unwrap();
    let initialize = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}});
    let initialized = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
    let list = json!({"jsonrpc": "2.0", "id": 2, "method": "tools/list"});
    writeln!(stdin, "{initialize}\n{initialized}\n{list}").unwrap();
    let replies = BufReader::new(started.stdout.take().unwrap()).lines();
    let listed = replies
        .map(|line| serde_json::from_str::<Value>(&line.unwrap()).unwrap())
        .find(|reply| reply["id"] == 2)
        .unwrap();
    drop(stdin);
    assert!(started.wait().unwrap().success());

    let names = |tools: &Value| -> Vec<String> {
        let tools = tools.as_array().unwrap().iter();
        let mut names: Vec<_> =
            tools.map(|tool| tool["name"].as_str().unwrap().to_owned()).collect();
        names.sort();
        names
    };
    assert_eq!(names(&listed["result"]["tools"]), names(&manifest["tools"]));
}

#[test]
fn the_archive_runs_on_an_old_and_on_a_new_debian() {
    let ssh = dot_ssh(&fleet(), 0);
    for image in ["debian:bullseye-slim", "debian:trixie-slim"] {
        let container = debian(image, ssh.path());
        container.run("tar -xzf /dist/sshjobs-*-x86_64-unknown-linux-gnu.tar.gz && mv sshjobs-*/sshjobs /usr/local/bin");
        let demo = container.run("sshjobs demo");
        assert!(demo.contains("No line was lost or repeated"), "{demo}");
        assert_eq!(container.run("sshjobs run web1 -- id -un"), "jobber");
    }
}

#[test]
fn the_debian_package_installs_runs_and_leaves_only_the_servers_state() {
    let ssh = dot_ssh(&fleet(), 0);
    let container = debian("debian:trixie-slim", ssh.path());

    let installed = container.run("dpkg -i /dist/sshjobs_*_amd64.deb");
    assert!(installed.contains("Setting up sshjobs"), "{installed}");
    assert_eq!(container.run("sshjobs run web1 -- id -un"), "jobber");
    let version = container.run("sshjobs --version");
    assert!(version.contains(env!("CARGO_PKG_VERSION")), "{version}");
    container.run(
        "test -f /usr/share/man/man1/sshjobs-run.1.gz && test -f /usr/share/bash-completion/completions/sshjobs \
         && grep -q ExecStart=/usr/bin/sshjobs /usr/lib/systemd/system/sshjobs.service \
         && test -f /usr/lib/systemd/user/sshjobs-local.service",
    );
    // Slim images leave documentation out; what dpkg has installed must be intact otherwise.
    assert_eq!(
        container.run("dpkg --verify sshjobs | grep -v ' /usr/share/' || true"),
        ""
    );

    container.run("dpkg --purge sshjobs");
    let left = container.run("find / -xdev -name '*sshjobs*' -not -path \"$HOME/*\" -not -path '/dist/*' -not -path '/proc/*'");
    // Made if the system has systemd-tmpfiles. It may hold jobs, keys and tokens.
    let left: Vec<&str> = left.lines().filter(|path| *path != "/var/lib/sshjobs").collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn the_debian_package_follows_debians_policy() {
    let output = Command::new("lintian")
        .args(["--allow-root", "--fail-on", "error,warning"])
        .arg(package(".deb"))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", text(&output));
}

#[test]
fn the_units_are_valid_for_systemd() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().to_str().unwrap();
    run("dpkg-deb", &["-x", package(".deb").to_str().unwrap(), root]);
    for unit in ["system/sshjobs.service", "user/sshjobs-local.service"] {
        let file = directory.path().join("usr/lib/systemd").join(unit);
        // systemd looks for the program where the package installs it.
        let text = std::fs::read_to_string(&file).unwrap();
        std::fs::write(
            &file,
            text.replace("/usr/bin/", &format!("{root}/usr/bin/")),
        )
        .unwrap();
        let output = Command::new("systemd-analyze").arg("verify").arg(&file).output().unwrap();
        let told = self::text(&output);
        assert!(
            output.status.success() && !told.contains(root),
            "{unit}: {told}"
        );
    }
}

#[test]
fn each_alert_fires_when_it_should_and_not_before() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("packaging/monitoring");
    let output = Command::new("promtool")
        .args(["test", "rules", "alerts-test.yml"])
        .current_dir(directory)
        .output()
        .expect("promtool (Debian's package is prometheus)");
    let (stdout, stderr) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert!(output.status.success(), "{stdout}{stderr}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_image_from_scratch_is_healthy_and_serves_a_team() {
    let ssh = dot_ssh(&fleet(), USER);
    let (_directory, top) = unpacked();
    let image = support::docker::Image::build(
        concat!(env!("CARGO_MANIFEST_DIR"), "/packaging/Dockerfile.scratch"),
        &top.join("sshjobs"),
    );
    let mount = format!("{}:/home/sshjobs/.ssh:ro", ssh.path().display());
    let container = Container {
        id: docker(&[
            "run",
            "-d",
            "--network",
            "host",
            "--read-only",
            "--tmpfs",
            "/tmp",
            "--cap-drop",
            "ALL",
            "--health-interval",
            "1s",
            "-v",
            &mount,
            &image.name,
        ]),
    };

    eventually("docker finds it healthy", async || {
        container.inspect("{{.State.Health.Status}}") == "healthy"
    })
    .await;
    let token = docker(&["exec", &container.id, "sshjobs", "token", "new", "ci"]);
    let caller = Caller::new("http://127.0.0.1:8022", &token);
    let ran = caller.ok("run", json!({"host": "web1", "command": "id -un"}));
    assert_eq!(ran["head"], json!(["jobber"]), "{ran}");
    let shell = Command::new("docker")
        .args(["exec", &container.id, "sh", "-c", "true"])
        .output();
    assert!(!shell.unwrap().status.success(), "it has a shell");

    docker(&["stop", "--time", "20", &container.id]);
    assert_eq!(
        container.inspect("{{.State.ExitCode}} {{.Config.User}}"),
        "0 10001:10001"
    );
}
