//! Floor 5: callers over the network and their rights.
//!
//! A caller presents a token that the operator has created with a name, a role and hosts.
//! [`Tokens`] is their file in the state directory. It has only hashes of tokens, and readers see
//! changes at once.

mod token;
mod tokens;

pub use token::{Token, TokenEntry};
pub use tokens::{Refused, Tokens, TokensError};
