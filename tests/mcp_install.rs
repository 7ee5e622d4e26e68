//! `sshjobs mcp install`: the entry in a client's file, and a server that starts by it.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};

use crate::support::tmux::Tmux;

/// Runs `mcp install` with this home directory.
fn install(home: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_sshjobs"))
        .args(["mcp", "install"])
        .args(arguments)
        .current_dir(home)
        .env("HOME", home)
        .env_remove("XDG_CONFIG_HOME")
        .env_remove("CODEX_HOME")
        .env_remove("CLAUDE_CONFIG_DIR")
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

fn home() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

fn json_at(file: &Path) -> Value {
    serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap()
}

#[test]
fn every_client_gets_an_entry_in_its_own_file_once() {
    let files = [
        ("claude-code", ".claude.json"),
        (
            "claude-desktop",
            ".config/Claude/claude_desktop_config.json",
        ),
        ("codex", ".codex/config.toml"),
        ("cursor", ".cursor/mcp.json"),
        ("goose", ".config/goose/config.yaml"),
        ("vscode", ".config/Code/User/mcp.json"),
        ("windsurf", ".codeium/windsurf/mcp_config.json"),
        ("zed", ".config/zed/settings.json"),
    ];
    let home = home();
    for (client, file) in files {
        let file = home.path().join(file);

        let shown = install(home.path(), &[client, "--dry-run"]);
        assert!(shown.status.success(), "{client}: {shown:?}");
        let change = String::from_utf8(shown.stdout).unwrap();
        assert!(
            change.contains("sshjobs") && change.contains("serve"),
            "{client}: {change}"
        );
        assert!(!file.exists(), "{client}: nothing is written");

        assert!(install(home.path(), &[client, "--yes"]).status.success());
        let written = std::fs::read_to_string(&file).unwrap();
        assert!(written.contains("serve"), "{client}: {written}");
        let again = install(home.path(), &[client, "--yes"]);
        assert!(
            again.status.success() && again.stdout.is_empty(),
            "{client}: {again:?}"
        );
        assert_eq!(std::fs::read_to_string(&file).unwrap(), written, "{client}");
    }
}

#[test]
fn a_server_starts_by_the_entry() {
    let home = home();
    assert!(install(home.path(), &["cursor", "--yes"]).status.success());
    let entry = json_at(&home.path().join(".cursor/mcp.json"))["mcpServers"]["sshjobs"].take();

    let arguments = entry["args"].as_array().unwrap().iter();
    let mut server = Command::new(entry["command"].as_str().unwrap())
        .args(arguments.map(|argument| argument.as_str().unwrap()))
        .env("HOME", home.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let hello = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-06-18", "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"}}});
    let mut stdin = server.stdin.take().unwrap();
    writeln!(stdin, "{hello}").unwrap();
    let mut line = String::new();
    BufReader::new(server.stdout.take().unwrap()).read_line(&mut line).unwrap();
    drop(stdin);
    server.wait().unwrap();

    let reply: Value = serde_json::from_str(&line).unwrap();
    assert_eq!(reply["result"]["serverInfo"]["name"], "sshjobs", "{line}");
}

#[test]
fn a_projects_file_names_no_path_of_this_machine() {
    let home = home();
    let arguments = [
        "vscode",
        "--project",
        "--yes",
        "--",
        "--config",
        "team.toml",
        "serve",
    ];
    assert!(install(home.path(), &arguments).status.success());

    let entry = json_at(&home.path().join(".vscode/mcp.json"))["servers"]["sshjobs"].take();
    assert_eq!(
        entry,
        json!({"type": "stdio", "command": "sshjobs",
            "args": ["--config", "team.toml", "serve"]})
    );
    let none = install(home.path(), &["windsurf", "--project", "--yes"]);
    assert_eq!(none.status.code(), Some(2), "{none:?}");
}

#[test]
fn a_file_that_cannot_be_changed_safely_and_one_without_consent_stay() {
    let home = home();
    let file = home.path().join(".claude.json");
    for text in [
        "{\"mcpServers\": ",
        "{\"mcpServers\": []}",
        "{\"mcpServers\": {\"sshjobs\": {\"url\": \"http://x\"}}}",
        "{}",
    ] {
        std::fs::write(&file, text).unwrap();
        let refused = install(home.path(), &["claude-code"]);
        assert_eq!(refused.status.code(), Some(2), "{text}: {refused:?}");
        assert_eq!(std::fs::read_to_string(&file).unwrap(), text);
    }
    std::fs::remove_file(&file).unwrap();
    std::os::unix::fs::symlink("nowhere", &file).unwrap();
    let refused = install(home.path(), &["claude-code", "--yes"]);
    assert!(
        !refused.status.success() && file.is_symlink(),
        "{refused:?}"
    );
    std::fs::remove_file(&file).unwrap();
    let told = install(home.path(), &["claude-code"]);
    let told = String::from_utf8(told.stderr).unwrap();
    assert!(
        told.contains("--yes") && told.contains("--dry-run"),
        "{told}"
    );
}

#[test]
fn line_ends_stay_as_they_are() {
    let home = home();
    for (client, file, before) in [
        ("codex", ".codex/config.toml", "a = 1\r\n"),
        ("goose", ".config/goose/config.yaml", "a: 1\r\n"),
        ("cursor", ".cursor/mcp.json", "{\r\n}\r\n"),
    ] {
        let file = home.path().join(file);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(&file, before).unwrap();
        assert!(
            install(home.path(), &[client, "--yes"]).status.success(),
            "{client}"
        );
        let after = std::fs::read_to_string(&file).unwrap();
        let lines = after.matches('\n').count();
        assert!(
            lines > 2 && after.matches("\r\n").count() == lines,
            "{client}: {after:?}"
        );
    }
}

#[test]
fn secrets_of_other_servers_are_not_shown() {
    let home = home();
    let file = home.path().join(".claude.json");
    let other = json!({"mcpServers": {"other": {"command": "x", "env": {"KEY": "hunter2"}}}});
    std::fs::write(&file, serde_json::to_string_pretty(&other).unwrap()).unwrap();

    let shown = install(home.path(), &["claude-code", "--yes"]);

    let output = String::from_utf8(shown.stdout).unwrap();
    assert!(
        output.contains("sshjobs") && !output.contains("hunter2"),
        "{output}"
    );
    let servers = json_at(&file)["mcpServers"].take();
    assert_eq!(servers["other"], other["mcpServers"]["other"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_that_the_client_makes_while_a_person_thinks_is_kept() {
    let home = home();
    let file = home.path().join(".claude.json");
    std::fs::write(&file, "{}\n").unwrap();
    let program = env!("CARGO_BIN_EXE_sshjobs");
    let command = format!(
        "HOME={} {program} mcp install claude-code",
        home.path().display()
    );
    let tmux = Tmux::start(&command, (100, 24));
    tmux.shows(&["[y/N]"]).await;

    std::fs::write(&file, "{\"theme\": \"new\"}\n").unwrap();
    tmux.press(&["y", "Enter"]);

    tmux.shows(&["has changed meanwhile", "ended with 2"]).await;
    assert_eq!(json_at(&file), json!({"theme": "new"}));
}
