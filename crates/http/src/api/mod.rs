//! The JSON API: verbs, events, raw streams and sessions, and the document that describes them.

pub(crate) mod approvals;
pub(crate) mod attach;
pub(crate) mod audit;
pub(crate) mod calls;
pub(crate) mod conditions;
pub(crate) mod events;
pub(crate) mod export;
pub(crate) mod fetched;
pub(crate) mod files;
pub(crate) mod notifications;
pub(crate) mod openapi;
mod range;
pub(crate) mod raw;
pub(crate) mod screen;
pub(crate) mod updates;
