//! What every crate of sshjobs may use: locks that survive a panic, files of bounded size, names
//! of hosts, names near to a name, TOML with its lines, and connections to servers.
//!
//! It promises no subject of its own, and imports no other crate of the workspace.

pub mod blocking;
pub mod bounded_file;
#[cfg(feature = "tls")]
pub mod dial;
pub mod host_pattern;
pub mod lock;
pub mod nearest;
pub mod private_socket;
pub mod sync;
pub mod toml_text;
