//! A connection of a forward, and whether it is blocked.
//!
//! russh reads the channels of a connection through one queue, and extends a channel's window when
//! data arrives, not when the application reads it. So a client that does not read makes all streams of its
//! connection wait. New streams go over another connection then.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;

use crate::hosts::{Lease, Link};
use sshjobs_base::lock::lock;

/// Time without reading after which a client blocks its connection.
const BLOCKED: Duration = Duration::from_millis(200);

/// A connection of a forward.
pub(super) struct Lane {
    pub(super) link: Arc<Link>,
    /// Returns the connection when nothing uses it any more. The first connection of a forward is
    /// returned by its task.
    _lease: Option<Lease<Arc<Link>>>,
    clients: Mutex<Vec<Weak<StalledClient>>>,
}

/// A client, and since when it does not take what is written to it.
#[derive(Default)]
struct StalledClient {
    blocked_since: Mutex<Option<Instant>>,
}

impl Lane {
    pub(super) fn new(link: Arc<Link>) -> Self {
        Self {
            link,
            _lease: None,
            clients: Mutex::default(),
        }
    }

    /// A lane that returns its connection when nothing uses it any more.
    pub(super) fn leased(lease: Lease<Arc<Link>>) -> Self {
        let link = Arc::clone(lease.connection());
        Self {
            _lease: Some(lease),
            ..Self::new(link)
        }
    }

    /// Whether a client keeps the others waiting.
    pub(super) fn is_blocked(&self) -> bool {
        lock(&self.clients).iter().filter_map(Weak::upgrade).any(|client| {
            lock(&client.blocked_since).is_some_and(|since| since.elapsed() >= BLOCKED)
        })
    }

    /// A client's stream over this connection.
    pub(super) fn watched<S>(&self, stream: S) -> WatchedLane<S> {
        let client = Arc::new(StalledClient::default());
        let mut clients = lock(&self.clients);
        clients.retain(|client| client.strong_count() > 0);
        clients.push(Arc::downgrade(&client));
        WatchedLane { stream, client }
    }
}

/// Extra connections of a forward. Each is returned when its last stream has ended.
#[derive(Default)]
pub(super) struct MoreLanes(Mutex<ExtraLanes>);

#[derive(Default)]
struct ExtraLanes {
    open: Vec<Weak<Lane>>,
    /// Number of connections that are being made.
    connecting: usize,
}

/// Result of a search for a connection that is not blocked.
pub(super) enum FreeLane<'a> {
    Found(Arc<Lane>),
    /// All are blocked, and there is room for another.
    MayConnect(LaneRoom<'a>),
    /// All are blocked.
    None,
}

/// Room for a connection that is being made. Dropping it gives the room back.
pub(super) struct LaneRoom<'a>(&'a MoreLanes);

/// Maximum extra connections of a forward.
const MOST_MORE: usize = 7;

impl MoreLanes {
    pub(super) fn free(&self) -> FreeLane<'_> {
        let mut extra = lock(&self.0);
        extra.open.retain(|lane| lane.strong_count() > 0);
        let mut open = extra.open.iter().filter_map(Weak::upgrade);
        let free = open.find(|lane| !lane.link.connection.is_closed() && !lane.is_blocked());
        match free {
            Some(lane) => FreeLane::Found(lane),
            None if extra.open.len() + extra.connecting < MOST_MORE => {
                extra.connecting += 1;
                FreeLane::MayConnect(LaneRoom(self))
            }
            None => FreeLane::None,
        }
    }
}

impl LaneRoom<'_> {
    /// Uses the room for a connection.
    pub(super) fn take(self, lane: &Arc<Lane>) {
        lock(&self.0.0).open.push(Arc::downgrade(lane));
    }
}

impl Drop for LaneRoom<'_> {
    fn drop(&mut self) {
        lock(&self.0.0).connecting -= 1;
    }
}

/// A stream that notes how long its client does not read.
pub(super) struct WatchedLane<S> {
    stream: S,
    client: Arc<StalledClient>,
}

impl<S: AsyncRead + Unpin> AsyncRead for WatchedLane<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for WatchedLane<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write(cx, bytes);
        let mut blocked_since = lock(&self.client.blocked_since);
        if polled.is_pending() {
            blocked_since.get_or_insert_with(Instant::now);
        } else {
            *blocked_since = None;
        }
        polled
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
