use crate::hosts::HostRef;

/// How a pool makes a connection.
pub trait Connect: Send + Sync + 'static {
    /// What is pooled.
    type Connection: Pooled;
    /// Why none could be made.
    type Error: Send + Sync;

    /// Makes a connection to `host`, in bounded time.
    fn connect(&self, host: &HostRef) -> impl Future<Output = Result<Self::Connection, Self::Error>> + Send;

    /// Whose connections a caller uses to reach a host: those of everybody who logs in with the same credentials are shared.
    fn shared(&self, host: &HostRef) -> HostRef {
        host.clone()
    }

    /// Whether `host` is from now on reached over connections of the caller's own, since sharing has failed.
    fn separate(&self, _host: &HostRef, _error: &Self::Error) -> bool {
        false
    }
}

/// What a pool must know of a connection.
pub trait Pooled: Send + Sync + 'static {
    /// Whether it is gone.
    fn is_closed(&self) -> bool;

    /// Whether so much comes over it just now that another channel would suffer.
    fn is_heavy(&self) -> bool;

    /// Whether it did not answer when it was asked for a sign of life, and has not been heard of since.
    fn is_suspect(&self) -> bool;
}
