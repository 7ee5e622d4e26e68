//! The screen of a job's terminal. Nothing is computed until somebody asks: then the output since
//! the last time is read, from the ring or the store, and drawn.

use std::panic::{self, AssertUnwindSafe};
use std::time::Duration;

use crate::job::{Job, Terminal};
use crate::output::{Resize, ScreenView, Stream, TerminalScreen, TerminalSize};

/// The screen of a job's terminal, drawn up to some position of its output.
pub struct JobScreen {
    screen: TerminalScreen,
    /// Bytes of stdout that are drawn, or skipped.
    position: u64,
    /// The newest resize that is drawn.
    resized: Option<Resize>,
}

/// Maximum output that is drawn at once, in bytes. A screen that is further behind skips what lies
/// before, because programs draw over it.
const MOST_DRAWN: u64 = 8 << 20;

/// Bytes that are drawn before other tasks get their turn: less than a millisecond.
const PIECE: usize = 32 << 10;

/// Size of a terminal for a job whose specification has none.
const DEFAULT_SIZE: TerminalSize = TerminalSize { cols: 80, rows: 24 };

impl JobScreen {
    /// The screen of a job before its first output.
    pub fn new(job: &Job) -> Self {
        Self {
            screen: TerminalScreen::new(first_size(job), 0),
            position: 0,
            resized: None,
        }
    }

    /// Draws the output up to `until`, and the resizes before it. Output that is no longer kept is
    /// skipped. If it is cancelled, the next call continues.
    pub async fn draw_until(&mut self, job: &Job, until: u64) {
        let first = until.saturating_sub(MOST_DRAWN);
        if first > self.position {
            self.skip_to(first, job);
        }
        loop {
            let resize = self.next_resize(job);
            if let Some(resize) = resize.filter(|resize| resize.after <= self.position) {
                self.screen.resize(resize.size);
                self.resized = Some(resize);
                continue;
            }
            if self.position >= until {
                return;
            }
            let end = resize.map_or(until, |resize| resize.after.min(until));
            let read = job.raw_bytes(Stream::Stdout, self.position).await;
            if read.start < self.position || read.bytes.is_empty() {
                return;
            }
            if read.start > self.position {
                self.skip_to(read.start, job);
                continue;
            }
            let length = usize::try_from(end - self.position).unwrap_or(usize::MAX);
            for piece in read.bytes[..length.min(read.bytes.len())].chunks(PIECE) {
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

    /// What the screen shows.
    pub fn view(&self) -> ScreenView {
        self.screen.view()
    }

    /// Version of the screen.
    pub fn version(&self) -> u64 {
        self.screen.version()
    }

    /// Bytes of stdout that are drawn.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Its size.
    pub fn size(&self) -> TerminalSize {
        self.screen.size()
    }

    /// Bytes that make another terminal show the same.
    pub fn redraw(&self) -> Vec<u8> {
        self.screen.redraw()
    }

    /// Answers to the questions that the program has asked since the last call.
    pub fn take_answers(&mut self) -> Vec<u8> {
        self.screen.take_answers()
    }

    /// The first resize that is not drawn yet.
    fn next_resize(&self, job: &Job) -> Option<Resize> {
        let resizes = job.resizes();
        let drawn = resizes.iter().rposition(|resize| Some(*resize) == self.resized);
        resizes.get(drawn.map_or(0, |drawn| drawn + 1)).copied()
    }

    /// Starts with an empty screen at this position of the output.
    fn skip_to(&mut self, position: u64, job: &Job) {
        let resizes = job.resizes();
        let before = resizes.iter().take_while(|resize| resize.after <= position);
        // The version counts resizes, too.
        let version = position + before.clone().count() as u64;
        self.resized = before.last().copied();
        let size = self.resized.map_or_else(|| first_size(job), |resize| resize.size);
        self.screen = TerminalScreen::new(size, version);
        self.position = position;
    }

    /// Draws a piece of output. Without an await, so that a cancelled call leaves a whole screen.
    fn draw(&mut self, bytes: &[u8], job: &Job) {
        self.position += bytes.len() as u64;
        let next_version = self.screen.version() + bytes.len() as u64;
        // The bytes are a stranger's, and the terminal emulation is a foreign crate: a mistake there
        // must cost no more than this screen.
        let drawing = panic::catch_unwind(AssertUnwindSafe(|| self.screen.feed(bytes)));
        if drawing.is_err() {
            tracing::error!(job = %job.id, "some output could not be drawn");
            self.screen = TerminalScreen::new(self.size(), next_version);
        }
    }
}

impl Job {
    /// Waits, at most for `patience`, until there is something to draw on a screen of this position
    /// and version: output, a resize, or the end of the job.
    pub async fn wait_for_drawing(&self, patience: Duration, position: u64, version: u64) {
        self.wait_for(patience, |log| {
            let total = log.ring().total_bytes(Stream::Stdout);
            let resizes = self.resizes().len() as u64;
            log.outcome().is_some() || total > position || position + resizes > version
        })
        .await;
    }
}

/// The size with which the job was started.
fn first_size(job: &Job) -> TerminalSize {
    job.spec.terminal.as_ref().map_or(DEFAULT_SIZE, Terminal::size)
}
