//! The fuzz targets: each parses bytes of a stranger, and panics if a promise is broken.
//!
//! libFuzzer (`make fuzz`) and the tests (`tests/fuzz.rs`) call them.

mod disk;
mod host;
mod names;
mod requests;
mod terminal;
mod trust;

pub use disk::stored_frames;
pub use host::{answers, follower, sftp};
pub use names::names;
pub use requests::arguments;
pub use terminal::{assembler, renderer, screen};
pub use trust::{known_hosts, policy, secrets};
