use crate::hosts::HostRef;

/// How a pool makes a connection.
pub trait Connect: Send + Sync + 'static {
    /// Type of the pooled connections.
    type Connection: Pooled;
    /// Why no connection could be made.
    type Error: Send + Sync;

    /// Makes a connection to `host`, in bounded time.
    fn connect(
        &self,
        host: &HostRef,
    ) -> impl Future<Output = Result<Self::Connection, Self::Error>> + Send;

    /// The key under which connections are shared: callers who log in with the same credentials
    /// have the same.
    fn shared(&self, host: &HostRef) -> HostRef {
        host.clone()
    }

    /// Gives the caller connections of its own from now on, if shared ones fail with `error` for
    /// lack of credentials. Returns whether it did, so that the pool tries again with those.
    fn separate(&self, _host: &HostRef, _error: &Self::Error) -> bool {
        false
    }
}

/// Properties of a connection that the pool needs.
pub trait Pooled: Send + Sync + 'static {
    /// Whether it is lost.
    fn is_closed(&self) -> bool;

    /// Whether it carries so much data that another channel would suffer.
    fn is_heavy(&self) -> bool;

    /// Whether it failed to answer a keepalive and no data has arrived since.
    fn is_suspect(&self) -> bool;

    /// Whether it should end after its last channel, and get another one only at the limit of connections.
    fn is_worn_out(&self) -> bool;
}
