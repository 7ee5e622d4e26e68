//! The progress line of a fleet, at the bottom of the terminal.

use std::io::IsTerminal;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::terminal::{is_asking, note_bar};
use sshjobs_wire::Members;

/// A line at the bottom of the terminal with the progress of a fleet. Not shown if stderr is not a
/// terminal.
pub(super) struct FleetProgress(ProgressBar);

impl FleetProgress {
    pub(super) fn new() -> Self {
        let is_shown = std::io::stderr().is_terminal();
        let target = if is_shown {
            ProgressDrawTarget::stderr()
        } else {
            ProgressDrawTarget::hidden()
        };
        let bar = ProgressBar::with_draw_target(None, target);
        let style = ProgressStyle::with_template("{msg}");
        bar.set_style(style.expect("the template is constant"));
        Self(bar)
    }

    /// Whether it is visible.
    pub(super) fn is_shown(&self) -> bool {
        !self.0.is_hidden()
    }

    pub(super) fn show(&self, members: &Members) {
        if is_asking() {
            return;
        }
        let Members {
            ok,
            failed,
            unreachable,
            running,
            not_started,
        } = *members;
        let ended = ok + failed + unreachable;
        let all = ended + running + not_started;
        self.0.set_length(all as u64);
        self.0.set_position(ended as u64);
        let rate = self.0.per_sec();
        let bad = failed + unreachable;
        // The remaining time is unknown before the first member has ended.
        let speed = match (ended, self.0.eta().as_secs()) {
            (0, _) => String::new(),
            (_, eta) => format!(", {rate:.1}/s, {eta} s to go"),
        };
        note_bar(self.is_shown());
        self.0.set_message(format!(
            "{ended}/{all} hosts: {running} running, {ok} ok, {bad} failed{speed}"
        ));
    }

    /// Calls `write` while the progress line is hidden. A question hides it already, and the writer keeps that.
    pub(super) fn above<T>(&self, write: impl FnOnce() -> T) -> T {
        if is_asking() {
            return write();
        }
        self.0.suspend(write)
    }

    pub(super) fn end(&self) {
        self.0.finish_and_clear();
        note_bar(false);
    }
}
