//! Floor 5: who calls over the network, and what they may do.
//!
//! A caller shows a token, which the operator has made with a name, a role and hosts. [`Tokens`] is the file of them in the state
//! directory: it keeps no token, only what recognizes one, and whoever looks into it sees a change at once.

mod token;
mod tokens;

pub use token::{Token, TokenEntry};
pub use tokens::{Refused, Tokens, TokensError};
