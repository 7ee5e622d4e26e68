//! Cost of typical sessions for an agent, in bytes per reply, so that growth is noticed.
//!
//! A client may forward the text of a reply, its structured content, or both; each is counted. The
//! limits are measured values plus some room for numbers that vary (times, the length of a
//! silence).

use crate::support::{HOST, McpClient, Sshd};
use serde_json::{Value, json};

struct Transcript {
    client: McpClient,
    _sshd: Sshd,
    /// The calls so far, with the bytes of their text and of their structured content.
    calls: Vec<(&'static str, usize, usize)>,
}

impl Transcript {
    async fn start() -> Self {
        let sshd = Sshd::start().await;
        Self {
            client: McpClient::start(&sshd.ssh_config()),
            _sshd: sshd,
            calls: Vec::new(),
        }
    }

    fn call(&mut self, tool: &'static str, arguments: Value) -> Value {
        let result = self.client.call(tool, arguments);
        assert_ne!(result["isError"], true, "{result}");
        let text = result["content"][0]["text"].as_str().unwrap().len();
        let structured = result["structuredContent"].to_string().len();
        self.calls.push((tool, text, structured));
        result["structuredContent"].clone()
    }

    fn assert_within(&self, bounds: &[(&str, usize, usize)]) {
        let tools: Vec<_> = self.calls.iter().map(|call| call.0).collect();
        assert_eq!(
            tools,
            bounds.iter().map(|bound| bound.0).collect::<Vec<_>>(),
            "another session"
        );
        for (call, bound) in self.calls.iter().zip(bounds) {
            assert!(
                call.1 <= bound.1 && call.2 <= bound.2,
                "{call:?} is more than {bound:?}"
            );
        }
    }
}

#[tokio::test]
async fn a_build_log() {
    let mut session = Transcript::start().await;
    let command = "for i in $(seq 1 1000); do echo \"[$i/1000] compiling module_$i with all its dependencies\"; done; exit 2";
    let job =
        session.call("ssh_spawn", json!({"host": HOST, "command": command}))["job_id"].clone();
    session.call("ssh_wait", json!({"job_ids": [job]}));
    let mut cursor = json!(0);
    loop {
        let reply = session.call(
            "ssh_tail",
            json!({"job_id": job, "since_line_no": cursor, "wait_ms": 5000}),
        );
        cursor = reply["last_line_no"].clone();
        if reply["still_running"] == false {
            break;
        }
    }
    session.call("ssh_search", json!({"job_id": job, "pattern": r"\[500/"}));
    session.call("ssh_read", json!({"job_id": job, "offset": -20}));
    session.assert_within(BUILD_LOG);
}

const BUILD_LOG: &[(&str, usize, usize)] = &[
    ("ssh_spawn", 90, 90),
    ("ssh_wait", 420, 420),
    ("ssh_tail", 29_030, 30_070),
    ("ssh_tail", 29_250, 30_290),
    ("ssh_search", 420, 440),
    ("ssh_read", 1360, 1440),
];

#[tokio::test]
async fn a_progress_bar() {
    let mut session = Transcript::start().await;
    let command = "for i in $(seq 1 100); do printf '\\r\\033[K%3d%% [##########          ] 12.3 MB/s' $i; done; echo; echo done";
    let job = session.call("ssh_run", json!({"host": HOST, "command": command}))["job_id"].clone();
    let reply = session.call("ssh_tail", json!({"job_id": job}));
    assert_eq!(
        reply["lines"],
        json!(["100% [##########          ] 12.3 MB/s", "done"])
    );
    session.assert_within(PROGRESS_BAR);
}

const PROGRESS_BAR: &[(&str, usize, usize)] = &[("ssh_run", 170, 210), ("ssh_tail", 280, 330)];

#[tokio::test]
async fn a_prompt() {
    let mut session = Transcript::start().await;
    let command = "printf 'Overwrite? [y/N] '; read a; echo \"you said $a\"";
    let job = session.call(
        "ssh_spawn",
        json!({"host": HOST, "command": command, "pty": true}),
    )["job_id"]
        .clone();
    session.client.ok(
        "ssh_tail",
        json!({"job_id": job, "until": r"\] $", "wait_ms": 10_000}),
    );
    let asked = session.call(
        "ssh_tail",
        json!({"job_id": job, "quiet_ms": 400, "wait_ms": 10_000}),
    );
    assert_eq!(asked["awaiting_input"], true);
    let answer =
        json!({"job_id": job, "data": "y", "newline": true, "wait_ms": 10_000, "quiet_ms": 400});
    let answered = session.call("ssh_write", answer);
    assert_eq!(
        answered["tail"]["lines"],
        json!(["Overwrite? [y/N] y", "you said y"])
    );
    session.assert_within(PROMPT);
}

const PROMPT: &[(&str, usize, usize)] = &[
    ("ssh_spawn", 90, 90),
    ("ssh_tail", 250, 290),
    ("ssh_write", 300, 360),
];

#[tokio::test]
async fn a_lean_page_costs_at_most_three_bytes_a_line_over_its_text() {
    let mut session = Transcript::start().await;
    let job = session.call(
        "ssh_run",
        json!({"host": HOST, "command": "seq 1000000 1000999"}),
    )["job_id"]
        .clone();
    let result = session.client.call("ssh_tail", json!({"job_id": job, "max_lines": 500}));
    let (text, structured) = (
        result["content"][0]["text"].as_str().unwrap(),
        &result["structuredContent"],
    );
    let of_text = 500 * "1000000".len();
    let body = text.split_once('\n').unwrap().1.len();
    let lines = structured["lines"].to_string().len();
    assert!(body <= of_text + 500, "{body} bytes of text");
    assert!(
        lines <= of_text + 3 * 500 + 1,
        "{lines} bytes of structured content"
    );
    // The part that does not grow with the lines.
    let head = (text.len() - body, structured.to_string().len() - lines);
    assert!(head.0 <= 300 && head.1 <= 400, "{head:?}");
}
