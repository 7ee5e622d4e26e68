//! A server over HTTP beside the same on stdio, beside `ssh`, and beside itself without tokens.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::sync::Barrier;
use std::time::{Duration, Instant};

use crate::report::{Report, millis, percentile, ratio};
use crate::support::command::command;
use crate::support::server::{Caller, Server};
use crate::support::{HOST, McpClient, Sshd};
use serde_json::json;

/// From writing a line to a job's stdin until each of those who wait for it has it.
pub(crate) fn polls(report: &mut Report, sshd: &Sshd) {
    const ON_STDIO: usize = 120;
    let server = Server::start(sshd);
    let caller = server.caller(sshd, "polls", &[]);
    let over_http = |count: usize| {
        let (id, mut times) = (caller.spawn("cat"), Vec::new());
        for line in 0..20 {
            let ready = Barrier::new(count + 1);
            std::thread::scope(|scope| {
                let request = json!({"job_id": id, "since_line_no": line, "wait_ms": 50_000});
                let polls: Vec<_> = (0..count)
                    .map(|_| {
                        let (caller, request, ready) = (caller.clone(), request.clone(), &ready);
                        scope.spawn(move || {
                            ready.wait();
                            caller.ok("tail", request);
                            Instant::now()
                        })
                    })
                    .collect();
                ready.wait();
                std::thread::sleep(Duration::from_millis(700));
                let began = Instant::now();
                caller.ok(
                    "write",
                    json!({"job_id": id, "data": "news", "newline": true}),
                );
                times.extend(
                    polls.into_iter().map(|poll| poll.join().unwrap().duration_since(began)),
                );
            });
        }
        percentile(&mut times, 99)
    };
    let on_stdio = polls_on_stdio(sshd, ON_STDIO);
    let few = over_http(ON_STDIO);
    let what = "a line to the last of 120 long polls, p99, against 120 on stdio";
    report.row(
        what,
        &millis(few),
        &millis(on_stdio),
        ratio(few, on_stdio),
        "≤ 2",
    );
    let many = over_http(300);
    report.row(
        "the same with 300, a line a poll",
        &millis(many),
        &millis(on_stdio * 300 / 120),
        ratio(many, on_stdio * 300 / 120),
        "≤ 2",
    );
}

fn polls_on_stdio(sshd: &Sshd, count: usize) -> Duration {
    let mut client = McpClient::start(&sshd.ssh_config());
    let id = client.ok("ssh_spawn", json!({"host": HOST, "command": "cat"}))["job_id"].clone();
    let mut times = Vec::new();
    for line in 0..20 {
        let tail = json!({"name": "ssh_tail", "arguments": {"job_id": id, "since_line_no": line, "wait_ms": 50_000}});
        let calls: Vec<u64> =
            (0..count).map(|_| client.begin("tools/call", tail.clone())).collect();
        std::thread::sleep(Duration::from_millis(700));
        let began = Instant::now();
        client.ok(
            "ssh_write",
            json!({"job_id": id, "data": "news", "newline": true}),
        );
        for call in calls {
            client.response(call);
            times.push(began.elapsed());
        }
    }
    percentile(&mut times, 99)
}

/// A page of 500 lines, as the tool and as the verb.
pub(crate) fn page(report: &mut Report, sshd: &Sshd) {
    let server = Server::start(sshd);
    let caller = server.caller(sshd, "page", &[]);
    let mut client = McpClient::start(&sshd.ssh_config());
    let command =
        "seq -f 'line %09g of a log that is as long as such lines are in the wild' 1 1000";
    let spawned = client.ok("ssh_spawn", json!({"host": HOST, "command": command}));
    let here = json!({"job_id": spawned["job_id"], "since_line_no": 100, "max_lines": 500, "max_bytes": 262_144});
    client.ok("ssh_wait", json!({"job_ids": [spawned["job_id"]]}));
    let id = caller.spawn(command);
    let there = json!({"job_id": id, "since_line_no": 100, "max_lines": 500, "max_bytes": 262_144});
    caller.ok("wait", json!({"job_ids": [id]}));
    let time = |call: &mut dyn FnMut()| {
        let mut times: Vec<Duration> = (0..300)
            .map(|_| {
                let began = Instant::now();
                call();
                began.elapsed()
            })
            .collect();
        percentile(&mut times, 50)
    };
    let over_http = time(&mut || drop(caller.ok("tail", there.clone())));
    let tool = time(&mut || drop(caller.tool("ssh_tail", there.clone())));
    let request = json!({"name": "ssh_tail", "arguments": here});
    let on_stdio = time(&mut || drop(client.request("tools/call", request.clone())));
    report.row(
        "500 lines, POST /v1/tail, against ssh_tail on stdio, p50",
        &millis(over_http),
        &millis(on_stdio),
        ratio(over_http, on_stdio),
        "≤ 2",
    );
    report.row(
        "500 lines, ssh_tail at /mcp, against it on stdio, p50",
        &millis(tool),
        &millis(on_stdio),
        ratio(tool, on_stdio),
        "≤ 2",
    );
}

/// A call with a token against one without.
pub(crate) fn auth(report: &mut Report, sshd: &Sshd) {
    let (with, without) = (Server::start(sshd), Server::with(sshd, &["--no-auth"]));
    let callers = [
        with.caller(sshd, "auth", &[]),
        Caller::new(&without.url, ""),
    ];
    let jobs = callers.each_ref().map(|caller| {
        let id = caller.spawn("seq 1 100");
        caller.ok("wait", json!({"job_ids": [id]}));
        id
    });
    let mut times = [Vec::new(), Vec::new()];
    // Turn by turn, so that the machine treats both alike.
    for _ in 0..3000 {
        for ((caller, job), times) in callers.iter().zip(&jobs).zip(&mut times) {
            let began = Instant::now();
            caller.ok("tail", json!({"job_id": job}));
            times.push(began.elapsed());
        }
    }
    let [with, without] = times.each_mut().map(|times| percentile(times, 50));
    report.row(
        "a call with a token, against one to a server without, p50",
        &millis(with),
        &millis(without),
        ratio(with, without),
        "≤ 1.05",
    );
}

/// Bytes of a running job, against ssh's.
pub(crate) fn raw(report: &mut Report, sshd: &Sshd) {
    const BYTES: usize = 500_000_000;
    let server = Server::start(sshd);
    let caller = server.caller(sshd, "raw", &[]);
    let command = format!(
        "yes 'a line of output as programs print it, of about eighty bytes, all in all' | head -c {BYTES}"
    );
    let began = Instant::now();
    let id = caller.spawn(&command);
    let mut body = caller
        .get(&format!("/v1/jobs/{id}/raw?stream=stdout&follow=true"))
        .into_body()
        .into_reader();
    let (mut buffer, mut got) = (vec![0; 256 << 10], 0);
    // A disk that is slower than the host ends the response early: the rest was not stored.
    while let Ok(read @ 1..) = body.read(&mut buffer) {
        got += read;
    }
    let ours = began.elapsed();
    if got < BYTES {
        let what = "raw bytes of a running job: the disk was too slow for them";
        report.row(what, &format!("{got} of {BYTES}"), "–", None, "–");
        return;
    }
    let began = Instant::now();
    let status = Command::new("ssh")
        .arg("-F")
        .arg(sshd.ssh_config())
        .args([HOST, &command])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .status()
        .unwrap();
    let peer = began.elapsed();
    assert!(status.success());
    let speed = |time: Duration| format!("{:.0} MB/s", BYTES as f64 / time.as_secs_f64() / 1e6);
    let ratio = peer.as_secs_f64() / ours.as_secs_f64();
    report.row(
        "raw bytes of a running job, stored, against ssh > /dev/null",
        &speed(ours),
        &speed(peer),
        Some(ratio),
        "≥ 0.7",
    );
}

/// `sshjobs --server SOCKET run web1 -- true`, process start and all, against ssh over a
/// ControlMaster.
pub(crate) fn run(report: &mut Report, sshd: &Sshd) {
    let server = Server::start(sshd);
    let caller = server.caller(sshd, "run", &[]);
    let socket = server.socket.display().to_string();
    let control = sshd.path("control").display().to_string();
    let ssh = |arguments: &[&str]| {
        let mut ssh = Command::new("ssh");
        ssh.arg("-F")
            .arg(sshd.ssh_config())
            .args(["-o", &format!("ControlPath={control}")])
            .args(arguments);
        ssh.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        ssh
    };
    assert!(ssh(&["-fNM", HOST]).status().unwrap().success());
    let ours = || {
        let mut ours = command(sshd, &["--server", &socket, "run", HOST, "--", "true"]);
        ours.env("SSHJOBS_TOKEN", &caller.token);
        ours
    };
    let mut times = [Vec::new(), Vec::new()];
    for _ in 0..200 {
        for (mut command, times) in [ours(), ssh(&[HOST, "true"])].into_iter().zip(&mut times) {
            let began = Instant::now();
            assert!(command.status().unwrap().success());
            times.push(began.elapsed());
        }
    }
    ssh(&["-O", "exit", HOST]).status().unwrap();
    let [ours, peer] = times.each_mut().map(|times| percentile(times, 50));
    report.row(
        "--server SOCKET run web1 -- true, against ssh over a ControlMaster, p50",
        &millis(ours),
        &millis(peer),
        ratio(ours, peer),
        "≤ 0.5",
    );
}

/// The cost of idle clients.
pub(crate) fn idle(report: &mut Report, sshd: &Sshd) {
    const CLIENTS: u64 = 1000;
    let server = Server::start(sshd);
    let caller = server.caller(sshd, "idle", &[]);
    caller.ok("run", json!({"host": HOST, "command": "true"}));
    let before = server.memory();
    let clients: Vec<TcpStream> = (0..CLIENTS)
        .map(|_| {
            let mut client = TcpStream::connect(server.address()).unwrap();
            let bearer = format!("Authorization: Bearer {}", caller.token);
            write!(
                client,
                "GET /v1/openapi.json HTTP/1.1\r\nHost: localhost\r\n{bearer}\r\n\r\n"
            )
            .unwrap();
            let mut answer = [0; 1024];
            assert!(client.read(&mut answer).unwrap() > 0);
            client
        })
        .collect();
    std::thread::sleep(Duration::from_secs(1));
    let after = server.memory();
    let shown = |kibibytes: u64| format!("{:.1} MiB", kibibytes as f64 / 1024.0);
    report.row(
        "RSS with 1000 idle clients, against before",
        &shown(after),
        &shown(before),
        None,
        "–",
    );
    report.row(
        "memory of an idle client",
        &format!("{:.1} KiB", (after - before) as f64 / CLIENTS as f64),
        "–",
        None,
        "≤ 24 KiB",
    );
    drop(clients);
}

/// The memory of a server whose jobs have printed much.
pub(crate) fn after_output(report: &mut Report, sshd: &Sshd) {
    const JOBS: usize = 3;
    // A finished job keeps its last lines in memory for half a minute.
    const REST: Duration = Duration::from_secs(35);
    let server = Server::start(sshd);
    let caller = server.caller(sshd, "output", &[]);
    caller.ok("run", json!({"host": HOST, "command": "true"}));
    let before = server.memory();
    for _ in 0..JOBS {
        let id = caller.spawn("seq -f 'line %.0f of a long log that continues' 10000000");
        let wait = json!({"job_ids": [id], "wait_ms": 50_000});
        while caller.ok("wait", wait.clone())["ended"] == json!(0) {}
    }
    std::thread::sleep(REST);
    let mebibytes = |kibibytes: u64| format!("{:.1} MiB", kibibytes as f64 / 1024.0);
    report.row(
        "RSS of a server after 1.2 GB of output of three jobs, against before",
        &mebibytes(server.memory()),
        &mebibytes(before),
        None,
        "≤ 30 MiB",
    );
}
