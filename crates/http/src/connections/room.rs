//! Limits on open connections, in total and for each network. A connection without a request gives way to a new one, so
//! that idle clients keep out neither health checks nor callers.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustix::process::{Resource, getrlimit};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::activity::Activity;
use super::peer::Peer;
use sshjobs_base::lock::lock;

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
    const NETWORK: Self = Self {
        most: 4096,
        most_of_one: 2048,
    };
    /// For the unix socket, to which only its owner can connect.
    const SOCKET: Self = Self {
        most: 1024,
        most_of_one: 1024,
    };
    /// For programs that read metrics.
    const METRICS: Self = Self {
        most: 64,
        most_of_one: 32,
    };

    pub(crate) fn network() -> Self {
        Self::NETWORK.at_most(open_files() / 2)
    }

    pub(crate) fn socket() -> Self {
        Self::SOCKET.at_most(open_files() / 8)
    }

    pub(crate) fn metrics() -> Self {
        Self::METRICS.at_most(open_files() / 32)
    }

    /// The same for a process that may open few files: hosts, jobs and the state need the others.
    fn at_most(self, most: usize) -> Self {
        let most = self.most.min(most.max(4));
        Self {
            most,
            most_of_one: self.most_of_one.min(most.div_ceil(2)),
        }
    }
}

/// Interval at which a full room looks for an idle connection.
const LOOK: Duration = Duration::from_millis(50);

/// Maximum open files of this process.
fn open_files() -> usize {
    let limit = getrlimit(Resource::Nofile).current;
    limit.map_or(usize::MAX, |limit| {
        usize::try_from(limit).unwrap_or(usize::MAX)
    })
}

/// Connection slots of a listener.
#[derive(Clone)]
pub(crate) struct ConnectionRoom {
    places: Places,
    all: Arc<Semaphore>,
    seats: Arc<Mutex<Seats>>,
}

/// The connections that have a slot, by number, in the order of their arrival.
#[derive(Default)]
struct Seats {
    next: u64,
    taken: BTreeMap<u64, Seat>,
}

/// A connection that has a slot.
struct Seat {
    network: Option<IpAddr>,
    activity: Activity,
    has_to_leave: CancellationToken,
}

/// A slot for one connection, returned when dropped.
pub(crate) struct ConnectionSlot {
    _of_all: OwnedSemaphorePermit,
    seats: Arc<Mutex<Seats>>,
    number: u64,
    /// Requests of the connection.
    pub(crate) activity: Activity,
    /// Cancelled when the connection has to give way to another one.
    pub(crate) has_to_leave: CancellationToken,
}

/// The right to one slot.
pub(crate) type Permit = OwnedSemaphorePermit;

impl ConnectionRoom {
    pub(crate) fn new(places: Places) -> Self {
        Self {
            places,
            all: Arc::new(Semaphore::new(places.most)),
            seats: Arc::default(),
        }
    }

    /// Waits for a free slot. If there is none, an idle connection has to leave.
    pub(crate) async fn wait(&self) -> Permit {
        loop {
            let slot = Arc::clone(&self.all).acquire_owned();
            if let Ok(slot) = timeout(LOOK, slot).await {
                return slot.expect("it is never closed");
            }
            // Each time again: all may have been busy before.
            lock(&self.seats).make_room(|_| true);
        }
    }

    /// Number of slots in use.
    pub(crate) fn taken(&self) -> usize {
        self.places.most - self.all.available_permits()
    }

    /// A slot for a connection from this peer. If its network has too many, an idle one has to leave; `None` if none is
    /// idle.
    pub(crate) fn take(&self, of_all: Permit, peer: Peer) -> Option<ConnectionSlot> {
        let network = peer.network();
        let mut seats = lock(&self.seats);
        if network.is_some() && seats.count(network) >= self.places.most_of_one {
            seats.make_room(|seat| seat.network == network).then_some(())?;
        }
        let seat = Seat {
            network,
            activity: Activity::default(),
            has_to_leave: CancellationToken::new(),
        };
        let number = seats.next;
        let place = ConnectionSlot {
            _of_all: of_all,
            seats: Arc::clone(&self.seats),
            number,
            activity: seat.activity.clone(),
            has_to_leave: seat.has_to_leave.clone(),
        };
        seats.next += 1;
        seats.taken.insert(number, seat);
        Some(place)
    }
}

impl Seats {
    fn count(&self, network: Option<IpAddr>) -> usize {
        // One that has to leave stays if a request came first.
        let leaves = |seat: &Seat| seat.has_to_leave.is_cancelled() && !seat.activity.is_busy();
        self.taken
            .values()
            .filter(|seat| seat.network == network && !leaves(seat))
            .count()
    }

    /// Sends an idle connection away: one that has made no request, else the one that came first. Returns whether there
    /// was one.
    fn make_room(&self, is_candidate: impl Fn(&Seat) -> bool) -> bool {
        let idle = self.taken.values().filter(|seat| {
            is_candidate(seat) && !seat.has_to_leave.is_cancelled() && !seat.activity.is_busy()
        });
        // The first of several with the same key.
        let chosen = idle.min_by_key(|seat| seat.activity.has_begun());
        if let Some(seat) = chosen {
            seat.has_to_leave.cancel();
        }
        chosen.is_some()
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        lock(&self.seats).taken.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn addresses_of_one_ipv6_network_share_their_places() {
        let room = ConnectionRoom::new(Places {
            most: 10,
            most_of_one: 2,
        });
        let from = async |address: &str| {
            let peer = Peer::Network(address.parse().unwrap());
            room.take(room.wait().await, peer)
        };

        let places = [from("2001:db8::1").await, from("2001:db8::2").await];

        let places: Vec<ConnectionSlot> = places.into_iter().map(Option::unwrap).collect();
        let busy: Vec<_> = places.iter().map(|place| place.activity.begin()).collect();
        assert!(from("2001:db8::3").await.is_none(), "the same /64");
        assert!(from("2001:db8:0:1::1").await.is_some(), "another /64");
        drop((busy, places));
        assert!(from("2001:db8::3").await.is_some());
        assert_eq!(room.taken(), 0);
    }

    #[tokio::test]
    async fn an_idle_connection_gives_way_first_one_without_any_request() {
        let room = ConnectionRoom::new(Places {
            most: 3,
            most_of_one: 3,
        });
        let peer = Peer::Network([10, 0, 0, 1].into());
        let enter = async || room.take(room.wait().await, peer).unwrap();
        let (answered, busy, silent) = (enter().await, enter().await, enter().await);
        drop(answered.activity.begin());
        let _request = busy.activity.begin();

        let leaves = async |place: ConnectionSlot| {
            place.has_to_leave.cancelled().await;
        };
        tokio::join!(leaves(silent), async { drop(room.wait().await) });
        assert!(!answered.has_to_leave.is_cancelled());
        let _third = enter().await;
        let leaves_next = async { answered.has_to_leave.cancelled().await };
        tokio::select! { () = leaves_next => {} _ = room.wait() => panic!("it has a slot") }
        assert!(!busy.has_to_leave.is_cancelled());
    }

    #[tokio::test]
    async fn connections_that_turn_busy_when_they_have_to_leave_count_on() {
        let room = ConnectionRoom::new(Places {
            most: 10,
            most_of_one: 2,
        });
        let peer = Peer::Network([10, 0, 0, 1].into());
        let enter = async || room.take(room.wait().await, peer);
        let mut streams = Vec::new();
        for _ in 0..2 {
            streams.push(enter().await.unwrap());
        }
        // The first one has to leave, and its request arrives at the same moment.
        streams.push(enter().await.unwrap());
        let _requests: Vec<_> = streams.iter().map(|place| place.activity.begin()).collect();

        assert!(enter().await.is_none());
    }

    #[test]
    fn a_process_with_few_files_has_few_places() {
        let few = Places::NETWORK.at_most(256 / 2);
        assert_eq!((few.most, few.most_of_one), (128, 64));
        let many = Places::NETWORK.at_most(1 << 20);
        assert_eq!((many.most, many.most_of_one), (4096, 2048));
        assert!(Places::METRICS.at_most(0).most_of_one >= 2);
    }
}
