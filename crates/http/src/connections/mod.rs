//! Connections: listening, accepting, and limits on each connection and each network.

mod accept;
mod activity;
mod held_until_sent;
mod listen;
mod peer;
mod room;

pub(crate) use accept::Acceptor;
pub(crate) use held_until_sent::hold_until_sent;
pub(crate) use listen::ServerListener;
pub(crate) use peer::Peer;
pub(crate) use room::{ConnectionRoom, ConnectionSlot, Places};
