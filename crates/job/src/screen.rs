//! The screen of a job's terminal. Nothing is computed until somebody asks: then the output since
//! the last time is read, from the ring or the store, and drawn.

use std::panic::{self, AssertUnwindSafe};
use std::time::Duration;

use crate::{Job, Terminal};
use sshjobs_output::{Resize, ScreenView, Stream, TerminalScreen, TerminalSize};

/// The screen of a job's terminal, drawn up to some position of its output.
pub struct JobScreen {
    screen: TerminalScreen,
    /// Bytes of stdout that are drawn, or skipped.
    position: u64,
}

/// Maximum output that is drawn at once, in bytes. If more is pending, the older output is skipped:
/// it has usually been overwritten.
const MOST_DRAWN: u64 = 8 << 20;
/// The same for a terminal so large that each byte costs as much as many on an ordinary one.
const LEAST_DRAWN: u64 = 128 << 10;
/// Characters of an ordinary terminal.
const ORDINARY: u64 = 10_000;
/// Bytes that are drawn before other tasks get their turn. After each piece all rows are compared,
/// so large screens get large pieces.
const PIECE: usize = 4 << 10;
const LARGE_PIECE: usize = 64 << 10;
/// Characters of a large screen.
const LARGE: u32 = 10_000;

/// Size of a terminal for a job whose specification has none.
const DEFAULT_SIZE: TerminalSize = TerminalSize { cols: 80, rows: 24 };

impl JobScreen {
    /// The screen of a job before its first output.
    pub fn new(job: &Job) -> Self {
        Self {
            screen: TerminalScreen::new(first_size(job)),
            position: 0,
        }
    }

    /// Draws the output up to `until`, and the resizes before it. Output that is no longer kept is
    /// skipped. Cancel safe: the next call continues.
    pub async fn draw_until(&mut self, job: &Job, until: u64) {
        let size = self.screen.size();
        let cells = u64::from(size.cols) * u64::from(size.rows);
        let most = MOST_DRAWN * ORDINARY / cells.max(ORDINARY);
        let first = until.saturating_sub(most.max(LEAST_DRAWN));
        if first > self.position {
            self.skip_to(first, job);
        }
        loop {
            let resize = self.next_resize(job);
            if let Some(resize) = resize.filter(|resize| resize.after <= self.position) {
                self.screen.resize(resize.size, resize.number);
                continue;
            }
            if self.position >= until {
                return;
            }
            let end = resize.map_or(until, |resize| resize.after.min(until));
            let read = job.raw_bytes(Stream::Stdout, self.position).await;
            // Before the other test: output that was deleted up to its end leaves no bytes to read.
            if read.start > self.position {
                self.skip_to(read.start, job);
                continue;
            }
            if read.start < self.position || read.bytes.is_empty() {
                return;
            }
            let length = usize::try_from(end - self.position).unwrap_or(usize::MAX);
            let length = length.min(read.bytes.len());
            for piece in read.bytes[..length].chunks(self.piece()) {
                self.draw(piece, job);
                tokio::task::yield_now().await;
            }
        }
    }

    /// Draws all output so far.
    pub async fn draw_all(&mut self, job: &Job) {
        let total = job.read_log(|log| log.ring().total_bytes(Stream::Stdout));
        self.draw_until(job, total).await;
    }

    /// The screen as it is drawn now.
    pub fn view(&self) -> ScreenView {
        self.screen.view()
    }

    /// What is drawn.
    pub fn drawn(&self) -> DrawnUpTo {
        DrawnUpTo {
            position: self.position,
            resizes: self.screen.resizes(),
        }
    }

    /// Position from which another terminal continues after a [`redraw`](Self::redraw): before a
    /// sequence or a character that is not complete.
    pub fn continues_at(&self) -> u64 {
        self.position.saturating_sub(self.screen.unfinished())
    }

    /// Bytes that make another terminal of this size show the same.
    pub fn redraw(&self) -> Vec<u8> {
        self.screen.redraw()
    }

    /// Answers to the questions that the program has asked since the last call.
    pub fn take_answers(&mut self) -> Vec<u8> {
        self.screen.take_answers()
    }

    fn piece(&self) -> usize {
        let size = self.screen.size();
        if size.cols * size.rows > LARGE {
            LARGE_PIECE
        } else {
            PIECE
        }
    }

    /// The first resize that is not drawn yet.
    fn next_resize(&self, job: &Job) -> Option<Resize> {
        let drawn = self.screen.resizes();
        job.resizes().into_iter().find(|resize| resize.number > drawn)
    }

    /// Starts with an empty screen at this position of the output.
    fn skip_to(&mut self, position: u64, job: &Job) {
        let resizes = job.resizes();
        let before = resizes.iter().take_while(|resize| resize.after <= position).last();
        let size = before.map_or_else(|| first_size(job), |resize| resize.size);
        let number = before.map_or(0, |resize| resize.number);
        self.screen = TerminalScreen::skipping(size, position, number);
        self.position = position;
    }

    /// Draws a piece of output. No await: a cancelled call must leave `position` and the screen in
    /// step.
    fn draw(&mut self, bytes: &[u8], job: &Job) {
        self.position += bytes.len() as u64;
        // The bytes are untrusted. A panic in `vt100` must cost no more than this screen.
        let drawing = panic::catch_unwind(AssertUnwindSafe(|| self.screen.feed(bytes)));
        if drawing.is_err() {
            tracing::error!(job = %job.id, "some output could not be drawn");
            let resizes = self.screen.resizes();
            self.screen = TerminalScreen::skipping(self.screen.size(), self.position, resizes);
        }
    }
}

/// How far a screen is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DrawnUpTo {
    /// Bytes of stdout.
    pub position: u64,
    /// Number of the last resize.
    pub resizes: u64,
}

impl Job {
    /// Waits, at most for `timeout`, until there is more to draw: output, a resize, or the end of the
    /// job.
    pub async fn wait_for_drawing(&self, timeout: Duration, drawn: DrawnUpTo) {
        self.wait_for(timeout, |log| {
            let total = log.ring().total_bytes(Stream::Stdout);
            // A resize that another process knows may lie after the output that has arrived here.
            let is_resized = self
                .resizes()
                .last()
                .is_some_and(|last| last.number > drawn.resizes && last.after <= total);
            log.outcome().is_some() || total > drawn.position || is_resized
        })
        .await;
    }
}

/// The size with which the job was started.
fn first_size(job: &Job) -> TerminalSize {
    job.spec.terminal.as_ref().map_or(DEFAULT_SIZE, Terminal::size)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Caller, Draft, LogChange};
    use sshjobs_output::{RingLimits, Selection};

    const SMALL: TerminalSize = TerminalSize { cols: 40, rows: 10 };
    const LARGE: TerminalSize = TerminalSize {
        cols: 120,
        rows: 40,
    };

    fn job() -> Job {
        let mut draft = Draft::new("web1", "top");
        draft.terminal = Some(Terminal::new("xterm", 80, 24).unwrap());
        Job::new(
            Caller::local(),
            draft.try_into().unwrap(),
            RingLimits::default(),
        )
    }

    fn print(job: &Job, text: &'static str) {
        let change = LogChange::Append(Stream::Stdout.into(), text.into());
        job.record(vec![change], tokio::time::Instant::now());
    }

    /// Whether there is something to draw within a minute.
    async fn has_news(job: &Job, screen: &JobScreen) -> bool {
        let before = tokio::time::Instant::now();
        job.wait_for_drawing(Duration::from_secs(60), screen.drawn()).await;
        before.elapsed() < Duration::from_secs(60)
    }

    #[tokio::test(start_paused = true)]
    async fn a_screen_is_at_the_end_of_output_that_was_deleted() {
        let job = job();
        let screen = &mut JobScreen::new(&job);
        print(&job, "deleted\n");
        job.forget_output(Selection::Both).await;

        screen.draw_all(&job).await;

        assert_eq!(screen.drawn().position, 8);
        assert!(!has_news(&job, screen).await);
    }

    #[tokio::test(start_paused = true)]
    async fn a_screen_that_is_drawn_waits_for_news_after_any_resizes() {
        let job = job();
        let mut screen = JobScreen::new(&job);
        print(&job, "one");
        for _ in 0..MANY {
            for size in [SMALL, SMALL, LARGE] {
                job.note_resize(size);
            }
        }
        assert!(has_news(&job, &screen).await);
        screen.draw_all(&job).await;
        assert!(!has_news(&job, &screen).await, "all of it is drawn");

        job.note_resize(LARGE);
        assert!(!has_news(&job, &screen).await, "it has this size already");
        job.note_resize(SMALL);
        assert!(has_news(&job, &screen).await);
        screen.draw_all(&job).await;
        assert_eq!(screen.view().size, SMALL);
    }

    /// More resizes than are kept.
    const MANY: usize = 100;

    #[tokio::test(start_paused = true)]
    async fn another_process_learns_each_newer_size() {
        let owner = job();
        let mirror = job();
        for _ in 0..MANY {
            owner.note_resize(SMALL);
            owner.note_resize(LARGE);
            mirror.set_resizes(owner.resizes());
            assert_eq!(mirror.resizes(), owner.resizes());
        }
        let older = mirror.resizes();
        mirror.note_resize(SMALL);
        mirror.set_resizes(older);
        assert_eq!(mirror.resizes().last().unwrap().size, SMALL);
    }

    #[tokio::test(start_paused = true)]
    async fn a_second_terminal_continues_before_an_unfinished_sequence() {
        let job = job();
        let mut screen = JobScreen::new(&job);
        print(&job, "text\x1b[3");
        screen.draw_all(&job).await;
        assert_eq!(screen.continues_at(), 4);
        print(&job, "1mred");
        screen.draw_all(&job).await;
        assert_eq!(screen.continues_at(), screen.drawn().position);
        assert_eq!(screen.view().rows[0].text, "textred");
    }
}
