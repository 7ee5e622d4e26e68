//! Jobs on a terminal, against a real sshd: sizes, keys, prompts, hang-up.

use std::collections::BTreeMap;

use crate::support::{HOST, Sshd, Target, canonical_loop};
use sshjobs_wire::{
    Because, Code, Error, JobState, ReadRequest, SpawnRequest, TailReply, TailRequest, WriteReply,
    WriteRequest,
};

async fn start(target: &Target, request: SpawnRequest) -> Result<String, Error> {
    Ok(target
        .service
        .spawn(SpawnRequest {
            pty: true,
            ..request
        })
        .await?
        .job_id)
}

async fn tail(target: &Target, request: TailRequest) -> TailReply {
    target.service.tail(request).await.unwrap()
}

async fn write(target: &Target, request: WriteRequest) -> WriteReply {
    target.service.write(request).await.unwrap()
}

/// Waits until the job prints something that matches; everything up to there.
async fn until(target: &Target, job: &str, pattern: &str) -> TailReply {
    let reply = tail(
        target,
        TailRequest {
            until: Some(pattern.to_owned()),
            ..TailRequest::new(job, 0, 10_000)
        },
    )
    .await;
    assert_eq!(reply.returned_because, Because::Matched, "{reply:?}");
    reply
}

#[tokio::test]
async fn a_terminal_has_the_size_and_kind_asked_for() {
    let target = Target::start().await;
    let command = "test -t 0 && test -t 1 && test -t 2 && stty size; echo $TERM";
    let job = start(
        &target,
        SpawnRequest {
            cols: Some(132),
            rows: Some(43),
            ..SpawnRequest::new(HOST, command)
        },
    )
    .await
    .unwrap();
    assert_eq!(
        canonical_loop(&target.service, &job).await.lines,
        ["43 132", "xterm-256color"]
    );
    let job = start(
        &target,
        SpawnRequest {
            term: Some("dumb".to_owned()),
            ..SpawnRequest::new(HOST, command)
        },
    )
    .await
    .unwrap();
    assert_eq!(
        canonical_loop(&target.service, &job).await.lines,
        ["24 80", "dumb"]
    );
}

#[tokio::test]
async fn a_new_size_reaches_the_program() {
    let target = Target::start().await;
    let command = "trap 'stty size' WINCH; echo ready; while :; do sleep 0.1; done";
    let job = start(&target, SpawnRequest::new(HOST, command)).await.unwrap();
    until(&target, &job, "ready").await;
    write(
        &target,
        WriteRequest {
            cols: Some(100),
            rows: Some(50),
            ..WriteRequest::new(&job)
        },
    )
    .await;
    until(&target, &job, "^50 100$").await;
    let none = WriteRequest {
        cols: Some(0),
        rows: Some(0),
        ..WriteRequest::new(&job)
    };
    assert_eq!(
        target.service.write(none).await.unwrap_err().code,
        Code::InvalidArgument
    );
}

#[tokio::test]
async fn control_keys_reach_the_foreground_process() {
    let target = Target::start().await;
    // A shell that is about to start a command runs its trap only when that has ended.
    let command = "trap 'echo caught; c=1' INT; echo ready; until [ \"$c\" ]; do sleep 0.05; done; echo next; cat; echo end";
    let job = start(&target, SpawnRequest::new(HOST, command)).await.unwrap();
    until(&target, &job, "ready").await;
    write(
        &target,
        WriteRequest {
            keys: ["ctrl+c"].map(str::to_owned).into(),
            ..WriteRequest::new(&job)
        },
    )
    .await;
    until(&target, &job, "next").await;
    // Once as echo, once from cat.
    write(
        &target,
        WriteRequest {
            data: Some("hello".into()),
            newline: true,
            keys: Vec::new(),
            ..WriteRequest::new(&job)
        },
    )
    .await;
    until(&target, &job, "hello").await;
    write(
        &target,
        WriteRequest {
            keys: ["ctrl+d"].map(str::to_owned).into(),
            ..WriteRequest::new(&job)
        },
    )
    .await;
    let story = canonical_loop(&target.service, &job).await;
    assert_eq!(
        story.lines,
        ["ready", "^Ccaught", "next", "hello", "hello", "end"]
    );
    assert_eq!((story.state(), story.status()), (JobState::Exited, Some(0)));
}

#[tokio::test]
async fn ctrl_c_kills_a_program_that_does_not_catch_it() {
    let target = Target::start().await;
    let job = start(
        &target,
        SpawnRequest::new(HOST, "echo ready; exec sleep 1000"),
    )
    .await
    .unwrap();
    until(&target, &job, "ready").await;
    write(
        &target,
        WriteRequest {
            keys: ["ctrl+c"].map(str::to_owned).into(),
            ..WriteRequest::new(&job)
        },
    )
    .await;
    let story = canonical_loop(&target.service, &job).await;
    assert_eq!(
        (story.state(), story.signal()),
        (JobState::Signaled, Some("INT"))
    );
}

#[tokio::test]
async fn a_password_is_asked_for_and_not_shown() {
    let target = Target::start().await;
    let command = "stty -echo; printf 'Password: '; read p; stty echo; echo; echo ${#p} characters";
    let job = start(&target, SpawnRequest::new(HOST, command)).await.unwrap();
    until(&target, &job, "word: $").await;
    let reply = tail(
        &target,
        TailRequest {
            quiet_ms: Some(400),
            ..TailRequest::new(&job, 0, 10_000)
        },
    )
    .await;
    assert_eq!(
        (
            reply.awaiting_input,
            reply.partial.unwrap().stdout.as_deref()
        ),
        (true, Some("Password: "))
    );
    let answer = WriteRequest {
        data: Some("hunter2".into()),
        newline: true,
        secret: true,
        wait_ms: 10_000,
        quiet_ms: Some(400),
        ..WriteRequest::new(&job)
    };
    let reply = write(&target, answer).await;
    assert_eq!(reply.bytes_written, 8);
    let story = canonical_loop(&target.service, &job).await;
    assert_eq!(story.lines, ["Password: ", "7 characters"]);
}

#[tokio::test]
async fn the_end_of_input_is_a_key_also_in_mid_line() {
    let target = Target::start().await;
    for text in ["whole line\n", "no line end"] {
        let job = start(
            &target,
            SpawnRequest::new(HOST, "stty -echo; echo ready; wc -c"),
        )
        .await
        .unwrap();
        until(&target, &job, "ready").await;
        let reply = write(
            &target,
            WriteRequest {
                data: Some(text.into()),
                close_after: true,
                ..WriteRequest::new(&job)
            },
        )
        .await;
        assert!(!reply.stdin_closed, "other keys can still be pressed");
        assert_eq!(
            canonical_loop(&target.service, &job).await.lines,
            ["ready", "11"]
        );
    }
}

#[tokio::test]
async fn values_of_variables_are_never_echoed_and_no_key_in_them_is_pressed() {
    let target = Target::start().await;
    let hostile = "top\x03 secret\r\x04 'quoted'\x15 \x1b[A é\nsecond line";
    let request = SpawnRequest {
        pty: true,
        env: BTreeMap::from([("VALUE".to_owned(), hostile.into())]),
        stdin: Some("typed\n".into()),
        ..SpawnRequest::new(
            HOST,
            "printf %s \"$VALUE\" | od -An -tx1 | tr -d ' \\n'; echo; cat; stty size",
        )
    };
    let job = target.service.spawn(request).await.unwrap().job_id;
    let story = canonical_loop(&target.service, &job).await;
    let hex: String = hostile.bytes().map(|byte| format!("{byte:02x}")).collect();
    let shown = story.lines.join("\n");
    assert!(shown.contains(&hex), "the value came whole: {shown}");
    assert!(
        !shown.contains("secret") && !shown.contains("second"),
        "it was echoed: {shown}"
    );
    // Typed text is echoed, now or later, and printed: the terminal is restored.
    assert_eq!(
        (shown.matches("typed").count(), shown.contains("24 80")),
        (2, true),
        "{shown}"
    );
}

#[tokio::test]
async fn a_host_that_gives_no_terminal_says_so() {
    let sshd = Sshd::with("PermitTTY no").await;
    let service = crate::support::service(&sshd.ssh_config(), Default::default());
    // More often than a connection has room for channels.
    for _ in 0..12 {
        let request = SpawnRequest {
            pty: true,
            ..SpawnRequest::new(HOST, "true")
        };
        assert_eq!(
            service.spawn(request).await.unwrap_err().code,
            Code::Unsupported
        );
    }
    assert_eq!(
        sshd.log().matches("Accepted publickey").count(),
        1,
        "a refusal must not use up its channel"
    );
    assert_eq!(
        crate::support::run(&service, "true").await.unwrap().standing.exit_status,
        Some(0)
    );
}

#[tokio::test]
async fn sizes_that_cannot_be_are_refused() {
    let target = Target::start().await;
    let good = || SpawnRequest::new(HOST, "true");
    for bad in [
        SpawnRequest {
            cols: Some(0),
            ..good()
        },
        SpawnRequest {
            rows: Some(1001),
            ..good()
        },
        SpawnRequest {
            term: Some(String::new()),
            ..good()
        },
        SpawnRequest {
            term: Some("a b".to_owned()),
            ..good()
        },
    ] {
        assert_eq!(
            start(&target, bad.clone()).await.unwrap_err().code,
            Code::InvalidArgument,
            "{bad:?}"
        );
    }
    let without = SpawnRequest {
        cols: Some(80),
        ..SpawnRequest::new(HOST, "true")
    };
    assert_eq!(
        target.service.spawn(without).await.unwrap_err().code,
        Code::InvalidArgument
    );
    let job = crate::support::spawn(&target.service, "sleep 1000").await;
    let resize = WriteRequest {
        cols: Some(80),
        rows: Some(24),
        ..WriteRequest::new(&job)
    };
    for half in [
        resize.clone(),
        WriteRequest {
            rows: None,
            ..resize.clone()
        },
        WriteRequest {
            rows: Some(-1),
            ..resize
        },
    ] {
        let error = target.service.write(half).await.unwrap_err();
        assert_eq!(error.code, Code::InvalidArgument);
    }
    target.service.shutdown().await;
}

#[tokio::test]
async fn a_job_that_reads_is_distinguished_from_one_that_works() {
    let target = Target::start().await;
    let cases = [
        ("printf 'thinking'; read x", true),
        ("printf 'thinking'; sleep 1000", false),
        ("printf 'thinking'; x=$(sleep 1000)", false),
        ("printf 'thinking'; cat | sort", true),
        ("printf 'Your name: '; sleep 1000", false),
        // A process whose stdin can't be seen may be sudo.
        (
            "printf 'name or password: '; (exec 0<&-; sleep 1000); true",
            true,
        ),
        ("printf 'Your name: '; timeout 1000 cat", true),
        (
            "printf 'name? '; exec perl -e 'vec($r, 0, 1) = 1; select($r, undef, undef, undef)'",
            true,
        ),
        (
            "printf 'name at work'; exec perl -e 'vec($r, 0, 1) = 1; select($r, undef, undef, undef)'",
            false,
        ),
        ("echo 'Your name: '; read x", false),
    ];
    for (command, expected) in cases {
        let job = crate::support::spawn(&target.service, command).await;
        until(&target, &job, "thinking|name").await;
        tail(
            &target,
            TailRequest {
                quiet_ms: Some(700),
                ..TailRequest::new(&job, 0, 5000)
            },
        )
        .await;
        let reply = tail(&target, TailRequest::new(&job, 0, 0)).await;
        assert_eq!(reply.awaiting_input, expected, "{command}: {reply:?}");
        let read = target.service.read(ReadRequest::new(&job)).await.unwrap();
        assert_eq!(read.awaiting_input, expected, "{command}");
    }
    let closed = SpawnRequest {
        stdin: Some("".into()),
        ..SpawnRequest::new(HOST, "printf 'name? '; sleep 1000")
    };
    let job = target.service.spawn(closed).await.unwrap().job_id;
    until(&target, &job, "name").await;
    let reply = tail(
        &target,
        TailRequest {
            quiet_ms: Some(700),
            ..TailRequest::new(&job, 0, 5000)
        },
    )
    .await;
    assert!(
        !reply.awaiting_input,
        "nothing can be typed where stdin has ended"
    );
    target.service.shutdown().await;
}

#[tokio::test]
async fn a_program_that_opens_the_terminal_itself_is_seen_to_read_it() {
    let target = Target::start().await;
    let key = "d=$(mktemp -d); ssh-keygen -q -t ed25519 -N secret -f $d/k; ssh-keygen -y -f $d/k < /dev/null; rm -r $d";
    let answer = "sh -c 'printf \"Your answer \"; read x </dev/tty' </dev/null";
    for (command, prompt) in [(answer, "Your answer"), (key, "passphrase")] {
        let job = start(
            &target,
            SpawnRequest {
                pty: true,
                ..SpawnRequest::new(HOST, command)
            },
        )
        .await
        .unwrap();
        // A busy machine may take longer to make the key than the silence waited for below.
        until(&target, &job, prompt).await;
        let reply = tail(
            &target,
            TailRequest {
                quiet_ms: Some(700),
                ..TailRequest::new(&job, 0, 10_000)
            },
        )
        .await;
        assert!(reply.awaiting_input, "{command}: {reply:?}");
        write(
            &target,
            WriteRequest {
                data: Some("secret".into()),
                newline: true,
                ..WriteRequest::new(&job)
            },
        )
        .await;
    }
    let busy = "sh -c 'exec 5</dev/tty; printf \"working: \"; sleep 1000'";
    let job = start(
        &target,
        SpawnRequest {
            pty: true,
            ..SpawnRequest::new(HOST, busy)
        },
    )
    .await
    .unwrap();
    let reply = tail(
        &target,
        TailRequest {
            quiet_ms: Some(700),
            ..TailRequest::new(&job, 0, 10_000)
        },
    )
    .await;
    assert!(!reply.awaiting_input, "{reply:?}");
}

#[tokio::test]
async fn arrow_keys_follow_the_mode_that_the_program_has_set() {
    let target = Target::start().await;
    let read_a_key = "dd bs=3 count=1 2>/dev/null | od -An -c";
    let command = format!(
        "stty raw -echo; {read_a_key}; printf '\\033[?1h'; echo ready; {read_a_key}; echo over"
    );
    let job = start(&target, SpawnRequest::new(HOST, &command)).await.unwrap();
    let down = || WriteRequest {
        keys: vec!["down".to_owned()],
        ..WriteRequest::new(&job)
    };
    write(&target, down()).await;
    until(&target, &job, r"033\s+\[\s+B").await;
    until(&target, &job, "ready").await;
    write(&target, down()).await;
    until(&target, &job, r"033\s+O\s+B").await;
}

#[tokio::test]
async fn several_lines_are_pasted_where_the_program_asks_for_that() {
    let target = Target::start().await;
    let command = "stty raw -echo; printf '\\033[?2004h'; echo ready; dd bs=1 count=20 2>/dev/null | od -An -c";
    let job = start(&target, SpawnRequest::new(HOST, command)).await.unwrap();
    until(&target, &job, "ready").await;
    write(
        &target,
        WriteRequest {
            data: Some("one\ntwo\n".into()),
            ..WriteRequest::new(&job)
        },
    )
    .await;
    until(&target, &job, r"033\s+\[\s+2\s+0\s+0\s+~\s+o\s+n\s+e").await;
}
