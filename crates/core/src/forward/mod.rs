//! Ports and sockets that are forwarded through hosts.
//!
//! A forward listens on this machine or on the host, and connects each stream to a target on the
//! other side. It has a connection of its own, which is made again after it was lost. Streams are
//! opened concurrently, each within ten seconds, so that a target that hangs blocks no other.
//!
//! | file | contents |
//! |---|---|
//! | `spec.rs` | what is forwarded, in ssh's syntax; pure |
//! | `status.rs` | a forward as it is seen |
//! | `forwards.rs` | all forwards of the process: open, list, close |
//! | `forward.rs` | one forward: its connection and its streams |
//! | `lane.rs` | a connection, and whether a client blocks it |
//! | `listener.rs` | listeners and targets on this machine |
//! | `counters.rs` | streams, bytes and errors of a forward |
//! | `socks.rs` | SOCKS5, for forwards whose clients name the target |

mod counters;
mod error;
mod forward;
mod forwards;
mod lane;
mod listener;
mod socks;
mod spec;
mod status;

pub use error::ForwardError;
pub use forward::ForwardOptions;
pub use forwards::Forwards;
pub use spec::{BadForward, ForwardSpec};
pub use status::{ForwardId, ForwardState, ForwardStatus};
