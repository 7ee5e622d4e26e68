//! Which streams of a connection the server has closed.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::Context;

use russh::ChannelId;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use sshjobs_base::lock::lock;

/// The open streams of a connection. Each learns when the server closes its channel.
///
/// russh does not wake a writer that waits for the window of a channel when the channel is closed.
#[derive(Clone, Default)]
pub(crate) struct Closes(Arc<Mutex<HashMap<ChannelId, CancellationToken>>>);

impl Closes {
    /// Notes that the server has closed a channel.
    pub(crate) fn note(&self, channel: ChannelId) {
        if let Some(closed) = lock(&self.0).remove(&channel) {
            closed.cancel();
        }
    }

    pub(super) fn watch(&self, channel: ChannelId) -> CloseWatch {
        let closed = CancellationToken::new();
        lock(&self.0).insert(channel, closed.clone());
        CloseWatch {
            closes: self.clone(),
            channel,
            closed: Box::pin(closed.cancelled_owned()),
        }
    }
}

/// Waits until the server closes a channel.
pub(super) struct CloseWatch {
    closes: Closes,
    channel: ChannelId,
    closed: Pin<Box<WaitForCancellationFutureOwned>>,
}

impl CloseWatch {
    /// Whether the channel is closed. If not, the task is woken when it is.
    pub(super) fn is_closed(&mut self, cx: &mut Context<'_>) -> bool {
        self.closed.as_mut().poll(cx).is_ready()
    }
}

impl Drop for CloseWatch {
    fn drop(&mut self) {
        lock(&self.closes.0).remove(&self.channel);
    }
}
