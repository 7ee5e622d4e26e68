//! Writes a job's output to our stdout and stderr. A terminal gets only filtered bytes, and is
//! restored at the end.

use std::borrow::Cow;
use std::io::IsTerminal;
use std::time::{Duration, SystemTime};

use tokio::io::{self, AsyncWrite, AsyncWriteExt, Stderr, Stdout};
use tokio::time::timeout;

use crate::args::{RunArgs, StreamChoice};
use sshjobs_core::jobs::TerminalFilter;
use sshjobs_wire::remote::NextBytes;

/// Writes a job's output to our stdout and stderr: unchanged into pipes and files, filtered onto a
/// terminal.
pub(crate) struct OwnScreen {
    stdout: Option<Sink<Stdout>>,
    stderr: Option<Sink<Stderr>>,
}

struct Sink<W> {
    to: W,
    filter: Option<TerminalFilter>,
    stamps: Option<Stamps>,
}

/// Time limit for restoring a terminal that accepts no output.
const RESTORE_TIMEOUT: Duration = Duration::from_secs(1);

/// Adds the time before each line.
struct Stamps {
    at_line_start: bool,
}

/// The filter of a stream that goes to a terminal.
fn filter(args: &RunArgs, is_terminal: bool) -> Option<TerminalFilter> {
    if !is_terminal || args.raw {
        None
    } else if args.pty || args.tty > 0 {
        Some(TerminalFilter::for_screen())
    } else {
        Some(TerminalFilter::default())
    }
}

fn stamps(args: &RunArgs) -> Option<Stamps> {
    args.timestamps.then_some(Stamps {
        at_line_start: true,
    })
}

impl OwnScreen {
    pub(crate) fn new(args: &RunArgs) -> Self {
        let stdout = Sink {
            to: io::stdout(),
            filter: filter(args, std::io::stdout().is_terminal()),
            stamps: stamps(args),
        };
        let stderr = Sink {
            to: io::stderr(),
            filter: filter(args, std::io::stderr().is_terminal()),
            stamps: stamps(args),
        };
        Self {
            stdout: (args.stream != StreamChoice::Stderr).then_some(stdout),
            stderr: (args.stream != StreamChoice::Stdout).then_some(stderr),
        }
    }

    /// For a job on a terminal, whose output is all on stdout.
    pub(crate) fn of_terminal(is_raw: bool) -> Self {
        let stdout = Sink {
            to: io::stdout(),
            filter: (!is_raw).then(TerminalFilter::for_screen),
            stamps: None,
        };
        Self {
            stdout: Some(stdout),
            stderr: None,
        }
    }

    pub(crate) async fn show(&mut self, output: &NextBytes) -> io::Result<()> {
        if let Some(stdout) = &mut self.stdout {
            stdout.write(&output.stdout).await?;
        }
        if let Some(stderr) = &mut self.stderr {
            stderr.write(&output.stderr).await?;
        }
        Ok(())
    }

    /// Restores the terminal, unless it accepts no output any more.
    pub(crate) async fn restore(&mut self) {
        let restoring = async {
            if let Some(stdout) = &mut self.stdout {
                stdout.restore().await;
            }
            if let Some(stderr) = &mut self.stderr {
                stderr.restore().await;
            }
        };
        drop(timeout(RESTORE_TIMEOUT, restoring).await);
    }
}

impl<W: AsyncWrite + Unpin> Sink<W> {
    async fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        let mut bytes = Cow::Borrowed(bytes);
        if let Some(filter) = &mut self.filter {
            bytes = Cow::Owned(filter.pass(&bytes));
        }
        if let Some(stamps) = &mut self.stamps {
            // After the filter, so that no stamp splits a control sequence before it is recognized.
            bytes = Cow::Owned(stamps.put(&bytes, SystemTime::now()));
        }
        self.to.write_all(&bytes).await?;
        // tokio writes in another thread; the flush waits for that and returns its error.
        self.to.flush().await
    }

    /// A closed terminal needs no restoring.
    async fn restore(&mut self) {
        if let Some(filter) = &mut self.filter {
            self.to.write_all(&filter.restore()).await.ok();
            self.to.flush().await.ok();
        }
    }
}

impl Stamps {
    fn put(&mut self, bytes: &[u8], now: SystemTime) -> Vec<u8> {
        let stamp = format!("{} ", humantime::format_rfc3339_millis(now));
        let mut stamped = Vec::with_capacity(bytes.len() + stamp.len());
        for piece in bytes.split_inclusive(|&byte| byte == b'\n') {
            if self.at_line_start {
                stamped.extend_from_slice(stamp.as_bytes());
            }
            stamped.extend_from_slice(piece);
            self.at_line_start = piece.ends_with(b"\n");
        }
        stamped
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_gets_one_stamp_however_it_is_divided() {
        let mut stamps = Stamps {
            at_line_start: true,
        };
        let text: Vec<u8> = [&b"a"[..], b"b\nc", b"\n", b"\nd"]
            .iter()
            .flat_map(|part| stamps.put(part, SystemTime::UNIX_EPOCH))
            .collect();
        let stamp = "1970-01-01T00:00:00.000Z ";
        assert_eq!(
            String::from_utf8(text).unwrap(),
            format!("{stamp}ab\n{stamp}c\n{stamp}\n{stamp}d")
        );
    }
}
