//! ssh_config: what a host's name stands for.
//!
//! A [`Resolver`] turns a name into a [`HostConfig`] the way `ssh` does, by asking `ssh -G`; where there is no ssh program, by
//! reading the files itself and refusing what it does not understand. [`concrete_aliases`] lists the names that there are.

mod aliases;
mod destination;
mod error;
mod expand;
mod fallback;
mod host_config;
mod lines;
mod options;
mod resolver;
mod secret_source;
mod settings;
mod shown;
mod table;

pub use aliases::{Aliases, concrete_aliases};
pub use error::ConfigError;
pub use host_config::{HostConfig, Methods};
pub use lines::Location;
pub use resolver::Resolver;
pub use secret_source::{SecretError, SecretSource};
pub use settings::HostSettings;
pub use shown::{Setting, Source};

pub(super) use secret_source::{first_line_of, others_can_read};
