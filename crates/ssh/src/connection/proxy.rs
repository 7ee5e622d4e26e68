//! ProxyCommand as a transport.

use std::io;
use std::pin::Pin;
use std::process::Stdio;
use std::task::{Context, Poll};

use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, BufReader, ReadBuf};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};
use tokio::task::JoinSet;

use sshjobs_output::printable;

/// A command whose stdin and stdout connect to a host (ProxyCommand). It is killed when this is
/// dropped.
pub(super) struct ProxyCommand {
    stdin: ChildStdin,
    stdout: ChildStdout,
    _child: Child,
    _reporting: JoinSet<()>,
}

impl ProxyCommand {
    /// Starts it as ssh does: through the shell, which it replaces.
    pub(super) fn start(command: &str) -> io::Result<Self> {
        // `exec`, so that `kill_on_drop` kills the command and not only a shell around it.
        let mut child = Command::new("/bin/sh")
            .args(["-c", &format!("exec {command}")])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // Ctrl-C is for the job and must not end the connection.
            .process_group(0)
            .kill_on_drop(true)
            .spawn()?;
        let mut reporting = JoinSet::new();
        if let Some(stderr) = child.stderr.take() {
            reporting.spawn(report(stderr));
        }
        match (child.stdin.take(), child.stdout.take()) {
            (Some(stdin), Some(stdout)) => Ok(Self {
                stdin,
                stdout,
                _child: child,
                _reporting: reporting,
            }),
            _ => Err(io::Error::other("it has no stdin and stdout")),
        }
    }
}

/// Maximum bytes logged of a line. The rest is discarded.
const LONGEST_LINE: u64 = 1000;
/// Maximum lines logged of one command.
const MOST_LINES: usize = 100;

/// Logs the command's stderr, which the far end may control.
async fn report(stderr: ChildStderr) {
    let mut stderr = BufReader::new(stderr);
    let mut line = Vec::new();
    let mut told = 0;
    let mut in_mid_line = false;
    while let Ok(1..) = (&mut stderr).take(LONGEST_LINE).read_until(b'\n', &mut line).await {
        let begins = !std::mem::replace(&mut in_mid_line, !line.ends_with(b"\n"));
        // Reading continues beyond the limits: a full pipe would block the command.
        if begins && told < MOST_LINES {
            let said = printable(&String::from_utf8_lossy(&line));
            told += 1;
            tracing::warn!(said, "the ProxyCommand");
        }
        line.clear();
    }
}

impl AsyncRead for ProxyCommand {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stdout).poll_read(context, buffer)
    }
}

impl AsyncWrite for ProxyCommand {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stdin).poll_write(context, data)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stdin).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stdin).poll_shutdown(context)
    }
}
