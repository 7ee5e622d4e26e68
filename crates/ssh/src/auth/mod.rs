//! Logging in (RFC 4252): keys and certificates of the agent and of files, keyboard-interactive,
//! passwords.
//!
//! Keys and passwords come from [`LoginSecrets`], which remembers successful ones and lets a
//! [`Prompter`] ask a person.

mod become_password;
mod key_file;
mod login;
mod offer;
mod passwords;
mod prompter;
mod public_keys;
mod secrets;
mod signer;

pub use become_password::BecomePassword;
pub use prompter::{Answer, Askpass, Prompter, Question};
pub use secrets::LoginSecrets;

pub(super) use login::Login;
