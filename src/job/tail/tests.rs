use std::sync::Arc;

use tokio::time::sleep_until;

use super::*;
use crate::job::{Exit, Job, JobId, JobSpec, Nonce, Outcome, Positions, StdinPlan};
use crate::output::{Render, RingLimits, Selection};

const PATIENCE: Duration = Duration::from_secs(30);

impl Job {
    fn idle() -> Arc<Self> {
        let spec = JobSpec {
            host: "web1".into(),
            command: "make".into(),
            cwd: None,
            env: Default::default(),
            label: None,
            stdin: StdinPlan::Open,
            timeout: None,
            terminal: None,
        };
        Arc::new(Self::new(JobId::new("web1"), spec, Nonce::new(), RingLimits::default()))
    }

    fn say(&self, text: &str) {
        self.write_log(|log| log.append(Stream::Stdout, text.as_bytes()));
    }

    fn exit(&self) {
        self.write_log(|log| log.end(Outcome::Ended(Exit::Status(0))));
    }
}

fn from(cursor: u64) -> PageQuery {
    PageQuery {
        cursor: LineNo::new(cursor),
        selection: Selection::Both,
        max_lines: 500,
        max_bytes: 32 << 10,
        render: Render::Clean,
    }
}

fn plain() -> Wait {
    Wait { patience: PATIENCE, ..Wait::default() }
}

fn texts(tail: &Tail) -> Vec<&str> {
    tail.page.lines.iter().map(|line| line.text.as_str()).collect()
}

/// Runs `wait` against a job to which `events` happen at their seconds; tells the answer and when it came.
async fn play(wait: Wait, query: PageQuery, events: &[(u64, &str)]) -> (Tail, u64) {
    let job = Job::idle();
    let start = Instant::now();
    let script = async {
        for (second, text) in events {
            sleep_until(start + Duration::from_secs(*second)).await;
            if text.is_empty() { job.exit() } else { job.say(text) }
        }
        std::future::pending::<()>().await;
    };
    tokio::select! {
        tail = job.tail(&query, &wait) => (tail, start.elapsed().as_secs()),
        () = script => unreachable!("the script waits for ever"),
    }
}

#[tokio::test(start_paused = true)]
async fn tail_gives_up_when_patience_runs_out() {
    let (tail, seconds) = play(plain(), from(0), &[]).await;
    assert!(tail.page.lines.is_empty() && tail.still_running());
    assert_eq!((tail.because, seconds), (ReturnedBecause::Timeout, 30));
}

#[tokio::test(start_paused = true)]
async fn tail_returns_at_the_first_new_line_and_not_at_a_partial() {
    let (tail, seconds) = play(plain(), from(0), &[(1, "a"), (2, "b\nc"), (3, "d\n")]).await;
    assert_eq!((texts(&tail), tail.because, seconds), (vec!["ab"], ReturnedBecause::Lines, 2));
    assert_eq!(tail.partial, [(Stream::Stdout, "c".to_owned())]);
}

#[tokio::test(start_paused = true)]
async fn the_end_of_the_job_ends_every_wait() {
    let until = Wait { until: Some(Regex::new("never").unwrap()), ..plain() };
    let quiet = Wait { quiet: Some(Duration::from_secs(20)), ..plain() };
    for wait in [plain(), until, quiet] {
        let (tail, seconds) = play(wait, from(0), &[(4, "")]).await;
        assert_eq!((tail.because, tail.still_running(), seconds), (ReturnedBecause::Ended, false, 4));
    }
}

#[tokio::test(start_paused = true)]
async fn nobody_comes_too_late_for_the_end() {
    let job = Job::idle();
    job.say("last words");
    job.exit();
    let (query, wait) = (from(0), plain());
    let tail = tokio::time::timeout(PATIENCE * 2, job.tail(&query, &wait)).await.expect("an answer in time");
    assert_eq!((texts(&tail), tail.still_running()), (vec!["last words"], false));
}

#[tokio::test(start_paused = true)]
async fn a_page_that_does_not_reach_the_end_is_still_running() {
    let job = Job::idle();
    job.say("1\n2\n3\n");
    job.exit();
    let tail = job.tail(&PageQuery { max_lines: 2, ..from(0) }, &plain()).await;
    assert!(tail.still_running() && tail.page.has_more);
    assert_eq!(tail.because, ReturnedBecause::Lines);
    assert!(!job.tail(&from(2), &plain()).await.still_running());
}

#[tokio::test(start_paused = true)]
async fn until_answers_with_the_lines_up_to_the_match() {
    let wait = Wait { until: Some(Regex::new("^ready").unwrap()), ..plain() };
    let (tail, seconds) = play(wait, from(0), &[(1, "boot\n"), (2, "x\nready 1\nready 2\n")]).await;
    assert_eq!((texts(&tail), seconds), (vec!["boot", "x", "ready 1"], 2));
    assert_eq!(tail.because, ReturnedBecause::Matched(Some(LineNo::new(3))));
    assert!(tail.page.has_more);
}

#[tokio::test(start_paused = true)]
async fn until_matches_a_prompt_without_a_newline() {
    let wait = Wait { until: Some(Regex::new("password: $").unwrap()), ..plain() };
    let (tail, seconds) = play(wait, from(0), &[(1, "login\n"), (2, "password: ")]).await;
    assert_eq!((tail.because, seconds), (ReturnedBecause::Matched(None), 2));
}

#[tokio::test(start_paused = true)]
async fn until_returns_a_full_page_rather_than_hiding_it() {
    let wait = Wait { until: Some(Regex::new("never").unwrap()), ..plain() };
    let query = PageQuery { max_lines: 2, ..from(0) };
    let (tail, seconds) = play(wait, query, &[(1, "1\n"), (2, "2\n3\n")]).await;
    assert_eq!((tail.because, tail.page.lines.len(), seconds), (ReturnedBecause::Lines, 2, 2));
}

#[tokio::test(start_paused = true)]
async fn quiet_counts_from_the_last_byte() {
    let wait = Wait { quiet: Some(Duration::from_secs(3)), ..plain() };
    let (tail, seconds) = play(wait, from(0), &[(1, "a\n"), (3, "b"), (5, "c\n"), (20, "d\n")]).await;
    assert_eq!((texts(&tail), tail.because, seconds), (vec!["a", "bc"], ReturnedBecause::Quiet, 8));
}

#[tokio::test(start_paused = true)]
async fn quiet_counts_from_the_call_while_nothing_is_new() {
    let wait = Wait { quiet: Some(Duration::from_secs(3)), ..plain() };
    let (tail, seconds) = play(wait, from(0), &[]).await;
    assert_eq!((tail.because, seconds), (ReturnedBecause::Quiet, 3));
}

#[tokio::test(start_paused = true)]
async fn the_same_read_gives_the_same_answer() {
    let job = Job::idle();
    job.say("a\nb\nprompt");
    let (first, other, second) = (
        job.tail(&from(1), &plain()).await,
        job.tail(&from(0), &plain()).await,
        job.tail(&from(1), &plain()).await,
    );
    assert_eq!(first, second);
    assert_eq!(texts(&other), ["a", "b"]);
}

#[tokio::test(start_paused = true)]
async fn raw_bytes_are_followed_to_the_end() {
    let job = Job::idle();
    job.say("a\r\nb");
    let mut positions = Positions::default();
    assert_eq!(job.follow(&mut positions).await.stdout, b"a\r\nb");
    job.say("c");
    job.exit();
    let chunk = job.follow(&mut positions).await;
    assert_eq!((chunk.stdout.as_slice(), chunk.at_end, chunk.dropped_bytes), (&b"c"[..], true, 0));
}
