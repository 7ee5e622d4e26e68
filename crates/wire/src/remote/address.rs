//! Addresses of servers.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use url::Url;

/// Address of a server: `http://HOST:PORT/PREFIX`, `https://…`, or the path of its unix socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerAddress {
    /// Over the network.
    Network {
        /// Whether it uses TLS.
        is_secure: bool,
        /// Name or address.
        host: String,
        /// Port.
        port: u16,
        /// Prefix of all paths, without a final slash.
        prefix: String,
    },
    /// On this machine.
    Socket(PathBuf),
}

/// The text is not a server address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("use http://HOST:PORT, https://HOST, or the path of a socket, such as ./sshjobs.sock")]
pub struct BadAddress;

impl FromStr for ServerAddress {
    type Err = BadAddress;

    fn from_str(text: &str) -> Result<Self, BadAddress> {
        if let Some(path) = text.strip_prefix("unix:") {
            return Ok(Self::Socket(path.into()));
        }
        if text.starts_with(['/', '.']) {
            return Ok(Self::Socket(text.into()));
        }
        let url = Url::parse(text).map_err(|_| BadAddress)?;
        // A user name or password in a URL would be visible in the process list.
        let is_plain =
            url.username().is_empty() && url.password().is_none() && url.query().is_none();
        let is_secure = url.scheme() == "https";
        let is_http = is_secure || url.scheme() == "http";
        if !is_plain || !is_http {
            return Err(BadAddress);
        }
        let host = url.host_str().ok_or(BadAddress)?;
        let port = url.port_or_known_default().ok_or(BadAddress)?;
        let prefix = url.path().trim_end_matches('/').to_owned();
        Ok(Self::Network {
            is_secure,
            // Connecting and TLS need an IPv6 address without brackets; `authority` adds them.
            host: host.trim_matches(['[', ']']).to_owned(),
            port,
            prefix,
        })
    }
}

impl ServerAddress {
    /// Value of the Host header.
    pub(super) fn authority(&self) -> String {
        match self {
            Self::Network { host, port, .. } if host.contains(':') => format!("[{host}]:{port}"),
            Self::Network { host, port, .. } => format!("{host}:{port}"),
            // HTTP/1.1 requires a Host header, and the server accepts every loopback name.
            Self::Socket(_) => "localhost".to_owned(),
        }
    }

    /// A path on the server, with the server's prefix. `path` begins with a slash.
    pub(super) fn path(&self, path: &str) -> String {
        match self {
            Self::Network { prefix, .. } => format!("{prefix}{path}"),
            Self::Socket(_) => path.to_owned(),
        }
    }
}

impl fmt::Display for ServerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Network {
                is_secure, prefix, ..
            } => {
                let scheme = if *is_secure { "https" } else { "http" };
                write!(f, "{scheme}://{}{prefix}", self.authority())
            }
            Self::Socket(path) => write!(f, "{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_a_url_or_a_path() {
        for (text, shown) in [
            ("http://127.0.0.1:8022", "http://127.0.0.1:8022"),
            (
                "https://jobs.example.com/team/",
                "https://jobs.example.com:443/team",
            ),
            ("http://[::1]:8022/", "http://[::1]:8022"),
            ("/run/sshjobs.sock", "/run/sshjobs.sock"),
            ("./s.sock", "./s.sock"),
            ("unix:s.sock", "s.sock"),
        ] {
            assert_eq!(text.parse::<ServerAddress>().unwrap().to_string(), shown);
        }
        for text in [
            "",
            "web1",
            "ftp://web1",
            "http://",
            "http://user:secret@web1",
            "http://web1?x=1",
        ] {
            assert_eq!(text.parse::<ServerAddress>(), Err(BadAddress), "{text:?}");
        }
    }
}
