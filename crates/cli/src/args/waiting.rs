//! Arguments of the verbs that wait for jobs.

use std::time::Duration;

use clap::Args;
use clap_complete::engine::ArgValueCandidates;

use super::candidates;
use super::filter::{FILTERS, FilterArgs};
use super::values::time;

/// Arguments of `wait`.
#[derive(Debug, Args)]
#[command(after_help = "\
Exit codes: for one job as `run`. For several, 0 if all have exited with 0, otherwise the first
other one. 124 if --timeout has passed; the jobs continue. With --any the id of the job that has
ended is printed. A filter also selects jobs that have ended; --state running leaves them out.

Examples:
  sshjobs wait $(sshjobs spawn web1 -- make test) && echo passed
  sshjobs wait --label nightly
  sshjobs wait --any ID1 ID2              print which one ended first")]
pub struct WaitArgs {
    /// The jobs' ids.
    #[arg(required_unless_present_any = FILTERS, value_name = "JOB", add = ArgValueCandidates::new(candidates::jobs))]
    pub jobs: Vec<String>,
    /// Wait until one of the jobs has ended, instead of all, and print its id.
    #[arg(long)]
    pub any: bool,
    /// Maximum time to wait.
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub timeout: Option<Duration>,
    /// Write one line of JSON per job.
    #[arg(long)]
    pub json: bool,
    /// Many jobs.
    #[command(flatten)]
    pub filter: FilterArgs,
}

/// Arguments of `watch`.
#[derive(Debug, Args)]
#[command(after_help = "\
Each event is printed once, at once: the end of a job, a question that it asks, a silence, a line that
matches. It ends when all jobs have; without a job it watches your own ones, also those that start
meanwhile. A program that reads the lines is woken by them: an agent's monitor, a shell loop.

With --jsonl each line has event (end, prompt, silence, match), job_id, state and cursor; an end has
exit_status or exit_signal, a match line_no and text. --since with the cursor of a line continues behind
it. Exit code 0, also if jobs have failed.

Examples:
  sshjobs watch --jsonl
  sshjobs watch web1-7f3k9q2m --on end,prompt,silence=5m
  sshjobs watch last --on 'match=(?i)error|warning' --once")]
pub struct WatchArgs {
    /// The jobs' ids. Without one, your own jobs.
    #[arg(value_name = "JOB", add = ArgValueCandidates::new(candidates::jobs))]
    pub jobs: Vec<String>,
    /// Your own jobs: those that run now, and those that start meanwhile.
    #[arg(long, conflicts_with = "jobs")]
    pub mine: bool,
    /// Events: end, prompt, silence[=TIME] (60s), match=REGEX. A pattern comes last, because it may have a
    /// comma.
    #[arg(long, value_name = "EVENTS", default_value = "end,prompt", value_parser = awaited_events)]
    on: EventList,
    /// Print only what happens after this cursor of an earlier line.
    #[arg(long, value_name = "CURSOR")]
    pub since: Option<String>,
    /// End after the first event.
    #[arg(long)]
    pub once: bool,
    /// Write each event as a line of JSON.
    #[arg(long)]
    pub jsonl: bool,
}

/// Events that a watch waits for.
#[derive(Clone, Debug)]
struct EventList(Vec<AwaitedEvent>);

/// A kind of event, with its argument.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AwaitedEvent {
    /// The end of a job.
    End,
    /// A question.
    Prompt,
    /// No output for this time; a minute by default.
    Silence(Option<Duration>),
    /// A line that matches this regular expression.
    Match(String),
}

impl WatchArgs {
    /// The events that are waited for.
    pub fn on(&self) -> &[AwaitedEvent] {
        &self.on.0
    }
}

/// Parses `end,prompt,silence=5m,match=REGEX`.
fn awaited_events(text: &str) -> Result<EventList, String> {
    let mut events = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        if let Some(pattern) = rest.strip_prefix("match=") {
            events.push(AwaitedEvent::Match(pattern.to_owned()));
            break;
        }
        let (word, after) = rest.split_once(',').unwrap_or((rest, ""));
        rest = after;
        events.push(match word.split_once('=').unwrap_or((word, "")) {
            ("end", "") => AwaitedEvent::End,
            ("prompt", "") => AwaitedEvent::Prompt,
            ("silence", "") => AwaitedEvent::Silence(None),
            ("silence", limit) => AwaitedEvent::Silence(Some(time(limit)?)),
            ("match", _) => return Err("match needs a pattern: match=REGEX".to_owned()),
            _ => {
                return Err(format!(
                    "{word:?} is not an event: use end, prompt, silence=TIME, match=REGEX"
                ));
            }
        });
    }
    if events.is_empty() {
        return Err("name an event: end, prompt, silence=TIME, match=REGEX".to_owned());
    }
    Ok(EventList(events))
}
