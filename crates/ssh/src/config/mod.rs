//! ssh_config: the settings behind a host's name.
//!
//! A [`Resolver`] turns a name into a [`HostConfig`] as `ssh` does, by running `ssh -G`. Without an
//! ssh program it reads the files itself and refuses lines that it does not understand.
//! [`concrete_aliases`] lists the names.

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
pub use destination::Destination;
pub use error::ConfigError;
pub use host_config::{HostConfig, Methods};
pub use lines::Location;
pub use resolver::Resolver;
pub use secret_source::{SecretError, SecretSource};
pub use settings::HostSettings;
pub use shown::{Setting, SettingSource};

pub(super) use secret_source::{first_line_of, others_can_read};
