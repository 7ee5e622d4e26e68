//! The client side: sends calls to the process that owns a job.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::net::UnixStream;
use tokio::time::timeout;

use super::listen::check_peer;
use super::message::{OwnerCall, OwnerReply, OwnerRequest, receive, send};
use super::short_path::ShortPath;
use crate::runner::signal::SignalReport;
use crate::runner::state::WriteError;
use sshjobs_job::JobId;

/// Time limit for the owner to accept a call.
const SEND_TIME: Duration = Duration::from_secs(5);
/// Time for which an owner may try to resize a terminal.
const RESIZE_TIME: Duration = Duration::from_secs(4);
/// Time limit for the reply, in addition to the duration of the call itself.
const REPLY_TIME: Duration = Duration::from_secs(10);

/// The process that owns a job.
#[derive(Debug)]
pub(crate) struct OwnerProcess {
    /// The job.
    pub(crate) job: JobId,
    /// Name of the process, for messages.
    pub(crate) name: String,
    /// The socket on which it listens.
    pub(crate) socket: PathBuf,
}

impl OwnerProcess {
    /// Sends a call to the owner. `data` has the bytes for [`OwnerCall::Write`] and [`OwnerCall::Hide`]. Dropping the
    /// future cancels the call there.
    ///
    /// # Errors
    /// The owner's error; [`WriteError::OwnerGone`] if the owner does not answer,
    /// [`WriteError::NotOwner`] if it does not listen.
    pub(crate) async fn ask(&self, call: OwnerCall, data: &[u8]) -> Result<OwnerReply, WriteError> {
        match ask(&self.socket, &self.job, call, data).await {
            // The owner has an earlier version, or has just ended.
            Err(WriteError::OwnerGone(_)) if !self.socket.exists() => {
                Err(WriteError::NotOwner(self.name.clone()))
            }
            asked => asked,
        }
    }
}

async fn ask(
    socket: &Path,
    job: &JobId,
    call: OwnerCall,
    data: &[u8],
) -> Result<OwnerReply, WriteError> {
    let patience = match &call {
        OwnerCall::Write { patience } | OwnerCall::CloseStdin { patience } => *patience,
        // Time for the host to answer, in addition to the grace.
        OwnerCall::Signal { grace, .. } => grace.unwrap_or_default() + REPLY_TIME,
        // The owner of a durable job may have to wait for its terminal.
        OwnerCall::Resize { .. } => RESIZE_TIME,
        OwnerCall::IsStdinClosed | OwnerCall::Hide { .. } => Duration::ZERO,
    };
    let mut stream = timeout(SEND_TIME, connect(socket))
        .await
        .map_err(|_| gone(late()))?
        .map_err(gone)?;
    let request = OwnerRequest {
        job: job.clone(),
        call,
        data_length: data.len(),
    };
    let sending = async {
        send(&mut stream, &request).await?;
        stream.write_all(data).await
    };
    timeout(SEND_TIME, sending).await.map_err(|_| gone(late()))?.map_err(gone)?;
    // From here on the owner may have performed the call, even if no reply comes.
    let is_signal = matches!(request.call, OwnerCall::Signal { .. });
    let receiving = timeout(patience + REPLY_TIME, receive(&mut stream)).await;
    let Ok(received) = receiving else {
        // The owner may still deliver it, so the caller must not send the signal a second time.
        return if is_signal {
            Ok(OwnerReply::Signalled(SignalReport::of_late_owner()))
        } else {
            Err(gone(late()))
        };
    };
    match received.map_err(gone)? {
        OwnerReply::Refused(refusal) => Err(refusal.into()),
        reply @ (OwnerReply::Done | OwnerReply::IsStdinClosed(_) | OwnerReply::Signalled(_)) => {
            Ok(reply)
        }
    }
}

async fn connect(socket: &Path) -> io::Result<UnixStream> {
    let short = ShortPath::of(socket)?;
    let stream = UnixStream::connect(short.as_path()).await?;
    check_peer(&stream)?;
    Ok(stream)
}

fn late() -> io::Error {
    io::ErrorKind::TimedOut.into()
}

fn gone(error: io::Error) -> WriteError {
    WriteError::OwnerGone(error.to_string())
}
