//! Reads the state of the cluster for an operator.

use std::collections::BTreeMap;

use async_nats::jetstream::{kv, stream};
use futures_util::TryStreamExt;
use tokio::time::Instant;

use super::connection::{NatsConnection, failed};
use super::lease_state::{Replica, ReplicaPlan};
use super::leases::read_replicas;
use super::options::token_text;
use sshjobs_store::{
    ClusterStatus, HostStatus, NatsStatus, ReplicaState, ReplicaStatus, StoreError, StreamStatus,
};

/// Beginnings of the names of a cluster's buckets and streams, after its prefix.
const STREAMS: [&str; 10] = [
    "audit",
    "cancelled_tasks",
    "cursors",
    "hosts",
    "jobs",
    "keys",
    "output_",
    "replicas",
    "settings",
    "tombstones",
];

/// Reads the state of the cluster. Creates nothing.
pub(super) async fn read_status(connection: &NatsConnection) -> Result<ClusterStatus, StoreError> {
    let Some(replicas) = connection.existing_bucket("replicas").await? else {
        return Err(StoreError::UnusedPrefix(connection.prefix.clone()));
    };
    let replicas = read_replicas(&replicas).await?;
    let newest_record = match connection.existing_bucket("jobs").await? {
        Some(jobs) => jobs.status().await.map_err(failed)?.info.state.last_sequence,
        None => 0,
    };
    let hosts = match connection.existing_bucket("hosts").await? {
        Some(hosts) => read_hosts(&hosts, &replicas).await?,
        None => Vec::new(),
    };
    let described = replicas.into_iter().map(|(name, replica)| ReplicaStatus {
        name,
        process: replica.process,
        machine: replica.machine,
        state: match replica.plan {
            ReplicaPlan::Stay => ReplicaState::Active,
            ReplicaPlan::Leave => ReplicaState::Leaving,
            ReplicaPlan::Gone => ReplicaState::Ended,
        },
        hosts: replica.figures.hosts,
        jobs: replica.figures.jobs,
        lag: newest_record.saturating_sub(replica.figures.newest_record),
    });
    Ok(ClusterStatus {
        replicas: described.collect(),
        hosts,
        nats: read_nats(connection).await?,
    })
}

async fn read_hosts(
    bucket: &kv::Store,
    replicas: &BTreeMap<String, Replica>,
) -> Result<Vec<HostStatus>, StoreError> {
    if bucket.status().await.map_err(failed)?.values() == 0 {
        // An empty bucket sends nothing that could say that it was read.
        return Ok(Vec::new());
    }
    let mut hosts = BTreeMap::new();
    let mut entries = bucket.watch_with_history(">").await.map_err(failed)?;
    while let Some(entry) = entries.try_next().await.map_err(failed)? {
        let is_last = entry.seen_current;
        if entry.operation == kv::Operation::Put
            && let Some(host) = token_text(&entry.key)
        {
            let holder = String::from_utf8_lossy(&entry.value).into_owned();
            let is_there =
                replicas.get(&holder).is_some_and(|replica| replica.plan != ReplicaPlan::Gone);
            let status = HostStatus {
                host: host.clone(),
                replica: is_there.then_some(holder),
                token: entry.revision,
            };
            hosts.insert(host, status);
        }
        if is_last {
            break;
        }
    }
    Ok(hosts.into_values().collect())
}

async fn read_nats(connection: &NatsConnection) -> Result<NatsStatus, StoreError> {
    let asked_at = Instant::now();
    connection.client.flush().await.map_err(failed)?;
    let round_trip = asked_at.elapsed();
    let server = connection.client.server_info();
    let mut streams = Vec::new();
    let mut all = connection.jetstream.streams();
    while let Some(info) = all.try_next().await.map_err(failed)? {
        if is_of_cluster(&info.config.name, &connection.prefix) {
            streams.push(described(info));
        }
    }
    streams.sort_by(|one: &StreamStatus, other| one.name.cmp(&other.name));
    Ok(NatsStatus {
        server: server.server_name,
        version: server.version,
        round_trip,
        streams,
    })
}

/// Whether a stream is one of the cluster with this prefix.
fn is_of_cluster(stream: &str, prefix: &str) -> bool {
    let name = stream.strip_prefix("KV_").unwrap_or(stream);
    let rest = name.strip_prefix(prefix).and_then(|rest| rest.strip_prefix('_'));
    // Another cluster's prefix may begin with this one's.
    rest.is_some_and(|rest| STREAMS.iter().any(|stream| rest.starts_with(stream)))
}

fn described(info: stream::Info) -> StreamStatus {
    let cluster = info.cluster.unwrap_or_default();
    StreamStatus {
        name: info.config.name,
        messages: info.state.messages,
        bytes: info.state.bytes,
        leader: cluster.leader,
        copies: info.config.num_replicas,
        copies_behind: cluster.replicas.iter().filter(|copy| !copy.current).count(),
    }
}
