//! TCP connections that are opened before their logins.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use sshjobs_base::lock::lock;
use sshjobs_ssh::{HostConfig, OpenedStream};

/// Age from which a stream is no longer used: its server may soon give up (LoginGraceTime).
const USABLE_FOR: Duration = Duration::from_secs(10);

/// A server's address and port.
type Server = (String, u16);

/// The stream for the next login at a server.
enum StreamSlot {
    /// It is being opened.
    Opening,
    Waiting {
        since: Instant,
        stream: OpenedStream,
    },
    /// A login has it.
    Taken,
}

/// Streams for the next logins at their servers. At most one for each server, which may punish clients that
/// open connections without using them (PerSourcePenalties).
#[derive(Clone, Default)]
pub(super) struct OpenedStreams(Arc<Mutex<HashMap<Server, StreamSlot>>>);

impl OpenedStreams {
    /// Opens a stream for the next login at the host's server, and waits until the server speaks or `limit` has
    /// passed.
    ///
    /// `None` if the connection fails or is not open within `limit`, or the server has a stream already.
    pub(super) async fn open(
        &self,
        host: &HostConfig,
        limit: Duration,
    ) -> Option<StreamReservation> {
        let reservation = self.reserve(server_of(host))?;
        let deadline = Instant::now() + limit;
        // The login reports the same error.
        let stream = timeout_at(deadline, OpenedStream::to(host)).await.ok()?.ok()?;
        let since = Instant::now();
        // A server that says nothing may wait for the client: it is heard in the handshake.
        timeout_at(deadline, stream.wait_for_server()).await.ok();
        let waiting = StreamSlot::Waiting { since, stream };
        lock(&self.0).insert(reservation.server.clone(), waiting);
        Some(reservation)
    }

    fn reserve(&self, server: Server) -> Option<StreamReservation> {
        let mut streams = lock(&self.0);
        if streams.contains_key(&server) {
            return None;
        }
        streams.insert(server.clone(), StreamSlot::Opening);
        Some(StreamReservation {
            streams: self.clone(),
            server,
        })
    }

    /// Takes the stream that was opened for a host, unless it has waited for too long.
    pub(super) fn take(&self, host: &HostConfig) -> Option<OpenedStream> {
        let mut streams = lock(&self.0);
        let slot = streams.get_mut(&server_of(host))?;
        match std::mem::replace(slot, StreamSlot::Taken) {
            StreamSlot::Waiting { since, stream } => {
                (since.elapsed() < USABLE_FOR).then_some(stream)
            }
            other @ (StreamSlot::Opening | StreamSlot::Taken) => {
                *slot = other;
                None
            }
        }
    }
}

fn server_of(host: &HostConfig) -> Server {
    (host.address.clone(), host.port)
}

/// The right to a server's stream. Closes it when dropped, unless a login has taken it.
pub struct StreamReservation {
    streams: OpenedStreams,
    server: Server,
}

impl Drop for StreamReservation {
    fn drop(&mut self) {
        lock(&self.streams.0).remove(&self.server);
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    const LIMIT: Duration = Duration::from_millis(50);

    async fn silent_server() -> (TcpListener, HostConfig) {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        (listener, HostConfig::new("web1", "127.0.0.1", port, "me"))
    }

    #[tokio::test]
    async fn a_stream_waits_for_one_login() {
        let (_listener, host) = silent_server().await;
        let streams = OpenedStreams::default();
        let _reservation = streams.open(&host, LIMIT).await.unwrap();
        assert!(streams.take(&host).is_some());
        assert!(streams.take(&host).is_none());
    }

    #[tokio::test]
    async fn a_server_gets_one_connection_at_a_time() {
        let (_listener, host) = silent_server().await;
        let streams = OpenedStreams::default();
        let first = streams.open(&host, LIMIT).await.unwrap();
        assert!(streams.open(&host, LIMIT).await.is_none());
        streams.take(&host);
        assert!(
            streams.open(&host, LIMIT).await.is_none(),
            "its login is not over"
        );
        drop(first);
        assert!(streams.open(&host, LIMIT).await.is_some());
    }

    #[tokio::test]
    async fn a_stream_is_closed_with_the_run_that_opened_it() {
        let (_listener, host) = silent_server().await;
        let streams = OpenedStreams::default();
        drop(streams.open(&host, LIMIT).await.unwrap());
        assert!(streams.take(&host).is_none());
    }

    #[tokio::test]
    async fn a_refused_connection_leaves_nothing_behind() {
        let (listener, host) = silent_server().await;
        drop(listener);
        let streams = OpenedStreams::default();
        assert!(streams.open(&host, LIMIT).await.is_none());
        assert!(lock(&streams.0).is_empty());
    }

    #[tokio::test]
    async fn a_login_whose_turn_comes_late_opens_its_own_connection() {
        let (_listener, host) = silent_server().await;
        let streams = OpenedStreams::default();
        let _reservation = streams.open(&host, LIMIT).await.unwrap();
        tokio::time::pause();
        tokio::time::advance(USABLE_FOR).await;
        assert!(streams.take(&host).is_none());
    }
}
