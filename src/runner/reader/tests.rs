use std::collections::VecDeque;

use tokio::time::sleep;

use super::*;
use crate::job::{JobId, JobSpec, Nonce, StdinPlan};
use crate::output::{LineNo, Page, PageQuery, Render, RingLimits, Selection};

const DRAIN: Duration = Duration::from_secs(2);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Played {
    Out,
    Err,
    Eof,
    Status,
    Signal,
    Close,
    Lost,
    /// Nothing for so many seconds.
    Pause(u64),
}

/// Events in order; after the last, silence.
struct Script(VecDeque<Played>);

impl EventSource for Script {
    async fn next(&mut self) -> Option<ChannelEvent> {
        while let Some(Played::Pause(seconds)) = self.0.front() {
            sleep(Duration::from_secs(*seconds)).await;
            self.0.pop_front();
        }
        let Some(next) = self.0.pop_front() else { return std::future::pending().await };
        Some(match next {
            Played::Out => ChannelEvent::Data("o\n".into()),
            Played::Err => ChannelEvent::ExtendedData("e".into()),
            Played::Eof => ChannelEvent::Eof,
            Played::Status => ChannelEvent::ExitStatus(7),
            Played::Signal => ChannelEvent::ExitSignal("KILL".into()),
            Played::Close => ChannelEvent::Close,
            Played::Lost => return None,
            Played::Pause(_) => unreachable!("slept above"),
        })
    }
}

fn job() -> Arc<Job> {
    let spec = JobSpec {
        host: "h".into(),
        command: "c".into(),
        cwd: None,
        env: Default::default(),
        label: None,
        stdin: StdinPlan::Open,
        timeout: None,
        terminal: None,
        pace: Default::default(),
    };
    Arc::new(Job::new(JobId::new("h"), spec, Nonce::new(), RingLimits::default()))
}

fn texts(job: &Job) -> Vec<String> {
    let query = PageQuery {
        cursor: LineNo::START,
        selection: Selection::Both,
        max_lines: 100,
        max_bytes: 1 << 20,
        line_bytes: 1,
        render: Render::Raw,
        keep: Default::default(),
    };
    job.read_log(|log| Page::read(log.ring(), &query)).lines.into_iter().map(|line| line.text).collect()
}

/// Plays `script` and returns the outcome and the lines; no outcome when the reader would wait for ever.
async fn play(script: &[Played]) -> (Option<Outcome>, Vec<String>, u64) {
    let (job, start) = (job(), Instant::now());
    job.write_log(|log| log.run());
    let source = Script(script.iter().copied().collect());
    let mut reader = Reader::new(source, Arc::clone(&job), Prelude::new(&Nonce::new(), 0), DRAIN);
    let outcome = tokio::time::timeout(Duration::from_secs(3600), reader.run()).await.ok();
    let seconds = start.elapsed().as_secs();
    if let Some(outcome) = outcome.clone() {
        job.write_log(|log| log.end(outcome));
    }
    (outcome, texts(&job), seconds)
}

/// What must come of a script, said as plainly as possible.
fn model(script: &[Played]) -> (Option<Outcome>, Vec<String>) {
    let end = script.iter().position(|event| matches!(event, Played::Close | Played::Lost));
    let before = &script[..end.unwrap_or(script.len())];
    let exit = before.iter().find_map(|event| match event {
        Played::Status => Some(Exit::Status(7)),
        Played::Signal => Some(Exit::Signal("KILL".into())),
        Played::Out | Played::Err | Played::Eof | Played::Close | Played::Lost | Played::Pause(_) => None,
    });
    let eof = before.contains(&Played::Eof);
    let outcome = match (end.map(|end| script[end]), exit) {
        (Some(Played::Lost), Some(exit)) if eof => Some(Outcome::Ended(exit)),
        (Some(Played::Lost), exit) => Some(Outcome::Lost(exit)),
        (Some(_), None) => Some(Outcome::Closed),
        (_, Some(exit)) => Some(Outcome::Ended(exit)),
        (None, None) => None,
    };
    let (mut lines, mut unfinished) = (Vec::new(), String::new());
    for event in before {
        match event {
            Played::Out => lines.push("o".to_owned()),
            Played::Err => unfinished.push('e'),
            Played::Eof if !unfinished.is_empty() => lines.push(std::mem::take(&mut unfinished)),
            Played::Eof
            | Played::Status
            | Played::Signal
            | Played::Close
            | Played::Lost
            | Played::Pause(_) => {}
        }
    }
    if outcome.is_some() && !unfinished.is_empty() {
        lines.push(unfinished);
    }
    (outcome, lines)
}

#[tokio::test(start_paused = true)]
async fn every_order_of_up_to_seven_events_comes_out_as_in_the_model() {
    const GOING_ON: [Played; 5] = [Played::Out, Played::Err, Played::Eof, Played::Status, Played::Signal];
    let mut prefixes: Vec<Vec<Played>> = vec![vec![]];
    let mut played = 0;
    for length in 0..=7 {
        for prefix in &prefixes {
            let ends: &[&[Played]] =
                if length < 7 { &[&[Played::Close], &[Played::Lost], &[]] } else { &[&[]] };
            for end in ends {
                let script = [prefix, *end].concat();
                let (outcome, lines, _) = play(&script).await;
                assert_eq!((outcome, lines), model(&script), "{script:?}");
                played += 1;
            }
        }
        let longer = |prefix: &Vec<Played>| GOING_ON.map(|event| [prefix.as_slice(), &[event]].concat());
        prefixes = prefixes.iter().flat_map(longer).collect();
    }
    assert_eq!(played, 3 * (1 + 5 + 25 + 125 + 625 + 3125 + 15625) + 78125);
}

#[tokio::test(start_paused = true)]
async fn output_that_comes_late_after_the_exit_is_kept() {
    let late = [Played::Status, Played::Pause(1), Played::Out, Played::Pause(1), Played::Err, Played::Close];
    let (outcome, lines, _) = play(&late).await;
    assert_eq!((outcome, lines.len()), (Some(Outcome::Ended(Exit::Status(7))), 2));
}

#[tokio::test(start_paused = true)]
async fn a_background_child_that_is_silent_holds_the_job_for_the_drain_time() {
    let (outcome, _, seconds) = play(&[Played::Out, Played::Status]).await;
    assert_eq!((outcome, seconds), (Some(Outcome::Ended(Exit::Status(7))), 2));
}

#[tokio::test(start_paused = true)]
async fn a_background_child_that_never_stops_talking_is_left_after_a_bounded_time() {
    let chatter = [Played::Out, Played::Pause(1)].repeat(200);
    let (outcome, _, seconds) = play(&[&[Played::Status], chatter.as_slice()].concat()).await;
    assert_eq!((outcome, seconds), (Some(Outcome::Ended(Exit::Status(7))), 60));
}

#[tokio::test(start_paused = true)]
async fn a_refused_exec_is_refused_and_nothing_else() {
    for (events, expected) in [
        (vec![ChannelEvent::Failure], Outcome::Refused),
        (vec![ChannelEvent::Success, ChannelEvent::Failure, ChannelEvent::Close], Outcome::Closed),
    ] {
        let (sender, source) = queue();
        for event in events {
            sender.send(event).await.unwrap();
        }
        let mut reader = Reader::new(source, job(), Prelude::new(&Nonce::new(), 0), DRAIN);
        assert_eq!(reader.run().await, expected);
    }
}

#[tokio::test(start_paused = true)]
async fn the_process_group_is_known_and_its_line_is_not_output() {
    let job = job();
    let (sender, source) = queue();
    let line = format!("{} 4711\nhello\n", job.mark.as_str());
    for part in line.as_bytes().chunks(9) {
        sender.send(ChannelEvent::Data(part.to_vec().into())).await.unwrap();
    }
    sender.send(ChannelEvent::Close).await.unwrap();
    Reader::new(source, Arc::clone(&job), Prelude::new(&job.mark, 1), DRAIN).run().await;
    assert_eq!(job.process_group().map(|group| group.pgid), Some(4711));
    assert_eq!(texts(&job), ["hello"]);
}

#[tokio::test(start_paused = true)]
async fn what_the_prelude_held_back_is_given_out_at_the_end() {
    let job = job();
    let (sender, source) = queue();
    sender.send(ChannelEvent::Data("sshjobs-".into())).await.unwrap();
    sender.send(ChannelEvent::Close).await.unwrap();
    Reader::new(source, Arc::clone(&job), Prelude::new(&job.mark, 1), DRAIN).run().await;
    job.write_log(|log| log.end(Outcome::Closed));
    assert_eq!(texts(&job), ["sshjobs-"]);
}

#[tokio::test(start_paused = true)]
async fn the_reader_never_waits_for_an_observer() {
    let job = job();
    let (sender, source) = queue();
    // An observer that asked and never looks again.
    let query = PageQuery {
        cursor: LineNo::START,
        selection: Selection::Both,
        max_lines: 1,
        max_bytes: 1,
        line_bytes: 1,
        render: Render::Raw,
        keep: Default::default(),
    };
    let wait = crate::job::Wait { patience: Duration::from_secs(3600), ..Default::default() };
    let mut observer = Box::pin(job.tail(&query, &wait));
    assert!(futures_poll(&mut observer).await.is_none());
    let feed = async {
        for _ in 0..20_000 {
            sender.send(ChannelEvent::Data("line\n".into())).await.unwrap();
        }
        sender.send(ChannelEvent::Close).await.unwrap();
    };
    let start = Instant::now();
    let mut reader = Reader::new(source, Arc::clone(&job), Prelude::new(&Nonce::new(), 0), DRAIN);
    let (outcome, ()) = tokio::join!(reader.run(), feed);
    assert_eq!((outcome, start.elapsed()), (Outcome::Closed, Duration::ZERO));
    let status = job.status();
    assert_eq!((status.total_lines, status.dropped_lines), (20_000, 10_000));
}

/// Polls a future once.
async fn futures_poll<F: Future + Unpin>(future: &mut F) -> Option<F::Output> {
    std::future::poll_fn(|context| {
        std::task::Poll::Ready(match std::pin::Pin::new(&mut *future).poll(context) {
            std::task::Poll::Ready(output) => Some(output),
            std::task::Poll::Pending => None,
        })
    })
    .await
}

struct Queue(tokio::sync::mpsc::Receiver<ChannelEvent>);

impl EventSource for Queue {
    async fn next(&mut self) -> Option<ChannelEvent> {
        self.0.recv().await
    }
}

fn queue() -> (tokio::sync::mpsc::Sender<ChannelEvent>, Queue) {
    let (sender, receiver) = tokio::sync::mpsc::channel(8);
    (sender, Queue(receiver))
}
