//! The library as a program in Rust uses it, against a private sshd.

use std::error::Error as _;
use std::time::Duration;

use crate::support::{HOST, Sshd, eventually};
use futures_util::StreamExt;
use sshjobs::jobs::{
    Access, Caller, Config, Error, Exit, Filter, Freshness, HostError, Jobs, Lagged, Limits,
    LostWhy, Outcome, Refusal, Rights, Role, SpecError, Stdin, Stream, WriteError,
};

const SOON: Duration = Duration::from_secs(10);

fn jobs(sshd: &Sshd, limits: Limits) -> Jobs {
    Jobs::new(
        Config {
            limits,
            ..sshd.config()
        },
        Access::Listed,
    )
}

#[tokio::test]
async fn a_command_is_built_started_read_line_by_line_and_waited_for() {
    let sshd = Sshd::start().await;
    let jobs = jobs(&sshd, Limits::default());
    let command = "pwd; echo \"$GREETING\" >&2; cat; exit 3";
    let job = jobs
        .command(HOST, command)
        .cwd("/tmp")
        .env("GREETING", "hello")
        .stdin(Stdin::Text("from stdin\n".into()))
        .timeout(SOON)
        .label("greeting")
        .spawn()
        .await
        .unwrap();
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
    let (listed, total) = jobs.list(Filter::default(), Freshness::Recorded).await.unwrap();
    let summary = &listed[0];
    assert_eq!(
        (total, summary.label.as_deref(), summary.id.as_str()),
        (1, Some("greeting"), job.id())
    );
    jobs.shutdown().await;
}

#[tokio::test]
async fn a_late_reader_gets_the_number_of_evicted_lines() {
    let sshd = Sshd::start().await;
    let jobs = jobs(
        &sshd,
        Limits {
            ring_buffer_lines: 100,
            ..Limits::default()
        },
    );
    let job = jobs.command(HOST, "seq 1 1000").spawn().await.unwrap();
    assert!(job.wait_within(SOON).await);
    let mut lines = job.lines().await.unwrap();
    assert_eq!(lines.next().await, Some(Err(Lagged { lines: 900 })));
    let first = lines.next().await.unwrap().unwrap();
    assert_eq!((first.text.as_str(), first.line_no.value()), ("901", 901));
    assert_eq!(lines.count().await, 99);
    jobs.shutdown().await;
}

#[tokio::test]
async fn a_caller_neither_sees_nor_changes_what_belongs_to_another() {
    let sshd = Sshd::start().await;
    let mine = jobs(&sshd, Limits::default());
    let theirs = mine.of(Caller::new("another caller"), Rights::everywhere(Role::Run));
    let start = |jobs: &Jobs| {
        jobs.command(HOST, "cat")
            .stdin(Stdin::Open)
            .idempotency_key("the same key")
            .spawn()
    };
    let (my_job, their_job) = (start(&mine).await.unwrap(), start(&theirs).await.unwrap());
    assert_ne!(my_job.id(), their_job.id(), "a key is its caller's");
    assert_eq!(start(&mine).await.unwrap().id(), my_job.id());
    assert!(matches!(
        theirs.job(my_job.id()).await,
        Err(Error::UnknownJob(_))
    ));
    let (listed, _) = theirs.list(Filter::default(), Freshness::Recorded).await.unwrap();
    assert_eq!(
        listed.iter().map(|summary| summary.id.as_str()).collect::<Vec<_>>(),
        [their_job.id()]
    );
    let connections = |jobs: &Jobs| {
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
    let jobs = jobs(&sshd, Limits::default());
    let unknown = jobs.command("wbe1", "true").spawn().await.unwrap_err();
    let Error::Refused(Refusal::Host(HostError::Unknown { nearest, .. })) = &unknown else {
        panic!("{unknown:?}")
    };
    assert_eq!(nearest.as_deref(), Some(HOST));
    let empty = jobs.command(HOST, " ").spawn().await.unwrap_err();
    assert!(
        matches!(empty, Error::Spec(SpecError::NoCommand)),
        "{empty:?}"
    );
    sshd.trust("other");
    let refused = jobs.command(HOST, "true").spawn().await.unwrap_err();
    assert_eq!(
        refused.to_string(),
        format!("no job could be started on {HOST}")
    );
    let why = refused.source().unwrap().to_string();
    assert!(
        why.starts_with("the key of ") && why.contains("has changed"),
        "{why}"
    );
}

#[tokio::test]
async fn dropping_a_wait_ends_no_job_and_a_job_is_talked_to_until_it_is_forgotten() {
    let sshd = Sshd::start().await;
    let jobs = jobs(&sshd, Limits::default());
    let job = jobs.command(HOST, "cat").stdin(Stdin::Open).spawn().await.unwrap();
    assert!(tokio::time::timeout(Duration::from_millis(100), job.wait()).await.is_err());
    job.write(b"still here\n", SOON).await.unwrap();
    let mut lines = job.lines().await.unwrap();
    assert_eq!(lines.next().await.unwrap().unwrap().text, "still here");
    job.close_stdin(SOON).await.unwrap();
    assert!(lines.next().await.is_none());
    assert!(matches!(
        job.write(b"x", SOON).await,
        Err(Error::Write(WriteError::JobEnded))
    ));
    assert_eq!(job.forget().await.unwrap(), (1, 11));
    assert!(matches!(jobs.job(job.id()).await, Err(Error::Expired(_))));
    jobs.shutdown().await;
}

#[tokio::test]
async fn a_shutdown_ends_every_wait_also_where_the_host_does_not_answer() {
    let sshd = Sshd::start().await;
    let jobs = jobs(&sshd, Limits::default());
    let job = jobs.command(HOST, "cat").stdin(Stdin::Open).spawn().await.unwrap();
    let waiting = job.clone();
    let waiting = async move { waiting.wait().await };
    sshd.freeze();
    let (outcome, ()) = tokio::join!(tokio::time::timeout(3 * SOON, waiting), jobs.shutdown());
    sshd.thaw();
    assert_eq!(outcome.unwrap(), Outcome::Lost(LostWhy::Connection, None));
    assert!(job.lines().await.unwrap().next().await.is_none());
}

#[tokio::test]
async fn users_of_the_library_have_hosts_for_their_tests_that_leave_nothing_behind() {
    let sshd = sshjobs::testing::Sshd::start().await.unwrap();
    sshd.alias(["db1", "db2"]);
    let jobs = sshd.jobs();
    let spawned = jobs.command("db2", "echo $$; exec sleep 600").spawn().await.unwrap();
    let pid = spawned.lines().await.unwrap().next().await.unwrap().unwrap().text;
    let directory = sshd.path("");
    drop(sshd);
    assert!(!spawned.wait().await.is_success());
    // A killed process may wait to be reaped; it has no arguments any more.
    let arguments = || std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    crate::support::eventually("the process is gone", async || arguments().is_empty()).await;
    assert!(!directory.exists());
}

#[tokio::test]
async fn an_argument_is_one_word_whatever_it_contains() {
    let sshd = Sshd::start().await;
    let jobs = jobs(&sshd, Limits::default());
    let words = ["it's", "$HOME `id` $(id)", "a\nb", "", "!1 \\ \"", "-n"];

    let output = jobs.command(HOST, "printf '[%s]'").args(words).output().await.unwrap();

    let expected: String = words.iter().map(|word| format!("[{word}]")).collect();
    assert_eq!(String::from_utf8_lossy(&output.stdout), expected);
    assert!(output.outcome.is_success());
    jobs.shutdown().await;
}

#[tokio::test]
async fn output_is_complete_and_stdin_is_closed_by_default() {
    let sshd = Sshd::start().await;
    let jobs = jobs(&sshd, Limits::default());
    let command = "cat; head -c 3000000 /dev/zero; printf unfinished >&2; exit 3";

    let output = jobs.command(HOST, command).output().await.unwrap();

    assert_eq!(output.stdout.len(), 3_000_000);
    assert_eq!(output.stderr, b"unfinished");
    assert_eq!(output.outcome.exit_status(), Some(3));
    let status = jobs.command(HOST, "exit 4").status().await.unwrap();
    assert_eq!(status.exit_status(), Some(4));
    jobs.shutdown().await;
}

#[tokio::test]
async fn a_state_directory_that_cannot_be_used_is_an_error_of_the_builder() {
    let sshd = Sshd::start().await;
    let file = sshd.path("a-file");
    std::fs::write(&file, "").unwrap();

    let refused = Jobs::builder()
        .config(sshd.config())
        .state_dir(file.join("state"))
        .start()
        .await;
    assert!(matches!(refused, Err(Error::Store(_))));

    let unstored = Jobs::builder().config(sshd.config()).start().await.unwrap();
    assert!(unstored.command(HOST, "true").status().await.unwrap().is_success());
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
        let output = tokio::time::timeout(6 * SOON, output).await.unwrap().unwrap();

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
