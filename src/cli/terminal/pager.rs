//! Shows our stdout in the person's pager, as git and man do.

use std::fs::File;
use std::io::{self, IsTerminal};
use std::process::{Child, Command, Stdio};

use rustix::stdio::dup2_stdout;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// The pager, which shows what is written to stdout from its start on. Dropping it waits until the
/// person has left it.
pub(crate) struct Pager {
    child: Child,
    /// Caught and ignored: Ctrl-C is a key of the pager.
    _interrupt: Option<Signal>,
}

/// The pager if the variable PAGER is not set.
const DEFAULT: &str = "less";
/// How less shows it unless the variable LESS says otherwise: quit if it fits on one screen, pass
/// colours, don't clear the screen.
const LESS: &str = "FRX";

impl Pager {
    /// Starts the pager. `None` if stdout is not a terminal, or if there is no pager: the output is
    /// then written as it is.
    pub(crate) fn start() -> Option<Self> {
        if !io::stdout().is_terminal() {
            return None;
        }
        let pager = std::env::var("PAGER").unwrap_or_else(|_| DEFAULT.to_owned());
        if pager.trim().is_empty() || pager.trim() == "cat" {
            return None;
        }
        let interrupt = signal(SignalKind::interrupt()).ok();
        let mut command = Command::new("sh");
        // A missing pager must not swallow the output.
        command.arg("-c").arg(format!("{pager} || cat")).stdin(Stdio::piped());
        if std::env::var_os("LESS").is_none() {
            command.env("LESS", LESS);
        }
        let mut child = command.spawn().ok()?;
        let pipe = child.stdin.take()?;
        dup2_stdout(&pipe).ok()?;
        Some(Self {
            child,
            _interrupt: interrupt,
        })
    }
}

impl Drop for Pager {
    fn drop(&mut self) {
        // The pager reads to the end of the pipe, whose last writer is our stdout.
        if let Ok(nothing) = File::options().write(true).open("/dev/null") {
            dup2_stdout(&nothing).ok();
        }
        self.child.wait().ok();
    }
}
