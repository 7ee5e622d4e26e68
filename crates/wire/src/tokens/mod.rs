//! Callers over the network and their rights.
//!
//! A caller presents a token that the operator has created with a name, a role and hosts.
//! [`Tokens`] is their list: a file in the state directory, or a text that the replicas of a cluster
//! share. It has only hashes of tokens. Readers of the file see changes at once, those of the text
//! within a second.

mod error;
mod file;
mod home;
mod shared;
mod token;
mod tokens;

pub use error::TokensError;
pub use token::{Token, TokenEntry};
pub use tokens::{TokenRefusal, Tokens};
