//! Raw mode of our terminal, and its size. The terminal is always restored.

use std::io::{IsTerminal, stdin};

use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};
use tokio::signal::unix::{SignalKind, signal};

use sshjobs_core::jobs::TerminalSize;
use sshjobs_wire::remote::Control;
use sshjobs_wire::{Code, Error};

/// Our own terminal while its keys are passed to a remote program. Dropping this restores it.
pub(crate) struct Keyboard {
    before: Termios,
}

impl Keyboard {
    /// Switches our terminal to raw mode: each key is passed on as it is pressed, including Ctrl-C.
    pub(crate) fn take() -> Result<Self, Error> {
        let before = tcgetattr(stdin()).map_err(|error| trouble(&error))?;
        let mut raw = before.clone();
        raw.make_raw();
        tcsetattr(stdin(), OptionalActions::Now, &raw).map_err(|error| trouble(&error))?;
        Ok(Self { before })
    }
}

impl Drop for Keyboard {
    fn drop(&mut self) {
        // A closed terminal needs no restoring.
        tcsetattr(stdin(), OptionalActions::Now, &self.before).ok();
    }
}

fn trouble(error: &rustix::io::Errno) -> Error {
    Error::new(
        Code::Io,
        format!("the terminal can't be set up: {error}"),
        "omit -t",
    )
}

/// Whether our stdin is a terminal.
pub(crate) fn is_there() -> bool {
    stdin().is_terminal()
}

/// The size of our terminal in columns and rows, if it has one.
pub(crate) fn size() -> Option<TerminalSize> {
    let size = tcgetwinsize(stdin()).ok()?;
    if size.ws_col == 0 || size.ws_row == 0 {
        return None;
    }
    Some(TerminalSize {
        // The contract refuses a larger size, and with it the start of the command.
        cols: size.ws_col.min(1000).into(),
        rows: size.ws_row.min(1000).into(),
    })
}

/// Resizes a job's terminal whenever ours changes. Never returns; for use in `select!`.
pub(crate) async fn follow_size(job: &Control) -> ! {
    // First, so that no change between reading the size and waiting is missed.
    let changes = signal(SignalKind::window_change());
    let mut told = None;
    if let Ok(mut changes) = changes {
        loop {
            // It may also have changed while the job was started.
            if let Some(size) = size()
                && told != Some(size)
            {
                told = Some(size);
                if let Err(error) = job.resize(size).await {
                    tracing::debug!(%error, "the new terminal size could not be sent");
                }
            }
            changes.recv().await;
        }
    }
    std::future::pending().await
}
