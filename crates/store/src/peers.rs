//! The interface through which the replicas of a cluster reach each other.

use std::io;

use futures_util::future::BoxFuture;
use tokio::io::{AsyncRead, AsyncWrite};

use super::{OwnStatus, StoreError};

/// A connection between two replicas.
pub trait PeerStream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> PeerStream for T {}

/// Where the connections and jobs of a host are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostPlace {
    /// At this replica.
    Here,
    /// At another one.
    At(String),
}

/// The other replicas of a cluster.
pub trait Peers: Send + Sync {
    /// Name of this replica.
    fn own_name(&self) -> &str;

    /// Name of this replica's machine.
    fn own_machine(&self) -> String;

    /// The replica that holds a host. If none does, one that is alive is chosen; every replica
    /// chooses the same one.
    fn place_of_host<'a>(&'a self, host: &'a str) -> BoxFuture<'a, Result<HostPlace, StoreError>>;

    /// Resolves when the cluster's data is lost, so that this replica must end.
    fn lost(&self) -> BoxFuture<'_, ()>;

    /// Remembers for a day that a client has cancelled a task.
    fn cancel_task<'a>(&'a self, task: &'a str) -> BoxFuture<'a, Result<(), StoreError>>;

    /// Whether a client has cancelled a task, at any replica.
    fn is_task_cancelled<'a>(&'a self, task: &'a str) -> BoxFuture<'a, Result<bool, StoreError>>;

    /// Whether the lease of this replica was renewed in time, so that it may act for its hosts.
    fn may_act(&self) -> bool;

    /// Whether this replica holds a host, as far as it knows.
    fn holds(&self, host: &str) -> bool;

    /// What this replica knows of itself and the others without a call.
    fn own_status(&self) -> OwnStatus;

    /// Hosts that this replica should hand over, because it leaves or because another replica has
    /// entered.
    fn misplaced_hosts(&self) -> Vec<String>;

    /// From now on no other replica chooses this one for a host, and [`misplaced_hosts`] has all
    /// hosts of this one.
    ///
    /// [`misplaced_hosts`]: Self::misplaced_hosts
    fn prepare_to_leave(&self) -> BoxFuture<'_, Result<(), StoreError>>;

    /// Gives a host to a replica, which takes over its jobs at once: to the named one, or else to
    /// the one that should hold it. Returns false if no other replica is alive.
    fn hand_over<'a>(
        &'a self,
        host: &'a str,
        to: Option<&'a str>,
    ) -> BoxFuture<'a, Result<bool, StoreError>>;

    /// Asks the replica that holds a host to hand it over to this one. Returns whether it has, within
    /// some seconds.
    fn ask_for_host<'a>(&'a self, host: &'a str) -> BoxFuture<'a, Result<bool, StoreError>>;

    /// Names of the other replicas that are there now.
    fn others(&self) -> BoxFuture<'_, Result<Vec<String>, StoreError>>;

    /// Whether a replica is another one, and alive.
    fn is_other(&self, replica: &str) -> bool;

    /// Connects to another replica. Streams have backpressure, and end with an error if the other
    /// replica dies.
    fn connect<'a>(&'a self, replica: &'a str) -> BoxFuture<'a, io::Result<Box<dyn PeerStream>>>;

    /// Waits for the next connection of another replica.
    fn accept(&self) -> BoxFuture<'_, io::Result<Box<dyn PeerStream>>>;
}
