//! Floor 6: the face for teams, and the only home of axum.
//!
//! [`Server`] listens on an address or a unix socket. What comes in passes one guard (`guard.rs`): Host and Origin are checked, a
//! token tells the caller, and the caller's [`Service`](crate::wire::Service) goes on with the request. Behind it lie the JSON API
//! (`/v1/`), job output as server-sent events, as exact bytes and as a session, and what else is [mounted](Mount), such as MCP.
//! Connections, calls in flight, headers, bodies and the time that a client may take are bounded.

mod accept;
mod addresses;
mod attach;
mod calls;
mod events;
mod failures;
mod guard;
mod in_flight;
mod listen;
mod metrics;
mod mount;
mod names;
mod openapi;
mod options;
mod peer;
mod raw;
mod reject;
mod room;
mod router;
mod server;
mod status;
mod tls;

pub use addresses::Addresses;
pub use mount::Mount;
pub use options::{Options, TlsFiles};
pub use server::{Server, ServerError};
pub use tls::TlsError;
