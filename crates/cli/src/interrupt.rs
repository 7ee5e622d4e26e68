//! Messages at the terminal after Ctrl-C.

use std::io::{IsTerminal, Write, stderr, stdin};
use std::time::Duration;

use tokio::time::sleep;

use crate::note;

/// Time after which a command counts as slow to end.
const SLOW: Duration = Duration::from_millis(500);

/// Ends the row in which the terminal has echoed `^C`, so that the next text begins a row of its own.
pub(crate) fn end_echoed_row() {
    if stdin().is_terminal() && stderr().is_terminal() {
        // Ignored: a closed terminal shows no row.
        writeln!(stderr()).ok();
    }
}

/// Says after half a second how to kill a command that was interrupted. Does nothing without a terminal.
pub(crate) async fn offer_kill() {
    sleep(SLOW).await;
    if stdin().is_terminal() && stderr().is_terminal() {
        note("interrupting; press Ctrl-C again to kill the command");
    }
}
