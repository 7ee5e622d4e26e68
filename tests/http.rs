//! One server, many callers: the JSON API, streams and sessions over HTTP, with a client that is
//! not ours.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::support::command::{command, sshjobs, told};
use crate::support::server::{Caller, Server, answer, certificate, events, token};
use crate::support::{HOST, Sshd, assert_dead, eventually};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

/// A host, a server for it, and a caller who may run commands.
async fn served() -> (Sshd, Server, Caller) {
    let sshd = Sshd::start().await;
    let server = Server::start(&sshd);
    let caller = server.caller(&sshd, "ci", &[]);
    (sshd, server, caller)
}

fn loop_of(caller: &Caller, id: &str) -> (Vec<String>, Value) {
    let (mut lines, mut cursor) = (Vec::new(), json!(0));
    loop {
        let reply = caller.ok(
            "tail",
            json!({"job_id": id, "since_line_no": cursor, "wait_ms": 5000}),
        );
        lines.extend(
            reply["lines"]
                .as_array()
                .unwrap()
                .iter()
                .map(|line| line.as_str().unwrap().to_owned()),
        );
        cursor = reply["last_line_no"].clone();
        if reply["still_running"] == false {
            return (lines, reply);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_verb_answers_as_its_tool_does() {
    let (_sshd, _server, caller) = served().await;
    assert_eq!(caller.ok("hosts", json!({}))["hosts"][0]["name"], HOST);
    let id = caller.spawn("read line; echo \"got $line\"; echo oops >&2; exit 3");
    assert_eq!(
        caller.ok(
            "write",
            json!({"job_id": id, "data": "it", "newline": true})
        )["bytes_written"],
        3
    );
    let (lines, last) = loop_of(&caller, &id);
    assert_eq!(
        (lines.len(), &last["state"], &last["exit_status"]),
        (2, &json!("exited"), &json!(3))
    );
    assert_eq!(
        caller.ok(
            "read",
            json!({"job_id": id, "offset": 0, "stream": "stdout"})
        )["lines"][0],
        "got it"
    );
    assert_eq!(
        caller.ok("search", json!({"job_id": id, "pattern": "oops"}))["matches"][0]["text"],
        "oops"
    );
    assert_eq!(caller.ok("wait", json!({"job_ids": [id]}))["ended"], 1);
    assert_eq!(caller.ok("jobs", json!({}))["total"], 1);
    assert_eq!(
        caller.ok("run", json!({"host": HOST, "command": "echo hi"}))["head"][0],
        "hi"
    );
    assert_eq!(
        caller.ok("forget", json!({"job_id": id}))["forgotten_lines"],
        2
    );
    let sleeper = caller.spawn("sleep 100");
    assert_dead(&caller.ok("signal", json!({"job_id": sleeper, "grace_ms": 10_000})));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_status_means_what_it_says() {
    let (sshd, _server, caller) = served().await;
    let code =
        |(status, body): (u16, Value)| (status, body["code"].as_str().unwrap_or("none").to_owned());
    let told = |status: u16, name: &str| (status, name.to_owned());
    assert_eq!(
        code(caller.call("tail", json!({"job_id": "nobody-00000000"}))),
        told(404, "unknown_job")
    );
    assert_eq!(
        code(caller.call("tail", json!({"job": 1}))),
        told(400, "invalid_argument")
    );
    assert_eq!(
        code(caller.call("spawn", json!({"host": "wbe1", "command": "x"}))),
        told(404, "unknown_host")
    );
    let id = caller.spawn("true");
    caller.ok("wait", json!({"job_ids": [id]}));
    caller.ok("forget", json!({"job_id": id}));
    assert_eq!(
        code(caller.call("tail", json!({"job_id": id}))),
        told(410, "expired_job")
    );
    let running = caller.spawn("sleep 100");
    assert_eq!(
        code(caller.call("forget", json!({"job_id": running}))),
        told(409, "still_running")
    );
    sshd.trust("other");
    caller.ok("forget", json!({"job_id": running, "force": true}));
    // Another server has no connection yet.
    let server = Server::start(&sshd);
    let fresh = server.caller(&sshd, "other", &[]);
    let refused = fresh.call("spawn", json!({"host": HOST, "command": "true"}));
    assert_eq!(
        code(refused),
        told(502, "host_key_changed"),
        "{}",
        "the host is behind us"
    );
    assert_eq!(
        code(caller.call("dance", json!({}))),
        told(404, "not_found")
    );
    assert_eq!(
        code(answer(caller.get("/v1/spawn"))),
        told(405, "not_found")
    );
    let too_long = json!({"job_id": "x".repeat(5 << 20)});
    let refused = (0..10).find_map(|_| caller.try_call("search", &too_long).ok());
    assert_eq!(
        code(refused.expect("an answer")),
        told(413, "invalid_argument")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_of_events_continues_after_the_last_event_id() {
    let (_sshd, _server, caller) = served().await;
    let id = caller
        .spawn("for i in $(seq 1 200); do echo line $i; echo e$i >&2; sleep 0.01; done; exit 4");
    let path = format!("/v1/jobs/{id}/stream");
    let (mut seen, mut last, mut end) = (Vec::new(), String::from("0"), Value::Null);
    while end.is_null() {
        // Cut off again and again, as a browser on a train.
        for event in events(caller.get_with(&path, &[("Last-Event-ID", &last)])).take(37) {
            if event.name == "end" {
                end = event.data;
                break;
            }
            let number = event.id.unwrap();
            assert_eq!(event.data["line_no"], number);
            last = number.to_string();
            seen.push(number);
        }
    }
    assert_eq!(
        seen,
        (1..=400).collect::<Vec<_>>(),
        "no line is lost or doubled"
    );
    assert_eq!(
        (&end["state"], &end["exit_status"], &end["last_line_no"]),
        (&json!("exited"), &json!(4), &json!(400))
    );
    assert_eq!(
        caller.get_with(&path, &[("Last-Event-ID", "400")]).status(),
        204,
        "a client that has seen everything need not reconnect"
    );
    let errors: Vec<_> = events(caller.get(&format!("{path}?stream=stderr&since=390"))).collect();
    assert_eq!(errors.len(), 6, "five lines and the end: {errors:?}");
    assert_eq!(caller.get(&format!("{path}?stream=none")).status(), 400);
    assert_eq!(caller.get("/v1/jobs/nobody-00000000/stream").status(), 404);
    for strange in ["abc", "-1", "18446744073709551616"] {
        let status = caller.get_with(&path, &[("Last-Event-ID", strange)]).status();
        assert_eq!(
            status, 400,
            "{strange}: from the beginning it would get every line again"
        );
    }
    let (status, told) = answer(caller.get("/v1/jobs/%ff/stream"));
    assert_eq!((status, &told["code"]), (400, &json!("invalid_argument")));
}

#[tokio::test(flavor = "multi_thread")]
async fn raw_gives_every_byte_and_any_part() {
    // The ring holds a small part of the output, so most of it is read from the store.
    let sshd = Sshd::start().await;
    let config = sshd.path("small-ring.toml");
    std::fs::write(&config, "[limits]\nring_buffer_lines = 500\n").unwrap();
    let server = Server::with(&sshd, &["--config", config.to_str().unwrap()]);
    let caller = server.caller(&sshd, "ci", &[]);
    let id =
        caller.spawn("head -c 300000 /dev/urandom | tee /dev/stderr; sleep 0.2; printf unfinished");
    let path = format!("/v1/jobs/{id}/raw");

    let body = |query: &str, range: Option<&str>| {
        let headers: Vec<(&str, &str)> = range.iter().map(|range| ("Range", *range)).collect();
        let response = caller.get_with(&format!("{path}?{query}"), &headers);
        let (status, shown) = (
            response.status().as_u16(),
            response.headers().get("content-range").cloned(),
        );
        let mut bytes = Vec::new();
        response.into_body().into_reader().read_to_end(&mut bytes).unwrap();
        (
            status,
            bytes,
            shown.map(|range| range.to_str().unwrap().to_owned()),
        )
    };
    let (_, followed, _) = body("stream=stdout&follow=true", None);
    let (_, errors, _) = body("stream=stderr", None);
    assert_eq!((followed.len(), errors.len()), (300_010, 300_000));
    assert!(
        followed.starts_with(&errors),
        "both streams had the same bytes"
    );
    assert!(followed.ends_with(b"unfinished"));

    let (status, part, range) = body("stream=stdout", Some("bytes=100000-199999"));
    assert_eq!(
        (status, range.as_deref()),
        (206, Some("bytes 100000-199999/300010"))
    );
    assert_eq!(part, followed[100_000..200_000]);
    assert_eq!(body("stream=stdout", Some("bytes=-10")).1, b"unfinished");
    assert_eq!(body("stream=stdout", Some("bytes=300010-")).0, 416);
    assert_eq!(body("stream=stdout", Some("nonsense")).0, 200);
    assert_eq!(body("follow=true", None).0, 400, "which stream?");
}

#[tokio::test(flavor = "multi_thread")]
async fn only_valid_tokens_are_accepted_and_a_revoked_one_is_refused_at_once() {
    let (sshd, server, caller) = served().await;
    caller.ok("jobs", json!({}));
    for wrong in [
        "",
        "sshjobs_nothing",
        "x y",
        &caller.token.to_uppercase(),
        caller.token.split_at(20).0,
    ] {
        let (status, body) = Caller::new(&server.url, wrong).call("jobs", json!({}));
        assert_eq!(
            (status, &body["code"]),
            (401, &json!("unauthenticated")),
            "{wrong:?}"
        );
    }
    let brief = server.caller(&sshd, "brief", &["--expires", "1s"]);
    eventually("a token expires", async || {
        brief.call("jobs", json!({})).0 == 401
    })
    .await;
    told(&sshjobs(&sshd, &["token", "revoke", "ci"]));
    assert_eq!(caller.call("jobs", json!({})).0, 401, "effective at once");
    assert!(!sshjobs(&sshd, &["token", "revoke", "ci"]).status.success());
    let again = server.caller(&sshd, "ci", &[]);
    again.ok("jobs", json!({}));
    let listed = told(&sshjobs(&sshd, &["token", "list", "--json"]));
    assert!(
        !listed.contains(&again.token) && listed.contains("\"ci\""),
        "{listed}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pipe_in_place_of_the_file_of_tokens_refuses_calls_and_stops_nothing() {
    let (sshd, server, caller) = served().await;
    let file = sshd.path("state/sshjobs/tokens.json");
    let kept = std::fs::read(&file).unwrap();
    std::fs::remove_file(&file).unwrap();
    let made = Command::new("mkfifo").args(["-m", "600"]).arg(&file).status().unwrap();
    assert!(made.success());

    let (status, body) = caller.call("jobs", json!({}));
    assert_eq!((status, &body["code"]), (500, &json!("io")));
    assert_eq!(
        ureq::get(format!("{}/healthz", server.url)).call().unwrap().status(),
        200
    );

    std::fs::remove_file(&file).unwrap();
    std::fs::write(&file, kept).unwrap();
    std::fs::set_permissions(&file, PermissionsExt::from_mode(0o600)).unwrap();
    caller.ok("jobs", json!({}));
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_are_shown_at_an_address_and_not_at_a_name() {
    let (_sshd, server, _caller) = served().await;
    let get = |host: &str| {
        let request = ureq::get(&server.metrics).config().http_status_as_error(false).build();
        request.header("Host", host).call().unwrap().status().as_u16()
    };

    assert_eq!(get("127.0.0.1:9"), 200);
    assert_eq!(get("rebound.example"), 403);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_of_events_continues_at_another_server() {
    let sshd = Sshd::start().await;
    let servers = [Server::start(&sshd), Server::start(&sshd)];
    let first = servers[0].caller(&sshd, "ci", &[]);
    let second = Caller::new(&servers[1].url, &first.token);
    let callers = [first, second];
    let id = callers[0].spawn("for i in $(seq 1 300); do echo line $i; sleep 0.005; done");
    let path = format!("/v1/jobs/{id}/stream");

    let mut seen = Vec::new();
    let mut last = String::from("0");
    let mut has_ended = false;
    let mut turns = callers.iter().cycle();
    while !has_ended {
        let caller = turns.next().unwrap();
        for event in events(caller.get_with(&path, &[("Last-Event-ID", &last)])).take(23) {
            if event.name == "end" {
                has_ended = true;
                break;
            }
            last = event.id.unwrap().to_string();
            seen.push(event.id.unwrap());
        }
    }

    assert_eq!(seen, (1..=300).collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_logins_are_limited_and_valid_tokens_still_accepted() {
    let (_sshd, server, caller) = served().await;
    let guesser = Caller::new(&server.url, "sshjobs_guess");
    let statuses: Vec<u16> = (0..60).map(|_| guesser.call("jobs", json!({})).0).collect();
    assert!(
        statuses.contains(&429) && statuses[0] == 401,
        "{statuses:?}"
    );
    caller.ok("jobs", json!({}));
    let shown = ureq::get(&server.metrics).call().unwrap().into_body().read_to_string().unwrap();
    assert!(shown.contains("sshjobs_refused_logins_total 60"), "{shown}");
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_for_another_host_or_from_another_page_are_refused() {
    let sshd = Sshd::start().await;
    let server = Server::with(
        &sshd,
        &[
            "--allow-host",
            "jobs.example.com",
            "--allow-origin",
            "https://app.example.com",
        ],
    );
    let caller = server.caller(&sshd, "ci", &[]);
    let status =
        |headers: &[(&str, &str)]| caller.get_with("/v1/openapi.json", headers).status().as_u16();
    assert_eq!(status(&[]), 200);
    assert_eq!(status(&[("Host", "jobs.example.com")]), 200);
    assert_eq!(status(&[("Host", "evil.example")]), 403);
    assert_eq!(status(&[("Origin", "http://evil.example")]), 403);
    assert_eq!(status(&[("Origin", "null")]), 403);
    assert_eq!(status(&[("Origin", "https://app.example.com")]), 200);
    assert_eq!(status(&[("Origin", &server.url)]), 200, "a page of its own");
    let form = ureq::post(format!("{}/v1/jobs", server.url));
    let form = form
        .header("Authorization", format!("Bearer {}", caller.token))
        .header("Content-Type", "text/plain");
    assert!(
        matches!(form.send("{}"), Err(ureq::Error::StatusCode(415))),
        "as a form of a page would be sent"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_socket_admits_only_its_owner_and_needs_a_token_too() {
    let (_sshd, server, caller) = served().await;
    let mode = std::fs::metadata(&server.socket).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let curl = |headers: &[&str]| {
        let mut curl = Command::new("curl");
        curl.args([
            "-sS",
            "-o",
            "/dev/null",
            "-w",
            "%{http_code}",
            "--unix-socket",
        ])
        .arg(&server.socket);
        for header in headers {
            curl.args(["-H", header]);
        }
        String::from_utf8(curl.arg("http://any.name/v1/openapi.json").output().unwrap().stdout)
            .unwrap()
    };
    let bearer = format!("Authorization: Bearer {}", caller.token);
    assert_eq!(
        (curl(&[]).as_str(), curl(&[&bearer]).as_str()),
        ("401", "200")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn without_tokens_a_server_listens_on_loopback_only() {
    let sshd = Sshd::start().await;
    let refused = sshjobs(&sshd, &["serve", "--http", "0.0.0.0:0", "--no-auth"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("make tokens"));
    let server = Server::with(&sshd, &["--no-auth", "--read-only"]);
    let anybody = Caller::new(&server.url, "");
    anybody.ok("hosts", json!({}));
    assert_eq!(
        anybody.call("spawn", json!({"host": HOST, "command": "true"})).0,
        403,
        "read-only"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_works_below_a_prefix_and_reports_its_health() {
    let sshd = Sshd::start().await;
    let server = Server::with(&sshd, &["--prefix", "/team/"]);
    assert!(server.url.ends_with("/team"), "{}", server.url);
    let caller = server.caller(&sshd, "ci", &[]);
    caller.ok("run", json!({"host": HOST, "command": "true"}));
    for (path, body) in [("/healthz", "ok\n"), ("/readyz", "ready\n")] {
        let answer = ureq::get(format!("{}{path}", server.url))
            .call()
            .unwrap()
            .into_body()
            .read_to_string()
            .unwrap();
        assert_eq!(answer, body, "without a token");
    }
    let shown = ureq::get(&server.metrics).call().unwrap().into_body().read_to_string().unwrap();
    for line in [
        "sshjobs_jobs{state=\"finished\"} 1",
        "sshjobs_jobs_started_total 1",
        "sshjobs_ssh_connections 1",
        "# EOF",
    ] {
        assert!(shown.contains(line), "{line}: {shown}");
    }
    assert!(!shown.contains(&caller.token));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_output_of_durable_jobs_is_counted_once() {
    let (_sshd, server, caller) = served().await;
    let durable = json!({"host": HOST, "command": "echo counted", "durable": true});
    caller.ok("run", durable);
    let shown = ureq::get(&server.metrics).call().unwrap().into_body().read_to_string().unwrap();
    let count = format!("sshjobs_output_bytes_total {}\n", "counted\n".len());
    assert!(shown.contains(&count), "{shown}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_closed_response_ends_the_wait_and_nothing_else() {
    let (_sshd, server, caller) = served().await;
    let id = caller.spawn("sleep 2; echo still here");
    let body = json!({"job_id": id, "wait_ms": 50_000}).to_string();
    let mut stream = TcpStream::connect(server.address()).unwrap();
    write!(
        stream,
        "POST /v1/tail HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {}\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\n\r\n{body}",
        caller.token,
        body.len()
    )
    .unwrap();
    let calls = || {
        let shown =
            ureq::get(&server.metrics).call().unwrap().into_body().read_to_string().unwrap();
        let line = shown
            .lines()
            .find(|line| line.starts_with("sshjobs_calls_in_flight "))
            .unwrap()
            .to_owned();
        line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()
    };
    eventually("the call waits", async || calls() == 1).await;
    drop(stream);
    eventually("the wait has ended", async || calls() == 0).await;
    assert_eq!(loop_of(&caller, &id).0, ["still here"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_ends_answers_waiting_calls() {
    let (_sshd, server, caller) = served().await;
    let id = caller.spawn("echo first; sleep 100");
    let (saw, seen) = std::sync::mpsc::channel();
    let streaming = std::thread::spawn({
        let (caller, path) = (caller.clone(), format!("/v1/jobs/{id}/stream"));
        move || {
            let mut events = events(caller.get(&path));
            saw.send(events.next()).unwrap();
            events.count()
        }
    });
    assert_eq!(seen.recv().unwrap().unwrap().data["text"], "first");
    let waiting = std::thread::spawn({
        let (caller, id) = (caller.clone(), id.clone());
        move || {
            let began = Instant::now();
            (
                caller.call(
                    "tail",
                    json!({"job_id": id, "since_line_no": 1, "wait_ms": 50_000}),
                ),
                began.elapsed(),
            )
        }
    });
    eventually("the call waits", async || server.calls() == 1).await;
    assert_eq!(server.stop().await, Some(0));
    let ((status, reply), took) = waiting.join().unwrap();
    assert_eq!(
        (status, &reply["still_running"]),
        (200, &json!(true)),
        "{reply}"
    );
    assert!(took < Duration::from_secs(20), "{took:?}");
    assert_eq!(
        streaming.join().unwrap(),
        0,
        "a clean end, and no word of the job's"
    );
}

/// The verbs that are tried on a job, with their arguments besides its id.
fn verbs_on_jobs() -> Vec<(&'static str, Value, &'static str)> {
    vec![
        ("tail", json!({}), "read"),
        ("read", json!({}), "read"),
        ("search", json!({"pattern": "x"}), "read"),
        ("wait", json!({"wait_ms": 0}), "read"),
        ("write", json!({"data": "x"}), "run"),
        ("signal", json!({"signal": "CONT"}), "run"),
        ("forget", json!({"what": "output"}), "run"),
    ]
}

/// The status with which a role's call of a verb is answered, on a job of its own or of another caller.
fn expected_status(role: &str, verb: &str, needed: &str, is_own: bool) -> u16 {
    match (role, is_own) {
        ("admin", _) => 200,
        // The role is checked before anybody looks for the job.
        ("read" | "observe" | "observe-output", _) if needed == "run" => 403,
        (_, true) | ("observe-output", false) => 200,
        // It sees how the jobs of others stand.
        ("observe", false) if verb == "wait" => 200,
        ("observe", false) => 403,
        (_, false) => 404,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_role_may_do_what_it_may_on_its_own_jobs_and_only_an_admin_on_those_of_others() {
    let sshd = Sshd::start().await;
    let server = Server::start(&sshd);
    let owner = server.caller(&sshd, "owner", &[]);
    let foreign = owner.spawn("cat");
    for role in ["read", "observe", "observe-output", "run", "admin"] {
        let first = server.caller(&sshd, role, &[]);
        let own = first.spawn("cat");
        told(&sshjobs(&sshd, &["token", "revoke", role]));
        let caller = server.caller(&sshd, role, &["--role", role]);
        for (verb, arguments, needed) in verbs_on_jobs() {
            for (id, is_own) in [(&own, true), (&foreign, false)] {
                let mut request = arguments.clone();
                request["job_id"] = json!(id);
                if verb == "wait" {
                    request = json!({"job_ids": [id], "wait_ms": 0});
                }
                let expected = expected_status(role, verb, needed, is_own);
                let (status, body) = caller.call(verb, request.clone());
                assert_eq!(status, expected, "{role} {verb} own={is_own}: {body}");
                let text = caller.tool(&format!("ssh_{verb}"), request);
                let is_refused = text.contains("\"isError\":true") || text.contains("\"error\":");
                assert_eq!(
                    is_refused,
                    expected != 200,
                    "{role} ssh_{verb} own={is_own}: {text}"
                );
            }
        }
        for (id, is_own) in [(&own, true), (&foreign, false)] {
            let expected = match role {
                "admin" | "observe-output" => 200,
                _ if is_own => 200,
                "observe" => 403,
                _ => 404,
            };
            for path in ["raw?stream=stdout", "stream"] {
                let status = caller.get(&format!("/v1/jobs/{id}/{path}")).status();
                assert_eq!(status, expected, "{role} {path} own={is_own}");
            }
        }
        let listed = caller.ok("jobs", json!({}))["total"].as_u64().unwrap();
        assert!(
            if ["observe", "observe-output", "admin"].contains(&role) {
                listed > 1
            } else {
                listed == 1
            },
            "{role} sees {listed}"
        );
        let may_act = ["run", "admin"].contains(&role);
        let file = sshd.path(&format!("file-of-{role}"));
        for (verb, arguments) in [
            ("put", json!({"host": HOST, "path": file, "text": "x"})),
            ("get", json!({"host": HOST, "path": "/etc/passwd"})),
        ] {
            let (status, body) = caller.call(verb, arguments.clone());
            let expected = if may_act { 200 } else { 403 };
            assert_eq!(status, expected, "{role} {verb}: {body}");
            let text = caller.tool(&format!("ssh_{verb}"), arguments);
            let is_refused = text.contains("\"isError\":true") || text.contains("\"error\":");
            assert_eq!(is_refused, !may_act, "{role} ssh_{verb}: {text}");
        }
        assert_eq!(file.exists(), may_act);
        let started = caller.call("spawn", json!({"host": HOST, "command": "true"})).0;
        assert_eq!(started, if may_act { 200 } else { 403 }, "{role}");
        let probed = caller.call("hosts", json!({"host": HOST})).0;
        assert_eq!(
            probed,
            if may_act { 200 } else { 403 },
            "{role}: a look at a host is a login"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_caller_uses_the_hosts_of_its_token_and_knows_no_others() {
    let sshd = Sshd::start().await;
    sshd.append("Host db1\n  HostName 127.0.0.1\n");
    let server = Server::start(&sshd);
    let caller = server.caller(&sshd, "web", &["--hosts", "web*"]);
    let names: Vec<Value> = caller.ok("hosts", json!({}))["hosts"]
        .as_array()
        .unwrap()
        .iter()
        .map(|host| host["name"].clone())
        .collect();
    assert_eq!(names, [HOST]);
    for verb in ["spawn", "run"] {
        let (status, body) = caller.call(verb, json!({"host": "db1", "command": "true"}));
        assert_eq!((status, &body["code"]), (403, &json!("policy_denied")));
    }
    assert_eq!(caller.call("hosts", json!({"host": "db1"})).0, 403);
    for (verb, arguments) in [
        ("get", json!({"host": "db1", "path": "/etc/passwd"})),
        (
            "put",
            json!({"host": "db1", "path": sshd.path("x"), "text": "x"}),
        ),
        (
            "put",
            json!({"hosts": [HOST, "db1"], "path": sshd.path("x"), "text": "x"}),
        ),
    ] {
        let (status, body) = caller.call(verb, arguments);
        assert_eq!(
            (status, &body["code"]),
            (403, &json!("policy_denied")),
            "{verb}"
        );
    }
    assert!(!sshd.path("x").exists());
    let (_, misspelt) = caller.call("spawn", json!({"host": "wbe1", "command": "true"}));
    assert!(
        misspelt["hint"].as_str().unwrap().contains("did you mean \"web1\"?"),
        "{misspelt}"
    );
    let (_, near_another) = caller.call("spawn", json!({"host": "db2", "command": "true"}));
    assert!(
        !near_another.to_string().contains("db1"),
        "hosts that it may not use are not revealed: {near_another}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_excluded_host_is_not_reached_by_another_spelling_or_address() {
    let sshd = Sshd::start().await;
    sshd.append("Host db1\n  HostName 127.0.0.9\n");
    let config = sshd.path("config.toml");
    std::fs::write(&config, "allow_any_host = true\n").unwrap();
    let server = Server::with(&sshd, &["--config", config.to_str().unwrap()]);
    let caller = server.caller(&sshd, "web", &["--hosts", "*,!db1"]);
    let spellings = [
        "db1",
        "DB1",
        "db1.",
        "db1/",
        "[db1]",
        "ssh://db1",
        "root@db1",
        "db1:22",
    ];
    for host in spellings.into_iter().chain(["127.0.0.9", "0x7f.9", "127.9"]) {
        let (status, body) = caller.call("run", json!({"host": host, "command": "true"}));
        assert_eq!(
            (status, &body["code"]),
            (403, &json!("policy_denied")),
            "{host}: {body}"
        );
    }
    let (status, body) = caller.call(
        "run",
        json!({"host": format!("root@{HOST}"), "command": "true"}),
    );
    assert_eq!(
        status, 403,
        "the user is not the caller's to choose: {body}"
    );
    caller.ok("run", json!({"host": HOST, "command": "true"}));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_admin_whose_hosts_are_bounded_sees_the_jobs_of_others_only_there() {
    let sshd = Sshd::start().await;
    sshd.alias(["db1"]);
    let server = Server::start(&sshd);
    let owner = server.caller(&sshd, "owner", &[]);
    let on_web = owner.ok("spawn", json!({"host": HOST, "command": "true"}))["job_id"].clone();
    let on_db = owner.ok("spawn", json!({"host": "db1", "command": "true"}))["job_id"].clone();
    let admin = server.caller(&sshd, "admin", &["--role", "admin", "--hosts", "web*"]);

    let listed = admin.ok("jobs", json!({}));
    assert_eq!(
        (&listed["total"], &listed["jobs"][0]["job_id"]),
        (&json!(1), &on_web),
        "{listed}"
    );
    admin.ok("tail", json!({"job_id": on_web}));
    assert_eq!(admin.call("tail", json!({"job_id": on_db})).0, 404);

    // web1 is another name of the excluded host.
    let excluding = server.caller(
        &sshd,
        "excluding",
        &["--role", "admin", "--hosts", "*,!db*"],
    );
    for verb in ["tail", "signal"] {
        assert_eq!(
            excluding.call(verb, json!({"job_id": on_web})).0,
            404,
            "{verb}"
        );
    }
    assert_eq!(excluding.ok("jobs", json!({}))["total"], 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_admin_sees_a_fleet_only_if_all_its_hosts_are_within_bounds() {
    let sshd = Sshd::start().await;
    sshd.append("Host db2\n  HostName 192.0.2.2\nHost db3\n  HostName 192.0.2.3\n");
    let server = Server::start(&sshd);
    let owner = server.caller(&sshd, "owner", &[]);
    // Neither host answers, but the jobs are listed.
    let both = owner.ok("spawn", json!({"hosts": ["db2", "db3"], "command": "true"}));
    let one = owner.ok("spawn", json!({"hosts": ["db2"], "command": "true"}));
    let admin = server.caller(&sshd, "admin", &["--role", "admin", "--hosts", "*,!db3"]);

    let listed = admin.ok("jobs", json!({}));

    assert_eq!(listed["total"], 1, "{listed}");
    assert_eq!(listed["jobs"][0]["job_id"], one["job_id"], "not {both}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_mcp_session_belongs_to_its_caller() {
    let (sshd, server, caller) = served().await;
    let hello = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": "2025-06-18",
        "capabilities": {}, "clientInfo": {"name": "test", "version": "0"}}});
    let begun = caller.mcp(hello, &[]);
    let session = begun.headers().get("mcp-session-id").unwrap().to_str().unwrap().to_owned();
    let list = || json!({"jsonrpc": "2.0", "id": 2, "method": "tools/list"});
    let ready = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
    assert_eq!(
        caller.mcp(ready, &[("Mcp-Session-Id", &session)]).status(),
        202
    );
    let tools = caller
        .mcp(list(), &[("Mcp-Session-Id", &session)])
        .into_body()
        .read_to_string()
        .unwrap();
    assert!(tools.contains("ssh_spawn"));
    let other = server.caller(&sshd, "other", &["--role", "read"]);
    assert_eq!(
        other.mcp(list(), &[("Mcp-Session-Id", &session)]).status(),
        404
    );
    told(&sshjobs(&sshd, &["token", "revoke", "ci"]));
    assert_eq!(
        caller.mcp(list(), &[("Mcp-Session-Id", &session)]).status(),
        401
    );
    let less = server.caller(&sshd, "ci", &["--role", "read"]);
    assert_eq!(
        less.mcp(list(), &[("Mcp-Session-Id", &session)]).status(),
        404,
        "with other rights it gets a new session"
    );
    let tools = other.modern("tools/list", json!({}));
    let has = |name: &str| tools.contains(&format!("\"name\":\"{name}\""));
    assert!(has("ssh_tail") && !has("ssh_spawn"), "{tools}");
}

fn remote(sshd: &Sshd, server: &Server, token: &str) -> Command {
    let mut client = command(sshd, &["--server", &server.socket.display().to_string()]);
    client.env("SSHJOBS_TOKEN", token).stderr(Stdio::piped()).stdout(Stdio::piped());
    client
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_on_a_server_has_its_bytes_its_stdin_and_its_exit_code() {
    let (sshd, server, caller) = served().await;
    let mut child = remote(&sshd, &server, &caller.token)
        .args(["run", HOST, "--", "cat; echo oops >&2; exit 7"])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let input: Vec<u8> = (0..3_000_000_u32)
        .map(|number| (number.wrapping_mul(2_654_435_761) >> 24) as u8)
        .collect();
    let mut stdin = child.stdin.take().unwrap();
    let feeding = std::thread::spawn({
        let input = input.clone();
        move || stdin.write_all(&input)
    });
    let output = child.wait_with_output().unwrap();
    feeding.join().unwrap().unwrap();
    assert_eq!(output.status.code(), Some(7));
    assert!(
        output.stdout == input,
        "{} of {} bytes",
        output.stdout.len(),
        input.len()
    );
    assert_eq!(output.stderr, b"oops\n");
    let flood = remote(&sshd, &server, &caller.token)
        .args(["run", "-n", HOST, "--", "yes | head -c 20000000"])
        .output();
    assert_eq!(
        flood.unwrap().stdout.len(),
        20_000_000,
        "a host that is faster than all waits"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_ends_with_the_client_that_has_run_it() {
    let (sshd, server, caller) = served().await;
    let run = |command: &str| {
        let mut child = remote(&sshd, &server, &caller.token)
            .args(["run", "-n", HOST, "--", command])
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        (child, line.trim().to_owned())
    };
    let is_alive = |pid: &str| std::path::Path::new("/proc").join(pid).exists();
    let (mut killed, pid) = run("echo $$; sleep 100");
    assert!(is_alive(&pid));
    killed.kill().unwrap();
    killed.wait().unwrap();
    eventually("the command is ended", async || !is_alive(&pid)).await;
    let (mut interrupted, pid) = run("trap 'exit 9' INT; echo $$; sleep 100 & wait");
    kill(
        Pid::from_raw(interrupted.id().cast_signed()),
        Signal::SIGINT,
    )
    .unwrap();
    assert_eq!(
        crate::support::exit_of(&mut interrupted).await,
        Some(9),
        "INT was passed on"
    );
    eventually("nothing is left", async || !is_alive(&pid)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn readers_continue_through_a_restart_without_a_lost_or_doubled_line() {
    let sshd = Sshd::start().await;
    let server = Server::start(&sshd);
    let caller = server.caller(&sshd, "ci", &[]);
    let command = "for i in $(seq 1 600); do echo $i; sleep 0.01; done";
    let spawned = caller.ok(
        "spawn",
        json!({"host": HOST, "command": command, "durable": true}),
    );
    let id = spawned["job_id"].as_str().unwrap().to_owned();
    let address = server.address().to_owned();
    let url = format!("http://{address}");
    let tailing: Vec<_> = (0..3)
        .map(|_| {
            let mut client = command_at(&sshd, &url, &caller.token);
            std::thread::spawn({
                let id = id.clone();
                move || client.args(["tail", "-f", "--since", "0", &id]).output().unwrap()
            })
        })
        .collect();
    let streaming: Vec<_> = (0..5)
        .map(|_| {
            let (caller, path) = (caller.clone(), format!("/v1/jobs/{id}/stream"));
            std::thread::spawn(move || follow_events(&caller, &path))
        })
        .collect();
    caller.ok(
        "tail",
        json!({"job_id": id, "until": "^100$", "wait_ms": 50_000}),
    );
    assert_eq!(server.stop().await, Some(0));
    let _server = Server::at(&sshd, &address, &[]);
    for reader in streaming {
        assert_eq!(reader.join().unwrap(), (1..=600).collect::<Vec<_>>());
    }
    let all: String = (1..=600).map(|number| format!("{number}\n")).collect();
    for reader in tailing {
        let output = reader.join().unwrap();
        assert_eq!(
            String::from_utf8_lossy(&output.stdout),
            all,
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
}

fn command_at(sshd: &Sshd, url: &str, token: &str) -> Command {
    let mut client = command(sshd, &["--server", url]);
    client.env("SSHJOBS_TOKEN", token).stderr(Stdio::piped()).stdout(Stdio::piped());
    client
}

/// Reads a stream of events to its end as a browser does: it reconnects after the last id.
fn follow_events(caller: &Caller, path: &str) -> Vec<u64> {
    let (mut seen, mut last) = (Vec::new(), "0".to_owned());
    let deadline = Instant::now() + Duration::from_secs(90);
    while Instant::now() < deadline {
        let response = caller.try_get(path, &[("Last-Event-ID", &last)]);
        let Some(response) = response.ok().filter(|response| response.status() == 200) else {
            std::thread::sleep(Duration::from_millis(100));
            continue;
        };
        for event in events(response) {
            if event.name == "end" {
                return seen;
            }
            last = event.id.unwrap().to_string();
            seen.push(event.id.unwrap());
        }
    }
    panic!("no end came; {} lines", seen.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_speaks_tls_with_the_certificate_that_its_file_has_now() {
    let sshd = Sshd::start().await;
    let (cert, key) = certificate(&sshd, "one");
    let server = Server::with(&sshd, &["--tls-cert", &cert, "--tls-key", &key]);
    assert!(server.url.starts_with("https://"), "{}", server.url);
    let token = token(&sshd, "ci", &[]);
    let url = server.url.replace("127.0.0.1", "localhost");
    let hosts = || {
        command_at(&sshd, &url, &token)
            .env("SSL_CERT_FILE", &cert)
            .arg("hosts")
            .output()
            .unwrap()
    };
    assert!(told(&hosts()).contains(HOST));
    let strange = command_at(&sshd, &url, &token)
        .env("SSL_CERT_FILE", "/dev/null")
        .arg("hosts")
        .output()
        .unwrap();
    assert_eq!(
        strange.status.code(),
        Some(255),
        "no authority has signed it"
    );
    certificate(&sshd, "two");
    eventually("the new certificate is shown", async || {
        hosts().status.success()
    })
    .await;
    let run = command_at(&sshd, &url, &token)
        .env("SSL_CERT_FILE", &cert)
        .args(["run", HOST, "echo over TLS"])
        .output();
    assert_eq!(told(&run.unwrap()), "over TLS\n");
}

/// Polls a task until it has ended.
async fn end_of(caller: &Caller, task: &Value) -> Value {
    let asked = || caller.result("tasks/get", json!({"taskId": task}));
    eventually("the task ends", async || asked()["status"] != "working").await;
    asked()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_call_becomes_a_task_that_survives_a_restart_and_is_its_callers() {
    let sshd = Sshd::start().await;
    let server = Server::start(&sshd);
    let caller = server.caller(&sshd, "ci", &[]);
    let run = |arguments: Value| {
        caller.result(
            "tools/call",
            json!({"name": "ssh_run", "arguments": arguments}),
        )
    };
    let quick = run(json!({"host": HOST, "command": "echo quick"}));
    assert_eq!(
        (&quick["resultType"], &quick["structuredContent"]["head"][0]),
        (&json!("complete"), &json!("quick"))
    );
    let command = "sleep 5; echo done; exit 4";
    let begun = run(json!({"host": HOST, "command": command, "durable": true}));
    assert_eq!(
        (&begun["resultType"], &begun["status"]),
        (&json!("task"), &json!("working")),
        "{begun}"
    );
    let task = begun["taskId"].clone();
    assert_eq!(
        caller.result("tasks/get", json!({"taskId": task}))["status"],
        "working"
    );
    let waiting = json!({"name": "ssh_wait", "arguments": {"job_ids": [caller.ok("jobs", json!({}))["jobs"][0]["job_id"]]}});
    let waited = caller.result("tools/call", waiting)["taskId"].clone();
    let given_up = run(json!({"host": HOST, "command": "sleep 100", "wait_ms": 1500}));
    let given_up = end_of(&caller, &given_up["taskId"]).await;
    assert_eq!(
        given_up["result"]["structuredContent"]["still_running"], true,
        "its time was over: {given_up}"
    );

    let address = server.address().to_owned();
    assert_eq!(server.stop().await, Some(0));
    let server = Server::at(&sshd, &address, &[]);
    let ended = end_of(&caller, &task).await;
    let reply = &ended["result"]["structuredContent"];
    assert_eq!(
        (&ended["status"], &reply["exit_status"]),
        (&json!("completed"), &json!(4)),
        "{ended}"
    );
    assert_eq!(reply["head"], json!(["done"]));
    assert_eq!(
        end_of(&caller, &waited).await["result"]["structuredContent"]["ended"],
        1
    );
    let other = server.caller(&sshd, "other", &[]);
    assert_eq!(
        other.result("tasks/get", json!({"taskId": task}))["result"]["isError"],
        true
    );
    let cancelled = caller.result(
        "tools/call",
        json!({"name": "ssh_run", "arguments": {"host": HOST, "command": "sleep 100"}}),
    );
    let task = &cancelled["taskId"];
    caller.modern("tasks/cancel", json!({"taskId": task}));
    assert_eq!(
        caller.result("tasks/get", json!({"taskId": task}))["status"],
        "cancelled"
    );
    assert_eq!(
        caller.ok("jobs", json!({"state": "running"}))["total"],
        1,
        "the job continues"
    );
    assert!(caller.modern("tasks/get", json!({"taskId": "e30"})).contains("no such task"));
}

#[tokio::test(flavor = "multi_thread")]
async fn processes_of_a_killed_server_are_ended_when_any_caller_reaches_the_host() {
    let sshd = Sshd::start().await;
    let server = Server::start(&sshd);
    let pid = sshd.path("pid");
    let caller = server.caller(&sshd, "ci", &[]);
    caller.spawn(&format!("echo $$ > {}; sleep 300; true", pid.display()));
    let read = || std::fs::read_to_string(&pid).ok().filter(|pid| pid.ends_with('\n'));
    eventually("the job runs", async || read().is_some()).await;
    let process = std::path::Path::new("/proc").join(read().unwrap().trim());
    eventually("the record knows where it runs", async || {
        told(&sshjobs(&sshd, &["jobs", "--cached", "--json"])).contains("\"running\"")
    })
    .await;
    // Killed, without a shutdown.
    drop(server);
    assert!(process.exists());
    let server = Server::start(&sshd);
    server
        .caller(&sshd, "other", &[])
        .ok("run", json!({"host": HOST, "command": "true"}));
    eventually("it is ended", async || !process.exists()).await;
}

#[test]
fn a_token_that_would_be_a_mistake_is_not_made() {
    let directory = tempfile::tempdir().unwrap();
    let token = |options: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sshjobs"));
        command
            .arg("--state-dir")
            .arg(directory.path())
            .args(["token", "new", "ci"])
            .args(options);
        command.output().unwrap().status.code()
    };
    for hosts in ["", " ", ",", "web1,", "!", "tag:", "web1 web2", "web1\ndb1"] {
        assert_eq!(token(&["--hosts", hosts]), Some(2), "{hosts:?}");
    }
    for expires in ["0s", "99999999d", "soon"] {
        assert_eq!(token(&["--expires", expires]), Some(2), "{expires}");
    }
    assert_eq!(
        token(&["--hosts", "web*,!web2,tag:ci", "--expires", "30d"]),
        Some(0)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_loses_nothing_where_the_disk_is_slower_than_the_host() {
    let sshd = Sshd::start().await;
    let output = sshjobs(&sshd, &["run", "-n", HOST, "--", "yes | head -c 60000000"]);
    assert_eq!(
        (output.status.code(), output.stdout.len()),
        (Some(0), 60_000_000)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_about_to_end_says_so_and_answers_calls_in_progress() {
    let (_sshd, server, caller) = served().await;
    let id = caller.spawn("trap '' TERM; echo ready; while :; do sleep 0.1; done");
    caller.ok(
        "tail",
        json!({"job_id": id, "until": "ready", "wait_ms": 10_000}),
    );
    let signaling = std::thread::spawn({
        let caller = caller.clone();
        move || caller.call("signal", json!({"job_id": id, "grace_ms": 3000}))
    });
    eventually("the call is being answered", async || server.calls() == 1).await;
    kill(Pid::from_raw(server.pid().cast_signed()), Signal::SIGTERM).unwrap();
    eventually("it reports that", async || {
        caller.get("/readyz").status() == 503
    })
    .await;
    let (status, body) = caller.call("jobs", json!({}));
    assert_eq!((status, &body["code"]), (503, &json!("shutting_down")));
    let (status, reply) = signaling.join().unwrap();
    assert_eq!(status, 200, "{reply}");
    assert_dead(&reply);
}

#[tokio::test]
async fn hup_reads_files_again_and_ends_no_server() {
    let sshd = Sshd::start().await;
    let hang_up = |server: &Server| {
        kill(Pid::from_raw(server.pid().cast_signed()), Signal::SIGHUP).unwrap();
    };
    let plain = Server::with(&sshd, &[]);
    let caller = plain.caller(&sshd, "ci", &[]);
    hang_up(&plain);
    // Its end would take less.
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(caller.call("jobs", json!({})).0, 200);

    let policy = sshd.path("policy.toml");
    std::fs::write(&policy, "[[rules]]\nname = \"all\"\nverbs = [\"jobs\"]\n").unwrap();
    let before = std::fs::metadata(&policy).unwrap().modified().unwrap();
    let server = Server::with(&sshd, &["--policy", &policy.display().to_string()]);
    let ready = || caller_at(&server).get("/readyz").into_body().read_to_string().unwrap();
    assert_eq!(ready(), "ready\n");
    // As long and as old as the file that was read.
    std::fs::write(&policy, "[[rules]]\nname = \"all\"\nverbs = [\"jabs\"]\n").unwrap();
    std::fs::File::options()
        .write(true)
        .open(&policy)
        .unwrap()
        .set_modified(before)
        .unwrap();
    hang_up(&server);
    eventually("the mistake is reported", async || {
        ready().contains("error: the policy")
    })
    .await;
}

fn caller_at(server: &Server) -> Caller {
    Caller::new(&server.url, "")
}

#[tokio::test(flavor = "multi_thread")]
async fn the_api_document_says_which_arguments_are_needed() {
    let sshd = Sshd::start().await;
    let server = Server::start(&sshd);
    let caller = server.caller(&sshd, "agent1", &[]);
    let whole = [
        ("run", json!({"host": HOST, "command": "true"})),
        ("spawn", json!({"host": HOST, "command": "true"})),
        ("tail", json!({"job_id": "web1-00000000"})),
        ("put", json!({"host": HOST, "path": "/tmp/x", "text": "x"})),
    ];
    let document = caller.get("/v1/openapi.json").into_body().read_to_string().unwrap();
    let document: Value = serde_json::from_str(&document).unwrap();
    let mut tried = 0;
    for (verb, request) in whole {
        let schema = &document["paths"][format!("/{verb}")]["post"]["requestBody"]["content"]["application/json"]
            ["schema"];
        for alternative in schema["allOf"].as_array().unwrap() {
            let mut without = request.clone();
            for given in alternative["anyOf"].as_array().unwrap() {
                without.as_object_mut().unwrap().remove(given["required"][0].as_str().unwrap());
            }
            let (status, refused) = caller.call(verb, without);
            assert_eq!(
                (status, &refused["code"]),
                (400, &json!("invalid_argument")),
                "{verb} {refused}"
            );
            tried += 1;
        }
    }
    assert_eq!(tried, 7);
    for verb in ["get", "put"] {
        let (status, _) = caller.call(verb, json!({"host": HOST, "path": "", "text": "x"}));
        assert_eq!(status, 400, "{verb}");
    }
}

#[tokio::test]
async fn a_server_logs_json_for_programs_that_collect_it() {
    let sshd = Sshd::start().await;
    let serve = [
        "--log",
        "info",
        "serve",
        "--http",
        "127.0.0.1:0",
        "--log-format",
        "json",
    ];
    let mut server = command(&sshd, &serve).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(server.stderr.take().unwrap()).lines().map(Result::unwrap);
    let listening = lines.find(|line| line.contains("listening on")).unwrap();
    let url = listening.split_whitespace().find(|word| word.starts_with("http://")).unwrap();
    // A token that is not known is logged.
    let called = Command::new("curl")
        .args([
            "--silent",
            "--max-time",
            "20",
            "--header",
            "Authorization: Bearer unknown",
        ])
        .args([
            "--data",
            "{}",
            &format!("{}/v1/jobs", url.trim_end_matches('/')),
        ])
        .stdout(Stdio::null())
        .status();
    assert!(called.unwrap().success());
    let line = lines.find(|line| line.starts_with('{'));
    server.kill().unwrap();
    server.wait().unwrap();
    let line: Value = serde_json::from_str(&line.unwrap()).unwrap();
    assert!(
        line["timestamp"].is_string() && line["level"].is_string(),
        "{line}"
    );
    assert!(line["message"].is_string(), "{line}");
}
