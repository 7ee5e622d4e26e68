//! The examples of the documentation work unchanged.

use std::collections::BTreeMap;
use std::process::{Child, Command};

use crate::support::command::sshjobs;
use crate::support::server::{Caller, Server, events};
use crate::support::{HOST, Sshd, eventually};
use serde_json::json;

const PAGE: &str = include_str!("../docs/server.md");

/// The blocks of the page that are in a language.
fn blocks(language: &str) -> Vec<&'static str> {
    PAGE.split(&format!("```{language}\n"))
        .skip(1)
        .filter_map(|rest| rest.split("```").next())
        .collect()
}

/// Subcommands in the help of a verb.
fn subcommands(help: &str) -> impl Iterator<Item = &str> {
    let list = help.split_once("\nCommands:\n").map_or("", |(_, list)| list);
    let list = list.split_once("\n\n").map_or(list, |(list, _)| list);
    let names = list.lines().filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    names
        .filter_map(|line| line.split_whitespace().next())
        .filter(|name| *name != "help")
}

/// The program's own help, verb by verb.
fn reference() -> String {
    let help = |words: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_sshjobs"))
            .args(words)
            .env_clear()
            .output()
            .unwrap();
        assert!(output.status.success(), "{words:?}");
        let text = String::from_utf8(output.stdout).unwrap();
        text.lines().map(str::trim_end).collect::<Vec<_>>().join("\n")
    };
    let main = help(&["--help"]);
    let verbs = main.split_once("Run commands:\n").unwrap().1;
    let verbs = verbs.split_once("Global options:\n").unwrap().0;
    let verbs = verbs.lines().filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    let verbs: Vec<&str> = verbs.map(|line| line.split_whitespace().next().unwrap()).collect();
    let mut page = format!(
        "# Command line\n\nGenerated from the program's own help by `UPDATE_DOCS=1 cargo test \
            --test sshd docs::`.\n\n```text\n{main}\n```\n"
    );
    for verb in verbs {
        let text = help(&[verb, "--help"]);
        page += &format!("\n## {verb}\n\n```text\n{text}\n```\n");
        for subcommand in subcommands(&text) {
            let text = help(&[verb, subcommand, "--help"]);
            page += &format!("\n### {verb} {subcommand}\n\n```text\n{text}\n```\n");
        }
    }
    for topic in [
        "exit-codes",
        "waiting",
        "durable",
        "fleets",
        "trust",
        "terminals",
    ] {
        page += &format!(
            "\n## help {topic}\n\n```text\n{}\n```\n",
            help(&["help", topic])
        );
    }
    page
}

#[test]
fn the_reference_of_the_command_line_is_what_the_program_says() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/cli.md");
    let page = reference();
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(file, &page).unwrap();
    }
    let known = std::fs::read_to_string(file).unwrap_or_default();
    assert!(
        known == page,
        "docs/cli.md is out of date: UPDATE_DOCS=1 cargo test --test sshd docs::"
    );
}

/// The first command that a reader meets, tried where nothing is set up.
#[test]
fn the_first_command_of_the_readme_succeeds_on_a_fresh_machine() {
    let readme = include_str!("../README.md");
    let block = readme.split("```console\n").nth(1).unwrap();
    let first = block.lines().next().unwrap();
    let words = first.strip_prefix("$ cargo run -- ").unwrap();
    let home = tempfile::tempdir().unwrap();

    let output = Command::new(env!("CARGO_BIN_EXE_sshjobs"))
        .args(words.split_whitespace())
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap())
        .env("HOME", home.path())
        .output()
        .unwrap();

    assert!(
        output.status.success(),
        "{first}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
}

/// A port that is free just now.
fn free_port() -> u16 {
    std::net::TcpListener::bind(("127.0.0.1", 0))
        .unwrap()
        .local_addr()
        .unwrap()
        .port()
}

/// A running nginx. Killed when dropped.
struct Nginx(Child);

impl Drop for Nginx {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

/// nginx with the configuration of the page, in front of a server.
async fn nginx(sshd: &Sshd, server: &Server) -> (Nginx, String) {
    let (locations, port) = (blocks("nginx"), free_port());
    assert_eq!(locations.len(), 1);
    let place = sshd.path("").display().to_string();
    let paths = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];
    let paths: String =
        paths.iter().map(|path| format!("{path}_temp_path {place}/{path};\n")).collect();
    let upgrade = PAGE.split('`').find(|code| code.starts_with("map ")).unwrap();
    let config = format!(
        "daemon off; master_process off; pid {place}/nginx.pid; error_log stderr; events {{}}\nhttp {{ access_log off;\n{paths}{upgrade}\n\
         server {{ listen 127.0.0.1:{port};\n{} }} }}",
        locations[0].replace("127.0.0.1:8022", server.address())
    );
    std::fs::write(sshd.path("nginx.conf"), config).unwrap();
    let mut command = Command::new("/usr/sbin/nginx");
    command
        .arg("-c")
        .arg(sshd.path("nginx.conf"))
        .arg("-p")
        .arg(&place)
        .args(["-e", "stderr"]);
    let running = Nginx(command.spawn().expect("nginx"));
    eventually("nginx listens", async || {
        std::net::TcpStream::connect(("127.0.0.1", port)).is_ok()
    })
    .await;
    (running, format!("http://127.0.0.1:{port}/sshjobs"))
}

#[tokio::test(flavor = "multi_thread")]
async fn behind_nginx_streams_and_sessions_work_as_the_page_says() {
    let sshd = Sshd::start().await;
    let server = Server::start(&sshd);
    let (_nginx, url) = nginx(&sshd, &server).await;
    let caller = Caller::new(&url, &server.caller(&sshd, "proxied", &[]).token);
    let id = caller.spawn("for i in 1 2 3; do echo line $i; read go; done");
    let mut seen = events(caller.get(&format!("/v1/jobs/{id}/stream")));
    for line in 1..=3 {
        // Each arrives before the job continues.
        assert_eq!(seen.next().unwrap().data["text"], format!("line {line}"));
        caller.ok("write", json!({"job_id": id, "newline": true}));
    }
    assert_eq!(seen.next().unwrap().name, "end");
    std::fs::write(sshd.path("token"), &caller.token).unwrap();
    let token = sshd.path("token").display().to_string();
    let ran = sshjobs(
        &sshd,
        &[
            "--server",
            &url,
            "--token-file",
            &token,
            "run",
            HOST,
            "--",
            "echo here; exit 3",
        ],
    );
    assert_eq!(
        (
            ran.status.code(),
            String::from_utf8_lossy(&ran.stdout).as_ref()
        ),
        (Some(3), "here\n")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_curl_examples_of_the_server_run_as_they_stand() {
    let sshd = Sshd::start().await;
    let server = Server::start(&sshd);
    let caller = server.caller(&sshd, "reader-of-the-docs", &[]);
    let scripts = blocks("sh");
    assert_eq!(scripts.len(), 1);
    let output = Command::new("sh")
        .args(["-eu", "-c", scripts[0]])
        .current_dir(sshd.path(""))
        .env("URL", &server.url)
        .env("TOKEN", &caller.token)
        .output()
        .unwrap();
    let shown = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success(),
        "{shown}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(
        shown.contains("\"Linux\"") && shown.contains("\"text\":\"line 3\""),
        "{shown}"
    );
    assert_eq!(
        shown.matches("\"text\":\"line 1\"").count(),
        1,
        "the second stream begins behind line 2: {shown}"
    );
    assert_eq!(shown.matches("event: end").count(), 2);
    assert!(
        shown.contains("line{\"jobs\"") && shown.contains("\"exit_status\":3"),
        "{shown}"
    );
    assert_eq!(
        std::fs::read_to_string(sshd.path("out.bin")).unwrap(),
        "line 1\nline 2\nline 3\n"
    );
}

/// The shell lines of a page, in order.
fn shell_script(page: &str) -> String {
    let lines = page.lines().filter_map(|line| line.strip_prefix("$ "));
    lines.collect::<Vec<_>>().join("\n")
}

#[tokio::test(flavor = "multi_thread")]
async fn the_commands_of_getting_started_run_in_their_order() {
    let sshd = Sshd::start().await;
    let config = sshd.path("getting-started.toml");
    std::fs::write(
        &config,
        format!("ssh_config = \"{}\"\n", sshd.ssh_config().display()),
    )
    .unwrap();
    let place = sshd.path("");
    let environment = BTreeMap::from([
        ("SSHJOBS_CONFIG", config.display().to_string()),
        ("HOME", place.display().to_string()),
    ]);

    let script = shell_script(include_str!("../docs/getting-started.md"));
    let printed = crate::guide::run(&script, &place, &environment);

    assert!(
        printed.contains("No line was lost or repeated"),
        "demo: {printed}"
    );
    assert!(printed.contains("\nLinux "), "run: {printed}");
    assert!(
        printed.contains("step 1\nstep 2\nstep 3\n"),
        "tail: {printed}"
    );
    assert!(printed.contains("\"sshjobs\""), "mcp install: {printed}");
}

#[test]
fn every_page_is_in_the_summary_of_the_site() {
    let summary = include_str!("../docs/SUMMARY.md");
    let docs = concat!(env!("CARGO_MANIFEST_DIR"), "/docs");
    for entry in std::fs::read_dir(docs).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        if name.ends_with(".md") && name != "SUMMARY.md" {
            assert!(summary.contains(&format!("({name})")), "{name}");
        }
    }
}
