//! The configuration at the command line: shown, begun, and extended by a host.

mod add_host;
mod config;
mod init;
mod reference;

pub use add_host::add_host;
pub(super) use add_host::{replace, trouble};
pub use config::{Override, Overrides, config};
pub use init::init;
