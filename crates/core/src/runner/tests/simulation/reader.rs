//! Readers, which check the pages that they get.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use super::dice::Dice;
use crate::runner::foreign::lookup;
use crate::runner::state::{Lookup, RunnerState};
use sshjobs_base::lock::lock;
use sshjobs_job::{JobId, Outcome, Phase, Scope, Tail, Wait};
use sshjobs_output::{LineNo, PageQuery, Stream};

/// Longest pause between two calls, in milliseconds.
const PAUSE: u64 = 500;
/// Longest wait of one call, in milliseconds.
const WAIT: u64 = 5_000;

/// Which line of a job has which number and text, according to all readers.
#[derive(Default)]
pub(super) struct SeenLines(Mutex<BTreeMap<(JobId, LineNo), String>>);

/// A reader of one job. It survives the processes that it reads from.
pub(super) struct Reader {
    of: ReaderOf,
    began: Instant,
    progress: Mutex<ReaderProgress>,
    /// Held by the task that reads.
    turn: tokio::sync::Mutex<()>,
    /// Whether it has read the end.
    is_done: watch::Sender<bool>,
}

/// Who reads which job.
pub(super) struct ReaderOf {
    pub(super) name: &'static str,
    pub(super) job: JobId,
    /// The job prints on stdout only, so the number of a line determines its text.
    pub(super) has_one_stream: bool,
    pub(super) known: Arc<SeenLines>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct ReaderProgress {
    /// The last line that it has seen.
    pub(super) cursor: LineNo,
    /// Number of lines that it has seen of stdout and of stderr.
    pub(super) seen: [u64; 2],
    /// Number of lines that were reported as gone.
    pub(super) dropped: u64,
    pub(super) outcome: Option<Outcome>,
    /// Time and last line of each page.
    pages: Vec<(Duration, LineNo)>,
}

/// The text of a line that a simulated job prints.
pub(super) fn line_text(stream: usize, number: u64) -> String {
    // Of different lengths.
    let filler = "=".repeat(usize::try_from(number * 7 % 23).expect("it is small"));
    format!("{stream}:{number}{filler}")
}

impl Reader {
    pub(super) fn new(of: ReaderOf) -> Self {
        Self {
            of,
            began: Instant::now(),
            progress: Mutex::default(),
            turn: tokio::sync::Mutex::default(),
            is_done: watch::Sender::new(false),
        }
    }

    /// The lines that all readers of its job have seen.
    pub(super) fn known(&self) -> &Arc<SeenLines> {
        &self.of.known
    }

    /// The job that it reads.
    pub(super) fn job(&self) -> &JobId {
        &self.of.job
    }

    pub(super) fn progress(&self) -> ReaderProgress {
        lock(&self.progress).clone()
    }

    /// Waits until it has read the end.
    pub(super) async fn done(&self) {
        drop(self.is_done.subscribe().wait_for(|is_done| *is_done).await);
    }

    /// Reads from a process, until the end of the job or of the process.
    pub(super) async fn read_from(self: Arc<Self>, shared: Arc<RunnerState>, dice: Dice) {
        while !*self.is_done.borrow() {
            sleep(dice.millis(PAUSE)).await;
            // Another task may read from another process.
            let _turn = self.turn.lock().await;
            let Lookup::Found(job) = lookup(&shared, &Scope::All, &self.of.job).await else {
                continue;
            };
            let query = PageQuery {
                max_lines: 1 + dice.roll(8),
                ..PageQuery::after(self.progress().cursor)
            };
            let wait = Wait {
                patience: dice.millis(WAIT),
                ..Wait::default()
            };
            let tail = job.tail(&query, &wait).await.expect("no pattern is matched");
            self.check(tail);
        }
    }

    fn check(&self, tail: Tail) {
        let mut progress = lock(&self.progress);
        let Tail { page, status, .. } = tail;
        let name = format!("{} reader of {}", self.of.name, self.of.job);
        let before = progress.cursor;
        assert_eq!(
            page.last_line_no.value(),
            before.value() + page.dropped_lines + page.lines.len() as u64,
            "{name}: each line after {before:?} is either shown or counted: {page:?}"
        );
        for line in &page.lines {
            assert!(
                line.line_no > progress.cursor,
                "{name}: {line:?} is not newer"
            );
            progress.cursor = line.line_no;
            let stream = match line.stream {
                Stream::Stdout => 0,
                Stream::Stderr => 1,
            };
            progress.seen[stream] += 1;
            let number = if self.of.has_one_stream {
                line.line_no.value()
            } else {
                progress.seen[stream]
            };
            let expected = line_text(stream, number);
            assert_eq!(line.text, expected, "{name}: {line:?} is not the next line");
            let mut known = lock(&self.of.known.0);
            let first = known
                .entry((self.of.job.clone(), line.line_no))
                .or_insert_with(|| line.text.clone());
            assert_eq!(*first, line.text, "{name}: another reader saw {first:?}");
        }
        progress.dropped += page.dropped_lines;
        progress.cursor = page.last_line_no;
        progress.pages.push((self.began.elapsed(), page.last_line_no));
        if let Phase::Ended(outcome) = status.phase
            && progress.cursor.value() == status.total_lines
        {
            progress.outcome = Some(outcome);
            self.is_done.send_replace(true);
        }
    }
}
