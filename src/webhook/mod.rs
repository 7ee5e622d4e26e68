//! Floor 5: sends notifications to targets outside of sshjobs: webhooks and commands.
//!
//! A target gets one attempt at a time, with a time limit; the outbox decides when the next one is due. A
//! webhook is called as Standard Webhooks 1.0 says. Redirects are not followed, and addresses of private
//! networks are not called unless the target's configuration allows it: who may choose a URL must not
//! reach what only this machine reaches.

mod address;
mod carrier;
mod command;
mod post;
mod target;

pub use carrier::Webhooks;
