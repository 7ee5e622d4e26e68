use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Addresses of a server.
#[derive(Clone, Debug)]
pub struct Addresses {
    /// URL of the address it listens on.
    pub url: Option<String>,
    /// Its unix socket.
    pub socket: Option<PathBuf>,
    /// Address of its metrics.
    pub metrics: Option<SocketAddr>,
}

impl fmt::Display for Addresses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let url = self.url.clone();
        let socket = self.socket.as_ref().map(|path| path.display().to_string());
        let metrics = self.metrics.map(|address| format!("http://{address}/metrics"));
        let all: Vec<String> = [url, socket, metrics].into_iter().flatten().collect();
        f.write_str(&all.join(" and "))
    }
}
