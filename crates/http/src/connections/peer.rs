//! Origins of connections.

use std::net::{IpAddr, Ipv6Addr};

/// Where a connection comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Peer {
    /// A network address.
    Network(IpAddr),
    /// The unix socket, which no web page reaches, whatever name it uses.
    Socket,
}

/// Mask for the first 64 bits of an IPv6 address, the network of one subscriber.
const NETWORK_MASK: u128 = !0 << 64;

impl Peer {
    /// The address. `None` for the unix socket.
    pub(crate) fn address(self) -> Option<IpAddr> {
        match self {
            Self::Network(address) => Some(address.to_canonical()),
            Self::Socket => None,
        }
    }

    /// The address to which limits apply: an IPv4 address, or the /64 network of an IPv6 address,
    /// in which one subscriber has any number of addresses. `None` for the unix socket.
    pub(crate) fn network(self) -> Option<IpAddr> {
        match self {
            Self::Socket => None,
            Self::Network(address) => Some(match address.to_canonical() {
                IpAddr::V6(address) => {
                    IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & NETWORK_MASK))
                }
                address => address,
            }),
        }
    }
}
