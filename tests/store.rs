//! Stored output, against a private sshd: no line that was shown is lost or renumbered, whatever
//! happens to the process.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::support::{HOST, McpClient, Sshd, canonical_loop, eventually, spawn, stored_service};
use serde_json::{Value, json};
use sshjobs_core::jobs::Limits;
use sshjobs_wire::{
    Code, CommandRequest, Format, JobState, JobsRequest, KeepArg, ReadRequest, SearchRequest,
    Service, SpawnRequest, StreamArg, TailRequest, UnitArg,
};

/// A service that stores in `state`, with rings of a hundred lines.
fn service(sshd: &Sshd, state: &Path) -> Service {
    stored_service(
        sshd.ssh_config(),
        state.to_owned(),
        Limits {
            ring_buffer_lines: 100,
            ..Limits::default()
        },
    )
}

fn all(job_id: &str) -> TailRequest {
    TailRequest {
        max_lines: Some(10_000),
        max_bytes: Some(262_144),
        ..TailRequest::new(job_id, 0, 0)
    }
}

const TWO_STREAMS: &str = "i=0; while [ $i -lt 5000 ]; do i=$((i+1)); echo out $i; [ $((i%7)) = 0 ] && echo err $i >&2; done; exit 3";

#[tokio::test]
async fn what_the_ring_has_lost_is_read_from_the_store() {
    let sshd = Sshd::start().await;
    let service = service(&sshd, &sshd.path("state"));
    let job = spawn(&service, TWO_STREAMS).await;
    let story = canonical_loop(&service, &job).await;
    assert_eq!((story.dropped, story.status()), (0, Some(3)));
    assert_eq!(story.numbers, (1..=5714).collect::<Vec<_>>());
    let again = canonical_loop(&service, &job).await;
    assert_eq!((again.lines, again.dropped), (story.lines.clone(), 0));
    let outs: Vec<_> = story.lines.iter().filter(|line| line.starts_with("out")).collect();
    assert_eq!(outs.len(), 5000);
    let errors = crate::support::follow(&service, &job, StreamArg::Stderr, 0).await;
    assert_eq!(errors.lines.len(), 714);
    assert_eq!(errors.lines[100], "err 707");
    let read = |unit, offset, length| ReadRequest {
        unit,
        offset,
        length: Some(length),
        ..ReadRequest::new(&job)
    };
    let lines = service.read(read(UnitArg::Lines, 1000, 3)).await.unwrap();
    assert_eq!(lines.lines.unwrap(), &story.lines[1000..1003]);
    assert_eq!(
        (lines.offset, lines.total, lines.available_from),
        (1000, 5714, 0)
    );
    let from_end = service.read(read(UnitArg::Lines, -3000, 2)).await.unwrap();
    assert_eq!(from_end.lines.unwrap(), &story.lines[2714..2716]);
    let text = story.lines.join("\n") + "\n";
    let chars = service.read(read(UnitArg::Chars, 20_000, 500)).await.unwrap();
    assert_eq!(chars.content.as_deref(), text.get(20_000..20_500));
    let bytes = ReadRequest {
        stream: StreamArg::Stderr,
        ..read(UnitArg::Bytes, 9, 8)
    };
    assert_eq!(
        service.read(bytes).await.unwrap().content.unwrap(),
        " 14\nerr "
    );
    let search: SearchRequest =
        serde_json::from_value(json!({"job_id": job, "pattern": "^out 1234$", "context": 1}))
            .unwrap();
    let found = service.search(search).await.unwrap();
    assert_eq!((found.matches.len(), found.dropped_lines), (1, 0));
    let filtered = TailRequest {
        filter: Some("^out [0-9]00$".into()),
        ..all(&job)
    };
    assert_eq!(
        service.tail(filtered).await.unwrap().lines.unwrap().len(),
        9
    );
    service.shutdown().await;
}

#[tokio::test]
async fn a_finished_job_is_there_after_a_restart() {
    let sshd = Sshd::start().await;
    let state = sshd.path("state");
    let first = service(&sshd, &state);
    let job = spawn(&first, TWO_STREAMS).await;
    let before = canonical_loop(&first, &job).await;
    first.shutdown().await;
    drop(first);
    let second = service(&sshd, &state);
    let after = canonical_loop(&second, &job).await;
    assert_eq!(
        (after.lines, after.numbers, after.dropped),
        (before.lines, before.numbers, 0)
    );
    assert_eq!(
        (
            after.last.as_ref().unwrap().standing.exit_status,
            after.replies > 5
        ),
        (Some(3), true)
    );
    let listed = second
        .jobs(JobsRequest {
            state: Some(JobState::Exited),
            ..JobsRequest::default()
        })
        .await
        .unwrap();
    assert_eq!(
        (
            listed.total,
            listed.jobs[0].job_id.as_str(),
            listed.jobs[0].total_lines
        ),
        (1, job.as_str(), 5714)
    );
    second.forget(sshjobs_wire::ForgetRequest::new(&job)).await.unwrap();
    assert_eq!(second.jobs(JobsRequest::default()).await.unwrap().total, 0);
    second.shutdown().await;
    drop(second);
    let third = service(&sshd, &state);
    assert_eq!(
        third.tail(all(&job)).await.unwrap_err().code,
        Code::UnknownJob
    );
}

#[tokio::test]
async fn an_idempotency_key_holds_across_processes_and_restarts() {
    let sshd = Sshd::start().await;
    let state = sshd.path("state");
    let (one, two) = (service(&sshd, &state), service(&sshd, &state));
    let request = |command: &str| {
        let mut request = SpawnRequest::new(HOST, command);
        request.idempotency_key = Some("deploy-7".into());
        request
    };
    let job = one.spawn(request("echo once")).await.unwrap().job_id;
    assert_eq!(two.spawn(request("echo once")).await.unwrap().job_id, job);
    assert_eq!(
        two.spawn(request("echo twice")).await.unwrap_err().code,
        Code::InvalidArgument
    );
    one.shutdown().await;
    drop((one, two));
    let three = service(&sshd, &state);
    assert_eq!(three.spawn(request("echo once")).await.unwrap().job_id, job);
    assert_eq!(canonical_loop(&three, &job).await.lines, ["once"]);
}

#[tokio::test]
async fn another_process_reads_a_running_job_within_moments_and_may_signal_it_and_write() {
    let sshd = Sshd::start().await;
    let state = sshd.path("state");
    let (owner, other) = (service(&sshd, &state), service(&sshd, &state));
    let job = spawn(
        &owner,
        "while read line; do echo got $line; done; sleep 1000",
    )
    .await;
    owner
        .library()
        .job(&job)
        .await
        .unwrap()
        .write(b"one\n", Duration::from_secs(5))
        .await
        .unwrap();
    let tail = other.tail(TailRequest::new(&job, 0, 10_000)).await.unwrap();
    assert_eq!(
        (tail.lines.unwrap(), tail.still_running),
        (vec!["got one".to_owned()], true)
    );
    let waiting = other.tail(TailRequest::new(&job, 1, 10_000));
    let writing = async {
        // The wait starts with its first look. Nothing reports that, and a later wait finds the
        // line at once.
        tokio::task::yield_now().await;
        owner
            .library()
            .job(&job)
            .await
            .unwrap()
            .write(b"two\n", Duration::from_secs(5))
            .await
            .unwrap();
        tokio::time::Instant::now()
    };
    let (tail, written) = tokio::join!(
        async { (waiting.await.unwrap(), tokio::time::Instant::now()) },
        writing
    );
    assert_eq!(tail.0.lines.unwrap(), ["got two"]);
    assert!(
        tail.1 - written < Duration::from_millis(500),
        "{:?}",
        tail.1 - written
    );
    let mut write = sshjobs_wire::WriteRequest::new(&job);
    write.data = Some("three\n".into());
    assert_eq!(other.write(write).await.unwrap().bytes_written, 6);
    let tail = other.tail(TailRequest::new(&job, 2, 10_000)).await.unwrap();
    assert_eq!(tail.lines.unwrap(), ["got three"]);
    eventually(
        "its machine and process group are known to others",
        async || {
            let mut signal = sshjobs_wire::SignalRequest::new(&job);
            signal.signal = Some("KILL".into());
            other.signal(signal).await.is_ok_and(|reply| crate::support::is_dead(&reply))
        },
    )
    .await;
    let story = canonical_loop(&other, &job).await;
    assert_eq!((story.lines.len(), story.state()), (3, JobState::Signaled));
    owner.shutdown().await;
}

#[tokio::test]
async fn a_job_of_a_process_that_was_killed_is_lost_with_every_line_that_was_shown() {
    let sshd = Sshd::start().await;
    let state = sshd.path("state");
    let mut client = McpClient::start(&sshd.ssh_config());
    let command =
        "i=0; while :; do i=$((i+1)); echo line $i; [ $((i%1000)) = 0 ] && sleep 0.05; done";
    let spawned = client.ok("ssh_spawn", json!({"host": HOST, "command": command}));
    let job = spawned["job_id"].as_str().unwrap().to_owned();
    let mut shown: Vec<String> = Vec::new();
    while shown.len() < 5000 {
        let arguments = json!({"job_id": job, "since_line_no": shown.len(), "wait_ms": 5000});
        let reply: Value = client.ok("ssh_tail", arguments);
        shown.extend(
            reply["lines"]
                .as_array()
                .unwrap()
                .iter()
                .map(|line| line.as_str().unwrap().to_owned()),
        );
    }
    nix::sys::signal::kill(
        nix::unistd::Pid::from_raw(client.pid().cast_signed()),
        nix::sys::signal::SIGKILL,
    )
    .unwrap();
    let service = service(&sshd, &state.join("sshjobs"));
    eventually("the job is found to be lost", async || {
        service.tail(all(&job)).await.unwrap().standing.state == JobState::Lost
    })
    .await;
    let story = canonical_loop(&service, &job).await;
    assert_eq!(
        (story.dropped, &story.lines[..shown.len()]),
        (0, &shown[..])
    );
    assert_eq!(
        story.last.unwrap().standing.reason.as_deref(),
        Some("server_restarted")
    );
    service.shutdown().await;
}

#[tokio::test]
async fn an_unusable_state_directory_stops_no_job_and_is_reported() {
    let sshd = Sshd::start().await;
    let file = sshd.path("no-directory");
    std::fs::write(&file, "").unwrap();
    let service = service(&sshd, &file);
    let reply = service.spawn(SpawnRequest::new(HOST, "echo here")).await.unwrap();
    assert!(reply.unstored.unwrap().contains("no-directory"));
    let story = canonical_loop(&service, &reply.job_id).await;
    assert_eq!(
        (story.lines, story.last.unwrap().standing.unstored.is_some()),
        (vec!["here".to_owned()], true)
    );
    service.shutdown().await;
}

#[tokio::test]
async fn a_directory_that_others_can_enter_is_not_used() {
    use std::os::unix::fs::PermissionsExt;
    let sshd = Sshd::start().await;
    let state = sshd.path("state");
    std::fs::create_dir(&state).unwrap();
    std::fs::set_permissions(&state, std::fs::Permissions::from_mode(0o755)).unwrap();
    let service = service(&sshd, &state);
    let reply = service.spawn(SpawnRequest::new(HOST, "true")).await.unwrap();
    assert!(reply.unstored.unwrap().contains("chmod 700"));
}

#[tokio::test]
async fn deleted_output_stays_deleted_after_a_restart() {
    let sshd = Sshd::start().await;
    let state = sshd.path("state");
    let first = Arc::new(service(&sshd, &state));
    let job = spawn(&first, TWO_STREAMS).await;
    canonical_loop(&first, &job).await;
    let request = sshjobs_wire::ForgetRequest {
        what: sshjobs_wire::ForgetWhat::Output,
        stream: StreamArg::Stdout,
        ..sshjobs_wire::ForgetRequest::new(&job)
    };
    assert_eq!(first.forget(request).await.unwrap().forgotten_lines, 5000);
    let story = canonical_loop(&first, &job).await;
    assert_eq!((story.lines.len() as u64, story.dropped), (714, 5000));
    first.shutdown().await;
    drop(first);
    let second = service(&sshd, &state);
    let again = canonical_loop(&second, &job).await;
    assert_eq!((again.lines, again.dropped), (story.lines, 5000));
    let request = TailRequest {
        format: Format::Records,
        ..all(&job)
    };
    assert_eq!(
        second.tail(request).await.unwrap().records.unwrap()[0].text,
        "err 7"
    );
}

/// The record of a job whose process was killed in the middle of a transaction is the one from
/// before it.
#[tokio::test]
async fn a_process_that_is_killed_within_a_transaction_leaves_the_records_whole_and_free() {
    let sshd = Sshd::start().await;
    let state = sshd.path("state");
    let service = service(&sshd, &state);
    let job = spawn(&service, "exit 3").await;
    canonical_loop(&service, &job).await;
    let jobs = service.jobs(JobsRequest::default()).await.unwrap().total;
    let mut writer = std::process::Command::new(std::env::current_exe().unwrap())
        .args([
            "--ignored",
            "--exact",
            "store::writes_records_until_it_is_killed",
            "--nocapture",
        ])
        .env("SSHJOBS_TEST_DATABASE", state.join("jobs.db"))
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut told = std::io::BufReader::new(writer.stdout.take().unwrap());
    let mut line = String::new();
    while !line.contains("in a transaction") {
        line.clear();
        assert!(
            std::io::BufRead::read_line(&mut told, &mut line).unwrap() > 0,
            "it says when it is there"
        );
    }
    writer.kill().unwrap();
    writer.wait().unwrap();
    let second = spawn(&service, "exit 4").await;
    assert_eq!(canonical_loop(&service, &second).await.status(), Some(4));
    assert_eq!(
        service.jobs(JobsRequest::default()).await.unwrap().total,
        jobs + 1
    );
    service.shutdown().await;
    let database = rusqlite::Connection::open(state.join("jobs.db")).unwrap();
    let check: String = database.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(check, "ok");
    let later = self::service(&sshd, &state);
    assert_eq!(canonical_loop(&later, &job).await.status(), Some(3));
    assert_eq!(canonical_loop(&later, &second).await.status(), Some(4));
}

/// A job whose record can't be read was not deleted: "unknown" would say so.
#[tokio::test]
async fn a_damaged_record_is_reported_and_hides_no_other_job() {
    let sshd = Sshd::start().await;
    let state = sshd.path("state");
    let first = service(&sshd, &state);
    let damaged = spawn(&first, "exit 3").await;
    canonical_loop(&first, &damaged).await;
    let healthy = spawn(&first, "exit 4").await;
    canonical_loop(&first, &healthy).await;
    first.shutdown().await;
    drop(first);
    let database = rusqlite::Connection::open(state.join("jobs.db")).unwrap();
    let damage = "UPDATE jobs SET document = substr(document, 1, 100) WHERE id = ?";
    assert_eq!(database.execute(damage, [&damaged]).unwrap(), 1);
    let service = service(&sshd, &state);
    let listed = service.jobs(JobsRequest::default()).await.unwrap().jobs;
    let names: Vec<_> = listed.iter().map(|job| job.job_id.as_str()).collect();
    assert_eq!(names, [&healthy]);
    let error = service.tail(all(&damaged)).await.unwrap_err();
    assert_eq!(error.code, Code::Io, "{error:?}");
    assert_eq!(canonical_loop(&service, &healthy).await.status(), Some(4));
}

/// The same for all jobs of a store that can't be opened.
#[tokio::test]
async fn a_job_of_a_damaged_database_is_not_called_unknown() {
    let sshd = Sshd::start().await;
    let state = sshd.path("state");
    let first = service(&sshd, &state);
    let job = spawn(&first, "exit 3").await;
    canonical_loop(&first, &job).await;
    first.shutdown().await;
    drop(first);
    // A thread of the first service may close the database a moment later, and write to it then. SQLite
    // removes its log at the last close.
    eventually("the database is closed", async || {
        !state.join("jobs.db-wal").exists()
    })
    .await;
    std::fs::write(state.join("jobs.db"), "no database".repeat(1000)).unwrap();
    let service = service(&sshd, &state);
    let error = service.tail(all(&job)).await.unwrap_err();
    assert_eq!(error.code, Code::Io, "{error:?}");
    let later = spawn(&service, "exit 4").await;
    assert_eq!(canonical_loop(&service, &later).await.status(), Some(4));
}

#[test]
#[ignore = "the test above runs it, and kills it"]
fn writes_records_until_it_is_killed() {
    let Ok(database) = std::env::var("SSHJOBS_TEST_DATABASE") else { return };
    let connection = rusqlite::Connection::open(database).unwrap();
    connection
        .execute_batch("BEGIN IMMEDIATE; UPDATE jobs SET host = 'elsewhere'; DELETE FROM jobs;")
        .unwrap();
    println!("in a transaction");
    std::thread::park();
}

#[tokio::test]
async fn a_hundred_thousand_stored_jobs_are_listed_by_what_is_asked_and_hinder_no_new_one() {
    const JOBS: usize = 100_000;
    let sshd = Sshd::start().await;
    let state = sshd.path("state");
    let first = service(&sshd, &state);
    let job = spawn(&first, "echo one").await;
    canonical_loop(&first, &job).await;
    first.shutdown().await;
    drop(first);
    let database = rusqlite::Connection::open(state.join("jobs.db")).unwrap();
    let copies = format!(
        "INSERT INTO jobs SELECT 'copy-' || n, caller, 'host' || (n % 100), label, state, owner, NULL, started_at + n, ended_at, 0,
         json_set(document, '$.id', 'copy-' || n, '$.host', 'host' || (n % 100)), fleet
         FROM (SELECT * FROM jobs LIMIT 1), (WITH RECURSIVE count(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM count WHERE n < {JOBS}) SELECT n FROM count)"
    );
    assert_eq!(database.execute(&copies, []).unwrap(), JOBS);
    let service = service(&sshd, &state);
    let request = JobsRequest {
        host: Some("host7".into()),
        limit: Some(3),
        ..JobsRequest::default()
    };
    let listed = service.jobs(request.clone()).await.unwrap();
    let names: Vec<_> = listed.jobs.iter().map(|job| job.job_id.as_str()).collect();
    assert_eq!(
        (names, listed.total),
        (vec!["copy-99707", "copy-99807", "copy-99907"], JOBS / 100)
    );
    let new = spawn(&service, "echo two").await;
    assert_eq!(canonical_loop(&service, &new).await.lines, ["two"]);
    assert_eq!(canonical_loop(&service, &job).await.lines, ["one"]);
    assert_eq!(
        service.jobs(JobsRequest::default()).await.unwrap().total,
        JOBS + 2
    );
    service.shutdown().await;
}

#[tokio::test]
async fn records_of_a_version_without_fleets_are_migrated() {
    let sshd = Sshd::start().await;
    let state = sshd.path("state");
    let first = service(&sshd, &state);
    let job = spawn(&first, "echo one").await;
    canonical_loop(&first, &job).await;
    first.shutdown().await;
    drop(first);
    let database = rusqlite::Connection::open(state.join("jobs.db")).unwrap();
    database
        .execute_batch(
            "ALTER TABLE jobs DROP COLUMN fleet; DROP TABLE cursors; PRAGMA user_version = 1",
        )
        .unwrap();
    drop(database);
    let service = service(&sshd, &state);
    assert_eq!(canonical_loop(&service, &job).await.lines, ["one"]);
    let new = spawn(&service, "echo two").await;
    assert_eq!(canonical_loop(&service, &new).await.lines, ["two"]);
    assert_eq!(service.jobs(JobsRequest::default()).await.unwrap().total, 2);
    service.shutdown().await;
}

/// A reader behind a load balancer: each call goes to another server of the same state directory.
#[tokio::test(flavor = "multi_thread")]
async fn a_reader_that_changes_between_servers_sees_every_line_once() {
    let sshd = Sshd::start().await;
    let state = sshd.path("state");
    let servers = [service(&sshd, &state), service(&sshd, &state)];
    let command =
        "i=0; while [ $i -lt 3000 ]; do i=$((i+1)); echo line $i; done; sleep 0.2; echo end";
    let job = spawn(&servers[0], command).await;

    let mut numbers = Vec::new();
    let mut cursor = 0;
    let mut turns = (0..2).cycle();
    loop {
        let server = &servers[turns.next().unwrap()];
        let request = TailRequest {
            format: Format::Records,
            max_lines: Some(20),
            ..TailRequest::new(&job, cursor, 1000)
        };
        let reply = server.tail(request).await.unwrap();
        numbers.extend(reply.records.iter().flatten().map(|record| record.line_no));
        assert!(
            reply.last_line_no >= cursor,
            "the cursor went back from {cursor} to {}",
            reply.last_line_no
        );
        cursor = reply.last_line_no;
        if !reply.still_running {
            break;
        }
    }

    assert_eq!(numbers, (1..=3001).collect::<Vec<_>>());
    for server in servers {
        server.shutdown().await;
    }
}

#[tokio::test]
async fn a_cursor_after_the_end_is_clamped_also_at_another_server() {
    let sshd = Sshd::start().await;
    let state = sshd.path("state");
    let (owner, other) = (service(&sshd, &state), service(&sshd, &state));
    let job = spawn(&owner, "echo one; sleep 1000").await;
    eventually("the line is shown", async || {
        other.tail(all(&job)).await.unwrap().last_line_no == 1
    })
    .await;

    for server in [&owner, &other] {
        let reply = server.tail(TailRequest::new(&job, 1_000_000, 0)).await.unwrap();
        assert_eq!((reply.last_line_no, reply.clamped.len()), (1, 1));
    }
    owner.shutdown().await;
    other.shutdown().await;
}

#[tokio::test]
async fn a_list_is_read_while_another_process_writes_to_the_records() {
    let sshd = Sshd::start().await;
    let state = sshd.path("state");
    let service = service(&sshd, &state);
    let job = spawn(&service, "true").await;
    canonical_loop(&service, &job).await;
    eventually("the records have it", async || {
        service.jobs(JobsRequest::default()).await.unwrap().total == 1
    })
    .await;
    let writer = rusqlite::Connection::open(state.join("jobs.db")).unwrap();
    writer.execute_batch("BEGIN IMMEDIATE").unwrap();

    let listing = service.jobs(JobsRequest {
        cached: true,
        ..JobsRequest::default()
    });
    let listed = tokio::time::timeout(Duration::from_secs(4), listing).await;

    assert_eq!(
        listed.expect("no reader waits for the writer").unwrap().total,
        1
    );
    writer.execute_batch("ROLLBACK").unwrap();
    service.shutdown().await;
}

#[tokio::test]
async fn a_named_reader_continues_at_another_server_and_after_a_restart() {
    let sshd = Sshd::start().await;
    let state = sshd.path("state");
    let (first, second) = (service(&sshd, &state), service(&sshd, &state));
    let job = spawn(&first, "seq 30").await;
    canonical_loop(&first, &job).await;
    let ten = || TailRequest {
        since_line_no: None,
        reader: Some("pager".to_owned()),
        max_lines: Some(10),
        ..TailRequest::new(&job, 0, 0)
    };
    let numbers =
        |from: u32| (from..from + 10).map(|number| number.to_string()).collect::<Vec<_>>();

    assert_eq!(first.tail(ten()).await.unwrap().lines, Some(numbers(1)));
    assert_eq!(
        second.tail(ten()).await.unwrap().lines,
        Some(numbers(11)),
        "at another server"
    );
    first.shutdown().await;
    second.shutdown().await;
    let third = service(&sshd, &state);
    assert_eq!(
        third.tail(ten()).await.unwrap().lines,
        Some(numbers(21)),
        "after a restart"
    );
    third.shutdown().await;
}

#[tokio::test]
async fn a_replaced_state_directory_is_reported_and_takes_no_durable_job() {
    let sshd = Sshd::start().await;
    let state = sshd.path("state");
    let service = service(&sshd, &state);
    let job = spawn(&service, "echo before; read line; echo after").await;
    eventually("its output is stored", async || {
        service.tail(all(&job)).await.unwrap().last_line_no == 1
    })
    .await;

    std::fs::rename(&state, sshd.path("elsewhere")).unwrap();

    eventually("the job says that it is not stored", async || {
        let reply = service.tail(all(&job)).await.unwrap();
        reply.standing.unstored.is_some_and(|why| why.contains("removed or replaced"))
    })
    .await;
    let refused = service.spawn(crate::support::durable("echo lost")).await.unwrap_err();
    assert!(
        refused.message.contains("could not be found again"),
        "{refused}"
    );
    let attached = spawn(&service, "echo attached").await;
    let story = canonical_loop(&service, &attached).await;
    assert_eq!(
        (story.lines, story.dropped),
        (vec!["attached".to_owned()], 0)
    );
    assert!(!state.exists(), "nothing is created there again");
    service.shutdown().await;
}

#[tokio::test]
async fn another_process_resizes_and_ends_the_stdin_of_an_attached_job() {
    let sshd = Sshd::start().await;
    let state = sshd.path("state");
    let (owner, other) = (service(&sshd, &state), service(&sshd, &state));
    let request = SpawnRequest {
        pty: true,
        ..SpawnRequest::new(HOST, "echo ready; read line; stty size; cat; echo over")
    };
    let job = owner.spawn(request).await.unwrap().job_id;
    let ready = TailRequest {
        until: Some("ready".into()),
        ..TailRequest::new(&job, 0, 50_000)
    };
    other.tail(ready).await.unwrap();

    let mut write = sshjobs_wire::WriteRequest::new(&job);
    (write.cols, write.rows, write.data) = (Some(100), Some(40), Some("go\n".into()));
    other.write(write).await.unwrap();
    let mut close = sshjobs_wire::WriteRequest::new(&job);
    close.close_after = true;
    other.write(close).await.unwrap();

    let story = canonical_loop(&other, &job).await;
    assert!(
        story.lines.contains(&"40 100".to_owned()) && story.lines.contains(&"over".to_owned()),
        "{story:?}"
    );
    owner.shutdown().await;
    other.shutdown().await;
}

#[tokio::test]
async fn a_member_that_started_late_is_found_by_a_process_that_knew_its_fleet_before() {
    let sshd = Sshd::start().await;
    sshd.alias(["web2"]);
    let state = sshd.path("state");
    let (owner, other) = (service(&sshd, &state), service(&sshd, &state));
    let fleet = CommandRequest {
        hosts: vec!["web1".to_owned(), "web2".to_owned()],
        max_parallel: Some(1),
        ..CommandRequest::new("", "sleep 0.3; echo here")
    };
    let fleet = owner.spawn(fleet).await.unwrap().job_id;
    // The second member has no job yet.
    other.tail(all(&fleet)).await.unwrap();

    let second = all(&format!("{fleet}/web2"));
    eventually("the fleet has ended", async || {
        !owner.tail(all(&fleet)).await.unwrap().still_running
    })
    .await;

    eventually("its output is read", async || {
        let tail = other.tail(second.clone()).await;
        tail.is_ok_and(|tail| !tail.still_running && tail.last_line_no == 1)
    })
    .await;
    owner.shutdown().await;
    other.shutdown().await;
}

#[tokio::test]
async fn the_last_lines_are_read_from_the_store_if_the_ring_has_evicted_them() {
    let sshd = Sshd::start().await;
    let service = service(&sshd, &sshd.path("state"));
    let job = spawn(&service, "seq 1000; echo error >&2").await;
    canonical_loop(&service, &job).await;
    let last = async |max_lines: i64, stream: StreamArg| {
        let request = TailRequest {
            keep: KeepArg::Last,
            max_lines: Some(max_lines),
            stream,
            ..TailRequest::new(&job, 0, 0)
        };
        service.tail(request).await.unwrap()
    };

    // The ring has 100 lines.
    let page = last(300, StreamArg::Stdout).await;
    let expected: Vec<String> = (701..=1000).map(|number| number.to_string()).collect();
    assert_eq!(page.lines.unwrap(), expected);
    assert_eq!(page.skipped_lines, 700);
    assert_eq!(page.dropped_lines, 0);

    let page = last(50, StreamArg::Both).await;
    assert_eq!(page.lines.unwrap().len(), 50);
    assert!(!page.still_running);
    service.shutdown().await;
}

#[tokio::test]
async fn the_last_lines_of_a_member_are_read_where_its_fleet_runs() {
    let sshd = Sshd::start().await;
    let service = service(&sshd, &sshd.path("state"));
    let fleet = CommandRequest {
        hosts: vec!["web1".to_owned()],
        ..CommandRequest::new("", "echo here")
    };
    let fleet = service.spawn(fleet).await.unwrap().job_id;
    canonical_loop(&service, &fleet).await;

    let request = TailRequest {
        keep: KeepArg::Last,
        ..all(&format!("{fleet}/web1"))
    };
    let lines = service.tail(request).await.unwrap().lines.unwrap();
    assert_eq!(lines, ["here"]);
    service.shutdown().await;
}
