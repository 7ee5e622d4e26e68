use std::net::IpAddr;

/// Where a connection comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Peer {
    /// An address of the network.
    Network(IpAddr),
    /// The unix socket, which no web page reaches, whatever name it uses.
    Socket,
}
