//! Notifications of what happens to jobs. Pure: it gets the time and the ids from its callers, who
//! keep the outbox and send.
//!
//! # Theory of operation
//!
//! An [`Occasion`] of a job, such as its end, becomes one [`Delivery`] for each target, with the
//! [`Notification`] as it is at that moment. The [`Outbox`] is a list that all processes with the same store
//! share. The process that sends a delivery claims it for a minute first; if that process dies, another one
//! claims it again. The id of a message follows from its content, so that a receiver recognizes a second
//! copy, and two processes that notice the same thing add one delivery. A delivery
//! that fails is tried again with growing pauses, and given up after a day.

mod delivery;
mod message;
mod outbox;
mod receiver;
mod signature;

pub use delivery::{Delivery, DeliveryAttempt, DeliveryState};
pub use message::{Notification, NotifiedJob, Occasion, shortened};
pub use outbox::{GIVEN_UP_AFTER, Outbox};
pub use receiver::{Receiver, check_url};
pub use signature::{BadSigningKey, ReceiverKey};
