//! Logging in (RFC 4252): keys and certificates of the agent and of files, keyboard-interactive, passwords.
//!
//! What a login needs to know it has from [`Secrets`], which remember what was right and let a [`Prompter`] ask a person.

mod key_file;
mod login;
mod offer;
mod passwords;
mod prompter;
mod public_keys;
mod secrets;
mod signer;

pub use prompter::{Answer, Askpass, Prompter, Question};
pub use secrets::Secrets;

pub(super) use login::Login;
