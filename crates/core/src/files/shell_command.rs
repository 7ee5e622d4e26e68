//! A command of the host whose stdin and stdout are streams, such as tar.

use std::pin::pin;

use bytes::Bytes;
use futures_util::future::{Either, select};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use super::error::FilesError;
use super::host_files::HostFiles;
use super::path::RemotePath;
use sshjobs_job::{Nonce, inert_bytes};
use sshjobs_ssh::{ChannelError, ChannelEvent, ChannelReader, ChannelWriter};

/// How a command ended.
#[derive(Clone, Debug, Default)]
pub(super) struct CommandEnd {
    /// Whether a shell has run the script. False on a host that has files only and runs something else or nothing, or has no
    /// room for a channel now.
    pub(super) has_begun: bool,
    /// Its exit status. `None` if it was killed, or was never started.
    pub(super) status: Option<u32>,
    /// The start of its stderr.
    pub(super) stderr: String,
}

/// Maximum bytes that startup files may print before the script.
const MOST_NOISE: usize = 64 << 10;
/// Maximum bytes kept of its stderr.
const MOST_STDERR: usize = 2 << 10;
/// Bytes sent at a time.
const STEP: usize = 32 << 10;

/// The start of a script: sets the variable `d` to the path of a directory, in a form that no program takes for an option.
pub(super) fn directory_variable(directory: &RemotePath) -> String {
    let directory = inert_bytes(directory.as_bytes());
    // The point keeps line ends at the end of the path.
    format!("d=$(printf %b. '{directory}'); d=${{d%.}}; case $d in /*) ;; *) d=./$d ;; esac;")
}

impl HostFiles {
    /// Runs a script of `/bin/sh` on the host as the user of these files, with streams as its stdin
    /// and stdout. What startup files print before it is left out. The channel is open until the script or the
    /// connection ends.
    ///
    /// A server may have no room for a second channel beside that of the files (MaxSessions). The script has not begun then.
    pub(super) async fn run_script(
        &self,
        script: String,
        stdin: impl AsyncRead + Unpin,
        stdout: &mut (impl AsyncWrite + Unpin),
    ) -> Result<CommandEnd, FilesError> {
        let nonce = Nonce::new();
        // On a line of its own: what startup files print may lack an end of line.
        let script = format!("printf '\\n%s\\n' {}; {script}", nonce.as_str());
        let channel = match self.link().open().await {
            Err(ChannelError::OpenRefused) => return Ok(CommandEnd::default()),
            opened => opened?.channel,
        };
        let (mut reader, writer) = self.user.exec(self.link(), channel, script).await?;
        let mut ended = CommandEnd::default();
        let both = {
            let receiving = pin!(receive(&mut reader, &nonce, stdout, &mut ended));
            let sending = pin!(send(&writer, stdin));
            match select(receiving, sending).await {
                // The command has ended without reading everything, and says why itself. A channel
                // that is closed takes no more data, so the other future would wait for ever.
                Either::Left((received, _sending)) => received,
                Either::Right((sent, receiving)) => sent.and(receiving.await),
            }
        };
        writer.end(&mut reader).await;
        both?;
        if !ended.has_begun {
            self.note_no_script();
        }
        Ok(ended)
    }
}

async fn send(
    writer: &ChannelWriter,
    mut stdin: impl AsyncRead + Unpin,
) -> Result<(), ChannelError> {
    loop {
        let mut piece = bytes::BytesMut::with_capacity(STEP);
        let read = stdin.read_buf(&mut piece).await;
        // The caller learns of the source's error elsewhere. Closed without EOF, so that the command
        // does not take partial input for the whole.
        let Ok(read) = read else { return writer.close().await };
        if read == 0 {
            return writer.eof().await;
        }
        writer.send(Bytes::from(piece)).await?;
    }
}

/// What a script prints, after the line that says that it runs.
struct Begin {
    line: Vec<u8>,
    /// The start of the output, until the line was received.
    unread: Vec<u8>,
}

impl Begin {
    fn new(nonce: &Nonce) -> Self {
        Self {
            line: format!("{}\n", nonce.as_str()).into_bytes(),
            unread: Vec::new(),
        }
    }

    /// Takes output. Returns what follows the line, once it is there. An echo of the command has the word within a
    /// longer line, and does not count.
    fn read(&mut self, data: &[u8]) -> Option<Bytes> {
        self.unread.extend_from_slice(data);
        let at = memchr::memmem::find_iter(&self.unread, &self.line)
            .find(|&at| at == 0 || self.unread[at - 1] == b'\n')?;
        Some(Bytes::copy_from_slice(&self.unread[at + self.line.len()..]))
    }
}

async fn receive(
    reader: &mut ChannelReader,
    nonce: &Nonce,
    stdout: &mut (impl AsyncWrite + Unpin),
    ended: &mut CommandEnd,
) -> Result<(), ChannelError> {
    let mut begin = Begin::new(nonce);
    loop {
        match reader.next().await {
            Some(ChannelEvent::Data(data)) => {
                let data = if ended.has_begun {
                    data
                } else if let Some(rest) = begin.read(&data) {
                    ended.has_begun = true;
                    begin.unread = Vec::new();
                    rest
                } else if begin.unread.len() > MOST_NOISE {
                    // Whatever runs there is not the script.
                    break;
                } else {
                    continue;
                };
                // A reader that has gone needs no more.
                if stdout.write_all(&data).await.is_err() {
                    return Ok(());
                }
            }
            Some(ChannelEvent::ExtendedData(text)) => {
                let room = MOST_STDERR.saturating_sub(ended.stderr.len());
                let text = text.slice(..text.len().min(room));
                ended.stderr.push_str(&String::from_utf8_lossy(&text));
            }
            Some(ChannelEvent::ExitStatus(status)) => ended.status = Some(status),
            Some(ChannelEvent::Close) => break,
            Some(
                ChannelEvent::Eof
                | ChannelEvent::ExitSignal(_)
                | ChannelEvent::Success
                | ChannelEvent::Failure,
            ) => {}
            None => return Err(ChannelError::ConnectionLost),
        }
    }
    stdout.shutdown().await.ok();
    Ok(())
}
