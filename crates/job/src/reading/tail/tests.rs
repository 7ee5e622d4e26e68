use std::sync::Arc;

use proptest::prelude::*;
use tokio::time::sleep_until;

use super::*;
use crate::log::LogChange;
use crate::{Caller, Draft, Exit, Job, Outcome, Positions};
use sshjobs_output::{RingLimits, Selection};

const PATIENCE: Duration = Duration::from_secs(30);

impl Job {
    fn idle() -> Arc<Self> {
        let spec = Draft::new("web1", "make").try_into().expect("it can be");
        Arc::new(Self::new(Caller::local(), spec, RingLimits::default()))
    }

    fn say(&self, text: &str) {
        self.print(Stream::Stdout, text);
    }

    fn print(&self, stream: Stream, text: &str) {
        self.record(
            vec![LogChange::Append(stream.into(), text.to_owned().into())],
            Instant::now(),
        );
    }

    fn exit(&self) {
        self.end(Outcome::Ended(Exit::Status(0)));
    }
}

fn from(cursor: u64) -> PageQuery {
    PageQuery::after(LineNo::new(cursor))
}

fn plain() -> Wait {
    Wait {
        patience: PATIENCE,
        ..Wait::default()
    }
}

fn texts(tail: &Tail) -> Vec<&str> {
    tail.page.lines.iter().map(|line| line.text.as_str()).collect()
}

/// Runs `wait` against a job with `events` at the given seconds. Returns the answer and its time.
async fn play(wait: Wait, query: PageQuery, events: &[(u64, &str)]) -> (Tail, u64) {
    let job = Job::idle();
    let start = Instant::now();
    let script = async {
        for (second, text) in events {
            sleep_until(start + Duration::from_secs(*second)).await;
            if text.is_empty() {
                job.exit()
            } else {
                job.say(text)
            }
        }
        std::future::pending::<()>().await;
    };
    tokio::select! {
        tail = job.tail(&query, &wait) => (tail.unwrap(), start.elapsed().as_secs()),
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
    assert_eq!(
        (texts(&tail), tail.because, seconds),
        (vec!["ab"], ReturnedBecause::Lines, 2)
    );
    assert_eq!(tail.partial, [(Stream::Stdout, "c".to_owned())]);
}

#[tokio::test(start_paused = true)]
async fn the_end_of_the_job_ends_every_wait() {
    let until = Wait {
        until: Some(Regex::new("never").unwrap()),
        ..plain()
    };
    let quiet = Wait {
        quiet: Some(Duration::from_secs(20)),
        ..plain()
    };
    for wait in [plain(), until, quiet] {
        let (tail, seconds) = play(wait, from(0), &[(4, "")]).await;
        assert_eq!(
            (tail.because, tail.still_running(), seconds),
            (ReturnedBecause::Ended, false, 4)
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_comes_late_still_sees_the_end() {
    let job = Job::idle();
    job.say("last words");
    job.exit();
    let query = from(0);
    let wait = plain();
    let tail = tokio::time::timeout(PATIENCE * 2, job.tail(&query, &wait))
        .await
        .expect("an answer in time")
        .unwrap();
    assert_eq!(
        (texts(&tail), tail.still_running()),
        (vec!["last words"], false)
    );
}

#[tokio::test(start_paused = true)]
async fn a_page_that_does_not_reach_the_end_is_still_running() {
    let job = Job::idle();
    job.say("1\n2\n3\n");
    job.exit();
    let tail = job
        .tail(
            &PageQuery {
                max_lines: 2,
                ..from(0)
            },
            &plain(),
        )
        .await
        .unwrap();
    assert!(tail.still_running() && tail.page.has_more);
    assert_eq!(tail.because, ReturnedBecause::Lines);
    assert!(!job.tail(&from(2), &plain()).await.unwrap().still_running());
}

#[tokio::test(start_paused = true)]
async fn until_answers_with_the_lines_up_to_the_match() {
    let wait = Wait {
        until: Some(Regex::new("^ready").unwrap()),
        ..plain()
    };
    let (tail, seconds) = play(
        wait,
        from(0),
        &[(1, "boot\n"), (2, "x\nready 1\nready 2\n")],
    )
    .await;
    assert_eq!((texts(&tail), seconds), (vec!["boot", "x", "ready 1"], 2));
    assert_eq!(tail.because, ReturnedBecause::Matched(Some(LineNo::new(3))));
    assert!(tail.page.has_more);
}

#[tokio::test(start_paused = true)]
async fn until_matches_a_prompt_without_a_newline() {
    let wait = Wait {
        until: Some(Regex::new("password: $").unwrap()),
        ..plain()
    };
    let (tail, seconds) = play(wait, from(0), &[(1, "login\n"), (2, "password: ")]).await;
    assert_eq!((tail.because, seconds), (ReturnedBecause::Matched(None), 2));
}

#[tokio::test(start_paused = true)]
async fn until_returns_a_full_page_rather_than_hiding_it() {
    let wait = Wait {
        until: Some(Regex::new("never").unwrap()),
        ..plain()
    };
    let query = PageQuery {
        max_lines: 2,
        ..from(0)
    };
    let (tail, seconds) = play(wait, query, &[(1, "1\n"), (2, "2\n3\n")]).await;
    assert_eq!(
        (tail.because, tail.page.lines.len(), seconds),
        (ReturnedBecause::Lines, 2, 2)
    );
}

#[tokio::test(start_paused = true)]
async fn quiet_counts_from_the_last_byte() {
    let wait = Wait {
        quiet: Some(Duration::from_secs(3)),
        ..plain()
    };
    let (tail, seconds) = play(
        wait,
        from(0),
        &[(1, "a\n"), (3, "b"), (5, "c\n"), (20, "d\n")],
    )
    .await;
    assert_eq!(
        (texts(&tail), tail.because, seconds),
        (vec!["a", "bc"], ReturnedBecause::Quiet, 8)
    );
}

#[tokio::test(start_paused = true)]
async fn quiet_counts_from_the_call_while_nothing_is_new() {
    let wait = Wait {
        quiet: Some(Duration::from_secs(3)),
        ..plain()
    };
    let (tail, seconds) = play(wait, from(0), &[]).await;
    assert_eq!((tail.because, seconds), (ReturnedBecause::Quiet, 3));
}

#[tokio::test(start_paused = true)]
async fn silence_counts_once_more_is_printed_than_a_terminal_repeats() {
    for (known, events, returned) in [
        ("bob\n", &[(1u64, "bo"), (2, "b\r\n")] as &[_], (30, false)),
        ("bob\n", &[(1, "bob\r\n"), (9, "hello ")], (12, true)),
        // A password is not repeated, but the end of its line is.
        ("\n", &[(5, "\r\n")], (30, false)),
        ("\n", &[(5, "\r\n"), (7, "no\r\n")], (10, true)),
        (
            "Pw: secret\n",
            &[(1, "Pw: "), (2, "\r\n"), (4, "got it\r\n")],
            (7, true),
        ),
        // A program that repeats nothing.
        ("bob\n", &[(4, "hello\n")], (7, true)),
        ("^C", &[(1, "^C"), (2, "\r\n$ ")], (5, true)),
        (
            "bob\n",
            &[(1, "\x1b[1mb"), (2, "ob\x1b[m\n"), (3, "\n")],
            (30, false),
        ),
        (
            "a long line\n",
            &[(1, "a lo"), (2, "ng \r\nline\r\n"), (5, "x")],
            (8, true),
        ),
    ] {
        let wait = Wait {
            quiet: Some(Duration::from_secs(3)),
            silence_from: SilenceFrom::MoreThan(known.into()),
            ..plain()
        };
        let (tail, seconds) = play(wait, from(0), events).await;
        let is_quiet = tail.because == ReturnedBecause::Quiet;
        assert_eq!((seconds, is_quiet), returned, "{known:?} {events:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn silence_may_count_from_the_first_new_byte() {
    let wait = Wait {
        quiet: Some(Duration::from_secs(3)),
        silence_from: SilenceFrom::News,
        ..plain()
    };
    let (tail, seconds) = play(wait.clone(), from(0), &[(9, "\n")]).await;
    assert_eq!((tail.because, seconds), (ReturnedBecause::Quiet, 12));
    let (tail, seconds) = play(wait, from(0), &[]).await;
    assert_eq!((tail.because, seconds), (ReturnedBecause::Timeout, 30));
}

#[tokio::test(start_paused = true)]
async fn a_full_page_ends_a_wait_for_silence() {
    let wait = Wait {
        quiet: Some(Duration::from_secs(3)),
        ..plain()
    };
    let query = PageQuery {
        max_lines: 2,
        ..from(0)
    };
    let events: Vec<(u64, &str)> = (1..30).map(|second| (second, "tick\n")).collect();
    let (tail, seconds) = play(wait, query, &events).await;
    assert_eq!(
        (tail.page.lines.len(), tail.because, seconds),
        (2, ReturnedBecause::Lines, 3)
    );
}

#[tokio::test(start_paused = true)]
async fn an_answered_prompt_is_not_news_for_the_caller_that_answered_it() {
    let job = Job::idle();
    job.say("name? ");
    tokio::time::sleep(Duration::from_secs(60)).await;
    let quiet = |known_bytes| Wait {
        quiet: Some(Duration::from_secs(3)),
        known_bytes,
        ..plain()
    };
    let start = Instant::now();
    assert_eq!(
        job.tail(&from(0), &quiet(0)).await.unwrap().because,
        ReturnedBecause::Quiet
    );
    assert_eq!(start.elapsed().as_secs(), 0, "it has been silent for long");
    let query = from(0);
    let wait = quiet(6);
    let answer = async {
        tokio::time::sleep(Duration::from_secs(2)).await;
        job.say("bob\nhello bob\n");
    };
    let (tail, ()) = tokio::join!(job.tail(&query, &wait), answer);
    assert_eq!(
        (texts(&tail.unwrap()), start.elapsed().as_secs()),
        (vec!["name? bob", "hello bob"], 5)
    );
}

#[tokio::test(start_paused = true)]
async fn the_same_read_gives_the_same_answer() {
    let job = Job::idle();
    job.say("a\nb\nprompt");
    let first = job.tail(&from(1), &plain()).await;
    let other = job.tail(&from(0), &plain()).await;
    let second = job.tail(&from(1), &plain()).await;
    assert_eq!(first, second);
    assert_eq!(texts(&other.unwrap()), ["a", "b"]);
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
    assert_eq!(
        (chunk.stdout.as_slice(), chunk.at_end, chunk.dropped_bytes),
        (&b"c"[..], true, 0)
    );
}

/// An event after this many milliseconds: the job prints something, or (`None`) ends.
type Event = (u64, Option<(Stream, &'static str)>);

/// The contract of a wait in plain words, evaluated every millisecond.
#[derive(Default)]
struct Model {
    lines: Vec<(Stream, String)>,
    partials: [String; 2],
    last_output: Option<u64>,
    ended: bool,
}

impl Model {
    fn happen(&mut self, at: u64, event: Option<(Stream, &'static str)>) {
        let Some((stream, text)) = event else {
            self.ended = true;
            for stream in Stream::ALL {
                let rest = std::mem::take(&mut self.partials[stream as usize]);
                self.lines.extend(Some((stream, rest)).filter(|(_, rest)| !rest.is_empty()));
            }
            return;
        };
        self.last_output = Some(at);
        for piece in text.split_inclusive('\n') {
            let partial = &mut self.partials[stream as usize];
            partial.push_str(piece.trim_end_matches('\n'));
            if piece.ends_with('\n') {
                self.lines.push((stream, std::mem::take(partial)));
            }
        }
    }

    /// The numbers of the lines returned at this millisecond and the reason, if the wait ends.
    fn answer(
        &self,
        now: u64,
        query: &PageQuery,
        wait: &Wait,
    ) -> Option<(Vec<u64>, ReturnedBecause)> {
        let millis = |duration: Duration| u64::try_from(duration.as_millis()).unwrap();
        let new: Vec<u64> = (query.cursor.value() + 1..=self.lines.len() as u64)
            .filter(|no| query.selection.contains(self.line(*no).0))
            .collect();
        let page = &new[..new.len().min(query.max_lines)];
        let has_more = new.len() > query.max_lines;
        let partials: Vec<_> = Stream::ALL
            .into_iter()
            .filter(|stream| query.selection.contains(*stream))
            .map(|stream| &self.partials[stream as usize])
            .filter(|text| !text.is_empty())
            .collect();
        if let Some(until) = &wait.until {
            if let Some(index) = page.iter().position(|no| until.is_match(&self.line(*no).1)) {
                let matched = LineNo::new(page[index]);
                return Some((
                    page[..=index].to_vec(),
                    ReturnedBecause::Matched(Some(matched)),
                ));
            }
            if !has_more && partials.iter().any(|text| until.is_match(text)) {
                return Some((page.to_vec(), ReturnedBecause::Matched(None)));
            }
        }
        let is_new = !new.is_empty() || !partials.is_empty();
        let silent_since = if is_new { self.last_output } else { None }.unwrap_or(0);
        let is_quiet = wait.quiet.is_some_and(|quiet| now >= silent_since + millis(quiet));
        let is_plain = wait.until.is_none() && wait.quiet.is_none();
        let because = if self.ended && !has_more {
            ReturnedBecause::Ended
        } else if self.ended || (is_plain && !new.is_empty()) || (!is_plain && has_more) {
            ReturnedBecause::Lines
        } else if is_quiet || now >= millis(wait.patience) {
            match (has_more, is_quiet) {
                (true, _) => ReturnedBecause::Lines,
                (false, true) => ReturnedBecause::Quiet,
                (false, false) => ReturnedBecause::Timeout,
            }
        } else {
            return None;
        };
        Some((page.to_vec(), because))
    }

    fn line(&self, no: u64) -> &(Stream, String) {
        &self.lines[usize::try_from(no - 1).unwrap()]
    }
}

fn event() -> impl Strategy<Value = Event> {
    let text = prop_oneof![
        Just("a"),
        Just("b\n"),
        Just("go\n"),
        Just("x\ny\n"),
        Just("ask? "),
        Just("\n")
    ];
    let stream = prop_oneof![Just(Stream::Stdout), Just(Stream::Stderr)];
    let what = prop_oneof![8 => (stream, text).prop_map(Some), 1 => Just(None)];
    ((1u64..12).prop_map(|gap| gap * 10), what)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Events come at whole hundredths of a second, so that none coincides with the end of a wait.
    #[test]
    fn every_wait_ends_when_and_as_the_model_says(
        events in proptest::collection::vec(event(), 0..12),
        cursor in 0u64..4,
        max_lines in 1usize..5,
        selection in prop_oneof![
            2 => Just(Selection::Both), 1 => Just(Selection::Only(Stream::Stdout)), 1 => Just(Selection::Only(Stream::Stderr))
        ],
        until in proptest::option::of(prop_oneof![Just("^go$"), Just(r"\? $"), Just("never")]),
        quiet in proptest::option::of((0u64..8).prop_map(|quiet| quiet * 10 + 3)),
        patience in (0u64..30).prop_map(|patience| patience * 10 + 5),
    ) {
        let wait = Wait {
            patience: Duration::from_millis(patience),
            until: until.map(|pattern| Regex::new(pattern).unwrap()),
            quiet: quiet.map(Duration::from_millis),
            known_bytes: 0,
            silence_from: SilenceFrom::Call,
            filter: None,
        };
        let query = PageQuery { max_lines, selection, ..from(cursor) };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        let (answer, at) = runtime.block_on(async {
            let job = Job::idle();
            let start = Instant::now();
            let script = async {
                let mut at = start;
                for (gap, event) in &events {
                    at += Duration::from_millis(*gap);
                    sleep_until(at).await;
                    match event {
                        Some((stream, text)) => job.print(*stream, text),
                        None => return job.exit(),
                    }
                }
            };
            let (tail, ()) = tokio::join!(
                async { (job.tail(&query, &wait).await.unwrap(), start.elapsed().as_millis()) },
                script
            );
            tail
        });
        let mut model = Model::default();
        let mut at_model = 0;
        let mut coming = events.iter().scan(0, |at, (gap, event)| {
            *at += gap;
            Some((*at, *event))
        }).peekable();
        let expected = loop {
            while let Some((at, event)) = coming.next_if(|(at, _)| *at == at_model) {
                if !model.ended {
                    model.happen(at, event);
                }
            }
            if let Some(expected) = model.answer(at_model, &query, &wait) {
                break expected;
            }
            at_model += 1;
        };
        let lines: Vec<u64> = answer.page.lines.iter().map(|line| line.line_no.value()).collect();
        prop_assert_eq!((lines, answer.because), expected);
        prop_assert_eq!(at, u128::from(at_model));
        prop_assert_eq!(answer.still_running(), !model.ended || answer.page.has_more);
    }
}

#[tokio::test]
async fn a_line_that_arrives_after_the_stored_page_was_read_is_still_to_come() {
    let job = Job::idle();
    let query = from(0);
    let wait = plain();
    let mut waiter = Waiter::new(&query, &wait);
    job.say("stored\n");
    let stored = job.stored_page(&query).await;
    job.say("later\n");
    job.exit();

    let decision = job.read_log(|log| waiter.decide(log, Some(stored), None));

    let TailDecision::Answer(tail) = decision else {
        unreachable!("the job has ended")
    };
    assert_eq!(texts(&tail), ["stored"]);
    assert!(tail.page.has_more);
    assert!(tail.still_running());
}

#[tokio::test]
async fn a_patience_without_end_is_a_long_one() {
    let job = Job::idle();
    job.exit();
    let wait = Wait {
        patience: Duration::MAX,
        ..Wait::default()
    };
    let tail = job.tail(&from(0), &wait).await.unwrap();
    assert_eq!(tail.because, ReturnedBecause::Ended);
}
