//! Sends notifications to targets outside of sshjobs: webhooks and commands.
//!
//! Each attempt has a time limit; the outbox decides which delivery is tried next. A webhook is called as
//! Standard Webhooks 1.0 describes it. Redirects are not followed, and addresses of private networks are
//! not called unless the target's configuration allows it, so that a caller who chooses a URL can't reach
//! services that only this machine can reach.

mod address;
mod carrier;
mod command;
mod post;
mod target;

pub use carrier::Webhooks;
