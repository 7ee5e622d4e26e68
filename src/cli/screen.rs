use std::io::IsTerminal;

use tokio::io::{self, AsyncWrite, AsyncWriteExt, Stderr, Stdout};

use crate::api::{Output, TerminalFilter};

/// Where a job's output goes: our stdout and stderr. Byte by byte into pipes and files, filtered onto a terminal.
pub(super) struct Screen {
    stdout: Sink<Stdout>,
    stderr: Sink<Stderr>,
}

struct Sink<W> {
    to: W,
    filter: Option<TerminalFilter>,
}

impl Screen {
    pub(super) fn new() -> Self {
        let filter = |is_terminal: bool| is_terminal.then(TerminalFilter::default);
        Self {
            stdout: Sink { to: io::stdout(), filter: filter(std::io::stdout().is_terminal()) },
            stderr: Sink { to: io::stderr(), filter: filter(std::io::stderr().is_terminal()) },
        }
    }

    pub(super) async fn show(&mut self, output: &Output) -> io::Result<()> {
        self.stdout.write(&output.stdout).await?;
        self.stderr.write(&output.stderr).await
    }

    /// Leaves the terminal's colours as they were. A terminal that is gone needs none.
    pub(super) async fn restore(&mut self) {
        if self.stdout.filter.is_some() {
            self.stdout.to.write_all(b"\x1b[0m").await.ok();
            self.stdout.to.flush().await.ok();
        }
    }
}

impl<W: AsyncWrite + Unpin> Sink<W> {
    async fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        match &mut self.filter {
            Some(filter) => self.to.write_all(&filter.pass(bytes)).await?,
            None => self.to.write_all(bytes).await?,
        }
        self.to.flush().await
    }
}
