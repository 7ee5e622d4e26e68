//! The listener on the host: at most one for each connection.

use std::sync::{Arc, Mutex};

use russh::client::Msg;
use tokio::sync::mpsc;

use super::{Closes, Endpoint, Tunnel};
use sshjobs_base::lock::lock;

/// The endpoint on the host whose streams are accepted. Streams for any other are refused: a server
/// must open none that the client has not requested (RFC 4254, section 7.2).
#[derive(Clone, Default)]
pub(crate) struct TunnelListener(Arc<Mutex<Option<Listening>>>);

struct Listening {
    at: Endpoint,
    tunnels: mpsc::Sender<Tunnel>,
}

impl TunnelListener {
    /// Accepts streams for this endpoint from now on.
    pub(crate) fn start(&self, at: Endpoint, tunnels: mpsc::Sender<Tunnel>) {
        *lock(&self.0) = Some(Listening { at, tunnels });
    }

    /// Refuses all streams from now on.
    pub(crate) fn stop(&self) {
        *lock(&self.0) = None;
    }

    /// A place for a stream to this port, if it was requested and its reader keeps up. Servers report
    /// the requested address in different spellings, so that only the port counts.
    pub(crate) fn place_for_port(&self, port: u32) -> Option<TunnelSlot> {
        self.place(|at| matches!(at, Endpoint::Tcp { port: own, .. } if u32::from(*own) == port))
    }

    /// Like [`place_for_port`](Self::place_for_port), for a unix socket.
    pub(crate) fn place_for_socket(&self, path: &str) -> Option<TunnelSlot> {
        self.place(|at| matches!(at, Endpoint::Unix(own) if own == path))
    }

    fn place(&self, is_at: impl Fn(&Endpoint) -> bool) -> Option<TunnelSlot> {
        let listening = lock(&self.0);
        let listening = listening.as_ref().filter(|listening| is_at(&listening.at))?;
        listening.tunnels.clone().try_reserve_owned().ok().map(TunnelSlot)
    }
}

/// Room for one stream.
pub(crate) struct TunnelSlot(mpsc::OwnedPermit<Tunnel>);

impl TunnelSlot {
    /// Hands the stream over.
    pub(crate) fn fill(self, channel: russh::Channel<Msg>, closes: &Closes) {
        self.0.send(Tunnel::new(channel, closes));
    }
}
