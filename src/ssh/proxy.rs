use std::io;
use std::pin::Pin;
use std::process::Stdio;
use std::task::{Context, Poll};

use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite, BufReader, ReadBuf};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};
use tokio::task::JoinSet;

/// A command whose stdin and stdout are the way to a host (ProxyCommand). It is killed when this is dropped.
pub(super) struct ProxyCommand {
    stdin: ChildStdin,
    stdout: ChildStdout,
    _child: Child,
    _reporting: JoinSet<()>,
}

impl ProxyCommand {
    /// Starts it, as ssh does: by the shell, which it replaces.
    pub(super) fn start(command: &str) -> io::Result<Self> {
        let mut child = Command::new("/bin/sh")
            .args(["-c", &format!("exec {command}")])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // Ctrl-C is for the job, not for the way to it.
            .process_group(0)
            .kill_on_drop(true)
            .spawn()?;
        let mut reporting = JoinSet::new();
        if let Some(stderr) = child.stderr.take() {
            reporting.spawn(report(stderr));
        }
        match (child.stdin.take(), child.stdout.take()) {
            (Some(stdin), Some(stdout)) => Ok(Self { stdin, stdout, _child: child, _reporting: reporting }),
            _ => Err(io::Error::other("it has no stdin and stdout")),
        }
    }
}

/// What it complains of may be the far end's words.
async fn report(stderr: ChildStderr) {
    let mut lines = BufReader::new(stderr).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        let said: String = line.chars().filter(|c| !c.is_control()).collect();
        tracing::warn!(said, "the ProxyCommand");
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
