//! Streams through a connection (RFC 4254, section 7), for TCP and unix sockets.
//!
//! | file | contents |
//! |---|---|
//! | `closes.rs` | which streams the server has closed |
//! | `endpoint.rs` | addresses |
//! | `stream.rs` | a stream |
//! | `listener.rs` | the listener on the host that a connection has, for forwards from there |

mod closes;
mod endpoint;
mod listener;
mod stream;

pub(crate) use closes::Closes;
pub use endpoint::{BadEndpoint, Endpoint};
pub(crate) use listener::TunnelListener;
pub use stream::Tunnel;
