//! Exports: a job's output as a recording, as text and as JSON lines.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::support::command::{sshjobs, told};
use crate::support::server::Server;
use crate::support::{HOST, McpClient, Sshd};

/// The events of a recording, without its header.
fn events(recording: &str) -> Vec<Value> {
    recording
        .lines()
        .skip(1)
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// The text that a recording shows.
fn shown(recording: &str) -> String {
    let events = events(recording);
    let output = events.iter().filter(|event| event[1] == "o");
    output.map(|event| event[2].as_str().unwrap()).collect()
}

/// What asciinema prints on a terminal when it plays a file without pauses, without carriage returns.
fn played(file: &Path) -> String {
    let command = format!("asciinema cat {}", file.display());
    let output = Command::new("script").args(["-qec", &command, "/dev/null"]).output();
    let output = output.expect("`make test` installs script and asciinema");
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap().replace('\r', "")
}

#[tokio::test]
async fn a_recording_has_the_output_at_its_times_and_asciinema_plays_it() {
    let sshd = Sshd::start().await;
    let command = "printf 'a\\303\\244\\n'; sleep 3; printf 'later\\n' >&2; sleep 0.5; exit 3";
    let id = told(&sshjobs(
        &sshd,
        &["spawn", "--label", "demo", HOST, "--", command],
    ));
    let id = id.trim();
    sshjobs(&sshd, &["wait", id]);

    let file = sshd.path("job.cast");
    let path = file.display().to_string();
    told(&sshjobs(&sshd, &["export", id, "-o", &path]));
    // A pipe, by a link that leads to no path.
    let printed = told(&sshjobs(&sshd, &["export", id, "-o", "/dev/stdout"]));
    assert_eq!(printed, std::fs::read_to_string(&path).unwrap());
    let recording = fs::read_to_string(&file).unwrap();
    let header: Value = serde_json::from_str(recording.lines().next().unwrap()).unwrap();
    assert_eq!(
        (
            &header["version"],
            &header["width"],
            &header["height"],
            &header["title"]
        ),
        (&json!(2), &json!(80), &json!(24), &json!("demo"))
    );
    assert_eq!(header["command"], command);
    assert!(header["timestamp"].as_u64().unwrap() > 1_700_000_000);
    assert_eq!(shown(&recording), "aä\r\nlater\r\n");
    let times: Vec<f64> =
        events(&recording).iter().map(|event| event[0].as_f64().unwrap()).collect();
    let between = times[times.len() - 1] - times[0];
    // The first output may arrive late, because the host is busy with the start.
    assert!((0.3..30.0).contains(&between), "{times:?}");
    let played = played(&file);
    assert!(played.contains("aä\nlater\n"), "{played:?}");

    let v3 = told(&sshjobs(&sshd, &["export", id, "--format", "asciicast-v3"]));
    let header: Value = serde_json::from_str(v3.lines().next().unwrap()).unwrap();
    assert_eq!(header["term"], json!({"cols": 80, "rows": 24}));
    let last = events(&v3).pop().unwrap();
    assert_eq!((&last[1], &last[2]), (&json!("x"), &json!("3")));
}

#[tokio::test]
async fn a_recording_of_a_terminal_has_its_bytes_and_sizes() {
    let sshd = Sshd::start().await;
    let mut client = McpClient::start(&sshd.ssh_config());
    let command = "printf '\\033[31mred\\033[m '; read x; stty size; echo done";
    let started = client.ok(
        "ssh_spawn",
        json!({"host": HOST, "command": command, "pty": true, "cols": 100, "rows": 30}),
    );
    let job = started["job_id"].as_str().unwrap().to_owned();
    client.ok(
        "ssh_tail",
        json!({"job_id": job, "until": "red", "wait_ms": 20_000}),
    );
    client.ok("ssh_write", json!({"job_id": job, "cols": 120, "rows": 40}));
    client.ok(
        "ssh_write",
        json!({"job_id": job, "data": "typed", "newline": true}),
    );
    client.ok("ssh_wait", json!({"job_ids": [job], "wait_ms": 20_000}));

    let recording = told(&sshjobs(&sshd, &["export", &job]));
    let header: Value = serde_json::from_str(recording.lines().next().unwrap()).unwrap();
    assert_eq!(
        (&header["width"], &header["height"]),
        (&json!(100), &json!(30))
    );
    assert!(
        shown(&recording).starts_with("\u{1b}[31mred\u{1b}[m "),
        "{recording}"
    );
    assert!(shown(&recording).contains("40 120\r\ndone"), "{recording}");
    let events = events(&recording);
    assert!(
        events.iter().any(|event| event[1] == "r" && event[2] == "120x40"),
        "{recording}"
    );
    assert!(
        !events.iter().any(|event| event[1] == "i"),
        "no keys are recorded"
    );
}

#[tokio::test]
async fn text_and_json_have_every_line_also_through_a_server() {
    let sshd = Sshd::start().await;
    let server = Server::start(&sshd);
    let caller = server.caller(&sshd, "ci", &[]);
    let job = caller.spawn("seq 30000; printf '\\033[1mbold\\033[m\\n' >&2");
    caller.ok("wait", json!({"job_ids": [job], "wait_ms": 50_000}));
    let numbers: String = (1..=30_000).map(|number| format!("{number}\n")).collect();

    let socket = server.socket.display().to_string();
    let export = |format: &str| {
        let arguments = ["--server", &socket, "export", &job, "--format", format];
        let mut command = crate::support::command::command(&sshd, &arguments);
        command.env("SSHJOBS_TOKEN", &caller.token).stdout(std::process::Stdio::piped());
        told(&command.output().unwrap())
    };
    let text = export("text");
    assert_eq!(text.replace("bold\n", ""), numbers);
    assert!(text.contains("bold\n"));
    let lines: Vec<Value> =
        export("json").lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 30_001);
    let bold = lines.iter().find(|line| line["stream"] == "stderr").unwrap();
    assert_eq!(bold["text"], "\u{1b}[1mbold\u{1b}[m");
    let recording = export("asciicast-v2");
    assert_eq!(
        shown(&recording).replace("\r\n", "\n").replace("\u{1b}[1mbold\u{1b}[m\n", ""),
        numbers
    );
    let mut response = caller.get(&format!("/v1/jobs/{job}/export?format=text"));
    assert_eq!(
        response.headers()["content-type"],
        "text/plain; charset=utf-8"
    );
    assert_eq!(response.body_mut().read_to_string().unwrap(), text);
}

#[tokio::test]
async fn deleted_output_is_in_no_export_and_a_recording_says_what_is_missing() {
    let sshd = Sshd::start().await;
    let server = Server::start(&sshd);
    let caller = server.caller(&sshd, "ci", &[]);
    let job = caller.spawn("echo secret; read x; echo public");
    let until = json!({"job_id": job, "until": "secret", "wait_ms": 20_000});
    caller.ok("tail", until);
    caller.ok("forget", json!({"job_id": job, "what": "output"}));
    caller.ok(
        "write",
        json!({"job_id": job, "data": "x", "newline": true}),
    );
    caller.ok("wait", json!({"job_ids": [job], "wait_ms": 20_000}));

    for format in ["asciicast-v2", "asciicast-v3", "text", "json"] {
        let path = format!("/v1/jobs/{job}/export?format={format}");
        let exported = caller.get(&path).body_mut().read_to_string().unwrap();
        assert!(exported.contains("public"), "{format}: {exported}");
        let without_header: String = exported.lines().skip(1).collect();
        assert!(!without_header.contains("secret"), "{format}: {exported}");
        if format.starts_with("asciicast") {
            assert!(exported.contains("7 bytes are not kept"), "{exported}");
        }
    }
}

#[tokio::test]
async fn mistakes_are_told() {
    let sshd = Sshd::start().await;
    let server = Server::start(&sshd);
    let caller = server.caller(&sshd, "ci", &[]);
    let fleet = caller.ok("spawn", json!({"hosts": [HOST], "command": "echo x"}));
    let fleet = fleet["job_id"].as_str().unwrap();
    for (path, status) in [
        ("none-12345678/export".to_owned(), 404),
        (format!("{fleet}/export"), 400),
        (format!("{fleet}/export?format=mp4"), 400),
    ] {
        let response = caller.get(&format!("/v1/jobs/{path}"));
        assert_eq!(response.status().as_u16(), status, "{path}");
    }
    let output = sshjobs(&sshd, &["export", "last", "--format", "mp4"]);
    assert!(String::from_utf8_lossy(&output.stderr).contains("asciicast-v2, asciicast-v3"));
}
