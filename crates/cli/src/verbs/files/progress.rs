//! A progress bar with rate and time left, on a terminal.

use std::io::IsTerminal;
use std::sync::Arc;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::terminal::{is_asking, note_bar};
use sshjobs_core::jobs::TransferProgress;

/// How often the bar is drawn.
const INTERVAL: Duration = Duration::from_millis(200);

/// Draws progress until `work` is done. Nothing is drawn if stderr is not a terminal.
pub(in crate::verbs) async fn shown<T>(
    progress: &Arc<TransferProgress>,
    work: impl Future<Output = T>,
) -> T {
    let bar = ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::stderr());
    if !std::io::stderr().is_terminal() {
        return work.await;
    }
    let style = ProgressStyle::with_template(
        "{bar:24} {bytes}/{total_bytes}  {bytes_per_sec}  {eta} left{msg}",
    );
    bar.set_style(style.expect("the template is constant"));
    let mut work = std::pin::pin!(work);
    loop {
        tokio::select! {
            done = &mut work => {
                bar.finish_and_clear();
                note_bar(false);
                return done;
            }
            () = tokio::time::sleep(INTERVAL) => {
                if is_asking() {
                    continue;
                }
                note_bar(true);
                // A stream has no known total.
                bar.set_length(progress.total().max(progress.bytes()));
                bar.set_position(progress.bytes());
                let files = progress.files();
                if files > 1 {
                    bar.set_message(format!("  {files} files"));
                }
            }
        }
    }
}
