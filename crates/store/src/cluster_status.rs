//! The state of a cluster: its replicas, hosts and NATS.

use std::time::Duration;

use serde::Serialize;

/// A cluster as it is now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ClusterStatus {
    /// Replicas whose lease has not run out, in the order of their names.
    pub replicas: Vec<ReplicaStatus>,
    /// Hosts that a replica holds or has held, in the order of their names.
    pub hosts: Vec<HostStatus>,
    /// Its NATS.
    pub nats: NatsStatus,
}

/// A replica, as it described itself when it last renewed its lease.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ReplicaStatus {
    /// Its name.
    pub name: String,
    /// Its process.
    pub process: String,
    /// Name of its machine.
    pub machine: String,
    /// Whether it takes further hosts.
    pub state: ReplicaState,
    /// Number of hosts that it holds.
    pub hosts: usize,
    /// Number of its jobs that have not ended.
    pub jobs: usize,
    /// Changes of records that it had not seen yet. Many mean that its lists are old.
    pub lag: u64,
}

/// What a replica does with hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ReplicaState {
    /// It holds hosts and takes further ones.
    Active,
    /// It hands its hosts over and ends.
    Leaving,
    /// It has ended; its entry has not expired yet.
    Ended,
}

/// The holder of a host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct HostStatus {
    /// The host.
    pub host: String,
    /// The replica that holds it. `None` if that has ended: another takes the host when a job needs
    /// it, or when it left durable jobs.
    pub replica: Option<String>,
    /// The fencing token, which grows with each change of the holder.
    pub token: u64,
}

/// The NATS of a cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NatsStatus {
    /// Name of the server that answers.
    pub server: String,
    /// Its version.
    pub version: String,
    /// Time for one message there and back, in microseconds.
    #[serde(rename = "round_trip_us", serialize_with = "microseconds")]
    pub round_trip: Duration,
    /// Its streams.
    pub streams: Vec<StreamStatus>,
}

/// A stream of NATS. Buckets are streams, too.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct StreamStatus {
    /// Its name.
    pub name: String,
    /// Messages in it.
    pub messages: u64,
    /// Bytes on disk.
    pub bytes: u64,
    /// The server that leads it. `None` if there is no leader, so that it takes no message, or if
    /// NATS is a single server.
    pub leader: Option<String>,
    /// Number of servers that have a copy.
    pub copies: usize,
    /// Number of copies that are not up to date.
    pub copies_behind: usize,
}

/// A replica's view of the cluster, from memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnStatus {
    /// Number of replicas that were there at the last look, with this one.
    pub replicas: usize,
    /// Number of hosts that this replica holds.
    pub hosts: usize,
    /// Time since the last renewal of its lease. `None` before the first.
    pub lease_age: Option<Duration>,
    /// Whether the lease was renewed in time.
    pub may_act: bool,
}

impl ClusterStatus {
    /// Problems that need an operator. Empty if all is well.
    pub fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        if !self.replicas.iter().any(|replica| replica.state == ReplicaState::Active) {
            problems.push("no replica takes hosts".to_owned());
        }
        let is_clustered = self.nats.streams.iter().any(|stream| stream.leader.is_some());
        for stream in &self.nats.streams {
            if is_clustered && stream.leader.is_none() {
                problems.push(format!("the stream {} has no leader", stream.name));
            }
            if stream.copies_behind > 0 {
                problems.push(format!(
                    "{} of {} copies of the stream {} are not up to date",
                    stream.copies_behind, stream.copies, stream.name
                ));
            }
        }
        problems
    }
}

fn microseconds<S: serde::Serializer>(time: &Duration, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_u64(u64::try_from(time.as_micros()).unwrap_or(u64::MAX))
}
