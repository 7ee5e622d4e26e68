use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::peer::Peer;
use crate::lock::lock;

/// Most connections, in all and of one address.
const MOST: usize = 4096;
const MOST_OF_ONE: usize = 2048;

/// Places for connections.
#[derive(Clone)]
pub(super) struct Room {
    all: Arc<Semaphore>,
    of: Arc<Mutex<HashMap<IpAddr, usize>>>,
}

/// A place for one connection; given back when it is dropped.
pub(super) struct Place {
    _of_all: OwnedSemaphorePermit,
    of: Arc<Mutex<HashMap<IpAddr, usize>>>,
    address: Option<IpAddr>,
}

/// That there is room for a connection.
pub(super) type Permit = OwnedSemaphorePermit;

impl Room {
    pub(super) fn new() -> Self {
        Self { all: Arc::new(Semaphore::new(MOST)), of: Arc::default() }
    }

    /// Waits for room for one more connection.
    pub(super) async fn wait(&self) -> Permit {
        Arc::clone(&self.all).acquire_owned().await.expect("it is never closed")
    }

    /// Connections there are.
    pub(super) fn taken(&self) -> usize {
        MOST - self.all.available_permits()
    }

    /// A place for a connection from an address; none when it has too many.
    pub(super) fn take(&self, of_all: Permit, peer: Peer) -> Option<Place> {
        let address = match peer {
            Peer::Network(address) => Some(address),
            Peer::Socket => None,
        };
        if let Some(address) = address {
            let mut of = lock(&self.of);
            let count = of.entry(address).or_default();
            if *count >= MOST_OF_ONE {
                return None;
            }
            *count += 1;
        }
        Some(Place { _of_all: of_all, of: Arc::clone(&self.of), address })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let Some(address) = self.address else { return };
        let mut of = lock(&self.of);
        if let Some(count) = of.get_mut(&address) {
            *count -= 1;
            if *count == 0 {
                of.remove(&address);
            }
        }
    }
}
