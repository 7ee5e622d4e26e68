//! Errors of the contract: stable codes, messages, and hints what to do next.

mod code;
mod error;
mod hint;

pub use code::Code;
pub use error::Error;
pub use hint::Hint;
