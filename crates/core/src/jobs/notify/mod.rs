//! Notifications of what happens to jobs.
//!
//! # Theory of operation
//!
//! The configuration names targets, and rules that choose jobs ([`NotifyConfig`]); a caller may name
//! targets for one job. When a job ends, the process that records it adds a delivery for each target to
//! the outbox, which all processes with the same store share. A process that serves also sends: its
//! [`Notifier`] claims deliveries, lets a [`Carrier`] try each, and notes the result. It waits for the
//! next delivery that is due, and looks at the outbox again after a while, because another process may
//! have added one.
//!
//! A server also watches the jobs that it records ([`Jobs::watch`](super::Jobs::watch)) and adds
//! deliveries for their prompts, silences and matching lines.

mod config;
mod notifier;

pub(crate) use config::ChosenBy;
pub use config::{NotifyConfig, NotifyFormat, NotifyOn, NotifyRule, NotifyTarget};
pub use notifier::{Carrier, Notifier};
