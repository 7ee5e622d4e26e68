//! Floor 0: notifications of what happens to jobs. Pure: it gets the time and the ids from its callers, who
//! keep the outbox and send.
//!
//! # Theory of operation
//!
//! An [`Occasion`] of a job, such as its end, becomes one [`Delivery`] for each target, with the
//! [`Message`] as it is at that moment. The [`Outbox`] is a list that all processes with the same store
//! share. A delivery is in it before anything is sent, so a process that dies loses none. Whoever sends
//! claims a delivery for a while first; if it dies, another process claims it again, with the same id.
//! So each message arrives at least once, and a receiver recognizes a second copy by its id. A delivery
//! that fails is tried again with growing pauses, and given up after a day.

mod delivery;
mod message;
mod outbox;
mod receiver;
mod signature;

pub use delivery::{Attempt, Delivery, DeliveryState};
pub use message::{JobFacts, Message, Occasion};
pub use outbox::{GIVEN_UP_AFTER, Outbox};
pub use receiver::Receiver;
pub use signature::{BadSigningKey, SigningKey};
