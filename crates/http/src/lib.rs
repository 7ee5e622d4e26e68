//! The face for teams, and the only home of axum.
//!
//! [`HttpServer`] listens on an address or a unix socket. Every request passes one guard (`guard.rs`):
//! Host and Origin are checked, a token identifies the caller, and the caller's
//! [`Service`](sshjobs_wire::Service) is attached. The guard protects the JSON API (`/v1/`), job
//! output as server-sent events, as raw bytes and as a session, and everything else that is
//! [mounted](Mount), such as MCP. Connections, calls in progress, headers, bodies and the time that
//! a client may take are limited.
//!
//! `page` serves the live page at `/`, whose requests are like those of any client.
//!
//! In a cluster, `peers` passes calls on to the replica that has the host.

mod addresses;
mod api;
mod connections;
mod file_address;
mod guard;
mod mount;
pub mod oidc;
mod options;
mod page;
mod peers;
mod prefer;
mod reject;
mod router;
mod server;
mod status;
mod tls;
pub mod webhook;

pub use addresses::Addresses;
pub use mount::Mount;
pub use options::{ServerOptions, TlsFiles};
pub use peers::ClusterPrompters;
pub use server::{HttpServer, ServerError};
pub use tls::{Certificate, TlsError};

pub use crate::oidc::Oidc;
