//! Shows our stdout in the person's pager, as git and man do.

use std::io::{self, IsTerminal};
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};

use rustix::stdio::dup2_stdout;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// The pager, which shows what is written to stdout from its start on. Dropping it waits until the
/// person has left it.
pub(crate) struct Pager {
    child: Child,
    /// Stdout as it was.
    before: OwnedFd,
    /// Caught and ignored: Ctrl-C is a key of the pager.
    _interrupt: Option<Signal>,
}

/// The pager if the variable PAGER is not set.
const DEFAULT: &str = "less";

/// When the pager ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PagerEnds {
    /// At once, if the output fits on one screen.
    IfItFits,
    /// When the person leaves it.
    ByPerson,
}

impl PagerEnds {
    /// Options of less, unless the variable LESS has others: pass colours (R), don't clear the
    /// screen (X), and quit if it fits (F).
    fn options(self) -> &'static str {
        match self {
            Self::IfItFits => "FRX",
            Self::ByPerson => "RX",
        }
    }
}

impl Pager {
    /// Starts the pager. `None` if stdout is not a terminal, or if there is no pager: the output is
    /// then written as it is.
    pub(crate) fn start(ends: PagerEnds) -> Option<Self> {
        if !io::stdout().is_terminal() {
            return None;
        }
        let pager = std::env::var("PAGER").unwrap_or_else(|_| DEFAULT.to_owned());
        if pager.trim().is_empty() || pager.trim() == "cat" {
            return None;
        }
        let interrupt = signal(SignalKind::interrupt()).ok();
        let mut command = Command::new("sh");
        // A pager that can't be started must not swallow the output (exit codes of POSIX, 2.8.2).
        let script = format!("{pager}; s=$?; [ $s != 126 ] && [ $s != 127 ] || exec cat");
        command.arg("-c").arg(script).stdin(Stdio::piped());
        if std::env::var_os("LESS").is_none() {
            command.env("LESS", ends.options());
        }
        let before = rustix::io::dup(io::stdout()).ok()?;
        let mut child = command.spawn().ok()?;
        let pipe = child.stdin.take()?;
        dup2_stdout(&pipe).ok()?;
        Some(Self {
            child,
            before,
            _interrupt: interrupt,
        })
    }
}

impl Drop for Pager {
    fn drop(&mut self) {
        // First: the pager reads to the end of the pipe, whose last writer is our stdout.
        dup2_stdout(&self.before).ok();
        self.child.wait().ok();
    }
}
