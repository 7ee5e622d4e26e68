//! Limits on open connections, in total and for each network.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::peer::Peer;
use crate::lock::lock;

/// Maximum connections of a listener. Listeners don't share slots, so filling one does not affect
/// another.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Places {
    /// In total.
    pub(crate) most: usize,
    /// From one network; see [`Peer::network`].
    pub(crate) most_of_one: usize,
}

impl Places {
    /// For callers over the network.
    pub(crate) const NETWORK: Self = Self {
        most: 4096,
        most_of_one: 2048,
    };
    /// For the unix socket, to which only its owner can connect.
    pub(crate) const SOCKET: Self = Self {
        most: 1024,
        most_of_one: 1024,
    };
    /// For programs that read metrics.
    pub(crate) const METRICS: Self = Self {
        most: 64,
        most_of_one: 32,
    };
}

/// Connection slots of a listener.
#[derive(Clone)]
pub(crate) struct Room {
    places: Places,
    all: Arc<Semaphore>,
    of: Arc<Mutex<HashMap<IpAddr, usize>>>,
}

/// A slot for one connection, returned when dropped.
pub(crate) struct Place {
    _of_all: OwnedSemaphorePermit,
    of: Arc<Mutex<HashMap<IpAddr, usize>>>,
    network: Option<IpAddr>,
}

/// The right to one slot.
pub(crate) type Permit = OwnedSemaphorePermit;

impl Room {
    pub(crate) fn new(places: Places) -> Self {
        Self {
            places,
            all: Arc::new(Semaphore::new(places.most)),
            of: Arc::default(),
        }
    }

    /// Waits for a free slot.
    pub(crate) async fn wait(&self) -> Permit {
        Arc::clone(&self.all).acquire_owned().await.expect("it is never closed")
    }

    /// Number of slots in use.
    pub(crate) fn taken(&self) -> usize {
        self.places.most - self.all.available_permits()
    }

    /// A slot for a connection from this peer. `None` if its network has too many.
    pub(crate) fn take(&self, of_all: Permit, peer: Peer) -> Option<Place> {
        let network = peer.network();
        if let Some(network) = network {
            let mut of = lock(&self.of);
            let count = of.entry(network).or_default();
            if *count >= self.places.most_of_one {
                return None;
            }
            *count += 1;
        }
        Some(Place {
            _of_all: of_all,
            of: Arc::clone(&self.of),
            network,
        })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let Some(network) = self.network else { return };
        let mut of = lock(&self.of);
        if let Some(count) = of.get_mut(&network) {
            *count -= 1;
            if *count == 0 {
                // Otherwise the map would keep an entry for every network that ever connected.
                of.remove(&network);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn addresses_of_one_ipv6_network_share_their_places() {
        let room = Room::new(Places {
            most: 10,
            most_of_one: 2,
        });
        let from = async |address: &str| {
            let peer = Peer::Network(address.parse().unwrap());
            room.take(room.wait().await, peer)
        };

        let places = [from("2001:db8::1").await, from("2001:db8::2").await];

        assert!(places.iter().all(Option::is_some));
        assert!(from("2001:db8::3").await.is_none(), "the same /64");
        assert!(from("2001:db8:0:1::1").await.is_some(), "another /64");
        drop(places);
        assert!(from("2001:db8::3").await.is_some());
        assert_eq!(room.taken(), 0);
    }
}
