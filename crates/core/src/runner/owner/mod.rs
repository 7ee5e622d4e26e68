//! Calls from one process to another of the same user. An attached job's stdin and terminal belong
//! to the process that started the job, its owner. Each process with jobs listens on a socket
//! beside its file in the state directory, `owners/NAME.sock`.
//!
//! A connection carries one call and its reply ([`message`]). Both ends check that the other is a
//! process of the same user. The client side has already checked the caller's rights. Written data
//! crosses the socket unchanged and is never logged.

mod ask;
mod listen;
mod message;
mod short_path;

pub(super) use ask::OwnerProcess;
pub(super) use listen::listen;
pub(super) use message::{OwnerCall, OwnerReply};
