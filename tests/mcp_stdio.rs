//! The built binary, spoken to over its stdio as an MCP client would.

use std::io::Write;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::support::{HOST, McpClient, Sshd, eventually};
use serde_json::{Value, json};

#[tokio::test]
async fn an_agent_follows_a_job_with_the_canonical_loop() {
    let sshd = Sshd::start().await;
    let mut client = McpClient::start(&sshd.ssh_config());
    let spawned = client.ok(
        "ssh_spawn",
        json!({"host": HOST, "command": "seq 1 1200; echo oops >&2; exit 3"}),
    );
    let job = spawned["job_id"].clone();
    let (mut cursor, mut lines) = (0, Vec::new());
    let last = loop {
        let arguments = json!({
            "job_id": job, "since_line_no": cursor, "wait_ms": 5000, "max_lines": 500, "stream": "both"
        });
        let reply = client.ok("ssh_tail", arguments);
        lines.extend(
            reply["lines"]
                .as_array()
                .unwrap()
                .iter()
                .map(|line| line.as_str().unwrap().to_owned()),
        );
        cursor = reply["last_line_no"].as_u64().unwrap();
        if reply["still_running"] == false {
            break reply;
        }
    };
    let mut expected: Vec<_> = (1..=1200).map(|n| n.to_string()).collect();
    expected.push("oops".to_owned());
    lines.sort_by_key(|line| line.parse::<u64>().unwrap_or(u64::MAX));
    assert_eq!(lines, expected);
    assert_eq!(
        (&last["state"], &last["exit_status"], &last["total_lines"]),
        (&json!("exited"), &json!(3), &json!(1201))
    );
    assert_eq!(client.close(Duration::from_secs(10)), Some(0));
}

#[tokio::test]
async fn text_and_structured_content_say_the_same() {
    let sshd = Sshd::start().await;
    let mut client = McpClient::start(&sshd.ssh_config());
    let job = client.ok(
        "ssh_run",
        json!({"host": HOST, "command": "echo a; echo b >&2"}),
    )["job_id"]
        .clone();
    let result = client.call("ssh_tail", json!({"job_id": job}));
    let text = result["content"][0]["text"].as_str().unwrap();
    let reply = &result["structuredContent"];
    let (head, body) = text.split_once('\n').unwrap();
    assert_eq!(body.split('\n').collect::<Vec<_>>(), ["a", "b"]);
    for (name, value) in reply.as_object().unwrap() {
        let shown = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        assert!(
            name == "lines" || head.contains(&format!("{name}={shown}")),
            "{name} is not in {head:?}"
        );
    }
}

#[tokio::test]
async fn the_tools_and_the_canonical_loop_are_shown() {
    let sshd = Sshd::start().await;
    let mut client = McpClient::start(&sshd.ssh_config());
    let tools = client.request("tools/list", json!({}))["result"]["tools"].clone();
    let names: Vec<_> = tools
        .as_array()
        .unwrap()
        .iter()
        .map(|tool| tool["name"].as_str().unwrap())
        .collect();
    for name in [
        "ssh_spawn",
        "ssh_tail",
        "ssh_run",
        "ssh_write",
        "ssh_jobs",
        "ssh_signal",
        "ssh_hosts",
        "ssh_forget",
    ] {
        assert!(names.contains(&name), "{name} is missing");
    }
    let hosts = client.ok("ssh_hosts", json!({}));
    assert_eq!(hosts["hosts"][0]["name"], HOST);
}

#[tokio::test]
async fn bad_calls_are_tool_errors_with_stable_codes() {
    let sshd = Sshd::start().await;
    let mut client = McpClient::start(&sshd.ssh_config());
    let job = client.ok("ssh_run", json!({"host": HOST, "command": "true"}))["job_id"].clone();
    let cases: [(&str, Value, &str); 11] = [
        (
            "ssh_spawn",
            json!({"host": "nope", "command": "true"}),
            "unknown_host",
        ),
        ("ssh_spawn", json!({"host": HOST}), "invalid_argument"),
        (
            "ssh_spawn",
            json!({"host": HOST, "command": "true", "shell": "zsh"}),
            "invalid_argument",
        ),
        (
            "ssh_spawn",
            json!({"host": HOST, "command": "true", "env": {"A B": "x"}}),
            "invalid_argument",
        ),
        (
            "ssh_spawn",
            json!({"host": HOST, "command": 5}),
            "invalid_argument",
        ),
        (
            "ssh_tail",
            json!({"job_id": "web1-zzzzzzzz"}),
            "unknown_job",
        ),
        (
            "ssh_tail",
            json!({"job_id": job, "stream": "stdin"}),
            "invalid_argument",
        ),
        (
            "ssh_tail",
            json!({"job_id": job, "until": "*"}),
            "invalid_argument",
        ),
        (
            "ssh_tail",
            json!({"job_id": job, "wait_ms": 1.5}),
            "invalid_argument",
        ),
        (
            "ssh_signal",
            json!({"job_id": job, "signal": "NOPE"}),
            "invalid_argument",
        ),
        (
            "ssh_forget",
            json!({"job_id": job, "what": "all"}),
            "invalid_argument",
        ),
    ];
    for (tool, arguments, code) in cases {
        assert_eq!(
            client.code(tool, arguments.clone()),
            code,
            "{tool} {arguments}"
        );
    }
    let unknown = client.request("tools/call", json!({"name": "ssh_nope", "arguments": {}}));
    assert!(
        unknown["error"]["code"].is_i64(),
        "an unknown tool is a protocol error: {unknown}"
    );
}

#[tokio::test]
async fn a_cancelled_call_stops_waiting_and_the_job_continues() {
    let sshd = Sshd::start().await;
    let mut client = McpClient::with_log(&sshd.ssh_config(), &sshd.path("log.txt"));
    let job = client.ok(
        "ssh_spawn",
        json!({"host": HOST, "command": "read line; echo got $line"}),
    )["job_id"]
        .clone();
    let waiting = client.begin(
        "tools/call",
        json!({"name": "ssh_tail", "arguments": {"job_id": job, "wait_ms": 50_000}}),
    );
    client.send(&json!({
        "jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": waiting, "reason": "enough"}
    }));
    let log = || std::fs::read_to_string(sshd.path("log.txt")).unwrap();
    eventually("the wait ends", async || {
        log().contains("the call was cancelled")
    })
    .await;
    let reply = client.ok("ssh_tail", json!({"job_id": job}));
    assert_eq!(
        (&reply["still_running"], &reply["state"]),
        (&json!(true), &json!("running"))
    );
    client.ok("ssh_signal", json!({"job_id": job, "signal": "KILL"}));
    assert_eq!(client.close(Duration::from_secs(10)), Some(0));
}

#[tokio::test]
async fn a_client_that_goes_away_in_mid_call_leaves_no_process_behind() {
    let sshd = Sshd::start().await;
    let mut client = McpClient::start(&sshd.ssh_config());
    let (job, pid) = sleeper(&mut client);
    assert!(is_alive(&pid));
    client.begin(
        "tools/call",
        json!({"name": "ssh_tail", "arguments": {"job_id": job, "since_line_no": 1, "wait_ms": 50_000}}),
    );
    assert_eq!(client.close(Duration::from_secs(20)), Some(0));
    assert!(!is_alive(&pid));
}

#[tokio::test]
async fn a_server_told_to_stop_ends_its_jobs() {
    let sshd = Sshd::start().await;
    let mut client = McpClient::start(&sshd.ssh_config());
    let (_, pid) = sleeper(&mut client);
    let server = nix::unistd::Pid::from_raw(client.pid().cast_signed());
    nix::sys::signal::kill(server, nix::sys::signal::Signal::SIGTERM).unwrap();
    eventually("the job ends with the server", async || !is_alive(&pid)).await;
}

/// A job that runs until it is ended, and its process on this machine.
fn sleeper(client: &mut McpClient) -> (Value, String) {
    let spawned = client.ok(
        "ssh_spawn",
        json!({"host": HOST, "command": "echo $$; exec sleep 1000"}),
    );
    let reply = client.ok(
        "ssh_tail",
        json!({"job_id": spawned["job_id"], "wait_ms": 5000}),
    );
    (
        spawned["job_id"].clone(),
        reply["lines"][0].as_str().unwrap().to_owned(),
    )
}

/// Whether a local process lives; a zombie does not.
fn is_alive(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
}

#[tokio::test]
async fn a_server_told_to_stop_stops_while_the_client_holds_stdin() {
    let sshd = Sshd::start().await;
    let client = McpClient::start(&sshd.ssh_config());
    let server = nix::unistd::Pid::from_raw(client.pid().cast_signed());
    nix::sys::signal::kill(server, nix::sys::signal::Signal::SIGTERM).unwrap();
    eventually("the server ends", async || {
        !is_alive(&client.pid().to_string())
    })
    .await;
}

#[tokio::test]
async fn null_means_left_away() {
    let sshd = Sshd::start().await;
    let mut client = McpClient::start(&sshd.ssh_config());
    let run = json!({"host": HOST, "command": "echo x", "env": null, "cwd": null, "wait_ms": null});
    assert_eq!(client.ok("ssh_run", run)["head"], json!(["x"]));
}

#[tokio::test]
async fn a_waiting_caller_with_a_progress_token_gets_progress() {
    let sshd = Sshd::start().await;
    let mut client = McpClient::start(&sshd.ssh_config());
    let job = client.ok(
        "ssh_spawn",
        json!({"host": HOST, "command": "echo one; sleep 1000"}),
    )["job_id"]
        .clone();
    client.ok("ssh_tail", json!({"job_id": job, "wait_ms": 10_000}));
    let wait = json!({"job_id": job, "since_line_no": 1, "wait_ms": 50_000});
    // This one has not requested progress.
    let silent = client.begin("tools/call", json!({"name": "ssh_tail", "arguments": wait}));
    let call = json!({"name": "ssh_tail", "arguments": wait, "_meta": {"progressToken": "t1"}});
    let asking = client.begin("tools/call", call);
    let told = [0, 1].map(|_| client.asked("notifications/progress")["params"].clone());
    assert!(
        told.iter().all(|told| told["progressToken"] == "t1"),
        "{told:?}"
    );
    assert!(
        told[0]["progress"].as_f64() < told[1]["progress"].as_f64(),
        "{told:?}"
    );
    assert!(
        told[0]["message"].as_str().unwrap().starts_with("running, 1 lines"),
        "{told:?}"
    );
    client.ok("ssh_signal", json!({"job_id": job, "signal": "KILL"}));
    for call in [silent, asking] {
        assert_eq!(
            client.response(call)["result"]["structuredContent"]["returned_because"],
            "ended"
        );
    }
}

#[tokio::test]
async fn a_job_on_a_terminal_is_hung_up_when_its_connection_goes() {
    let sshd = Sshd::start().await;
    let mut client = McpClient::start(&sshd.ssh_config());
    let arguments = json!({"host": HOST, "command": "echo $$; exec sleep 1000", "pty": true});
    let job = client.ok("ssh_spawn", arguments)["job_id"].clone();
    let reply = client.ok("ssh_tail", json!({"job_id": job, "wait_ms": 10_000}));
    let pid = reply["lines"][0].as_str().unwrap().to_owned();
    assert!(is_alive(&pid));
    // Killed, the server can end nothing itself.
    drop(client);
    eventually("the process is hung up", async || !is_alive(&pid)).await;
}

#[tokio::test]
async fn a_secret_is_in_no_log_and_no_reply() {
    let sshd = Sshd::start().await;
    let mut client = McpClient::with_log(&sshd.ssh_config(), &sshd.path("log.txt"));
    let command = "stty -echo 2>/dev/null; read a; read b; echo ${#a} ${#b}";
    let job = client.ok("ssh_spawn", json!({"host": HOST, "command": command}))["job_id"].clone();
    for secret in [true, false] {
        let arguments =
            json!({"job_id": job, "data": "canary-4711", "newline": true, "secret": secret});
        let result = client.call("ssh_write", arguments);
        assert!(!result.to_string().contains("canary-4711"), "{result}");
    }
    let reply = client.ok("ssh_wait", json!({"job_ids": [job]}));
    assert!(!reply.to_string().contains("canary"), "{reply}");
    assert_eq!(
        client.ok("ssh_tail", json!({"job_id": job}))["lines"],
        json!(["11 11"])
    );
    assert_eq!(client.close(Duration::from_secs(10)), Some(0));
    let log = std::fs::read_to_string(sshd.path("log.txt")).unwrap();
    assert!(
        log.contains("stdin written"),
        "the log is not as expected: {log}"
    );
    assert!(!log.contains("canary-4711"), "the log contains the secret");
    assert_eq!(
        log.matches("bytes=12").count(),
        1,
        "only the length of other data is logged"
    );
}

#[tokio::test]
async fn no_hostile_byte_gets_through_a_reply_and_raw_gives_all_of_them() {
    let sshd = Sshd::start().await;
    let mut client = McpClient::start(&sshd.ssh_config());
    let bytes = r"a\033]52;c;aGk=\007b\033]8;;http://x\033\\c\342\200\256d\363\240\201\201e\000f\033[31mg\302\233h\033P1$rnever ends";
    let command = format!("printf '{bytes}\\nnext {bytes}\\n{bytes}'; read x");
    let job = client.ok("ssh_spawn", json!({"host": HOST, "command": command}))["job_id"].clone();
    let tail = json!({"job_id": job, "since_line_no": 1, "wait_ms": 10_000, "quiet_ms": 300});
    let calls = [
        ("ssh_tail", tail.clone()),
        ("ssh_read", json!({"job_id": job})),
        ("ssh_read", json!({"job_id": job, "unit": "chars"})),
        ("ssh_read", json!({"job_id": job, "unit": "bytes"})),
        ("ssh_search", json!({"job_id": job, "pattern": "next"})),
        (
            "ssh_write",
            json!({"job_id": job, "newline": true, "wait_ms": 5000}),
        ),
        ("ssh_run", json!({"host": HOST, "command": command})),
    ];
    for (tool, arguments) in calls {
        let result = client.call(tool, arguments);
        let mut told = vec![
            result["content"][0]["text"].clone(),
            result["structuredContent"].clone(),
        ];
        while let Some(value) = told.pop() {
            match value {
                Value::String(text) => assert!(!text.contains(is_hostile), "{tool}: {text:?}"),
                Value::Array(items) => told.extend(items),
                Value::Object(fields) => told.extend(fields.into_iter().map(|(_, value)| value)),
                Value::Null | Value::Bool(_) | Value::Number(_) => {}
            }
        }
        assert!(result.to_string().contains("abcdefg"), "{tool}: {result}");
    }
    let raw = client.ok(
        "ssh_read",
        json!({"job_id": job, "render": "raw", "length": 1}),
    );
    let text = raw["lines"][0].as_str().unwrap();
    assert!(
        text.contains("\u{1b}]52;c;aGk=\u{7}") && text.contains('\u{202e}') && text.contains('\0'),
        "{text:?}"
    );
}

fn is_hostile(c: char) -> bool {
    (c.is_control() && !matches!(c, '\n' | '\t')) || matches!(c, '\u{202e}' | '\u{e0041}')
}

#[tokio::test]
async fn a_person_behind_the_client_is_asked_on_a_page_that_the_client_opens() {
    use std::io::{Read, Write};
    let sshd = Sshd::start().await;
    let key = sshd.path("id").display().to_string();
    crate::support::ssh_keygen(&[
        "-p",
        "-a",
        "2",
        "-P",
        "",
        "-N",
        "canary+of+the+test",
        "-f",
        &key,
    ]);
    let mut client = McpClient::capable(&sshd.ssh_config(), json!({"elicitation": {"url": {}}}));
    let arguments = json!({"host": HOST, "command": "echo here"});
    let call = client.begin(
        "tools/call",
        json!({"name": "ssh_run", "arguments": arguments}),
    );
    let asked = client.asked("elicitation/create");
    assert_eq!(asked["params"]["mode"], "url", "{asked}");
    let url = asked["params"]["url"].as_str().unwrap();
    let (address, path) = url.strip_prefix("http://").unwrap().split_once('/').unwrap();
    let browse = |request: String| {
        let mut browser = std::net::TcpStream::connect(address).unwrap();
        browser.write_all(request.as_bytes()).unwrap();
        let mut page = String::new();
        browser.read_to_string(&mut page).unwrap();
        page
    };
    let page = browse(format!("GET /{path} HTTP/1.1\r\nHost: {address}\r\n\r\n"));
    assert!(
        page.contains("passphrase of") && page.contains(HOST),
        "{page}"
    );
    client.send(&json!({"jsonrpc": "2.0", "id": asked["id"], "result": {"action": "accept"}}));
    let form = page.split_once("name=form value=").unwrap().1.split('>').next().unwrap();
    let body = format!("form={form}&answer=canary%2Bof%2Bthe%2Btest");
    let length = body.len();
    browse(format!(
        "POST /{path} HTTP/1.1\r\nHost: {address}\r\nContent-Length: {length}\r\n\r\n{body}"
    ));
    let reply = client.response(call);
    assert_eq!(
        reply["result"]["structuredContent"]["head"],
        json!(["here"]),
        "{reply}"
    );
    assert!(!reply.to_string().contains("canary") && !asked.to_string().contains("canary"));
    assert!(
        std::net::TcpStream::connect(address).is_err(),
        "the page is gone"
    );
}

#[tokio::test]
async fn a_person_who_declines_is_not_asked_again_and_a_client_without_pages_gets_an_error() {
    let sshd = Sshd::start().await;
    let key = sshd.path("id").display().to_string();
    crate::support::ssh_keygen(&["-p", "-a", "2", "-P", "", "-N", "secret", "-f", &key]);
    let arguments = json!({"host": HOST, "command": "true"});
    let mut client = McpClient::capable(&sshd.ssh_config(), json!({"elicitation": {"url": {}}}));
    let call = client.begin(
        "tools/call",
        json!({"name": "ssh_run", "arguments": arguments}),
    );
    let asked = client.asked("elicitation/create");
    client.send(&json!({"jsonrpc": "2.0", "id": asked["id"], "result": {"action": "decline"}}));
    let declined = client.response(call)["result"]["_meta"]["sshjobs/error"].clone();
    let mut without = McpClient::start(&sshd.ssh_config());
    let told = without.call("ssh_run", arguments)["_meta"]["sshjobs/error"].clone();
    for error in [declined, told] {
        assert_eq!(error["code"], "auth_failed", "{error}");
        assert!(
            error["message"].as_str().unwrap().contains("none is available"),
            "{error}"
        );
        assert!(
            error["hint"].as_str().unwrap().contains("passphrase"),
            "{error}"
        );
    }
}

/// `sshjobs serve` with its three streams piped and nothing said yet.
fn serve(sshd: &Sshd) -> Child {
    Command::new(env!("CARGO_BIN_EXE_sshjobs"))
        .arg("--ssh-config")
        .arg(sshd.ssh_config())
        .arg("serve")
        .env("XDG_STATE_HOME", sshd.path("state"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

#[tokio::test]
async fn a_server_whose_stdout_has_no_reader_ends() {
    let sshd = Sshd::start().await;
    let mut server = serve(&sshd);
    drop(server.stdout.take());
    // Stdin stays open, and nothing is said.
    assert_eq!(crate::support::exit_of(&mut server).await, Some(0));
}

#[tokio::test]
async fn a_client_that_only_discovers_has_made_no_mistake() {
    use std::io::Write;
    let sshd = Sshd::start().await;
    let mut server = serve(&sshd);
    let discover = json!({"jsonrpc": "2.0", "id": 1, "method": "server/discover", "params": {"_meta": {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "0"},
        "io.modelcontextprotocol/clientCapabilities": {}
    }}});
    let mut stdin = server.stdin.take().unwrap();
    writeln!(stdin, "{discover}").unwrap();
    drop(stdin);
    let output = server.wait_with_output().unwrap();
    let (stdout, stderr) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert!(
        output.status.success() && stderr.is_empty(),
        "{} {stderr}",
        output.status
    );
    assert!(stdout.contains("sshjobs"), "{stdout}");
}

/// All of the server's answers to these lines, after which stdin ends.
fn answers_to(sshd: &Sshd, lines: &str) -> Vec<Value> {
    let mut server = serve(sshd);
    let mut stdin = server.stdin.take().unwrap();
    stdin.write_all(lines.as_bytes()).unwrap();
    drop(stdin);
    let output = server.wait_with_output().unwrap();
    let answers = String::from_utf8(output.stdout).unwrap();
    answers.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[tokio::test]
async fn the_last_answers_are_written_also_if_the_client_begins_wrongly() {
    let sshd = Sshd::start().await;
    let list = json!({"jsonrpc": "2.0", "id": 7, "method": "tools/list"});
    let note = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});

    let answers = answers_to(&sshd, &format!("{list}\n{note}\n"));

    assert_eq!(answers.len(), 1, "{answers:?}");
    assert_eq!(answers[0]["id"], 7);
    assert!(answers[0]["error"].is_object(), "{answers:?}");

    // A last line needs no line end.
    let discover = json!({"jsonrpc": "2.0", "id": 8, "method": "ping"});
    let answers = answers_to(&sshd, &discover.to_string());
    assert_eq!(answers[0]["id"], 8, "{answers:?}");
}

#[tokio::test]
async fn a_pattern_that_costs_too_much_delays_no_other_call_and_no_end() {
    let sshd = Sshd::start().await;
    let mut client = McpClient::start(&sshd.ssh_config());
    let long = "head -c 60000 /dev/zero | tr '\\0' a; echo; ";
    let job =
        client.ok("ssh_run", json!({"host": HOST, "command": long.repeat(40)}))["job_id"].clone();
    let slow = "(?:a{1,60}){1,60}z";
    let calls = [
        ("ssh_search", json!({"job_id": job, "pattern": slow})),
        (
            "ssh_tail",
            json!({"job_id": job, "until": slow, "wait_ms": 50_000}),
        ),
        ("ssh_tail", json!({"job_id": job, "filter": slow})),
    ];
    let begun: Vec<u64> = calls
        .iter()
        .map(|(tool, arguments)| {
            client.begin("tools/call", json!({"name": tool, "arguments": arguments}))
        })
        .collect();
    let beside = client.ok("ssh_run", json!({"host": HOST, "command": "echo beside"}));
    assert_eq!(beside["head"], json!(["beside"]));
    for call in begun {
        let result = client.response(call)["result"].clone();
        let text = result["content"][0]["text"].as_str().unwrap().to_owned();
        let is_page = result["structuredContent"]["last_line_no"]
            .as_u64()
            .is_some_and(|line| line < 40);
        assert!(
            is_page || text.starts_with(&format!("timeout: the pattern {slow:?} takes")),
            "{text:.300}"
        );
    }
    // A thread may still be matching: the answer does not wait for it.
    client.begin(
        "tools/call",
        json!({"name": "ssh_search", "arguments": {"job_id": job, "pattern": slow}}),
    );
    let server = nix::unistd::Pid::from_raw(client.pid().cast_signed());
    nix::sys::signal::kill(server, nix::sys::signal::Signal::SIGTERM).unwrap();
    eventually("the server ends", async || {
        !is_alive(&client.pid().to_string())
    })
    .await;
}

#[tokio::test]
async fn a_tool_that_is_not_there_is_named() {
    let sshd = Sshd::start().await;
    let mut client = McpClient::start(&sshd.ssh_config());
    let answer = client.request("tools/call", json!({"name": "ssh_spwan", "arguments": {}}));
    let message = answer["error"]["message"].as_str().unwrap();
    assert!(
        message.contains("ssh_spwan") && message.contains("did you mean \"ssh_spawn\""),
        "{message}"
    );
}

#[tokio::test]
async fn the_servers_memory_goes_into_no_core_file() {
    let sshd = Sshd::start().await;
    let client = McpClient::start(&sshd.ssh_config());
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", client.pid())).unwrap();
    let core = limits.lines().find(|line| line.starts_with("Max core file size")).unwrap();
    assert_eq!(
        core.split_whitespace().collect::<Vec<_>>()[4..6],
        ["0", "0"],
        "{core}"
    );
}

#[tokio::test]
async fn logs_are_resources_that_can_be_listed_read_and_completed() {
    let sshd = Sshd::start().await;
    let mut client = McpClient::start(&sshd.ssh_config());
    let spawned = client.ok(
        "ssh_spawn",
        json!({"host": HOST, "command": "echo one; sleep 0.2; echo two >&2; sleep 0.2; echo three"}),
    );
    let id = spawned["job_id"].as_str().unwrap().to_owned();
    client.ok("ssh_wait", json!({"job_ids": [id]}));
    let uri = format!("ssh-job://{id}/log");
    let listed = client.request("resources/list", json!({}))["result"]["resources"][0].clone();
    assert_eq!(
        (&listed["uri"], &listed["mimeType"]),
        (&json!(uri), &json!("text/plain"))
    );
    let templates =
        client.request("resources/templates/list", json!({}))["result"]["resourceTemplates"]
            .clone();
    assert_eq!(
        templates[0]["uriTemplate"],
        "ssh-job://{job_id}/log{?since,stream}"
    );
    let mut read = |uri: &str| client.request("resources/read", json!({"uri": uri}));
    let whole = read(&uri)["result"]["contents"][0].clone();
    assert_eq!(whole["text"], "one\ntwo\nthree\n");
    assert_eq!(whole["_meta"]["sshjobs/log"]["last_line_no"], 3);
    assert_eq!(
        read(&format!("{uri}?since=1&stream=stdout"))["result"]["contents"][0]["text"],
        "three\n"
    );
    assert!(
        read("ssh-host://web1")["result"]["contents"][0]["text"]
            .as_str()
            .unwrap()
            .contains("127.0.0.1")
    );
    for strange in [
        "ssh-job://nobody-00000000/log",
        "ssh-job://x/y",
        "file:///etc/passwd",
        "ssh-host://nobody",
    ] {
        assert_eq!(read(strange)["error"]["code"], -32002, "{strange}");
    }
    let mut complete = |uri: &str, name: &str, value: &str| {
        let argument = json!({"ref": {"type": "ref/resource", "uri": uri}, "argument": {"name": name, "value": value}});
        client.request("completion/complete", argument)["result"]["completion"]["values"].clone()
    };
    let log = "ssh-job://{job_id}/log{?since,stream}";
    assert_eq!(complete(log, "job_id", "web1-"), json!([id]));
    assert_eq!(complete(log, "stream", "std"), json!(["stdout", "stderr"]));
    assert_eq!(complete("ssh-host://{host}", "host", "w"), json!([HOST]));
    assert_eq!(complete("ssh-tag://{tag}", "tag", ""), json!([]));
}

#[tokio::test]
async fn a_client_is_notified_when_the_list_of_logs_changes() {
    let sshd = Sshd::start().await;
    let mut client = McpClient::start(&sshd.ssh_config());
    client.ok("ssh_spawn", json!({"host": HOST, "command": "true"}));
    client.asked("notifications/resources/list_changed");
}

#[tokio::test]
async fn a_subscriber_to_a_log_is_notified_at_most_twice_a_second_and_at_the_end() {
    let sshd = Sshd::start().await;
    let mut client = McpClient::start(&sshd.ssh_config());
    let command = "for i in $(seq 1 200); do echo $i; sleep 0.01; done; read end";
    let spawned = client.ok("ssh_spawn", json!({"host": HOST, "command": command}));
    let id = spawned["job_id"].as_str().unwrap().to_owned();
    let uri = format!("ssh-job://{id}/log");
    let told = client.request("resources/subscribe", json!({"uri": uri}));
    assert!(told["error"].is_null(), "{told}");
    let began = std::time::Instant::now();
    client.ok(
        "ssh_tail",
        json!({"job_id": id, "until": "^200$", "wait_ms": 20_000}),
    );
    let updates = |client: &McpClient| {
        let of_uri = |message: &&serde_json::Value| message["params"]["uri"] == uri;
        client.notifications.iter().filter(of_uri).count()
    };
    let (seen, most) = (updates(&client), began.elapsed().as_millis() / 500 + 1);
    assert!(
        seen >= 2 && seen as u128 <= most,
        "{seen} of at most {most}"
    );
    client.ok("ssh_write", json!({"job_id": id, "newline": true}));
    client.ok("ssh_wait", json!({"job_ids": [id]}));
    if updates(&client) == seen {
        client.notifications.clear();
        client.asked("notifications/resources/updated");
    }
    let refused = client.request(
        "resources/subscribe",
        json!({"uri": "ssh-job://nobody-00000000/log"}),
    );
    assert_eq!(refused["error"]["code"], -32002);
    assert!(client.request("resources/unsubscribe", json!({"uri": uri}))["error"].is_null());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_returns_the_answer_and_not_only_what_the_terminal_repeats() {
    let sshd = Sshd::start().await;
    let mut client = McpClient::start(&sshd.ssh_config());
    let command = "printf 'ok? '; read a; sleep 1; echo thanks; printf 'name? '; stty -echo; read b; \
        sleep 1; printf '\\nhello %s\\n' \"$b\"; read c";
    for pty in [true, false] {
        let job = client.ok(
            "ssh_spawn",
            json!({"host": HOST, "command": command.replace("stty -echo", if pty { "stty -echo" } else { ":" }), "pty": pty}),
        )["job_id"]
            .clone();
        client.ok(
            "ssh_tail",
            json!({"job_id": job, "until": "ok", "wait_ms": 20_000}),
        );
        let answers = [("y", "thanks"), ("bob", "hello bob")];
        for (data, answer) in answers {
            let began = std::time::Instant::now();
            let reply = client.ok(
                "ssh_write",
                json!({"job_id": job, "data": data, "newline": true, "wait_ms": 30_000}),
            );
            let lines = reply["tail"]["lines"].as_array().unwrap();
            let has_answer = |line: &Value| line.as_str().unwrap().ends_with(answer);
            assert!(lines.iter().any(has_answer), "{reply}");
            assert!(began.elapsed() < Duration::from_secs(20), "{reply}");
        }
        client.ok("ssh_write", json!({"job_id": job, "newline": true}));
    }
}
