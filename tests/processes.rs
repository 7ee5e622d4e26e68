//! Many processes, one state: a server, and a shell beside it.

use std::time::Duration;

use crate::support::command::{command as command_of, sshjobs, told};
use crate::support::relay::Relay;
use crate::support::tmux::Tmux;
use crate::support::{HOST, McpClient, Sshd, eventually};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

#[tokio::test]
async fn a_shell_sees_reads_and_ends_what_an_agent_does() {
    let sshd = Sshd::start().await;
    let mut agent = McpClient::start(&sshd.ssh_config());
    let command = "echo begun; echo trouble >&2; sleep 1000";
    let spawned = agent.ok(
        "ssh_spawn",
        json!({"host": HOST, "command": command, "label": "deploy"}),
    );
    let job = spawned["job_id"].as_str().unwrap();
    agent.ok(
        "ssh_tail",
        json!({"job_id": job, "since_line_no": 1, "wait_ms": 5000}),
    );
    assert_eq!(
        told(&sshjobs(&sshd, &["tail", "--since", "0", job])).lines().count(),
        2
    );
    let listed: Value = serde_json::from_str(&told(&sshjobs(
        &sshd,
        &["jobs", "--label", "deploy", "--json"],
    )))
    .unwrap();
    assert_eq!(
        (&listed["job_id"], &listed["state"]),
        (&json!(job), &json!("running"))
    );
    assert!(
        listed["owner"].as_str().unwrap().ends_with("(sshjobs serve)"),
        "{listed}"
    );
    assert!(told(&sshjobs(&sshd, &["jobs"])).contains("[deploy] echo begun"));
    told(&sshjobs(&sshd, &["write", job, "x"]));
    assert_eq!(
        told(&sshjobs(&sshd, &["search", job, "trou"])),
        "2:trouble\n".replace('2', &told_line(&sshd, job))
    );
    eventually("it is signalled from here", async || {
        sshjobs(&sshd, &["signal", job, "KILL"]).status.success()
    })
    .await;
    let reply = agent.ok("ssh_wait", json!({"job_ids": [job]}));
    assert_eq!(reply["jobs"][0]["state"], "signaled");
    assert_eq!(sshjobs(&sshd, &["wait", job]).status.code(), Some(137));
    told(&sshjobs(&sshd, &["forget", job]));
    assert_eq!(sshjobs(&sshd, &["tail", job]).status.code(), Some(2));
}

#[tokio::test]
async fn output_is_shown_from_a_line_or_a_time_on() {
    let sshd = Sshd::start().await;
    let command = "for i in $(seq 1 30); do echo $i; sleep 0.01; done";
    let job = told(&sshjobs(&sshd, &["spawn", HOST, "--", command])).trim().to_owned();
    told(&sshjobs(&sshd, &["wait", &job]));
    let tail = |since: &str| told(&sshjobs(&sshd, &["tail", "--json", "--since", since, &job]));
    let records = |text: String| {
        text.lines()
            .map(|line| serde_json::from_str::<Value>(line).unwrap())
            .collect::<Vec<_>>()
    };
    let all = records(tail("0"));
    assert_eq!(all.len(), 30);
    assert_eq!(records(tail("1h")), all);
    assert_eq!(records(tail("12")), all[12..]);
    let middle = all[12]["ts"].as_u64().unwrap();
    let time = std::time::UNIX_EPOCH + std::time::Duration::from_millis(middle);
    let first = all.iter().position(|record| record["ts"] == middle).unwrap();
    assert_eq!(
        records(tail(&humantime::format_rfc3339_millis(time).to_string())),
        all[first..]
    );
    assert_eq!(tail("1ms"), "");
    assert_eq!(
        sshjobs(&sshd, &["tail", "--since", "yesterday", &job]).status.code(),
        Some(2)
    );
}

/// The number of the line that says `trouble`: the order of two streams is the host's.
fn told_line(sshd: &Sshd, job: &str) -> String {
    let text = told(&sshjobs(sshd, &["tail", "--since", "0", "--json", job]));
    let records = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let found = records.into_iter().find(|record| record["text"] == "trouble").unwrap();
    found["line_no"].to_string()
}

#[tokio::test]
async fn a_durable_job_is_started_written_to_and_waited_for_by_commands_that_come_and_go() {
    let sshd = Sshd::start().await;
    let command = "while read -r line; do echo \"got $line\"; done; exit 7";
    let job = told(&sshjobs(&sshd, &["spawn", "--stdin", HOST, "--", command]))
        .trim()
        .to_owned();
    told(&sshjobs(&sshd, &["write", &job, "one"]));
    told(&sshjobs(
        &sshd,
        &["tail", "-f", "--since", "0", "--until", "got one", &job],
    ));
    told(&sshjobs(&sshd, &["write", &job, "two", "--close"]));
    assert_eq!(sshjobs(&sshd, &["wait", &job]).status.code(), Some(7));
    let read: Value = serde_json::from_str(&told(&sshjobs(
        &sshd,
        &["read", &job, "--offset", "-1", "--json"],
    )))
    .unwrap();
    assert_eq!(
        (&read["lines"], &read["total"]),
        (&json!(["got two"]), &json!(2))
    );
    let twice = ["spawn", "--key", "k", HOST, "--", "echo once"];
    assert_eq!(told(&sshjobs(&sshd, &twice)), told(&sshjobs(&sshd, &twice)));
    assert_eq!(
        sshjobs(&sshd, &["wait", "--timeout", "200ms", &job]).status.code(),
        Some(7)
    );
    let sleeping = told(&sshjobs(&sshd, &["spawn", HOST, "--", "sleep 1000"])).trim().to_owned();
    assert_eq!(
        sshjobs(&sshd, &["wait", "--timeout", "200ms", &sleeping]).status.code(),
        Some(124)
    );
    told(&sshjobs(&sshd, &["forget", "--force", &sleeping]));
}

#[tokio::test]
async fn processes_of_an_attached_job_of_a_killed_server_are_ended_when_its_host_is_reached() {
    let sshd = Sshd::start().await;
    let mut first = McpClient::start(&sshd.ssh_config());
    let alive = sshd.path("alive");
    let command = format!(
        "while :; do date +%s%N > {}; sleep 0.1; done",
        alive.display()
    );
    let spawned = first.ok("ssh_spawn", json!({"host": HOST, "command": command}));
    let job = spawned["job_id"].as_str().unwrap();
    eventually("the record knows where it runs", async || {
        let listed: Value =
            serde_json::from_str(&told(&sshjobs(&sshd, &["jobs", "--json"]))).unwrap();
        listed["state"] == "running"
    })
    .await;
    kill(Pid::from_raw(first.pid().cast_signed()), Signal::SIGKILL).unwrap();
    let mut second = McpClient::start(&sshd.ssh_config());
    second.ok("ssh_run", json!({"host": HOST, "command": "true"}));
    eventually("its process is gone", async || {
        let before = std::fs::read(&alive).unwrap();
        tokio::time::sleep(Duration::from_millis(400)).await;
        std::fs::read(&alive).unwrap() == before
    })
    .await;
    let reply = second.ok("ssh_tail", json!({"job_id": job}));
    assert_eq!(
        (&reply["state"], &reply["reason"]),
        (&json!("lost"), &json!("server_restarted"))
    );
}

#[tokio::test]
async fn a_signal_goes_through_the_process_that_has_the_job() {
    let sshd = Sshd::start().await;
    let mut owner = McpClient::start(&sshd.ssh_config());
    let spawned = owner.ok("ssh_spawn", json!({"host": HOST, "command": "sleep 1000"}));
    let job = spawned["job_id"].as_str().unwrap();

    // From here on no other process can connect to the host.
    sshd.write_known_hosts("");
    let signalled = sshjobs(&sshd, &["signal", job]);

    assert!(
        signalled.status.success(),
        "{}",
        String::from_utf8_lossy(&signalled.stderr)
    );
    let reply = owner.ok("ssh_wait", json!({"job_ids": [job], "wait_ms": 20_000}));
    assert_eq!(reply["jobs"][0]["exit_signal"], "TERM", "{reply}");
}

#[tokio::test]
async fn concurrent_writers_lose_nothing() {
    let sshd = Sshd::start().await;
    let job = told(&sshjobs(&sshd, &["spawn", "--stdin", HOST, "--", "sort"]))
        .trim()
        .to_owned();
    let write = |number: usize| {
        let (sshd, job) = (&sshd, &job);
        move || told(&sshjobs(sshd, &["write", job, &format!("hello {number}")]))
    };
    std::thread::scope(|scope| (0..6).for_each(|number| drop(scope.spawn(write(number)))));
    told(&sshjobs(&sshd, &["write", &job, "last", "--close"]));
    assert_eq!(sshjobs(&sshd, &["wait", &job]).status.code(), Some(0));
    let expected: String = (0..6)
        .map(|number| format!("hello {number}\n"))
        .chain(["last\n".to_owned()])
        .collect();
    assert_eq!(
        told(&sshjobs(&sshd, &["tail", "--since", "0", &job])),
        expected
    );
}

#[tokio::test]
async fn a_durable_run_whose_stdin_ends_at_once_ends() {
    let sshd = Sshd::start().await;
    for _ in 0..8 {
        let output = sshjobs(&sshd, &["run", "--durable", HOST, "--", "cat; exit 4"]);
        assert_eq!(
            (output.status.code(), output.stdout.as_slice()),
            (Some(4), &b""[..])
        );
    }
}

/// A terminal that closes does not end the input: a command started to outlive it does.
#[tokio::test]
async fn a_durable_run_continues_when_its_terminal_closes() {
    let sshd = Sshd::start().await;
    for options in ["", "-t"] {
        let config = sshd.ssh_config();
        let state = sshd.path("state");
        let program = env!("CARGO_BIN_EXE_sshjobs");
        let line = format!(
            "XDG_CONFIG_HOME={} XDG_STATE_HOME={} {program} --ssh-config {} run --durable {options} {HOST} -- \
             'echo begun; cat; echo over'",
            sshd.path("no-config").display(),
            state.display(),
            config.display(),
        );
        let terminal = Tmux::start(&line, (120, 20));
        terminal.shows(&["begun"]).await;
        let listed = told(&sshjobs(&sshd, &["jobs", "--json", "--state", "running"]));
        let job: Value = serde_json::from_str(listed.lines().next().unwrap()).unwrap();
        let id = job["job_id"].as_str().unwrap();

        drop(terminal);
        // Long enough for a wrong end of input to arrive.
        tokio::time::sleep(Duration::from_secs(1)).await;
        told(&sshjobs(&sshd, &["write", id, "still here"]));
        told(&sshjobs(&sshd, &["write", id, "--close"]));

        assert_eq!(
            sshjobs(&sshd, &["wait", id]).status.code(),
            Some(0),
            "{options:?}"
        );
        let read = told(&sshjobs(&sshd, &["read", id]));
        assert!(
            read.contains("still here") && read.ends_with("over\n"),
            "{options:?}: {read}"
        );
    }
}

#[tokio::test]
async fn a_list_shows_the_current_states_of_durable_jobs_without_a_follower() {
    let sshd = Sshd::start().await;
    // It ends only after `spawn` has returned, which could record the end otherwise.
    let go = sshd.path("go");
    let command = format!(
        "until test -e {}; do sleep 0.05; done; echo over; exit 3",
        go.display()
    );
    let ended = told(&sshjobs(&sshd, &["spawn", HOST, "--", &command])).trim().to_owned();
    let running = told(&sshjobs(&sshd, &["spawn", HOST, "--", "sleep 1000"])).trim().to_owned();
    std::fs::write(&go, "").unwrap();
    eventually("it has ended", async || {
        sshd.spool(&ended).join("exit").exists()
    })
    .await;
    let listed = |options: &[&str]| -> Vec<Value> {
        let text = told(&sshjobs(&sshd, &[&["jobs", "--json"], options].concat()));
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    let state_of = |jobs: &[Value], id: &str| {
        let job = jobs.iter().find(|job| job["job_id"] == id);
        job.map(|job| (job["state"].clone(), job["last_seen_at"].is_u64()))
    };

    let cached = listed(&["--cached"]);
    assert_eq!(
        state_of(&cached, &ended),
        Some((json!("running"), true)),
        "as it was last recorded"
    );

    let looked = listed(&[]);
    assert_eq!(state_of(&looked, &ended), Some((json!("exited"), false)));
    assert_eq!(
        looked.iter().find(|job| job["job_id"] == *ended).unwrap()["exit_status"],
        3
    );
    assert_eq!(state_of(&looked, &running), Some((json!("running"), false)));
    assert_eq!(
        state_of(&listed(&["--state", "exited"]), &ended),
        Some((json!("exited"), false))
    );
    assert_eq!(state_of(&listed(&["--state", "running"]), &ended), None);

    // A client that connects there waits for a line that never comes.
    let silent = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let config = std::fs::read_to_string(sshd.ssh_config()).unwrap();
    let silent_port = format!("Port {}", silent.local_addr().unwrap().port());
    std::fs::write(
        sshd.ssh_config(),
        config.replace(&format!("Port {}", sshd.port()), &silent_port),
    )
    .unwrap();
    let unreachable = told(&sshjobs(&sshd, &["jobs"]));
    std::fs::write(sshd.ssh_config(), config).unwrap();
    assert!(unreachable.contains("running, seen "), "{unreachable}");
    told(&sshjobs(&sshd, &["forget", "--force", &running]));
}

#[tokio::test]
async fn a_tail_of_a_job_without_a_follower_shows_its_newest_output() {
    let sshd = Sshd::start().await;
    let job = told(&sshjobs(&sshd, &["spawn", HOST, "--", "seq 1000; exit 3"]))
        .trim()
        .to_owned();
    eventually("it has ended", async || {
        sshd.spool(&job).join("exit").exists()
    })
    .await;
    let last = told(&sshjobs(&sshd, &["tail", &job]));
    assert_eq!(
        last.lines().collect::<Vec<_>>(),
        (991..=1000).map(|n| n.to_string()).collect::<Vec<_>>()
    );
    assert_eq!(
        told(&sshjobs(&sshd, &["search", &job, "^500$"])),
        "500:500\n"
    );
    told(&sshjobs(&sshd, &["forget", "--output", &job]));
    assert_eq!(told(&sshjobs(&sshd, &["read", &job])), "");
}

#[tokio::test]
async fn raw_bytes_are_written_unchanged_and_omitted_ones_are_reported() {
    let sshd = Sshd::start().await;
    let command =
        "printf 'caf\\303\\251 \\377\\000\\033[1m\\r\\nend'; echo trouble >&2; seq 3000 >&2";
    let job = told(&sshjobs(&sshd, &["spawn", HOST, "--", command])).trim().to_owned();
    assert_eq!(sshjobs(&sshd, &["wait", &job]).status.code(), Some(0));
    let raw = sshjobs(&sshd, &["read", "--raw", "--stream", "stdout", &job]);
    assert_eq!(raw.stdout, b"caf\xc3\xa9 \xff\0\x1b[1m\r\nend");
    assert_eq!(
        sshjobs(&sshd, &["read", "--raw", "--stream", "both", &job]).status.code(),
        Some(2)
    );
    let read = sshjobs(&sshd, &["read", "--stream", "stderr", &job]);
    assert!(
        String::from_utf8_lossy(&read.stderr).contains(
            "1000 of 3001 lines; --offset 1000 \
            continues"
        ),
        "{read:?}"
    );
    let search = sshjobs(
        &sshd,
        &[
            "search", "-m", "2", "-C", "1", "--stream", "stderr", &job, "^1",
        ],
    );
    assert!(
        String::from_utf8_lossy(&search.stderr).contains("stopped after 2 matches"),
        "{search:?}"
    );
    assert!(told(&search).contains("-trouble\n"), "{search:?}");
}

/// If a process is killed while it starts a job, another with the same key starts the job once.
#[tokio::test]
async fn a_key_of_a_start_that_was_killed_starts_the_job_once() {
    let sshd = Sshd::start().await;
    let mut jobs = Vec::new();
    for round in 0..12_u64 {
        let (key, mark) = (format!("k{round}"), sshd.path(&format!("ran{round}")));
        let command = format!("echo ran >> {}", mark.display());
        let arguments = ["spawn", "--key", &key, HOST, "--", &command];
        let mut first = command_of(&sshd, &arguments).spawn().unwrap();
        tokio::time::sleep(Duration::from_millis(20 * round)).await;
        first.kill().unwrap();
        first.wait().unwrap();
        let job = told(&sshjobs(&sshd, &arguments)).trim().to_owned();
        jobs.push((job, mark));
    }
    for (job, mark) in &jobs {
        assert_eq!(
            sshjobs(&sshd, &["wait", "--timeout", "20s", job]).status.code(),
            Some(0),
            "{job}"
        );
        assert_eq!(
            std::fs::read_to_string(mark).unwrap(),
            "ran\n",
            "{job} ran once"
        );
    }
}

#[tokio::test]
async fn an_unreachable_host_is_reported_and_a_signal_that_can_not_be_sent_is_an_error() {
    let sshd = Sshd::start().await;
    let job = told(&sshjobs(
        &sshd,
        &["spawn", HOST, "--", "echo begun; sleep 1000"],
    ))
    .trim()
    .to_owned();
    told(&sshjobs(
        &sshd,
        &["tail", "-f", "--until", "begun", "--since", "0", &job],
    ));
    let unfollowed = told(&sshjobs(&sshd, &["spawn", HOST, "--", "sleep 1000"])).trim().to_owned();
    let config = std::fs::read_to_string(sshd.ssh_config()).unwrap();
    std::fs::write(
        sshd.ssh_config(),
        config.replace(&format!("Port {}", sshd.port()), "Port 1"),
    )
    .unwrap();
    let error = |arguments: &[&str]| {
        let output = sshjobs(&sshd, arguments);
        (
            output.status.code(),
            String::from_utf8_lossy(&output.stderr).into_owned(),
        )
    };
    for verb in [
        &["tail", &job][..],
        &["read", &job],
        &["wait", "--timeout", "100ms", &job],
    ] {
        assert!(
            error(verb).1.contains("out of reach"),
            "{verb:?}: {:?}",
            error(verb)
        );
    }
    let (_, told_of) = error(&["wait", "--timeout", "1s", &job, &unfollowed]);
    assert_eq!(told_of.matches("out of reach").count(), 1, "{told_of}");
    let (code, told_of) = error(&["search", &job, "nothing of this kind"]);
    assert!(
        code == Some(255) && told_of.contains("out of reach"),
        "{code:?} {told_of}"
    );
    // "out of reach" if its record lacks the process group, otherwise "cannot reach".
    let (code, told_of) = error(&["inspect", &unfollowed]);
    assert!(
        code == Some(255) && told_of.contains("reach"),
        "{code:?} {told_of}"
    );
    let (code, told_of) = error(&["signal", &job, "KILL"]);
    assert!(code == Some(255), "{code:?} {told_of}");
    std::fs::write(sshd.ssh_config(), config).unwrap();
    told(&sshjobs(&sshd, &["forget", "--force", &job, &unfollowed]));
}

#[tokio::test]
async fn a_durable_job_that_no_process_could_find_again_is_refused() {
    let sshd = Sshd::start().await;
    let file = sshd.path("file");
    std::fs::write(&file, "").unwrap();
    let state = ["--state-dir", file.to_str().unwrap()];
    let output = sshjobs(
        &sshd,
        &[&state[..], &["spawn", HOST, "--", "true"]].concat(),
    );
    assert_eq!(
        (output.status.code(), output.stdout.as_slice()),
        (Some(255), &b""[..])
    );
    assert!(
        String::from_utf8_lossy(&output.stderr).contains("could not be found again"),
        "{output:?}"
    );
    assert_eq!(
        sshjobs(&sshd, &[&state[..], &["jobs"]].concat()).status.code(),
        Some(255)
    );
}

#[tokio::test]
async fn an_attached_job_ends_with_the_program_that_is_told_to_stop() {
    let sshd = Sshd::start().await;
    let alive = sshd.path("alive");
    let command = format!(
        "while :; do date +%s%N > {}; sleep 0.1; done",
        alive.display()
    );
    let mut owner = command_of(&sshd, &["spawn", "--attached", HOST, "--", &command])
        .spawn()
        .unwrap();
    eventually("it runs", async || alive.exists()).await;
    kill(Pid::from_raw(owner.id().cast_signed()), Signal::SIGTERM).unwrap();
    assert_eq!(crate::support::exit_of(&mut owner).await, Some(143));
    let before = std::fs::read(&alive).unwrap();
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(
        std::fs::read(&alive).unwrap(),
        before,
        "its process is gone"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_whose_start_is_not_confirmed_yet_ends_with_its_program() {
    let sshd = Sshd::start().await;
    // So far away that the command runs for a while before its program knows.
    let _relay = Relay::before(&sshd, Duration::from_millis(150));

    let alive = sshd.path("alive");
    let command = format!(
        "while :; do date +%s%N > {}; sleep 0.1; done",
        alive.display()
    );
    let mut owner = command_of(&sshd, &["spawn", "--attached", HOST, "--", &command])
        .spawn()
        .unwrap();
    eventually("it runs", async || alive.exists()).await;
    kill(Pid::from_raw(owner.id().cast_signed()), Signal::SIGTERM).unwrap();
    assert_eq!(crate::support::exit_of(&mut owner).await, Some(143));

    let before = std::fs::read(&alive).unwrap();
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(
        std::fs::read(&alive).unwrap(),
        before,
        "its process is gone"
    );
}

#[tokio::test]
async fn a_short_run_ends_what_a_killed_one_has_left_on_its_host() {
    let sshd = Sshd::start().await;
    let pid = sshd.path("pid");
    let command = format!("echo $$ > {}; sleep 300; true", pid.display());
    let mut killed = command_of(&sshd, &["run", HOST, "--", &command]).spawn().unwrap();
    let read = || std::fs::read_to_string(&pid).ok().filter(|pid| pid.ends_with('\n'));
    eventually("the job runs", async || read().is_some()).await;
    let process = std::path::Path::new("/proc").join(read().unwrap().trim());
    eventually("its record knows where it runs", async || {
        told(&sshjobs(&sshd, &["jobs", "--cached", "--json"])).contains("\"running\"")
    })
    .await;

    killed.kill().unwrap();
    killed.wait().unwrap();
    assert!(process.exists());

    told(&sshjobs(&sshd, &["run", HOST, "--", "true"]));
    eventually("it is ended", async || !process.exists()).await;
}
