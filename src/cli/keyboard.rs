use std::io::{IsTerminal, stdin};

use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};
use tokio::signal::unix::{SignalKind, signal};

use crate::remote::Control;
use crate::wire::{Code, Error};

/// Our own terminal while its keys belong to a remote program. Dropping it gives it back as it was.
pub(super) struct Keyboard {
    before: Termios,
}

impl Keyboard {
    /// Takes the keys of our terminal: each is passed on as it is pressed, Ctrl-C too.
    pub(super) fn take() -> Result<Self, Error> {
        let before = tcgetattr(stdin()).map_err(|error| trouble(&error))?;
        let mut raw = before.clone();
        raw.make_raw();
        tcsetattr(stdin(), OptionalActions::Now, &raw).map_err(|error| trouble(&error))?;
        Ok(Self { before })
    }
}

impl Drop for Keyboard {
    fn drop(&mut self) {
        // A terminal that is gone needs no giving back.
        tcsetattr(stdin(), OptionalActions::Now, &self.before).ok();
    }
}

fn trouble(error: &rustix::io::Errno) -> Error {
    Error::new(Code::Io, format!("the terminal can't be set up: {error}"), "leave -t away")
}

/// Whether our stdin is a terminal.
pub(super) fn is_there() -> bool {
    stdin().is_terminal()
}

/// The size of our terminal in columns and rows, when it has one.
pub(super) fn size() -> Option<(u16, u16)> {
    let size = tcgetwinsize(stdin()).ok()?;
    (size.ws_col > 0 && size.ws_row > 0).then_some((size.ws_col.min(1000), size.ws_row.min(1000)))
}

/// Tells a job's terminal whenever the size of ours has changed; it is for a `select!`.
pub(super) async fn follow_size(job: &Control) -> ! {
    let changes = signal(SignalKind::window_change());
    let mut told = None;
    if let Ok(mut changes) = changes {
        loop {
            // It may have changed while the job was started, too.
            if let Some((cols, rows)) = size().filter(|size| told != Some(*size)) {
                told = Some((cols, rows));
                if let Err(error) = job.resize((cols.into(), rows.into())).await {
                    tracing::debug!(%error, "the new size could not be told");
                }
            }
            changes.recv().await;
        }
    }
    std::future::pending().await
}
