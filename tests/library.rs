//! The library as a program in Rust uses it, against a private sshd.

use std::error::Error as _;
use std::time::Duration;

use crate::support::{HOST, Sshd, eventually};
use futures_util::StreamExt;
use sshjobs::{
    Access, Command, ErrorKind, Exit, FleetSpec, Host, JobFilter, Jobs, Lagged, Limits, LineNo,
    LostWhy, Outcome, Stdin, Stream, TailOptions,
};
use sshjobs_core::jobs as core_jobs;
use sshjobs_core::jobs::{Caller, Rights, Role};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::time::timeout;

const SOON: Duration = Duration::from_secs(10);

/// A command line.
fn shell(line: &str) -> Command {
    Command::shell(line)
}

async fn host(sshd: &Sshd) -> (Jobs, Host) {
    let jobs = sshd.builder().start().await.unwrap();
    let host = jobs.host(HOST);
    (jobs, host)
}

#[tokio::test]
async fn a_command_is_built_started_read_line_by_line_and_waited_for() {
    let sshd = Sshd::start().await;
    let (jobs, host) = host(&sshd).await;
    let command = shell("pwd; echo \"$GREETING\" >&2; cat; exit 3")
        .current_dir("/tmp")
        .env("GREETING", "hello")
        .stdin(Stdin::Text("from stdin\n".into()))
        .timeout(SOON)
        .label("greeting");
    let job = host.spawn(&command).await.unwrap();
    let lines: Vec<_> = job.lines().await.unwrap().map(Result::unwrap).collect().await;
    let find = |text: &str| {
        lines
            .iter()
            .find(|line| line.text == text)
            .unwrap_or_else(|| panic!("{lines:?}"))
    };
    assert_eq!(find("hello").stream, Stream::Stderr);
    assert!(find("/tmp").line_no < find("from stdin").line_no && lines.len() == 3);
    let outcome = job.wait().await;
    assert_eq!(
        (&outcome, outcome.exit_status()),
        (&Outcome::Ended(Exit::Status(3)), Some(3))
    );
    assert_eq!(outcome.to_string(), "exited with status 3");
    let labelled = JobFilter {
        label: Some("greeting".to_owned()),
        ..JobFilter::default()
    };
    let listed = jobs.list(labelled).await.unwrap();
    let ids: Vec<_> = listed.iter().map(|job| job.id.as_str()).collect();
    assert_eq!(ids, [job.id()]);
    jobs.shutdown().await;
}

#[tokio::test]
async fn a_late_reader_gets_the_number_of_evicted_lines() {
    let sshd = Sshd::start().await;
    let limits = Limits {
        ring_buffer_lines: 100,
        ..Limits::default()
    };
    let jobs = sshd.builder().limits(limits).start().await.unwrap();
    let job = jobs.host(HOST).spawn(&Command::new("seq").args([1, 1000])).await.unwrap();
    assert!(job.wait_within(SOON).await.is_some());
    let mut lines = job.lines().await.unwrap();
    assert_eq!(lines.next().await, Some(Err(Lagged { lines: 900 })));
    let first = lines.next().await.unwrap().unwrap();
    assert_eq!((first.text.as_str(), first.line_no.value()), ("901", 901));
    assert_eq!(lines.count().await, 99);

    let page = job.tail(&TailOptions::default()).await.unwrap();
    assert_eq!((page.dropped_lines, page.lines.len()), (900, 100));
    let mut stdout = job.stdout().await.unwrap();
    let gap = stdout.read_to_end(&mut Vec::new()).await.unwrap_err();
    assert!(
        gap.to_string().ends_with("bytes were evicted before they were read"),
        "{gap}"
    );
    let mut rest = String::new();
    stdout.read_to_string(&mut rest).await.unwrap();
    assert!(rest.ends_with("999\n1000\n"), "{rest}");
    jobs.shutdown().await;
}

#[tokio::test]
async fn a_page_waits_for_a_pattern_and_its_cursor_leads_to_the_next() {
    let sshd = Sshd::start().await;
    let (jobs, host) = host(&sshd).await;
    let job = host
        .spawn(&shell("echo one; sleep 0.3; echo ready; cat").stdin(Stdin::Open))
        .await;
    let job = job.unwrap();

    let until = TailOptions {
        wait: SOON,
        until: Some(regex::Regex::new("^ready$").unwrap()),
        ..TailOptions::default()
    };
    let first = job.tail(&until).await.unwrap();
    let texts: Vec<_> = first.lines.iter().map(|line| line.text.as_str()).collect();
    assert_eq!((texts, first.outcome), (vec!["one", "ready"], None));

    job.close_stdin().await.unwrap();
    let rest = TailOptions {
        after: first.cursor,
        wait: SOON,
        ..TailOptions::default()
    };
    let last = job.tail(&rest).await.unwrap();
    assert_eq!(last.cursor, LineNo::new(2));
    assert_eq!(last.outcome.unwrap().exit_status(), Some(0));
    jobs.shutdown().await;
}

#[tokio::test]
async fn the_streams_of_a_job_are_those_of_tokio() {
    let sshd = Sshd::start().await;
    let (jobs, host) = host(&sshd).await;
    let command = shell("cat; echo done >&2").stdin(Stdin::Open);
    let job = host.spawn(&command).await.unwrap();
    // Larger than the window of a channel, so that writing and reading depend on each other.
    let sent: Vec<u8> = (0..5_000_000).map(|number: u32| number.to_le_bytes()[0]).collect();
    let mut stdin = job.stdin();
    let writing = async {
        stdin.write_all(&sent).await.unwrap();
        stdin.shutdown().await.unwrap();
    };
    let mut stdout = job.stdout().await.unwrap();
    let mut received = Vec::new();
    let reading = async { stdout.read_to_end(&mut received).await.unwrap() };
    timeout(6 * SOON, async { tokio::join!(writing, reading) }).await.unwrap();
    assert!(
        received == sent,
        "{} bytes of {}",
        received.len(),
        sent.len()
    );

    let mut lines = BufReader::new(job.stderr().await.unwrap()).lines();
    assert_eq!(lines.next_line().await.unwrap().as_deref(), Some("done"));
    assert_eq!(lines.next_line().await.unwrap(), None);
    let closed = stdin.write_all(b"x").await.unwrap_err();
    assert_eq!(closed.kind(), std::io::ErrorKind::BrokenPipe);
    jobs.shutdown().await;
}

#[tokio::test]
async fn a_write_that_was_given_up_is_sent_before_the_next_one() {
    let sshd = Sshd::start().await;
    let (jobs, host) = host(&sshd).await;
    let command = shell("sleep 1; wc -c").stdin(Stdin::Open);
    let job = host.spawn(&command).await.unwrap();
    let mut stdin = job.stdin();
    // More than fits into the channel's window while nothing reads it.
    let most = vec![b'a'; 8_000_000];
    let given_up = timeout(Duration::from_millis(300), stdin.write_all(&most)).await;
    assert!(given_up.is_err());

    timeout(SOON, stdin.write_all(b"b")).await.unwrap().unwrap();
    timeout(SOON, stdin.shutdown()).await.unwrap().unwrap();
    stdin.shutdown().await.unwrap();
    assert!(stdin.write_all(b"c").await.is_err());

    let mut counted = String::new();
    job.stdout().await.unwrap().read_to_string(&mut counted).await.unwrap();
    let bytes: usize = counted.trim().parse().unwrap();
    assert!(
        bytes % (64 << 10) == 1 && bytes > 1,
        "whole pieces and a byte: {bytes}"
    );
    jobs.shutdown().await;
}

#[tokio::test]
async fn a_job_waits_for_its_follower_also_if_others_read_and_leave() {
    // More than is kept of a job that waits for its follower.
    const BYTES: usize = 48 << 20;
    let sshd = Sshd::start().await;
    let (jobs, host) = host(&sshd).await;
    let command = Command::new("head").args(["-c", &BYTES.to_string(), "/dev/zero"]);
    let mut follower = host.follow(&command).await.unwrap();
    let job = follower.job();

    let mut watcher = job.follow().await.unwrap();
    assert!(!timeout(SOON, watcher.next()).await.unwrap().stdout.is_empty());
    drop(watcher);
    assert_eq!(job.wait_within(Duration::from_secs(1)).await, None);

    let mut received = 0;
    let outcome = loop {
        let piece = timeout(SOON, follower.next()).await.unwrap();
        assert_eq!(piece.dropped_bytes, 0);
        received += piece.stdout.len();
        if let Some(outcome) = piece.outcome {
            break outcome;
        }
    };
    assert!(outcome.is_success());
    assert_eq!(received, BYTES);
    jobs.shutdown().await;
}

#[tokio::test]
async fn a_caller_neither_sees_nor_changes_what_belongs_to_another() {
    let sshd = Sshd::start().await;
    let mine = sshd.jobs();
    let theirs = mine.of(Caller::new("another caller"), Rights::everywhere(Role::Run));
    let command = shell("cat").stdin(Stdin::Open).idempotency_key("the same key");
    let start = |jobs: &core_jobs::Jobs| {
        let (jobs, command) = (jobs.clone(), command.clone());
        async move { jobs.spawn(HOST, command).await.unwrap() }
    };
    let (my_job, their_job) = (start(&mine).await, start(&theirs).await);
    assert_ne!(my_job.id(), their_job.id(), "a key is its caller's");
    assert_eq!(start(&mine).await.id(), my_job.id());
    assert!(matches!(
        theirs.job(my_job.id()).await,
        Err(core_jobs::Error::UnknownJob(_))
    ));
    let filter = core_jobs::Filter::default();
    let (listed, _) = theirs.list(filter, core_jobs::Freshness::Recorded).await.unwrap();
    assert_eq!(
        listed.iter().map(|summary| summary.id.as_str()).collect::<Vec<_>>(),
        [their_job.id()]
    );
    let connections = |jobs: &core_jobs::Jobs| {
        let jobs = jobs.clone();
        async move { jobs.probe(HOST).await.unwrap().usage.connections }
    };
    assert_eq!(
        (connections(&mine).await, connections(&theirs).await),
        (1, 1),
        "a connection is its caller's"
    );
    mine.shutdown().await;
    eventually("a shutdown ends everybody's jobs", async || {
        my_job.is_over() && their_job.is_over()
    })
    .await;
}

#[tokio::test]
async fn an_error_says_what_failed_and_its_source_says_why() {
    let sshd = Sshd::start().await;
    let (jobs, host) = host(&sshd).await;
    let unknown = jobs.host("wbe1").spawn(&Command::new("true")).await.unwrap_err();
    assert_eq!(unknown.kind(), ErrorKind::UnknownHost, "{unknown:?}");
    let empty = host.spawn(&shell(" ")).await.unwrap_err();
    assert_eq!(empty.kind(), ErrorKind::InvalidCommand, "{empty:?}");
    assert_eq!(
        jobs.job("web1-none").await.unwrap_err().kind(),
        ErrorKind::UnknownJob
    );
    sshd.trust("other");
    for (refused, text) in [
        (
            host.spawn(&Command::new("true")).await.unwrap_err(),
            format!("no job could be started on {HOST}"),
        ),
        (
            host.connect().await.unwrap_err(),
            format!("{HOST} can't be resolved or reached"),
        ),
    ] {
        assert_eq!(refused.kind(), ErrorKind::HostKey);
        assert_eq!(refused.to_string(), text);
        let why = refused.source().unwrap().to_string();
        assert!(
            why.starts_with("the key of ") && why.contains("has changed"),
            "{why}"
        );
    }
}

#[tokio::test]
async fn a_new_key_is_looked_at_and_trusted() {
    let sshd = Sshd::start().await;
    sshd.write_known_hosts("");
    let (jobs, host) = host(&sshd).await;
    assert_eq!(host.connect().await.unwrap_err().kind(), ErrorKind::HostKey);

    let key = host.key().await.unwrap();
    assert!(!key.is_known() && key.fingerprint().contains("SHA256:"));
    let file = host.trust(&key).await.unwrap();

    assert_eq!(file, sshd.path("known_hosts"));
    host.connect().await.unwrap();
    assert!(host.key().await.unwrap().is_known());
    jobs.shutdown().await;
}

#[tokio::test]
async fn dropping_a_wait_ends_no_job_and_a_job_is_talked_to_until_it_is_forgotten() {
    let sshd = Sshd::start().await;
    let (jobs, host) = host(&sshd).await;
    let job = host.spawn(&Command::new("cat").stdin(Stdin::Open)).await.unwrap();
    assert!(timeout(Duration::from_millis(100), job.wait()).await.is_err());
    assert_eq!(job.wait_within(Duration::ZERO).await, None);
    let mut stdin = job.stdin();
    stdin.write_all(b"still here\n").await.unwrap();
    stdin.flush().await.unwrap();
    let mut lines = job.lines().await.unwrap();
    assert_eq!(lines.next().await.unwrap().unwrap().text, "still here");
    stdin.shutdown().await.unwrap();
    assert!(lines.next().await.is_none() && lines.next().await.is_none());
    job.forget().await.unwrap();
    let forgotten = jobs.job(job.id()).await.unwrap_err();
    assert_eq!(forgotten.kind(), ErrorKind::Expired);
    jobs.shutdown().await;
}

#[tokio::test]
async fn a_shutdown_ends_every_wait_also_where_the_host_does_not_answer() {
    let sshd = Sshd::start().await;
    let (jobs, host) = host(&sshd).await;
    let job = host.spawn(&Command::new("cat").stdin(Stdin::Open)).await.unwrap();
    let waiting = job.clone();
    let waiting = async move { waiting.wait().await };
    sshd.freeze();
    let (outcome, ()) = tokio::join!(timeout(3 * SOON, waiting), jobs.shutdown());
    sshd.thaw();
    assert_eq!(outcome.unwrap(), Outcome::Lost(LostWhy::Connection, None));
    assert!(job.lines().await.unwrap().next().await.is_none());
}

#[tokio::test]
async fn users_of_the_library_have_hosts_for_their_tests_that_leave_nothing_behind() {
    let sshd = sshjobs::testing::Sshd::start().await.unwrap();
    sshd.alias(["db1", "db2"]);
    let jobs = sshd.jobs().await.unwrap();
    let spawned = jobs.host("db2").spawn(&shell("echo $$; exec sleep 600")).await.unwrap();
    let pid = spawned.lines().await.unwrap().next().await.unwrap().unwrap().text;
    let directory = sshd.path("");
    drop(sshd);
    assert!(!spawned.wait().await.is_success());
    // A killed process may wait to be reaped; it has no arguments any more.
    let arguments = || std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    eventually("the process is gone", async || arguments().is_empty()).await;
    assert!(!directory.exists());
}

#[tokio::test]
async fn an_argument_is_one_word_whatever_it_contains() {
    let sshd = Sshd::start().await;
    let (jobs, host) = host(&sshd).await;
    let words = ["it's", "$HOME `id` $(id)", "a\nb", "", "!1 \\ \"", "-n"];
    let expected: String = words.iter().map(|word| format!("[{word}]")).collect();

    let output = host.output(&Command::new("printf").arg("[%s]").args(words)).await.unwrap();

    assert_eq!(String::from_utf8_lossy(&output.stdout), expected);
    assert!(output.outcome.is_success());
    // A program is a word, too.
    std::fs::create_dir(sshd.path("a $(b) c")).unwrap();
    let program = sshd.path("a $(b) c/it's");
    std::os::unix::fs::symlink("/bin/echo", &program).unwrap();
    let output = host.output(&Command::new(program.display()).arg("ran")).await.unwrap();
    assert_eq!(output.stdout, b"ran\n", "{output:?}");
    jobs.shutdown().await;
}

#[tokio::test]
async fn output_is_complete_and_stdin_is_closed_by_default() {
    let sshd = Sshd::start().await;
    let (jobs, host) = host(&sshd).await;
    let command = shell("cat; head -c 3000000 /dev/zero; printf unfinished >&2; exit 3");

    let output = host.output(&command).await.unwrap();

    assert_eq!(output.stdout.len(), 3_000_000);
    assert_eq!(output.stderr, b"unfinished");
    assert_eq!(output.outcome.exit_status(), Some(3));
    let status = host.status(&shell("exit 4")).await.unwrap();
    assert_eq!(status.exit_status(), Some(4));
    jobs.shutdown().await;
}

#[tokio::test]
async fn a_fleet_has_members_lines_and_groups() {
    let sshd = Sshd::start().await;
    sshd.alias(["web2", "db1"]);
    let (jobs, _) = host(&sshd).await;
    let command = Command::new("echo").arg("here");
    let fleet = jobs.spawn_on(FleetSpec::of(["web*", "db1"]), &command).await.unwrap();

    let lines: Vec<_> = fleet.lines().await.unwrap().map(Result::unwrap).collect().await;
    let mut hosts: Vec<_> = lines.iter().filter_map(|line| line.host.as_deref()).collect();
    hosts.sort_unstable();
    assert_eq!(hosts, ["db1", "web1", "web2"]);
    assert!(lines.iter().all(|line| line.line.text == "here"));

    let summary = fleet.wait().await;
    assert_eq!((summary.counts.ok, summary.groups.len()), (3, 1));
    let members = fleet.members();
    let is_done = |outcome: &Option<Outcome>| outcome.as_ref().is_some_and(Outcome::is_success);
    assert!(
        members.iter().all(|member| is_done(&member.outcome)),
        "{members:?}"
    );
    let job = jobs.job(members[0].job.as_deref().unwrap()).await.unwrap();
    assert_eq!(job.host(), members[0].host);
    jobs.shutdown().await;
}

#[tokio::test]
async fn files_are_written_read_listed_and_copied() {
    let sshd = Sshd::start().await;
    let (jobs, host) = host(&sshd).await;
    let files = host.files();
    let far = |name: &str| sshd.path("far").join(name).display().to_string();

    files.write(far("sub/one.txt"), "content\n").await.unwrap();
    assert_eq!(
        &files.read(far("sub/one.txt")).await.unwrap()[..],
        b"content\n"
    );
    files.get(far("sub/one.txt"), sshd.path("local.txt")).await.unwrap();
    files.put(sshd.path("local.txt"), far("sub/two.txt")).await.unwrap();
    let copied = files.get_dir(far(""), sshd.path("copy")).await.unwrap();
    assert_eq!((copied.written, copied.failed.len()), (2, 0), "{copied:?}");
    let copied = files.put_dir(sshd.path("copy"), far("again")).await.unwrap();
    assert_eq!((copied.written, copied.failed.len()), (2, 0), "{copied:?}");

    let mut names: Vec<_> = files
        .list(far("sub"))
        .await
        .unwrap()
        .into_iter()
        .map(|entry| entry.name)
        .collect();
    names.sort_unstable();
    assert_eq!(names, ["one.txt", "two.txt"]);
    files.remove(far("sub/two.txt")).await.unwrap();
    let missing = files.read(far("sub/two.txt")).await.unwrap_err();
    assert_eq!(missing.kind(), ErrorKind::Files);
    assert!(missing.to_string().contains("two.txt"), "{missing}");
    jobs.shutdown().await;
}

#[tokio::test]
async fn a_forward_is_open_as_long_as_its_handle() {
    let sshd = Sshd::start().await;
    let (jobs, host) = host(&sshd).await;
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let target = listener.local_addr().unwrap();
    let spec = format!("127.0.0.1:0:{target}");
    let forward = host.forward(sshjobs::ForwardSpec::local(&spec).unwrap()).await.unwrap();
    let address = forward.spec().listen().to_string();

    let mut client = tokio::net::TcpStream::connect(&address).await.unwrap();
    client.write_all(b"through").await.unwrap();
    client.shutdown().await.unwrap();
    let (mut server, _) = listener.accept().await.unwrap();
    let mut received = String::new();
    server.read_to_string(&mut received).await.unwrap();
    assert_eq!(received, "through");

    drop(forward);
    eventually("it is closed", async || {
        tokio::net::TcpStream::connect(&address).await.is_err()
    })
    .await;
    jobs.shutdown().await;
}

#[tokio::test]
async fn a_policy_is_asked_about_the_calls_of_a_program() {
    let sshd = Sshd::start().await;
    let policy = sshd.path("policy.toml");
    let rule =
        "[[rules]]\nname = \"run\"\nverbs = [\"run\"]\ncommands = \"any\"\nhosts = [\"web1\"]\n";
    std::fs::write(&policy, rule).unwrap();
    let jobs = sshd.builder().policy(&policy).start().await.unwrap();
    let host = jobs.host(HOST);

    assert!(host.status(&Command::new("true")).await.unwrap().is_success());
    let refused = host.spawn(&Command::new("true")).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Refused, "{refused}");
    jobs.shutdown().await;
}

#[tokio::test]
async fn what_cannot_be_used_is_an_error_of_the_builder() {
    let sshd = Sshd::start().await;
    let file = sshd.path("a-file");
    std::fs::write(&file, "").unwrap();

    let refused = sshd.builder().state_dir(file.join("state")).start().await;
    assert_eq!(refused.err().unwrap().kind(), ErrorKind::Storage);
    let limits = Limits {
        max_jobs: 0,
        ..Limits::default()
    };
    let refused = sshd.builder().limits(limits).start().await.err().unwrap();
    assert_eq!(refused.kind(), ErrorKind::Settings);
    assert!(refused.to_string().contains("max_jobs"), "{refused}");

    let unstored = Jobs::builder().ssh_config(sshd.ssh_config()).access(Access::Any);
    let unstored = unstored.start().await.unwrap();
    let host = unstored.host(HOST);
    assert!(host.status(&Command::new("true")).await.unwrap().is_success());
    unstored.shutdown().await;
}

/// Each program of `examples/`, built beside this test.
#[tokio::test]
async fn the_examples_print_what_they_promise() {
    for (name, expected) in [
        // Not with its number: lines of the two streams may arrive in either order.
        ("stream_lines", " Stdout 1\n"),
        ("output", "$(rm -rf ~); it's.txt\nexited with status 0\n"),
        ("fan_out", "web[1-3] ended alike\n"),
        ("resume", "3 3\n4 late\n"),
        ("lost_connection", "before\nwas lost with its connection"),
    ] {
        let output = tokio::process::Command::new(example(name)).output();
        let output = timeout(6 * SOON, output).await.unwrap().unwrap();

        let stdout = String::from_utf8_lossy(&output.stdout);
        assert!(stdout.contains(expected), "{name}: {output:?}");
        assert!(output.status.success(), "{name}: {output:?}");
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/examples");
        let source = std::fs::read_to_string(format!("{file}/{name}.rs")).unwrap();
        let length = source.lines().filter(|line| !line.is_empty()).count();
        assert!(length < 25, "{name} has {length} lines");
    }
}

/// The binary of an example. `make test` builds them first.
fn example(name: &str) -> std::path::PathBuf {
    let test = std::env::current_exe().unwrap();
    let profile = test.parent().unwrap().parent().unwrap();
    profile.join("examples").join(name)
}
