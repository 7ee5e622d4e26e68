//! A store on NATS JetStream, which many machines share.
//!
//! # Theory of operation
//!
//! A *replica* is a process with this store. Each has a `Connection` with
//! a thread of its own, and these parts:
//!
//! - `leases`: the replica's own lease, the replicas that are alive, and the hosts that each
//!   holds. Only the holder of a host connects to it and owns its jobs.
//! - `records`: a bucket with a record for each job, and an index of it in the memory of each
//!   replica, which a task keeps up to date.
//! - `tombstones`: what is left of removed jobs.
//! - `cancelled_tasks`: cancelled tasks of MCP clients.
//! - `job_output`: the chunks of each job's output, in one of a few streams.
//! - `entries`: reads of buckets from servers of NATS that may be behind.
//! - `cursors`: a bucket with the cursors of named readers.
//! - `replicas`: streams of bytes between replicas, over which one passes calls on to the holder
//!   of a host.
//! - `shared_text`: texts that all replicas share, such as the list of tokens.
//! - `audit_heads`: hashes of the audit logs, in a stream that refuses to delete any.
//! - `import`: copies a state directory.
//! - `status`: reads the state of the cluster for an operator.
//!
//! Every write names the revision or sequence number that it replaces or follows, so that of two
//! replicas that write at once one is refused. A replica that takes over a job writes a chunk
//! without bytes first: from then on each chunk of the last owner, which expects another chunk
//! before it, is refused, however long that owner was paused.
//!
//! All methods of the store block, and are called by threads that may.

mod audit_heads;
mod cancelled_tasks;
mod chunks;
mod connection;
mod cursors;
mod entries;
mod events;
mod import;
mod job_output;
mod lease_state;
mod leases;
mod nats;
mod nats_store;
mod options;
mod output_streams;
mod race;
mod record_index;
mod record_text;
mod records;
mod replicas;
mod shared_text;
mod status;
mod tombstones;
mod tunnel;

pub use nats::Nats;
pub use nats_store::NatsStore;
pub use options::{NATS_LEASE, NATS_PREFIX, NatsLogin, NatsOptions, NatsTls};
pub use shared_text::NatsText;

#[cfg(test)]
mod tests;
