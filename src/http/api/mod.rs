//! The JSON API: verbs, events, raw streams and sessions, and the document that describes them.

pub(crate) mod attach;
pub(crate) mod calls;
pub(crate) mod events;
pub(crate) mod openapi;
pub(crate) mod raw;
pub(crate) mod screen;
