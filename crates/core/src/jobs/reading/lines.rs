//! A job's lines as a stream.

use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::stream::{BoxStream, Stream, StreamExt, unfold};

use crate::jobs::{Line, LineNo, PageQuery, ReadableJob, Wait};

/// A job's lines as they arrive, until the job ends; see [`ReadableJob::lines`].
///
/// Readers are independent. Lines come without control sequences. Dropping it ends nothing.
pub struct Lines(BoxStream<'static, Result<Line, Lagged>>);

/// Lines were evicted before this reader read them. The next item is the first line after the gap.
#[derive(Clone, Copy, Debug, thiserror::Error, PartialEq, Eq)]
#[error("{lines} lines were evicted before they were read")]
pub struct Lagged {
    /// Number of lines.
    pub lines: u64,
}

/// Length of one wait, before the next.
const WAIT: Duration = Duration::from_secs(3600);

impl ReadableJob {
    /// Its lines from the first one on, as they arrive, until the job ends.
    pub fn lines(&self) -> Lines {
        self.lines_after(LineNo::START)
    }

    /// Its lines after `cursor`, as they arrive, until the job ends.
    pub fn lines_after(&self, cursor: LineNo) -> Lines {
        Lines::new(self.clone(), cursor)
    }
}

impl Lines {
    fn new(job: ReadableJob, cursor: LineNo) -> Self {
        let state = LineReader {
            job,
            cursor,
            pending: VecDeque::new(),
            is_over: false,
        };
        Self(
            unfold(state, |mut state| async {
                state.next().await.map(|item| (item, state))
            })
            // Callers may ask again after the end.
            .fuse()
            .boxed(),
        )
    }

    /// The next line. `None`, from then on, when the job has ended and all of its lines were read. Cancel safe.
    pub async fn next(&mut self) -> Option<Result<Line, Lagged>> {
        self.0.next().await
    }
}

impl Stream for Lines {
    type Item = Result<Line, Lagged>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll_next_unpin(context)
    }
}

struct LineReader {
    job: ReadableJob,
    cursor: LineNo,
    pending: VecDeque<Result<Line, Lagged>>,
    is_over: bool,
}

impl LineReader {
    async fn next(&mut self) -> Option<Result<Line, Lagged>> {
        while self.pending.is_empty() && !self.is_over {
            let wait = Wait {
                patience: WAIT,
                ..Wait::default()
            };
            let tail = self.job.tail(&PageQuery::after(self.cursor), &wait).await;
            let tail = tail.expect("without a pattern nothing can take too long");
            self.cursor = tail.page.last_line_no;
            // A page that is not the last one of an ended job counts as still running.
            self.is_over = !tail.still_running();
            let gap = Some(tail.page.dropped_lines).filter(|lines| *lines > 0);
            // The gap lies before the lines of the page.
            self.pending.extend(gap.map(|lines| Err(Lagged { lines })));
            self.pending.extend(tail.page.lines.into_iter().map(Ok));
        }
        self.pending.pop_front()
    }
}
