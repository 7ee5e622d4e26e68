//! ssh_config: the settings behind a host's name.
//!
//! A [`Resolver`] turns a name into a [`HostConfig`] as `ssh` does. It reads the files itself as long as it
//! understands all that they say, because a process for each of thousands of names takes minutes. Files
//! that are not plain it leaves to `ssh -G`. Without an ssh program, it refuses lines that it does not understand.

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
mod ssh_config;
mod table;

pub use aliases::Aliases;
pub use destination::Destination;
pub use error::ConfigError;
pub use host_config::{HostConfig, Methods};
pub use lines::Location;
pub use resolver::{Resolver, SshCache};
pub use secret_source::{SecretError, SecretSource};
pub use settings::HostSettings;
pub use shown::{Setting, SettingSource};

pub(super) use secret_source::{first_line_of, others_can_read};
