/// The address at which a client has found the server, without a slash at its end: an extension of a request, for answers that
/// name another address of the same server.
#[derive(Clone, Debug)]
pub struct ReachedAt(pub String);
