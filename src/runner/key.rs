use crate::job::Caller;

/// An idempotency key, and whose it is.
pub type Key = (Caller, String);
