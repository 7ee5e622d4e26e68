//! Jobs and hosts as resources, and subscriptions to their changes.

mod resource_uri;
pub(crate) mod resources;
pub(crate) mod subscriptions;

pub(crate) use resource_uri::ResourceUri;
pub(crate) use subscriptions::Subscriptions;
