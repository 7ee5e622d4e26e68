/// URL at which the client reached the server, without a final slash: a request extension for replies that link to another path of the same server.
#[derive(Clone, Debug)]
pub struct ReachedAt(pub String);
