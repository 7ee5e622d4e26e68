//! Errors of a caller, each with its code, over MCP against a real sshd. None of them loses
//! anything.

use crate::support::{HOST, McpClient, Sshd, assert_dead};
use serde_json::{Value, json};

struct Session {
    client: McpClient,
    /// A job that runs.
    job: Value,
    _sshd: Sshd,
}

impl Session {
    async fn start() -> Self {
        let sshd = Sshd::start().await;
        let mut client = McpClient::start(&sshd.ssh_config());
        let job = client.ok(
            "ssh_spawn",
            json!({"host": HOST, "command": "echo ready; cat"}),
        )["job_id"]
            .clone();
        client.ok("ssh_tail", json!({"job_id": job, "wait_ms": 10_000}));
        Self {
            client,
            job,
            _sshd: sshd,
        }
    }

    /// Makes a call on the job that must fail; its error's code and message.
    fn error(&mut self, tool: &str, mut arguments: Value) -> (String, String) {
        arguments["job_id"] = self.job.clone();
        let result = self.client.call(tool, arguments);
        assert_eq!(result["isError"], true, "{result}");
        let error = &result["_meta"]["sshjobs/error"];
        assert!(
            error["hint"].as_str().is_some_and(|hint| !hint.is_empty()),
            "{result}"
        );
        (
            error["code"].as_str().unwrap().to_owned(),
            error["message"].as_str().unwrap().to_owned(),
        )
    }

    fn assert_invalid(&mut self, tool: &str, arguments: Value, part: &str) {
        let (code, message) = self.error(tool, arguments.clone());
        assert_eq!(code, "invalid_argument", "{tool} {arguments}: {message}");
        assert!(
            message.contains(part),
            "{tool} {arguments}: {message:?} does not mention {part:?}"
        );
    }

    /// The job is unharmed: it still answers input.
    fn assert_alive(&mut self) {
        let arguments =
            json!({"job_id": self.job, "data": "alive", "newline": true, "wait_ms": 10_000});
        let reply = self.client.ok("ssh_write", arguments);
        assert_eq!(reply["tail"]["lines"], json!(["alive"]));
    }
}

#[tokio::test]
async fn an_invalid_regular_expression_is_refused_with_its_reason() {
    let mut session = Session::start().await;
    session.assert_invalid("ssh_tail", json!({"until": "("}), "unclosed group");
    session.assert_invalid(
        "ssh_search",
        json!({"pattern": "*"}),
        "pattern is not a regular expression",
    );
    session.assert_invalid(
        "ssh_search",
        json!({"pattern": "a{1000}{1000}{1000}"}),
        "pattern",
    );
    session.assert_alive();
}

#[tokio::test]
async fn unknown_streams_units_encodings_and_modes_are_refused_with_the_known_ones() {
    let mut session = Session::start().await;
    session.assert_invalid(
        "ssh_tail",
        json!({"stream": "stdin"}),
        "`both`, `stdout`, `stderr`",
    );
    session.assert_invalid(
        "ssh_search",
        json!({"pattern": "x", "stream": "out"}),
        "stream: unknown variant",
    );
    session.assert_invalid(
        "ssh_read",
        json!({"unit": "words"}),
        "`lines`, `chars`, `bytes`",
    );
    session.assert_invalid("ssh_read", json!({"encoding": "hex"}), "encoding");
    session.assert_invalid(
        "ssh_read",
        json!({"unit": "lines", "encoding": "base64"}),
        "base64",
    );
    session.assert_invalid("ssh_forget", json!({"what": "everything"}), "what");
    session.assert_invalid(
        "ssh_forget",
        json!({"stream": "stdout", "force": true}),
        "by stream",
    );
    session.assert_alive();
}

#[tokio::test]
async fn unknown_keys_are_refused_and_nothing_is_pressed() {
    let mut session = Session::start().await;
    session.assert_invalid(
        "ssh_write",
        json!({"data": "x", "keys": ["tab", "hyper"]}),
        "hyper",
    );
    session.assert_invalid("ssh_write", json!({"keys": ["ctrl+1"]}), "ctrl+1");
    // A key without effect, because the job has no terminal.
    session.assert_invalid("ssh_write", json!({"keys": ["ctrl+c"]}), "terminal");
    session.assert_alive();
}

#[tokio::test]
async fn negative_sizes_are_refused() {
    let mut session = Session::start().await;
    for (tool, field) in [
        ("ssh_tail", "max_lines"),
        ("ssh_tail", "max_bytes"),
        ("ssh_read", "length"),
        ("ssh_read", "limit"),
        ("ssh_read", "max_bytes"),
        ("ssh_search", "context"),
        ("ssh_search", "max_matches"),
    ] {
        let mut arguments = json!({ field: -1 });
        if tool == "ssh_search" {
            arguments["pattern"] = json!("x");
        }
        session.assert_invalid(tool, arguments, field);
    }
    session.assert_invalid(
        "ssh_read",
        json!({"length": 1, "limit": 1}),
        "length and limit",
    );
    assert_eq!(
        session.client.code("ssh_jobs", json!({"limit": -1})),
        "invalid_argument"
    );
    session.assert_alive();
}

#[tokio::test]
async fn garbage_instead_of_base64_is_refused_and_not_repeated() {
    let mut session = Session::start().await;
    for garbage in ["hunter2!", "aGk", "====", "aGk=\u{e9}"] {
        let (code, message) = session.error("ssh_write", json!({"data_base64": garbage}));
        assert_eq!(code, "invalid_argument");
        assert!(!message.contains(garbage), "{message}");
    }
    session.assert_alive();
}

#[tokio::test]
async fn data_too_long_for_one_write_is_refused_whole() {
    let mut session = Session::start().await;
    session.assert_invalid(
        "ssh_write",
        json!({"data": "x".repeat((1 << 20) + 1)}),
        "too many",
    );
    session.assert_invalid(
        "ssh_write",
        json!({"data": "x".repeat(5 << 20)}),
        "too many",
    );
    session.assert_alive();
}

#[tokio::test]
async fn a_secret_of_the_wrong_type_is_not_repeated() {
    let mut session = Session::start().await;
    let (code, message) = session.error("ssh_write", json!({"data": 31_337, "secret": true}));
    assert_eq!(
        (code.as_str(), message.as_str()),
        (
            "invalid_argument",
            "data: invalid type: integer, expected a string"
        )
    );
    let (_, message) = session.error("ssh_write", json!({"secret": "hunter2"}));
    assert_eq!(message, "secret: invalid type: string, expected a boolean");
    session.assert_alive();
}

#[tokio::test]
async fn writing_to_a_finished_job_is_an_error_of_its_own() {
    let mut session = Session::start().await;
    session.client.ok(
        "ssh_write",
        json!({"job_id": session.job, "close_after": true}),
    );
    session.client.ok("ssh_wait", json!({"job_ids": [session.job]}));
    assert_eq!(
        session.error("ssh_write", json!({"data": "x"})).0,
        "job_ended"
    );
    let reply = session.client.ok("ssh_tail", json!({"job_id": session.job}));
    assert_eq!(
        (&reply["lines"], &reply["exit_status"]),
        (&json!(["ready"]), &json!(0))
    );
}

#[tokio::test]
async fn reading_past_the_end_is_empty_and_no_error() {
    let mut session = Session::start().await;
    for (unit, nothing) in [
        ("lines", json!([])),
        ("chars", json!("")),
        ("bytes", json!("")),
    ] {
        let arguments = json!({"job_id": session.job, "unit": unit, "offset": 1_000_000});
        let reply = session.client.ok("ssh_read", arguments);
        let content = if unit == "lines" {
            &reply["lines"]
        } else {
            &reply["content"]
        };
        assert_eq!(
            (content, &reply["has_more"], &reply["remaining"]),
            (&nothing, &json!(false), &Value::Null)
        );
    }
    for extreme in [i64::MAX, i64::MIN] {
        let reply = session.client.ok(
            "ssh_read",
            json!({"job_id": session.job, "offset": extreme}),
        );
        assert_eq!(
            reply["returned"],
            if extreme < 0 { 1 } else { 0 },
            "{reply}"
        );
    }
    session.assert_alive();
}

#[tokio::test]
async fn signals_are_known_in_any_spelling_and_unknown_ones_refused() {
    let mut session = Session::start().await;
    session.assert_invalid("ssh_signal", json!({"signal": "NOPE"}), "NOPE");
    session.assert_invalid("ssh_signal", json!({"signal": "99"}), "99");
    session.assert_alive();
    for spelling in ["TERM", "SIGTERM", "15", "term", "SigTerm"] {
        let arguments = json!({"host": HOST, "command": "echo ready; sleep 1000"});
        let job = session.client.ok("ssh_spawn", arguments)["job_id"].clone();
        // A shell that has just begun may not be in its final shape yet.
        session.client.ok(
            "ssh_tail",
            json!({"job_id": job, "until": "ready", "wait_ms": 30_000}),
        );
        let reply = session.client.ok("ssh_signal", json!({"job_id": job, "signal": spelling}));
        assert_eq!(reply["exit_signal"], "TERM", "{spelling}");
        assert_dead(&reply);
    }
}

#[tokio::test]
async fn readers_have_names_and_there_is_an_end_to_them() {
    let mut session = Session::start().await;
    session.assert_invalid("ssh_tail", json!({"reader": ""}), "reader");
    session.assert_invalid("ssh_tail", json!({"reader": "x".repeat(65)}), "reader");
    for number in 0..64 {
        session.client.ok(
            "ssh_tail",
            json!({"job_id": session.job, "reader": format!("reader {number}")}),
        );
    }
    assert_eq!(
        session.error("ssh_tail", json!({"reader": "one too many"})).0,
        "capacity"
    );
    session.client.ok(
        "ssh_tail",
        json!({"job_id": session.job, "reader": "reader 63"}),
    );
    session.assert_alive();
}

#[tokio::test]
async fn waiting_for_no_job_or_an_unknown_one_is_refused() {
    let mut session = Session::start().await;
    assert_eq!(
        session.client.code("ssh_wait", json!({"job_ids": []})),
        "invalid_argument"
    );
    assert_eq!(
        session.client.code(
            "ssh_wait",
            json!({"job_ids": [session.job, "web1-zzzzzzzz"]})
        ),
        "unknown_job"
    );
    assert_eq!(
        session.client.code("ssh_wait", json!({"job_ids": session.job})),
        "invalid_argument"
    );
    assert_eq!(
        session.client.code(
            "ssh_wait",
            json!({"job_ids": [session.job], "mode": "some"})
        ),
        "invalid_argument"
    );
    session.assert_alive();
}

#[tokio::test]
async fn words_have_an_end() {
    let mut session = Session::start().await;
    let long = "x".repeat(201);
    for field in ["label", "idempotency_key"] {
        let arguments = json!({"host": HOST, "command": "true", field: long});
        assert_eq!(
            session.client.code("ssh_spawn", arguments),
            "invalid_argument"
        );
    }
    let result = session.client.call("ssh_tail", json!({"job_id": "x".repeat(100_000)}));
    assert!(
        result.to_string().len() < 1000,
        "an error must not repeat all it was given"
    );
}

#[tokio::test]
async fn a_line_that_is_not_json_gets_an_error() {
    let mut session = Session::start().await;
    let command = "\"command\":\"echo \\ud800\"";
    let params = format!("{{\"name\":\"ssh_run\",\"arguments\":{{\"host\":\"web1\",{command}}}}}");
    session.client.send_text(&format!(
        "{{\"jsonrpc\":\"2.0\",\"id\":9001,\"method\":\"tools/call\",\"params\":{params}}}"
    ));
    let answer = session.client.response(9001);
    assert_eq!(answer["error"]["code"], -32700, "{answer}");
    session.assert_alive();
}

#[tokio::test]
async fn numbers_may_come_as_floats_and_jobs_twice() {
    let mut session = Session::start().await;
    let reply = session.client.ok(
        "ssh_read",
        json!({"job_id": session.job, "offset": 0.0, "length": 10.0}),
    );
    assert_eq!(reply["returned"], 1);
    session.assert_invalid("ssh_read", json!({"offset": 0.5}), "offset");
    let reply = session.client.ok(
        "ssh_wait",
        json!({"job_ids": [session.job, session.job], "wait_ms": 0}),
    );
    assert_eq!(reply["jobs"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn texts_that_are_exactly_another_type_are_read_so_and_the_reply_says_it() {
    let mut session = Session::start().await;
    let sent = json!({
        "host": HOST, "command": "echo $A", "wait_ms": "5000", "pty": "false", "env": "{\"A\": \"5000\"}",
    });
    let reply = session.client.ok("ssh_run", sent);
    assert_eq!(reply["head"], json!(["5000"]));
    let read: Vec<_> = reply["clamped"]
        .as_array()
        .unwrap()
        .iter()
        .map(|text| {
            (
                text["field"].as_str().unwrap(),
                text["read_as"].as_str().unwrap(),
            )
        })
        .collect();
    assert_eq!(
        read,
        [("env", "object"), ("pty", "boolean"), ("wait_ms", "number")]
    );
    let jobs = format!("[{}]", json!(session.job));
    let waited = session.client.ok("ssh_wait", json!({"job_ids": jobs, "wait_ms": "0"}));
    assert_eq!(waited["jobs"].as_array().unwrap().len(), 1);
}
