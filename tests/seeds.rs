//! The five contracts that this one replaces: what their callers rely on, and what broke there,
//! over MCP against a real sshd. Each test has its contract's name first.

use std::time::{Duration, Instant};

use crate::support::{HOST, McpClient, Sshd};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};

struct Session {
    client: McpClient,
    sshd: Sshd,
}

impl Session {
    async fn start() -> Self {
        Self::with_config("").await
    }

    /// With a configuration of its own.
    async fn with_config(config: &str) -> Self {
        let sshd = Sshd::start().await;
        std::fs::write(sshd.path("config.toml"), config).unwrap();
        let client = McpClient::start_with(&sshd.ssh_config(), &sshd.path("config.toml"));
        Self { client, sshd }
    }

    fn spawn(&mut self, command: &str) -> Value {
        self.client.ok("ssh_spawn", json!({"host": HOST, "command": command}))["job_id"].clone()
    }

    /// A job that is over.
    fn finished(&mut self, command: &str) -> Value {
        let job = self.spawn(command);
        let waited = self.client.ok("ssh_wait", json!({"job_ids": [job], "wait_ms": 30_000}));
        assert_eq!(waited["ended"], 1, "{waited}");
        job
    }

    fn tail(&mut self, job: &Value, more: Value) -> Value {
        self.client.ok("ssh_tail", with_job(job, more))
    }

    fn read(&mut self, job: &Value, more: Value) -> Value {
        self.client.ok("ssh_read", with_job(job, more))
    }

    fn write(&mut self, job: &Value, more: Value) -> Value {
        self.client.ok("ssh_write", with_job(job, more))
    }

    /// The loop that every agent is shown; all lines, and the last reply.
    fn canonical_loop(&mut self, job: &Value, stream: &str) -> (Vec<String>, Value) {
        let (mut cursor, mut lines) = (json!(0), Vec::new());
        loop {
            let reply = self.tail(
                job,
                json!({"since_line_no": cursor, "wait_ms": 5000, "max_lines": 500, "stream": stream}),
            );
            lines.extend(texts(&reply["lines"]));
            cursor = reply["last_line_no"].clone();
            if reply["still_running"] == false {
                return (lines, reply);
            }
        }
    }
}

fn with_job(job: &Value, mut more: Value) -> Value {
    more["job_id"] = job.clone();
    more
}

fn texts(lines: &Value) -> Vec<String> {
    lines
        .as_array()
        .unwrap()
        .iter()
        .map(|line| line.as_str().unwrap().to_owned())
        .collect()
}

fn numbered(count: u32) -> Vec<String> {
    (1..=count).map(|number| number.to_string()).collect()
}

// ssh_tail

#[tokio::test]
async fn ssh_tail_cursor_wait_and_size_are_brought_into_their_ranges_and_said_so() {
    let mut session = Session::start().await;
    let job = session.finished("echo a; echo b");
    let reply = session.tail(
        &job,
        json!({"since_line_no": -3, "wait_ms": 9, "max_lines": 20_000}),
    );
    assert_eq!(texts(&reply["lines"]), ["a", "b"]);
    let clamped: Vec<_> = reply["clamped"]
        .as_array()
        .unwrap()
        .iter()
        .map(|clamp| {
            (
                clamp["field"].as_str().unwrap(),
                clamp["used"].as_i64().unwrap(),
            )
        })
        .collect();
    assert_eq!(
        clamped,
        [("since_line_no", 0), ("max_lines", 10_000), ("wait_ms", 0)]
    );
    let reply = session.tail(&job, json!({"wait_ms": 600_000}));
    assert_eq!(
        reply["clamped"][0],
        json!({"field": "wait_ms", "asked": 600_000, "used": 50_000})
    );
}

#[tokio::test]
async fn ssh_tail_the_loop_delivers_all_5000_lines_of_a_finished_job() {
    let mut session = Session::start().await;
    let job = session.finished("seq 1 5000; exit 3");
    let (lines, last) = session.canonical_loop(&job, "both");
    assert_eq!(lines, numbered(5000));
    assert_eq!(
        (&last["exit_status"], &last["last_line_no"]),
        (&json!(3), &json!(5000))
    );
    assert_eq!(
        (&last["still_running"], &last["buffer_truncated"]),
        (&json!(false), &json!(false))
    );
}

#[tokio::test]
async fn ssh_tail_two_streams_under_load_are_merged_by_number_and_none_is_skipped() {
    let mut session = Session::start().await;
    let job = session
        .spawn("i=0; while [ $i -lt 2000 ]; do i=$((i+1)); echo out $i; echo err $i >&2; done");
    let (both, last) = session.canonical_loop(&job, "both");
    let of = |word: &str| (1..=2000).map(|number| format!("{word} {number}")).collect::<Vec<_>>();
    let only = |lines: &[String], word: &str| -> Vec<String> {
        lines.iter().filter(|line| line.starts_with(word)).cloned().collect()
    };
    assert_eq!(
        (only(&both, "out"), only(&both, "err")),
        (of("out"), of("err"))
    );
    assert_eq!((both.len(), &last["total_lines"]), (4000, &json!(4000)));
    assert_eq!(session.canonical_loop(&job, "stdout").0, of("out"));
    assert_eq!(session.canonical_loop(&job, "stderr").0, of("err"));
    let page = session.tail(&job, json!({"max_lines": 4000, "max_bytes": 262_144}));
    let first = page["first_line_no"].as_u64().unwrap();
    let stderr = page["stderr_lines"]
        .as_array()
        .unwrap()
        .iter()
        .map(|number| number.as_u64().unwrap() - first);
    let lines = texts(&page["lines"]);
    for index in stderr {
        assert!(
            lines[usize::try_from(index).unwrap()].starts_with("err"),
            "{page}"
        );
    }
}

#[tokio::test]
async fn ssh_tail_a_job_is_not_over_before_its_output_is_drained() {
    let mut session = Session::start().await;
    let job = session.spawn("(sleep 1; echo late) & echo early; exit 5");
    let (lines, last) = session.canonical_loop(&job, "both");
    assert_eq!(
        (lines, &last["exit_status"]),
        (vec!["early".to_owned(), "late".to_owned()], &json!(5))
    );
}

#[tokio::test]
async fn ssh_tail_a_prompt_without_newline_is_shown_and_not_consumed() {
    let mut session = Session::start().await;
    let job = session.spawn("printf 'name? '; read name; echo hello $name");
    let reply = session.tail(&job, json!({"until": r"\? $", "wait_ms": 10_000}));
    assert_eq!(
        (&reply["partial"]["stdout"], &reply["returned_because"]),
        (&json!("name? "), &json!("matched"))
    );
    assert_eq!(
        (&reply["last_line_no"], &reply["lines"]),
        (&json!(0), &json!([]))
    );
    let reply = session.write(
        &job,
        json!({"data": "bob", "newline": true, "wait_ms": 10_000}),
    );
    assert_eq!(texts(&reply["tail"]["lines"]), ["name? hello bob"]);
}

#[tokio::test]
async fn ssh_tail_a_reply_has_a_byte_bound_on_a_line_border() {
    let mut session = Session::start().await;
    let job =
        session.finished("for i in 1 2 3 4 5; do head -c 999 /dev/zero | tr '\\0' x; echo; done");
    let reply = session.tail(&job, json!({"max_bytes": 2500}));
    assert_eq!(
        (texts(&reply["lines"]).len(), &reply["has_more"]),
        (2, &json!(true))
    );
    assert_eq!(reply["still_running"], true, "there is more to read");
    let (lines, _) = session.canonical_loop(&job, "both");
    assert_eq!(lines.iter().map(String::len).collect::<Vec<_>>(), [999; 5]);
}

#[tokio::test]
async fn ssh_tail_distinguishes_a_cut_connection_a_signal_and_an_exit() {
    let mut session = Session::start().await;
    let killed = session.finished("echo x; kill -9 $$");
    let reply = session.tail(&killed, json!({}));
    assert_eq!(
        (&reply["state"], &reply["exit_signal"]),
        (&json!("signaled"), &json!("KILL"))
    );
    assert_eq!(reply.get("exit_status"), None);
    let cut = session.spawn("echo before; sleep 1000");
    session.tail(&cut, json!({"wait_ms": 10_000}));
    session.sshd.cut();
    let (lines, last) = session.canonical_loop(&cut, "both");
    assert_eq!(
        (lines, &last["state"]),
        (vec!["before".to_owned()], &json!("lost"))
    );
    assert_eq!(
        (last.get("exit_status"), last.get("exit_signal")),
        (None, None)
    );
}

#[tokio::test]
async fn ssh_tail_none_of_25_parallel_jobs_comes_back_empty() {
    let mut session = Session::start().await;
    let jobs: Vec<Value> = (0..25)
        .map(|number| session.spawn(&format!("echo job {number}; seq 1 100")))
        .collect();
    let waited = session.client.ok("ssh_wait", json!({"job_ids": jobs, "wait_ms": 30_000}));
    assert_eq!(
        (&waited["ended"], &waited["timed_out"]),
        (&json!(25), &Value::Null)
    );
    for (number, job) in jobs.iter().enumerate() {
        let (lines, last) = session.canonical_loop(job, "both");
        assert_eq!(
            (lines.len(), &lines[0], &last["exit_status"]),
            (101, &format!("job {number}"), &json!(0))
        );
    }
}

#[tokio::test]
async fn ssh_tail_reads_need_no_connection() {
    let mut session = Session::start().await;
    let job = session.finished("seq 1 100");
    let logins = |session: &Session| session.sshd.log().matches("Accepted publickey").count();
    let before = logins(&session);
    for cursor in 0..50 {
        session.tail(&job, json!({"since_line_no": cursor}));
    }
    assert_eq!(logins(&session), before);
}

#[tokio::test]
async fn ssh_tail_what_was_evicted_is_counted_exactly() {
    let mut session =
        Session::with_config("store = false\n[limits]\nring_buffer_lines = 100\n").await;
    let job = session.finished("seq 1 1000");
    let reply = session.tail(&job, json!({"since_line_no": 17}));
    assert_eq!(
        (&reply["buffer_truncated"], &reply["dropped_lines"]),
        (&json!(true), &json!(883))
    );
    assert_eq!(
        (&reply["first_line_no"], texts(&reply["lines"])[0].as_str()),
        (&json!(901), "901")
    );
}

#[tokio::test]
async fn ssh_tail_what_was_evicted_of_one_stream_is_counted_once() {
    let mut session =
        Session::with_config("store = false\n[limits]\nring_buffer_lines = 50\n").await;
    let job = session.finished(
        "seq 1 100; sleep 0.2; i=0; while [ $i -lt 200 ]; do i=$((i+1)); echo $i >&2; done",
    );
    let (mut cursor, mut dropped) = (json!(0), 0);
    for _ in 0..5 {
        let reply = session.tail(&job, json!({"since_line_no": cursor, "stream": "stdout"}));
        assert_eq!(reply["lines"], json!([]));
        dropped += reply["dropped_lines"].as_u64().unwrap_or(0);
        cursor = reply["last_line_no"].clone();
    }
    assert_eq!(dropped, 100);
}

// read_process_output

#[tokio::test]
async fn read_process_output_new_since_last_read_loses_and_repeats_nothing() {
    let mut session = Session::start().await;
    let job =
        session.spawn("for i in 1 2 3 4 5 6; do echo burst $i a; echo burst $i b; read x; done");
    let mut seen = Vec::new();
    loop {
        let reply = session.tail(
            &job,
            json!({"reader": "me", "wait_ms": 10_000, "until": "burst . b"}),
        );
        seen.extend(texts(&reply["lines"]));
        if reply["still_running"] == false {
            break;
        }
        assert_eq!(reply["returned_because"], "matched", "{reply}");
        session.write(&job, json!({"newline": true}));
    }
    let all: Vec<String> =
        (1..=6).flat_map(|n| [format!("burst {n} a"), format!("burst {n} b")]).collect();
    assert_eq!(seen, all);
    // Nothing is new to this reader, all is new to another, and every line can still be read by its
    // number.
    assert_eq!(
        session.tail(&job, json!({"reader": "me"}))["lines"],
        json!([])
    );
    assert_eq!(
        texts(&session.tail(&job, json!({"reader": "you"}))["lines"]),
        all
    );
    let again = session.tail(&job, json!({"reader": "me", "since_line_no": 10}));
    assert_eq!(texts(&again["lines"]), all[10..]);
}

#[tokio::test]
async fn read_process_output_overlapping_reads_of_one_reader_share_no_line() {
    let mut session = Session::start().await;
    let job = session.spawn("read x; seq 1 500");
    let calls: Vec<u64> = (0..4)
        .map(|_| {
            let arguments = with_job(
                &job,
                json!({"reader": "me", "wait_ms": 5000, "max_lines": 125}),
            );
            session.client.begin(
                "tools/call",
                json!({"name": "ssh_tail", "arguments": arguments}),
            )
        })
        .collect();
    session.write(&job, json!({"newline": true}));
    let mut seen: Vec<String> = Vec::new();
    for call in calls {
        let reply = session.client.response(call);
        seen.extend(texts(&reply["result"]["structuredContent"]["lines"]));
    }
    while seen.len() < 500 {
        seen.extend(texts(
            &session.tail(&job, json!({"reader": "me", "wait_ms": 5000}))["lines"],
        ));
    }
    seen.sort_by_key(|line| line.parse::<u32>().unwrap());
    assert_eq!(seen, numbered(500));
}

#[tokio::test]
async fn read_process_output_offsets_are_absolute_or_from_the_end_with_total_and_remaining() {
    let mut session = Session::start().await;
    let job = session.finished("seq 1 1200");
    let first = session.read(&job, json!({"offset": 0, "length": 3}));
    assert_eq!(
        (texts(&first["lines"]), &first["first_line_no"]),
        (numbered(3), &json!(1))
    );
    let middle = session.read(&job, json!({"offset": 500, "length": 50}));
    assert_eq!(
        (&middle["first_line_no"], &middle["last_line_no"]),
        (&json!(501), &json!(550))
    );
    assert_eq!(
        (&middle["total"], &middle["remaining"], &middle["has_more"]),
        (&json!(1200), &json!(650), &json!(true))
    );
    let last = session.read(&job, json!({"offset": -20}));
    assert_eq!(
        (&last["first_line_no"], &last["returned"], &last["has_more"]),
        (&json!(1181), &json!(20), &json!(false))
    );
    let window = session.read(&job, json!({"offset": -50, "length": 10}));
    assert_eq!(
        (&window["first_line_no"], &window["last_line_no"]),
        (&json!(1151), &json!(1160))
    );
    let whole = session.read(&job, json!({}));
    assert_eq!(
        (&whole["returned"], &whole["remaining"]),
        (&json!(1000), &json!(200))
    );
}

#[tokio::test]
async fn read_process_output_line_numbers_do_not_shift_after_eviction() {
    let mut session =
        Session::with_config("store = false\n[limits]\nring_buffer_lines = 100\n").await;
    let job = session.spawn("seq 1 150; read x; seq 151 300");
    session.tail(&job, json!({"since_line_no": 149, "wait_ms": 10_000}));
    let before = session.read(&job, json!({"offset": 120, "length": 10}));
    session.write(&job, json!({"newline": true}));
    session.client.ok("ssh_wait", json!({"job_ids": [job]}));
    assert_eq!(
        texts(&before["lines"]),
        (121..=130).map(|n| n.to_string()).collect::<Vec<_>>()
    );
    let gone = session.read(&job, json!({"offset": 120, "length": 10}));
    assert_eq!(
        (&gone["offset"], &gone["available_from"], &gone["lines"][0]),
        (&json!(200), &json!(200), &json!("201"))
    );
    let kept = session.read(&job, json!({"offset": 250, "length": 1}));
    assert_eq!(
        (&kept["lines"], &kept["first_line_no"]),
        (&json!(["251"]), &json!(251))
    );
}

#[tokio::test]
async fn read_process_output_tells_waiting_running_and_finished() {
    let mut session = Session::start().await;
    let waiting = session.spawn("printf 'Proceed? '; read x");
    session.tail(&waiting, json!({"until": "Proceed", "wait_ms": 10_000}));
    let reply = session.tail(&waiting, json!({"quiet_ms": 400, "wait_ms": 10_000}));
    assert_eq!(
        (&reply["awaiting_input"], &reply["state"]),
        (&json!(true), &json!("running"))
    );
    let running =
        session.spawn("echo '> quoted'; printf 'compiling > '; printf 'done\n'; sleep 1000");
    let reply = session.tail(&running, json!({"quiet_ms": 400, "wait_ms": 10_000}));
    assert_eq!(
        (&reply["awaiting_input"], &reply["still_running"]),
        (&Value::Null, &json!(true))
    );
    let finished = session.finished("exit 4");
    let reply = session.read(&finished, json!({}));
    assert_eq!(
        (
            &reply["awaiting_input"],
            &reply["still_running"],
            &reply["exit_status"]
        ),
        (&Value::Null, &json!(false), &json!(4))
    );
}

#[tokio::test]
async fn read_process_output_reports_times() {
    let mut session = Session::start().await;
    session.finished("sleep 0.3; echo a; sleep 0.3; echo b; sleep 0.3");
    let job = session.client.ok("ssh_jobs", json!({}))["jobs"][0].clone();
    let at = |name: &str| job[name].as_u64().unwrap_or_else(|| panic!("{name}: {job}"));
    // The times are those of arrival, so a busy machine shortens what is between them.
    assert!(at("started_at") < at("first_output_at"), "{job}");
    assert!(at("first_output_at") < at("last_output_at"), "{job}");
    assert!(at("last_output_at") < at("ended_at"), "{job}");
    let silence = at("ended_at") - at("last_output_at");
    assert!(at("silent_ms").abs_diff(silence) < 100, "{job}");
}

// read_output

#[tokio::test]
async fn read_output_returns_at_a_pause_or_when_time_is_up_and_only_what_is_new() {
    let mut session = Session::start().await;
    let job = session
        .spawn("echo one; sleep 0.2; echo two; read x; while :; do echo tick; sleep 0.1; done");
    session.tail(&job, json!({"wait_ms": 10_000}));
    let pause = session.tail(&job, json!({"quiet_ms": 900, "wait_ms": 20_000}));
    assert_eq!(
        (texts(&pause["lines"]).join(" "), &pause["returned_because"]),
        ("one two".into(), &json!("quiet"))
    );
    let start = Instant::now();
    let cursor = pause["last_line_no"].clone();
    let answer = session.write(
        &job,
        json!({"newline": true, "quiet_ms": 900, "wait_ms": 1500}),
    );
    let tail = &answer["tail"];
    assert_eq!(
        (&tail["returned_because"], &tail["first_line_no"]),
        (&json!("timeout"), &json!(3))
    );
    assert!(
        start.elapsed() >= Duration::from_millis(1400) && start.elapsed() < Duration::from_secs(5)
    );
    let rest = session.tail(&job, json!({"since_line_no": cursor}));
    assert!(
        texts(&rest["lines"]).iter().all(|line| line == "tick"),
        "{rest}"
    );
}

#[tokio::test]
async fn read_output_the_end_can_be_read_again_and_again() {
    let mut session = Session::start().await;
    let job = session.spawn("echo working; sleep 0.3; echo result; exit 7");
    let (_, last) = session.canonical_loop(&job, "both");
    assert_eq!(last["exit_status"], 7);
    for _ in 0..3 {
        let again = session.tail(
            &job,
            json!({"since_line_no": 1, "quiet_ms": 200, "wait_ms": 5000}),
        );
        assert_eq!(
            (&again["lines"], &again["returned_because"]),
            (&json!(["result"]), &json!("ended"))
        );
        assert_eq!(
            (&again["exit_status"], &again["still_running"]),
            (&json!(7), &json!(false))
        );
    }
}

#[tokio::test]
async fn read_output_named_control_keys_and_the_end_of_input() {
    let mut session = Session::start().await;
    let arguments =
        json!({"host": HOST, "command": "trap 'echo caught' INT; cat; cat; echo end", "pty": true});
    let job = session.client.ok("ssh_spawn", arguments)["job_id"].clone();
    session.write(&job, json!({"data": "x", "newline": true}));
    session.tail(&job, json!({"since_line_no": 1, "wait_ms": 10_000}));
    session.write(&job, json!({"keys": ["ctrl+c"]}));
    session.tail(&job, json!({"until": "caught", "wait_ms": 10_000}));
    session.write(&job, json!({"close_after": true}));
    let (lines, last) = session.canonical_loop(&job, "both");
    // The terminal's echo of the key may come as late as this.
    assert!(
        lines.last().unwrap().ends_with("end") && last["exit_status"] == 0,
        "{lines:?} {last}"
    );
    let piped = session.spawn("wc -l");
    let reply = session.write(&piped, json!({"data": "a\nb\n", "close_after": true}));
    assert_eq!(
        (&reply["bytes_written"], &reply["stdin_closed"]),
        (&json!(4), &json!(true))
    );
    assert_eq!(session.canonical_loop(&piped, "both").0, ["2"]);
}

// read_step_output

#[tokio::test]
async fn read_step_output_seeks_by_characters() {
    let mut session = Session::start().await;
    let job = session.finished("printf 'naïve 日本 👍\\n%.0s' $(seq 1 2000)");
    let line = "naïve 日本 👍\n";
    let per_line = line.chars().count() as u64;
    let first = session.read(&job, json!({"unit": "chars"}));
    assert_eq!(
        (&first["total"], &first["returned"]),
        (&json!(2000 * per_line), &json!(8000))
    );
    assert_eq!(
        (
            first["content"].as_str().unwrap().chars().count(),
            &first["has_more"]
        ),
        (8000, &json!(true))
    );
    let seek = json!({"unit": "chars", "offset": 5 * per_line + 6, "limit": per_line});
    let middle = session.read(&job, seek.clone());
    assert_eq!(middle["content"], "日本 👍\nnaïve ");
    assert_eq!(
        session.read(&job, seek),
        middle,
        "the same call gives the same answer"
    );
    let beyond = session.read(&job, json!({"unit": "chars", "offset": 1_000_000}));
    assert_eq!(
        (&beyond["content"], &beyond["has_more"]),
        (&json!(""), &json!(false))
    );
    let wide = session.read(&job, json!({"unit": "chars", "limit": 100_000}));
    assert_eq!(
        (&wide["returned"], &wide["clamped"][0]["used"]),
        (&json!(2000 * per_line), &json!(32_000))
    );
    let mut text = String::new();
    let mut offset = json!(0);
    loop {
        let part = session.read(
            &job,
            json!({"unit": "chars", "offset": offset, "limit": 7777}),
        );
        text.push_str(part["content"].as_str().unwrap());
        if part["has_more"] == false {
            break;
        }
        offset = json!(part["offset"].as_u64().unwrap() + part["returned"].as_u64().unwrap());
    }
    assert_eq!(text, line.repeat(2000));
}

#[tokio::test]
async fn read_step_output_the_preview_points_to_the_rest() {
    let mut session = Session::start().await;
    let run = json!({"host": HOST, "command": "seq 1 5000", "max_bytes": 1000});
    let preview = session.client.call("ssh_run", run);
    let reply = &preview["structuredContent"];
    let (head, tail) = (texts(&reply["head"]), texts(&reply["tail"]));
    let omitted = reply["omitted_lines"].as_u64().unwrap();
    assert_eq!(head.len() as u64 + omitted + tail.len() as u64, 5000);
    assert!(
        head[0] == "1" && tail.last().unwrap() == "5000" && reply["total_lines"] == 5000,
        "{reply}"
    );
    let call = reply["read_omitted"].as_str().unwrap();
    assert!(
        preview["content"][0]["text"].as_str().unwrap().contains(call),
        "{preview}"
    );
    // The call as written there fetches exactly the omitted lines.
    let argument = |name: &str| -> Value {
        let value = call
            .split(&format!("{name}="))
            .nth(1)
            .unwrap()
            .split([',', ')'])
            .next()
            .unwrap();
        serde_json::from_str(value).unwrap()
    };
    assert!(call.starts_with("ssh_read("));
    let (offset, length) = (argument("offset"), argument("length"));
    let rest = session.read(
        &argument("job_id"),
        json!({"offset": offset, "length": length, "max_bytes": 262_144}),
    );
    assert_eq!([head, texts(&rest["lines"]), tail].concat(), numbered(5000));
}

// process_write_input, process_read_output

#[tokio::test]
async fn process_write_input_raw_data_end_of_file_and_writing_after_it() {
    let mut session = Session::start().await;
    let job = session.spawn("od -An -tx1");
    let bytes: Vec<u8> = vec![0, 255, 27, 10, 13, 3, 4, 0xE2];
    let reply = session.write(
        &job,
        json!({"data_base64": BASE64_STANDARD.encode(&bytes), "close_after": true}),
    );
    assert_eq!(
        (&reply["bytes_written"], &reply["stdin_closed"]),
        (&json!(8), &json!(true))
    );
    assert_eq!(
        session.canonical_loop(&job, "stdout").0,
        [" 00 ff 1b 0a 0d 03 04 e2"]
    );
    let open = session.spawn("sleep 1000");
    session.write(&open, json!({"close_after": true}));
    assert_eq!(
        session.client.code("ssh_write", with_job(&open, json!({"data": "x"}))),
        "stdin_closed"
    );
}

#[tokio::test]
async fn process_read_output_by_stream_with_byte_counts_and_exact_bytes() {
    let mut session = Session::start().await;
    let job = session.finished("printf 'out\\000\\377'; printf 'error\\n' >&2");
    let stdout = session.read(
        &job,
        json!({"unit": "bytes", "stream": "stdout", "encoding": "base64"}),
    );
    assert_eq!(
        (&stdout["total"], &stdout["content"]),
        (&json!(5), &json!(BASE64_STANDARD.encode(b"out\0\xff")))
    );
    let stderr = session.read(&job, json!({"unit": "bytes", "stream": "stderr"}));
    assert_eq!(
        (&stderr["total"], &stderr["content"]),
        (&json!(6), &json!("error\n"))
    );
    let both = session.read(&job, json!({"unit": "bytes"}));
    assert_eq!(both["total"], 11);
    assert_eq!(
        session.client.code("ssh_read", with_job(&job, json!({"stream": "stdlog"}))),
        "invalid_argument"
    );
}

#[tokio::test]
async fn process_read_output_one_stream_is_cleared_and_the_other_stays() {
    let mut session = Session::start().await;
    let job = session.finished("echo out; sleep 0.2; echo err >&2; sleep 0.2; echo more");
    let gone = session.client.ok(
        "ssh_forget",
        with_job(&job, json!({"what": "output", "stream": "stdout"})),
    );
    assert_eq!(
        (&gone["forgotten_lines"], &gone["forgotten_bytes"]),
        (&json!(2), &json!(9))
    );
    let left = session.tail(&job, json!({}));
    assert_eq!(
        (&left["lines"], &left["first_line_no"], &left["total_lines"]),
        (&json!(["err"]), &json!(2), &json!(3))
    );
    session.client.ok("ssh_forget", with_job(&job, json!({"what": "output"})));
    assert_eq!(session.tail(&job, json!({}))["lines"], json!([]));
}

#[tokio::test]
async fn process_read_output_a_crash_message_can_be_read_after_the_end() {
    let mut session = Session::start().await;
    let job = session.finished("echo 'panic: index out of range' >&2; kill -ABRT $$");
    let reply = session.read(&job, json!({"stream": "stderr", "offset": -1}));
    assert_eq!(
        (&reply["lines"], &reply["exit_signal"]),
        (&json!(["panic: index out of range"]), &json!("ABRT"))
    );
    let found = session.client.ok("ssh_search", with_job(&job, json!({"pattern": "panic"})));
    assert_eq!(found["matches"][0]["line_no"], 1);
}

// Options that reduce noise for a model

#[tokio::test]
async fn the_lines_up_to_a_match_behind_9000_noisy_ones_cost_one_short_call() {
    let mut session = Session::start().await;
    let job = session.spawn("seq 1 9000; echo ready; sleep 1000");
    let arguments = json!({"until": "ready", "keep": "last", "max_lines": 5, "wait_ms": 20_000});
    let reply = session.tail(&job, arguments);
    assert_eq!(
        texts(&reply["lines"]),
        ["8997", "8998", "8999", "9000", "ready"]
    );
    assert_eq!(
        (&reply["skipped_lines"], &reply["last_line_no"]),
        (&json!(8996), &json!(9001))
    );
    assert!(reply.to_string().len() < 500, "{reply}");
    let filtered = session.tail(&job, json!({"filter": "^90[0-9]$"}));
    assert_eq!(texts(&filtered["lines"]).len(), 10);
    assert_eq!(
        (&filtered["skipped_lines"], &filtered["last_line_no"]),
        (&json!(8991), &json!(9001))
    );
    session.client.ok("ssh_signal", with_job(&job, json!({"signal": "KILL"})));
}

#[tokio::test]
async fn waiting_tells_the_last_lines_of_what_failed() {
    let mut session = Session::start().await;
    let good = session.spawn("seq 1 100");
    let bad = session.spawn(&format!(
        "seq 1 100; echo oops >&2; exit 7; # {}",
        "x".repeat(200)
    ));
    let arguments = json!({"job_ids": [good, bad], "last_lines": 2});
    let reply = session.client.ok("ssh_wait", arguments);
    assert_eq!(reply["jobs"][0]["last_lines"], Value::Null);
    assert_eq!(reply["jobs"][1]["last_lines"].as_array().unwrap().len(), 2);
    assert!(
        reply["jobs"][1]["command"].as_str().unwrap().chars().count() <= 61,
        "{reply}"
    );
}

#[tokio::test]
async fn a_run_tells_which_of_its_lines_are_stderr() {
    let mut session = Session::start().await;
    let arguments =
        json!({"host": HOST, "command": "echo out; sleep 0.2; echo err >&2; sleep 0.2; echo out"});
    let reply = session.client.ok("ssh_run", arguments);
    assert_eq!(
        (&reply["head"], &reply["stderr_lines"]),
        (&json!(["out", "err", "out"]), &json!([2]))
    );
}

#[tokio::test]
async fn a_search_says_in_words_what_it_could_not_look_at() {
    let mut session =
        Session::with_config("store = false\n[limits]\nring_buffer_lines = 100\n").await;
    let job = session.finished("seq 1 1000");
    let reply = session.client.ok("ssh_search", with_job(&job, json!({"pattern": "^5$"})));
    assert_eq!(
        (&reply["matches"], &reply["dropped_lines"]),
        (&json!([]), &json!(900))
    );
    assert!(
        reply["note"].as_str().unwrap().starts_with("900 lines were no longer kept"),
        "{reply}"
    );
}

#[tokio::test]
async fn forgetting_one_stream_hides_no_gap_from_readers_of_both() {
    let mut session = Session::start().await;
    let job = session.finished("echo first >&2; sleep 0.2; seq 1 99; sleep 0.2; echo last >&2");
    session.client.ok(
        "ssh_forget",
        with_job(&job, json!({"what": "output", "stream": "stdout"})),
    );
    let reply = session.tail(&job, json!({}));
    assert_eq!(texts(&reply["lines"]), ["first", "last"]);
    assert_eq!(
        (&reply["dropped_lines"], &reply["last_line_no"]),
        (&json!(99), &json!(101))
    );
    let search = session.client.ok("ssh_search", with_job(&job, json!({"pattern": "."})));
    assert_eq!(search["dropped_lines"], 99);
}
