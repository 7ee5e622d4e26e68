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
                "{call:?} is more than {bound:?}, in {:?}",
                self.calls
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
    ("ssh_spawn", 85, 89),
    ("ssh_wait", 290, 280),
    ("ssh_tail", 28_980, 30_020),
    ("ssh_tail", 29_200, 30_230),
    ("ssh_search", 410, 430),
    ("ssh_read", 1330, 1410),
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

const PROGRESS_BAR: &[(&str, usize, usize)] = &[("ssh_run", 145, 180), ("ssh_tail", 220, 260)];

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
    ("ssh_spawn", 85, 89),
    ("ssh_tail", 210, 245),
    ("ssh_write", 230, 280),
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

/// Most bytes of one reply in the tasks below, as text and as structured content.
const MOST_BYTES: usize = 6 << 10;
/// Most calls of one task.
const MOST_CALLS: usize = 3;

impl Transcript {
    /// Checks the budget of a task.
    fn assert_cheap(&self, task: &str) {
        assert!(self.calls.len() <= MOST_CALLS, "{task}: {:?}", self.calls);
        for (tool, text, structured) in &self.calls {
            assert!(
                *text <= MOST_BYTES && *structured <= MOST_BYTES,
                "{task}: {tool} costs {text} and {structured} bytes"
            );
        }
    }

    /// Starts a program on a terminal and waits until it shows this, in one call.
    fn start_program(&mut self, command: &str, until: &str) -> Value {
        let run = json!({
            "host": HOST, "command": command, "pty": true, "until": until, "wait_ms": 20_000
        });
        let reply = self.call("ssh_run", run);
        assert_eq!(reply["still_running"], true, "{reply}");
        reply["job_id"].clone()
    }

    /// A call whose reply has all of these.
    fn finds(&mut self, tool: &'static str, arguments: Value, texts: &[&str]) -> Value {
        let reply = self.call(tool, arguments);
        let shown = reply.to_string();
        for text in texts {
            assert!(shown.contains(text), "{text} is not in {shown}");
        }
        reply
    }
}

/// Twelve everyday tasks of agents: each in at most three calls of at most 6 KB.
#[tokio::test]
async fn a_long_build_that_fails_shows_its_one_error() {
    let mut session = Transcript::start().await;
    let build = "for i in $(seq 20000); do echo \"[$i/20000] compiling module_$i with all its dependencies\"; \
        [ $i != 12000 ] || echo 'src/main.c:7: error: expected ;' >&2; done; exit 2";
    let run = json!({"host": HOST, "command": build, "wait_ms": 45_000});
    session.finds(
        "ssh_run",
        run,
        &["src/main.c:7: error", "\"exit_status\":2"],
    );
    session.assert_cheap("a build");
}

#[tokio::test]
async fn a_menu_is_answered() {
    let mut session = Transcript::start().await;
    let menu = "dialog --stdout --menu 'Choose a disk' 12 40 4 sda system sdb data sdc backup";
    let job = session.start_program(menu, "Cancel");
    session.finds(
        "ssh_read",
        json!({"job_id": job, "unit": "screen"}),
        &["sdb  data", "OK"],
    );
    let keys = json!({"job_id": job, "keys": ["down", "enter"], "unit": "screen"});
    session.finds("ssh_write", keys, &["sdb"]);
    session.assert_cheap("a menu");
}

#[tokio::test]
async fn what_the_machine_is_doing_is_seen_in_top() {
    let mut session = Transcript::start().await;
    let job = session.start_program("top -d 1", "PID");
    session.finds(
        "ssh_read",
        json!({"job_id": job, "unit": "screen"}),
        &["load average", "PID"],
    );
    session.finds(
        "ssh_write",
        json!({"job_id": job, "data": "q", "unit": "screen"}),
        &["bytes_written"],
    );
    session.assert_cheap("top");
}

#[tokio::test]
async fn a_file_is_edited_in_vim() {
    let mut session = Transcript::start().await;
    let vim = "f=$(mktemp); vim -u NONE -N $f; cat $f; rm $f";
    let job = session.start_program(vim, "~");
    let typed = json!({"job_id": job, "data": "ihello", "keys": ["esc"], "unit": "screen"});
    session.finds("ssh_write", typed, &["hello", "alternate"]);
    // Vim's end clears the screen. On a busy machine `cat` prints much later.
    let saved = json!({
        "job_id": job, "data": ":wq", "newline": true, "unit": "screen", "wait_ms": 20_000, "quiet_ms": 5000
    });
    session.finds("ssh_write", saved, &["hello"]);
    session.assert_cheap("vim");
}

#[tokio::test]
async fn a_question_is_answered_in_one_call_after_it_was_seen() {
    let mut session = Transcript::start().await;
    let asks = "printf 'Continue? [Y/n] '; read a; [ \"$a\" = y ] && echo installed";
    let job = session.start_program(asks, r"\[Y/n\]");
    let answer =
        json!({"job_id": job, "data": "y", "newline": true, "wait_ms": 20_000, "quiet_ms": 300});
    session.finds("ssh_write", answer, &["installed"]);
    session.assert_cheap("a question");
}

#[tokio::test]
async fn a_server_is_started_and_its_readiness_waited_for() {
    let mut session = Transcript::start().await;
    let server = "seq 500; echo Listening on 8080; sleep 600";
    let run = json!({"host": HOST, "command": server, "until": "Listening", "keep": "last", "wait_ms": 20_000});
    let reply = session.finds(
        "ssh_run",
        run,
        &["Listening on 8080", "\"still_running\":true"],
    );
    let stop = json!({"job_id": reply["job_id"], "grace_ms": 3000});
    session.finds("ssh_signal", stop, &["\"confirmed_dead\":true"]);
    session.assert_cheap("a server");
}

#[tokio::test]
async fn three_builds_are_followed_with_one_call() {
    let mut session = Transcript::start().await;
    let jobs: Vec<Value> = (1..=3)
        .map(|n| {
            let command = format!("seq 100; echo build {n} done; exit {n}");
            let spawn = json!({"host": HOST, "command": command});
            session.client.ok("ssh_spawn", spawn)["job_id"].clone()
        })
        .collect();
    session.call("ssh_wait", json!({"job_ids": jobs, "wait_ms": 20_000}));
    session.finds(
        "ssh_tail",
        json!({"job_ids": jobs, "filter": "done"}),
        &["build 1 done", "build 2 done", "build 3 done", "cursors"],
    );
    session.assert_cheap("three builds");
}

#[tokio::test]
async fn errors_in_a_long_log_are_found() {
    let mut session = Transcript::start().await;
    let noisy = "for i in $(seq 5000); do echo line $i; done; echo 'ERROR disk full'; seq 5000";
    let run = json!({"host": HOST, "command": noisy, "filter": "(?i)error", "wait_ms": 20_000});
    session.finds("ssh_run", run, &["ERROR disk full"]);
    session.assert_cheap("a long log");
}

#[tokio::test]
async fn a_job_that_asks_is_found_among_others() {
    let mut session = Transcript::start().await;
    for n in 0..5 {
        let spawn = json!({"host": HOST, "command": format!("echo {n}; sleep 600")});
        session.client.ok("ssh_spawn", spawn);
    }
    let spawn = json!({"host": HOST, "command": "printf 'Password: '; read x", "pty": true});
    let asking = session.client.ok("ssh_spawn", spawn)["job_id"].clone();
    session.client.ok(
        "ssh_tail",
        json!({"job_id": asking, "quiet_ms": 500, "wait_ms": 20_000}),
    );
    let listed = session.call("ssh_jobs", json!({"state": "running"}));
    let waiting: Vec<&Value> = listed["jobs"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|job| job["awaiting_input"] == true)
        .map(|job| &job["job_id"])
        .collect();
    assert_eq!(waiting, [&asking]);
    session.assert_cheap("a job that asks");
}

#[tokio::test]
async fn a_command_runs_on_every_host_with_one_summary() {
    let sshd = Sshd::start().await;
    sshd.alias(["web2", "web3", "web4"]);
    let mut session = Transcript {
        client: McpClient::start(&sshd.ssh_config()),
        _sshd: sshd,
        calls: Vec::new(),
    };
    let run = json!({"hosts": ["web*"], "command": "seq 2000; echo up", "wait_ms": 40_000});
    session.finds("ssh_run", run, &["\"ok\":4"]);
    session.assert_cheap("four hosts");
}

#[tokio::test]
async fn a_python_session_computes() {
    let mut session = Transcript::start().await;
    let job = session.start_program("python3 -q", ">>>");
    let input = json!({"job_id": job, "data": "print(6 * 7)", "newline": true, "unit": "screen"});
    session.finds("ssh_write", input, &["42"]);
    let end = json!({"job_id": job, "keys": ["Ctrl-D"], "unit": "screen"});
    session.finds("ssh_write", end, &["\"still_running\":"]);
    session.assert_cheap("python");
}

#[tokio::test]
async fn a_job_outlives_its_server_and_is_read_by_the_next_one() {
    let sshd = Sshd::start().await;
    let mut session = Transcript {
        client: McpClient::start(&sshd.ssh_config()),
        _sshd: sshd,
        calls: Vec::new(),
    };
    let command = "echo begun; sleep 1; echo finished; exit 3";
    let spawn = json!({"host": HOST, "command": command, "durable": true});
    let job = session.call("ssh_spawn", spawn)["job_id"].clone();
    session.client = McpClient::start(&session._sshd.ssh_config());
    session.call("ssh_wait", json!({"job_ids": [job], "wait_ms": 30_000}));
    session.finds(
        "ssh_tail",
        json!({"job_id": job}),
        &["finished", "\"exit_status\":3"],
    );
    session.assert_cheap("a durable job");
}
