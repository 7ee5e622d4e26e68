/// URL at which the client reached the server, without a final slash.
///
/// The HTTP face adds it to a request as an extension. Replies use it to link to other paths of
/// the same server.
#[derive(Clone, Debug)]
pub struct ReachedAt(pub String);
