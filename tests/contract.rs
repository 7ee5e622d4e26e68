//! Promises to callers, against a real sshd: the private one, or a container's.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::support::{
    HOST, Target, canonical_loop, eventually, follow, is_dead, run, run_request, spawn,
};
use sshjobs_core::jobs::Limits;
use sshjobs_wire::{
    Because, Code, Error, ForgetRequest, ForgetWhat, JobState, JobsRequest, RunRequest,
    SignalReply, SignalRequest, SpawnRequest, StreamArg, TailRequest, WriteReply, WriteRequest,
};
use tokio::time::Instant;

fn numbers(count: u64) -> Vec<u64> {
    (1..=count).collect()
}

#[tokio::test]
async fn the_canonical_loop_delivers_all_of_a_finished_jobs_5000_lines() {
    let target = Target::start().await;
    let job = spawn(&target.service, "seq 1 5000; exit 3").await;
    eventually("the job is over", async || {
        target
            .service
            .tail(TailRequest::new(&job, 4999, 0))
            .await
            .unwrap()
            .standing
            .state
            == JobState::Exited
    })
    .await;
    let story = canonical_loop(&target.service, &job).await;
    assert_eq!(
        story.lines,
        (1..=5000).map(|n| n.to_string()).collect::<Vec<_>>()
    );
    assert_eq!((&story.numbers, story.dropped), (&numbers(5000), 0));
    assert_eq!(story.status(), Some(3));
    assert!(story.replies >= 10, "a page has 500 lines at most");
}

#[tokio::test]
async fn lines_of_both_streams_are_neither_lost_nor_repeated_under_load() {
    let target = Target::start().await;
    let command = "i=0; while [ $i -lt 3000 ]; do echo out $i; echo err $i >&2; i=$((i+1)); done";
    let job = spawn(&target.service, command).await;
    let (both, out, err) = tokio::join!(
        canonical_loop(&target.service, &job),
        follow(&target.service, &job, StreamArg::Stdout, 100),
        follow(&target.service, &job, StreamArg::Stderr, 1000),
    );
    assert_eq!((both.numbers, both.dropped), (numbers(6000), 0));
    assert_eq!(
        out.lines,
        (0..3000).map(|n| format!("out {n}")).collect::<Vec<_>>()
    );
    assert_eq!(
        err.lines,
        (0..3000).map(|n| format!("err {n}")).collect::<Vec<_>>()
    );
}

#[tokio::test]
async fn output_that_comes_after_the_exit_is_kept() {
    let target = Target::start().await;
    let job = spawn(
        &target.service,
        "(sleep 1; echo late; sleep 1; echo later) & echo early; exit 5",
    )
    .await;
    let story = canonical_loop(&target.service, &job).await;
    assert_eq!(
        (story.lines.join(" "), story.status()),
        ("early late later".to_owned(), Some(5))
    );
}

#[tokio::test]
async fn a_background_child_does_not_hold_a_job_for_ever() {
    let target = Target::start().await;
    let start = Instant::now();
    let job = spawn(&target.service, "sleep 60 & echo $!").await;
    let story = canonical_loop(&target.service, &job).await;
    assert_eq!((story.state(), story.status()), (JobState::Exited, Some(0)));
    assert!(start.elapsed() < Duration::from_secs(20));
    run(&target.service, &format!("kill {}", story.lines[0])).await.unwrap();
}

#[tokio::test]
async fn a_signal_is_distinguished_from_every_exit_status() {
    let target = Target::start().await;
    let killed = spawn(&target.service, "echo last words; kill -9 $$").await;
    let story = canonical_loop(&target.service, &killed).await;
    assert_eq!(
        (story.state(), story.signal(), story.status()),
        (JobState::Signaled, Some("KILL"), None)
    );
    assert_eq!(story.lines, ["last words"]);
    let exited = spawn(&target.service, "exit 137").await;
    let story = canonical_loop(&target.service, &exited).await;
    assert_eq!(
        (story.state(), story.status()),
        (JobState::Exited, Some(137))
    );
}

#[tokio::test]
async fn a_noisy_job_does_not_stop_a_quick_one() {
    let target = Target::start().await;
    let noisy = spawn(&target.service, "yes").await;
    for _ in 0..5 {
        let quick = run(&target.service, "echo quick").await.unwrap();
        assert_eq!(
            (quick.head.join(""), quick.standing.exit_status),
            ("quick".to_owned(), Some(0))
        );
    }
    let reply = signal(&target, &noisy, "KILL", None).await;
    assert!(is_dead(&reply));
}

#[tokio::test]
async fn two_readers_do_not_disturb_each_other() {
    let target = Target::start().await;
    let job = spawn(
        &target.service,
        "for i in 1 2 3 4 5; do echo $i; sleep 0.1; done",
    )
    .await;
    let (one, two) = tokio::join!(
        canonical_loop(&target.service, &job),
        canonical_loop(&target.service, &job)
    );
    assert_eq!((one.numbers, two.numbers), (numbers(5), numbers(5)));
    assert_eq!(
        canonical_loop(&target.service, &job).await.numbers,
        numbers(5)
    );
}

#[tokio::test]
async fn what_was_evicted_is_counted_exactly() {
    let limits = Limits {
        ring_buffer_lines: 100,
        ..Limits::default()
    };
    let target = Target::with_limits(limits).await;
    let job = spawn(&target.service, "seq 1 5000").await;
    eventually("the job is over", async || {
        target
            .service
            .tail(TailRequest::new(&job, 4999, 0))
            .await
            .unwrap()
            .standing
            .state
            == JobState::Exited
    })
    .await;
    let reply = target.service.tail(TailRequest::new(&job, 17, 0)).await.unwrap();
    assert_eq!(
        (
            reply.dropped_lines,
            reply.buffer_truncated,
            reply.first_line_no
        ),
        (4883, true, Some(4901))
    );
    assert_eq!(
        (
            reply.first_available_line_no,
            reply.lines.unwrap()[0].as_str()
        ),
        (4901, "4901")
    );
    assert_eq!(
        (reply.last_line_no, reply.total_lines, reply.still_running),
        (5000, 5000, false)
    );
}

#[tokio::test]
async fn an_unfinished_line_is_shown_and_not_consumed() {
    let target = Target::start().await;
    let job = spawn(
        &target.service,
        "printf 'name? '; read name; echo \"hello $name\"",
    )
    .await;
    let until = TailRequest {
        until: Some(r"\? $".to_owned()),
        ..TailRequest::new(&job, 0, 5000)
    };
    let reply = target.service.tail(until).await.unwrap();
    assert_eq!(reply.partial.unwrap().stdout.as_deref(), Some("name? "));
    assert_eq!(
        (reply.returned_because, reply.last_line_no),
        (Because::Matched, 0)
    );
    write(
        &target,
        WriteRequest {
            data: Some("world".into()),
            newline: true,
            ..WriteRequest::new(&job)
        },
    )
    .await
    .unwrap();
    assert_eq!(
        canonical_loop(&target.service, &job).await.lines,
        ["name? hello world"]
    );
}

#[tokio::test]
async fn command_cwd_env_and_label_are_inert() {
    const HOSTILE: &str = "a'b\"c$(touch pwned)`touch pwned`\\d;e&f|g>h*~#\n i";
    let target = Target::start().await;
    let dir = target.output("mktemp -d").await;
    let quoted = HOSTILE.replace('\'', r"'\''");
    target.output(&format!("mkdir -p {dir}/'{quoted}'")).await;
    let mut request = RunRequest::new(HOST, "pwd; printf '[%s]' \"$VALUE\"; ls");
    request.start.cwd = Some(format!("{dir}/{HOSTILE}"));
    request.start.env.insert("VALUE".to_owned(), HOSTILE.into());
    request.start.label = Some(HOSTILE.to_owned());
    let reply = target.service.run(request).await.unwrap();
    assert_eq!(
        reply.head.join("\n"),
        format!("{dir}/{HOSTILE}\n[{HOSTILE}]")
    );
    let request = JobsRequest {
        label: Some(HOSTILE.to_owned()),
        ..JobsRequest::default()
    };
    assert_eq!(target.service.jobs(request.clone()).await.unwrap().total, 1);
    target.output(&format!("rm -rf {dir}")).await;
}

#[tokio::test]
async fn values_of_variables_are_not_in_the_process_list() {
    let target = Target::start().await;
    let mut request =
        run_request("cat /proc/*/cmdline 2>/dev/null | tr '\\0' ' '; echo; echo ${#TOKEN}");
    request.start.env.insert("TOKEN".to_owned(), "canary-7f3a91".into());
    let reply = target.service.run(request).await.unwrap();
    let text = reply.head.join("\n");
    assert!(
        text.ends_with("13") && !text.contains("canary-7f3a91"),
        "{text}"
    );
}

#[tokio::test]
async fn a_command_without_stdin_cannot_hang_on_it() {
    let target = Target::start().await;
    assert_eq!(
        run(&target.service, "cat; echo end").await.unwrap().head,
        ["end"]
    );
    let request = SpawnRequest {
        stdin: Some("one\ntwo".into()),
        ..SpawnRequest::new(HOST, "cat; echo; echo end")
    };
    let job = target.service.spawn(request).await.unwrap();
    assert_eq!(
        canonical_loop(&target.service, &job.job_id).await.lines,
        ["one", "two", "end"]
    );
}

#[tokio::test]
async fn a_signal_reaches_the_whole_tree_and_its_death_is_verified() {
    let target = Target::start().await;
    let command = "trap '' TERM; sleep 1000 & setsid sleep 1000 & echo $! ; wait";
    let job = spawn(&target.service, command).await;
    let first = target.service.tail(TailRequest::new(&job, 0, 5000)).await.unwrap();
    let stray = &first.lines.unwrap()[0];
    let reply = signal(&target, &job, "SIGTERM", Some(500)).await;
    assert!(is_dead(&reply), "{reply:?}");
    assert_eq!(reply.standing.state, JobState::Signaled);
    let alive = format!("case $(cut -d' ' -f3 /proc/{stray}/stat) in Z|'') exit 1;; esac");
    let reply = run(&target.service, &alive).await.unwrap();
    assert_eq!(
        reply.standing.exit_status,
        Some(1),
        "the process that left the group still lives"
    );
}

#[tokio::test]
async fn a_time_limit_ends_the_tree_and_is_an_outcome_of_its_own() {
    let target = Target::start().await;
    let request = SpawnRequest {
        timeout_s: Some(1.0),
        ..SpawnRequest::new(HOST, "echo begun; sleep 1000 & wait")
    };
    let job = target.service.spawn(request).await.unwrap().job_id;
    let story = canonical_loop(&target.service, &job).await;
    assert_eq!(
        (story.state(), story.signal(), story.lines.join("")),
        (JobState::TimedOut, Some("TERM"), "begun".into())
    );
}

#[tokio::test]
async fn a_command_that_exits_in_time_did_not_reach_its_limit() {
    let target = Target::start().await;
    for durable in [false, true] {
        // The limit falls into the time in which the output of its background process is awaited.
        let request = SpawnRequest {
            timeout_s: Some(1.5),
            durable: Some(durable),
            ..SpawnRequest::new(HOST, "sleep 5 & echo done; exit 3")
        };
        let job = target.service.spawn(request).await.unwrap().job_id;
        let story = canonical_loop(&target.service, &job).await;
        assert_eq!(
            (story.state(), story.status()),
            (JobState::Exited, Some(3)),
            "durable: {durable}"
        );
    }
}

#[tokio::test]
async fn run_returns_the_running_job_when_time_is_up_and_never_kills() {
    let target = Target::start().await;
    let mut request = run_request("echo one; sleep 1; echo two");
    request.options.wait_ms = Some(300);
    let reply = target.service.run(request).await.unwrap();
    assert!(reply.still_running && reply.next.is_some());
    let story = canonical_loop(&target.service, &reply.job_id).await;
    assert_eq!(
        (story.lines.join(" "), story.status()),
        ("one two".to_owned(), Some(0))
    );
}

#[tokio::test]
async fn run_leaves_out_the_middle_and_says_how_much() {
    let target = Target::start().await;
    let mut request = run_request("seq 1 5000");
    request.options.max_bytes = Some(1000);
    let reply = target.service.run(request).await.unwrap();
    assert_eq!(
        (reply.head[0].as_str(), reply.tail.last().unwrap().as_str()),
        ("1", "5000")
    );
    assert_eq!(
        reply.head.len() as u64 + reply.omitted_lines + reply.tail.len() as u64,
        5000
    );
    assert!(reply.head.len() > 100 && reply.tail.len() > 50);
}

#[tokio::test]
async fn a_repeated_key_starts_nothing() {
    let target = Target::start().await;
    let request = || SpawnRequest {
        idempotency_key: Some("k1".into()),
        ..SpawnRequest::new(HOST, "echo once")
    };
    let (one, two) = tokio::join!(
        target.service.spawn(request()),
        target.service.spawn(request())
    );
    let (one, two) = (one.unwrap().job_id, two.unwrap().job_id);
    assert_eq!(one, two);
    assert_eq!(target.service.spawn(request()).await.unwrap().job_id, one);
    let env = [("A".to_owned(), "1".into())].into();
    for other in [
        SpawnRequest {
            command: "echo twice".into(),
            ..request()
        },
        SpawnRequest { env, ..request() },
        SpawnRequest {
            stdin: Some("in".into()),
            ..request()
        },
        SpawnRequest {
            label: Some("other".into()),
            ..request()
        },
    ] {
        assert_eq!(
            target.service.spawn(other).await.unwrap_err().code,
            Code::InvalidArgument
        );
    }
    assert_eq!(
        target.service.jobs(JobsRequest::default()).await.unwrap().total,
        1
    );
}

#[tokio::test]
async fn twenty_five_jobs_at_once_all_tell_their_story() {
    let target = Target::start().await;
    let jobs: Vec<_> = (0..25)
        .map(|n| {
            let service = target.service.clone();
            async move {
                let job = spawn(
                    &service,
                    &format!("echo begin {n}; sleep 0.3; echo end {n}; exit {n}"),
                )
                .await;
                (n, canonical_loop(&service, &job).await)
            }
        })
        .collect();
    let mut tasks = tokio::task::JoinSet::new();
    jobs.into_iter().for_each(|job| drop(tasks.spawn(job)));
    for (n, story) in tasks.join_all().await {
        assert_eq!(
            (story.lines.join(","), story.status()),
            (format!("begin {n},end {n}"), Some(n))
        );
    }
}

#[tokio::test]
async fn the_same_connection_serves_job_after_job() {
    let target = Target::start().await;
    let mut connections = Vec::new();
    for _ in 0..5 {
        connections.push(target.output("echo $SSH_CONNECTION").await);
    }
    connections.dedup();
    assert_eq!(connections.len(), 1, "{connections:?}");
}

#[tokio::test]
async fn a_forgotten_job_is_expired_and_tells_its_outcome() {
    let target = Target::start().await;
    let reply = run(&target.service, "echo 1; echo 2; exit 4").await.unwrap();
    let forget = |what, force| ForgetRequest {
        job_id: reply.job_id.clone(),
        what,
        stream: StreamArg::Both,
        force,
    };
    let gone = target.service.forget(forget(ForgetWhat::Output, false)).await.unwrap();
    assert_eq!((gone.forgotten_lines, gone.forgotten_bytes), (2, 4));
    target.service.forget(forget(ForgetWhat::Job, false)).await.unwrap();
    let error = target.service.tail(TailRequest::new(&reply.job_id, 0, 0)).await.unwrap_err();
    assert_eq!(error.code, Code::ExpiredJob);
    assert!(error.message.contains("exited with status 4"), "{error}");
}

#[tokio::test]
async fn a_job_that_runs_is_forgotten_only_by_force() {
    let target = Target::start().await;
    let job = spawn(&target.service, "sleep 1000").await;
    let forget = |force| ForgetRequest {
        job_id: job.clone(),
        what: ForgetWhat::Job,
        stream: StreamArg::Both,
        force,
    };
    assert_eq!(
        target.service.forget(forget(false)).await.unwrap_err().code,
        Code::StillRunning
    );
    target.service.forget(forget(true)).await.unwrap();
    assert_eq!(
        target.service.tail(TailRequest::new(&job, 0, 0)).await.unwrap_err().code,
        Code::ExpiredJob
    );
}

#[tokio::test]
async fn finished_jobs_are_kept_within_bounds() {
    let target = Target::with_limits(Limits {
        max_finished: 2,
        ..Limits::default()
    })
    .await;
    let mut ids = Vec::new();
    for n in 0..4 {
        ids.push(run(&target.service, &format!("exit {n}")).await.unwrap().job_id);
    }
    eventually("the oldest are gone", async || {
        target.service.jobs(JobsRequest::default()).await.unwrap().total == 2
    })
    .await;
    let error = target.service.tail(TailRequest::new(&ids[0], 0, 0)).await.unwrap_err();
    assert_eq!(error.code, Code::ExpiredJob);
    assert!(target.service.tail(TailRequest::new(&ids[3], 0, 0)).await.is_ok());
}

#[tokio::test]
async fn a_job_too_many_is_refused_with_capacity() {
    let target = Target::with_limits(Limits {
        max_jobs: 1,
        ..Limits::default()
    })
    .await;
    let job = spawn(&target.service, "sleep 1000").await;
    let error = target.service.spawn(SpawnRequest::new(HOST, "true")).await.unwrap_err();
    assert_eq!((error.code, error.retryable), (Code::Capacity, true));
    signal(&target, &job, "KILL", None).await;
    eventually("there is room", async || {
        target.service.spawn(SpawnRequest::new(HOST, "true")).await.is_ok()
    })
    .await;
}

#[tokio::test]
async fn values_out_of_range_are_clamped_and_said_so() {
    let target = Target::start().await;
    let job = run(&target.service, "echo x").await.unwrap().job_id;
    let request = TailRequest {
        since_line_no: Some(-5),
        wait_ms: 5,
        max_lines: Some(1_000_000),
        max_bytes: Some(0),
        ..TailRequest::new(&job, 0, 0)
    };
    let reply = target.service.tail(request).await.unwrap();
    let clamped: Vec<_> = reply
        .clamped
        .iter()
        .map(|c| (c.field.as_str(), c.asked.unwrap(), c.used.unwrap()))
        .collect();
    assert_eq!(
        clamped,
        [
            ("since_line_no", -5, 0),
            ("max_lines", 1_000_000, 10_000),
            ("max_bytes", 0, 1),
            ("wait_ms", 5, 0)
        ]
    );
    assert_eq!(reply.lines.unwrap(), ["x"]);
}

#[tokio::test]
async fn bad_arguments_have_their_codes() {
    let target = Target::start().await;
    let job = run(&target.service, "true").await.unwrap().job_id;
    let until = TailRequest {
        until: Some("(".into()),
        ..TailRequest::new(&job, 0, 0)
    };
    let error = target.service.tail(until).await.unwrap_err();
    assert_eq!(error.code, Code::InvalidArgument);
    assert!(error.message.contains("unclosed group"), "{error}");
    let huge = TailRequest {
        until: Some("a{1000}{1000}".into()),
        ..TailRequest::new(&job, 0, 0)
    };
    assert_eq!(
        target.service.tail(huge).await.unwrap_err().code,
        Code::InvalidArgument
    );
    for (command, timeout) in [
        ("", None),
        ("true", Some(0.0)),
        ("true", Some(f64::NAN)),
        ("true", Some(1e12)),
        ("a\0b", None),
    ] {
        let request = SpawnRequest {
            timeout_s: timeout,
            ..SpawnRequest::new(HOST, command)
        };
        assert_eq!(
            target.service.spawn(request).await.unwrap_err().code,
            Code::InvalidArgument,
            "{command:?}"
        );
    }
    let unknown = target.service.tail(TailRequest::new("web1-xxxxxxxx", 0, 0)).await.unwrap_err();
    assert_eq!(unknown.code, Code::UnknownJob);
    let request = SignalRequest {
        signal: Some("FOO".to_owned()),
        ..SignalRequest::new(&job)
    };
    let error = target.service.signal(request).await.unwrap_err();
    assert_eq!(error.code, Code::InvalidArgument);
}

#[tokio::test]
async fn a_signal_to_a_finished_job_is_an_error_of_its_own() {
    let target = Target::start().await;
    let job = run(&target.service, "true").await.unwrap().job_id;
    let request = SignalRequest::new(&job);
    match target.service.signal(request).await {
        // An ordinary user does not see all processes, and so can't be sure.
        Ok(reply) => assert!(is_dead(&reply), "{reply:?}"),
        Err(error) => assert_eq!(error.code, Code::JobEnded),
    }
}

async fn signal(target: &Target, job: &str, signal: &str, grace_ms: Option<i64>) -> SignalReply {
    let request = SignalRequest {
        signal: Some(signal.to_owned()),
        grace_ms,
        ..SignalRequest::new(job)
    };
    target.service.signal(request).await.expect("the signal is sent")
}

#[tokio::test]
async fn what_a_finished_job_left_in_the_background_can_still_be_ended() {
    let target = Target::start().await;
    let job = run(
        &target.service,
        "setsid sleep 1000 >/dev/null 2>&1 </dev/null & echo x",
    )
    .await
    .unwrap()
    .job_id;
    let reply = signal(&target, &job, "KILL", None).await;
    assert!(
        is_dead(&reply) && reply.standing.state == JobState::Exited,
        "{reply:?}"
    );
}

#[tokio::test]
async fn run_says_that_the_first_lines_are_gone() {
    let limits = Limits {
        ring_buffer_lines: 100,
        ..Limits::default()
    };
    let target = Target::with_limits(limits).await;
    let reply = run(&target.service, "seq 1 1000").await.unwrap();
    assert_eq!(
        (reply.head.len(), reply.dropped_lines, reply.omitted_lines),
        (0, 900, 900)
    );
    assert_eq!((reply.tail[0].as_str(), reply.tail.len()), ("901", 100));
}

async fn write(target: &Target, request: WriteRequest) -> Result<WriteReply, Error> {
    target.service.write(request).await
}

#[tokio::test]
async fn a_command_is_talked_to_and_sees_the_end_of_its_input() {
    let target = Target::start().await;
    let job = spawn(
        &target.service,
        "while read line; do echo got $line; done; echo end",
    )
    .await;
    let request = WriteRequest {
        data: Some("one".into()),
        newline: true,
        wait_ms: 5000,
        ..WriteRequest::new(&job)
    };
    let reply = write(&target, request).await.unwrap();
    assert_eq!(
        (
            reply.bytes_written,
            reply.stdin_closed,
            reply.tail.unwrap().lines.unwrap()
        ),
        (4, false, vec!["got one".to_owned()])
    );
    let request = WriteRequest {
        data_base64: Some("dHdvCg==".into()),
        close_after: true,
        ..WriteRequest::new(&job)
    };
    let reply = write(&target, request).await.unwrap();
    assert_eq!((reply.bytes_written, reply.stdin_closed), (4, true));
    assert_eq!(
        canonical_loop(&target.service, &job).await.lines,
        ["got one", "got two", "end"]
    );
}

#[tokio::test]
async fn bad_writes_have_their_codes() {
    let target = Target::start().await;
    let job = spawn(&target.service, "sleep 1000").await;
    let long = "x".repeat((1 << 20) + 1);
    for bad in [
        WriteRequest {
            data_base64: Some("###".into()),
            ..WriteRequest::new(&job)
        },
        WriteRequest {
            keys: vec!["hyper".to_owned()],
            ..WriteRequest::new(&job)
        },
        WriteRequest {
            data: Some(long.into()),
            ..WriteRequest::new(&job)
        },
    ] {
        assert_eq!(
            write(&target, bad).await.unwrap_err().code,
            Code::InvalidArgument
        );
    }
    write(
        &target,
        WriteRequest {
            close_after: true,
            ..WriteRequest::new(&job)
        },
    )
    .await
    .unwrap();
    let late = WriteRequest {
        data: Some("x".into()),
        ..WriteRequest::new(&job)
    };
    assert_eq!(
        write(&target, late.clone()).await.unwrap_err().code,
        Code::StdinClosed
    );
    signal(&target, &job, "KILL", None).await;
    assert_eq!(write(&target, late).await.unwrap_err().code, Code::JobEnded);
}

#[tokio::test]
async fn a_command_that_never_reads_gives_backpressure_in_bounded_time() {
    let target = Target::start().await;
    let job = spawn(&target.service, "sleep 1000").await;
    let start = Instant::now();
    let chunk = WriteRequest {
        data: Some("x".repeat(1 << 20).into()),
        ..WriteRequest::new(&job)
    };
    let error = loop {
        if let Err(error) = write(&target, chunk.clone()).await {
            break error;
        }
    };
    assert_eq!((error.code, error.retryable), (Code::Backpressure, true));
    let written = error.bytes_written.expect("it says how much went");
    assert!(
        error.message.contains(&format!("{written} bytes were written")),
        "{error}"
    );
    assert!(
        start.elapsed() < Duration::from_secs(30),
        "{:?}",
        start.elapsed()
    );
    signal(&target, &job, "KILL", None).await;
}

#[tokio::test]
async fn a_cursor_beyond_the_end_is_brought_back_and_said_so() {
    let target = Target::start().await;
    let job = run(&target.service, "echo x").await.unwrap().job_id;
    let reply = target.service.tail(TailRequest::new(&job, 1_000_000, 0)).await.unwrap();
    assert_eq!((reply.last_line_no, reply.clamped[0].used), (1, Some(1)));
}

#[tokio::test]
async fn a_closed_stdin_is_reported_and_closing_it_has_a_time_limit() {
    let target = Target::start().await;
    let job = spawn(&target.service, "sleep 1000").await;
    let look = || write(&target, WriteRequest::new(&job));
    assert!(!look().await.unwrap().stdin_closed);
    write(
        &target,
        WriteRequest {
            close_after: true,
            ..WriteRequest::new(&job)
        },
    )
    .await
    .unwrap();
    assert!(look().await.unwrap().stdin_closed);
    signal(&target, &job, "KILL", None).await;
    assert_eq!(look().await.unwrap_err().code, Code::JobEnded);

    let text = "x".repeat(3 << 20);
    let fed = SpawnRequest {
        stdin: Some(text.into()),
        ..SpawnRequest::new(HOST, "sleep 1000")
    };
    let job = target.service.spawn(fed).await.unwrap().job_id;
    let error = write(
        &target,
        WriteRequest {
            close_after: true,
            ..WriteRequest::new(&job)
        },
    )
    .await
    .unwrap_err();
    assert_eq!(error.code, Code::Backpressure);
    signal(&target, &job, "KILL", None).await;
}

/// A build that prints 20,000 lines, of which one says why it failed. Both streams have pauses
/// around it, because nothing orders what is printed at once.
const BUILD: &str = "seq -f 'compiling unit %g' 15000; sleep 0.5; \
    echo 'error: no rule for target' >&2; sleep 0.5; \
    seq -f 'compiling unit %g' 15001 19999; exit 2";

#[tokio::test]
async fn a_failing_build_shows_its_error_in_a_small_reply() {
    let target = Target::start().await;
    let mut request = run_request(BUILD);
    request.options.max_bytes = None;
    let reply = target.service.run(request).await.unwrap();
    assert_eq!(reply.stderr_tail, ["error: no rule for target"]);
    assert_eq!(reply.stderr_lines.len(), 1);
    assert_eq!(reply.tail.last().unwrap(), "compiling unit 19999");
    let shown = reply.head.len() + reply.tail.len();
    assert_eq!(shown as u64 + reply.omitted_lines, 20_000);
    let bytes = serde_json::to_string(&reply).unwrap().len();
    assert!(bytes < 4000, "{bytes}");
}

#[tokio::test]
async fn run_filters_its_output_and_returns_at_a_line_as_tail_does() {
    let target = Target::start().await;
    let mut request = run_request(BUILD);
    request.options.filter = Some("error|19999".to_owned());
    let filtered = target.service.run(request).await.unwrap();
    let page = filtered.page.unwrap();
    assert_eq!(
        page.lines.unwrap(),
        ["error: no rule for target", "compiling unit 19999"]
    );
    assert_eq!(page.skipped_lines + page.dropped_lines, 19_998);

    let mut request = run_request("echo starting; echo ready; sleep 60");
    request.options.until = Some("ready".to_owned());
    let ready = target.service.run(request).await.unwrap();
    assert!(ready.still_running);
    assert_eq!(ready.page.unwrap().lines.unwrap(), ["starting", "ready"]);

    let mut request = run_request("echo never");
    request.options.until = Some("(".to_owned());
    let refused = target.service.run(request).await.unwrap_err();
    assert_eq!(refused.code, Code::InvalidArgument);
}

/// A request for several jobs, after these cursors.
fn many(jobs: &[&str], cursors: &BTreeMap<String, u64>) -> TailRequest {
    TailRequest {
        job_ids: jobs.iter().map(|job| (*job).to_owned()).collect(),
        cursors: cursors.clone(),
        ..TailRequest::new("", 0, 20_000)
    }
}

#[tokio::test]
async fn several_jobs_are_followed_with_one_call_and_no_line_is_lost_or_repeated() {
    let target = Target::start().await;
    let service = &target.service;
    let one = spawn(
        service,
        "for i in 1 2 3; do echo one $i; sleep 0.2; done; exit 3",
    )
    .await;
    let two = spawn(service, "echo two 1; sleep 0.5; echo two 2").await;

    let mut cursors = BTreeMap::new();
    let mut lines = BTreeMap::<String, Vec<String>>::new();
    loop {
        let reply = service.tail(many(&[&one, &two], &cursors)).await.unwrap();
        for job in &reply.jobs {
            lines.entry(job.job_id.clone()).or_default().extend(job.lines.clone());
        }
        cursors = reply.cursors;
        if !reply.still_running {
            let ended = reply.jobs.iter().find(|job| job.job_id == one).unwrap();
            assert_eq!(ended.standing.exit_status, Some(3));
            break;
        }
    }
    assert_eq!(lines[&one], ["one 1", "one 2", "one 3"]);
    assert_eq!(lines[&two], ["two 1", "two 2"]);
}

#[tokio::test]
async fn one_wait_for_several_jobs_ends_with_the_first_match() {
    let target = Target::start().await;
    let service = &target.service;
    let silent = spawn(service, "sleep 60").await;
    let server = spawn(
        service,
        "echo starting; sleep 0.3; echo listening on 80; sleep 60",
    )
    .await;
    let request = TailRequest {
        until: Some("listening".to_owned()),
        ..many(&[&silent, &server], &BTreeMap::new())
    };
    let began = Instant::now();
    let reply = service.tail(request).await.unwrap();
    assert!(began.elapsed() < Duration::from_secs(15));
    assert_eq!(reply.returned_because, Because::Matched);
    assert!(reply.jobs[1].matched && !reply.jobs[0].matched);
    assert_eq!(reply.jobs[1].lines, ["starting", "listening on 80"]);
}

#[tokio::test]
async fn mistakes_with_several_jobs_are_told() {
    let target = Target::start().await;
    let service = &target.service;
    let job = spawn(service, "true").await;
    let cursors = BTreeMap::from([("other-1234".to_owned(), 1)]);
    for request in [
        TailRequest::new("", 0, 0),
        many(&[&job, &job], &BTreeMap::new()),
        many(&[&job], &cursors),
        TailRequest {
            job_id: job.clone(),
            ..many(&[&job], &BTreeMap::new())
        },
        TailRequest {
            cursors: BTreeMap::from([(job.clone(), 1)]),
            ..TailRequest::new(&job, 0, 0)
        },
    ] {
        let error = service.tail(request.clone()).await.unwrap_err();
        assert_eq!(error.code, Code::InvalidArgument, "{request:?}: {error}");
    }
    let unknown = many(&[&job, "web1-00000000"], &BTreeMap::new());
    assert_eq!(
        service.tail(unknown).await.unwrap_err().code,
        Code::UnknownJob
    );
}

#[tokio::test]
async fn a_list_of_jobs_has_twenty_unless_the_caller_wants_more() {
    let target = Target::start().await;
    for _ in 0..25 {
        spawn(&target.service, "true").await;
    }

    let listed = target.service.jobs(JobsRequest::default()).await.unwrap();

    assert_eq!((listed.jobs.len(), listed.total), (20, 25));
}
