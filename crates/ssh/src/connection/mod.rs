//! Connections and their channels (RFC 4253, RFC 4254). Plain data in and out; every step is
//! bounded in time.
//!
//! [`connect`] makes one connection over TCP, a jump host or a command. Data sent over a
//! [`Channel`] causes [`ChannelEvent`]s.

mod channel;
mod ciphers;
mod connection;
mod dial;
mod errors;
mod handshake;
mod proxy;
mod stream;
mod watched;

pub use channel::{Channel, ChannelEvent, ChannelReader, ChannelWriter, SERVER_CLOSES};
pub use connection::Connection;
#[cfg(test)]
pub(crate) use connection::MOST_CLOSED_FIRST;
pub use handshake::{connect, connect_over, look_at_key};
pub use stream::OpenedStream;
