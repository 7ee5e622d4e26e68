//! The verbs, in this process or on a running server.
//!
//! [`Api`] is the same for both: a [`Service`](crate::Service) of this process, or a
//! [`ServerClient`] that calls a server over HTTP, on an address or a unix socket. [`Running`] is a
//! command that is followed byte by byte in either.

mod address;
mod api;
mod client;
mod dial;
mod event_watch;
mod fetched_files;
mod running;
mod session;
mod shown;

pub use address::{BadAddress, ServerAddress};
pub use api::Api;
pub use client::ServerClient;
pub use event_watch::{EventWatch, WatchedEvents};
pub use fetched_files::FilesOfJob;
pub use running::{Control, Running};
pub use session::{Handle, JobSession};
pub use shown::NextBytes;
