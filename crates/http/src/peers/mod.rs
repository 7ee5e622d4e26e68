//! Calls between the replicas of a cluster: HTTP/1.1 over the streams between them.
//!
//! A replica that has checked a request's token, but does not have its host, passes the call on to
//! the replica that has it. The caller and its rights go along in a header. The other replica
//! performs the call through its own door, and passes nothing on again.

mod answer;
mod ask;
mod header;
mod pass_on;
mod session;
mod sticky;

pub(crate) use answer::{answer_peers, for_the_caller};
pub use ask::ClusterPrompters;
pub(crate) use ask::ask_route;
pub(crate) use pass_on::{HttpPassOn, pass_on_files};
pub(crate) use session::{WebSocketClient, pass_on_session};
pub(crate) use sticky::{answer_at_replica, stick_to_replica};
