//! Addresses of streams.

use std::fmt;

use serde::Deserialize;

/// An end of a stream: a TCP port or a unix socket.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Deserialize)]
#[serde(try_from = "String")]
pub enum Endpoint {
    /// A port of a host. As a listener, the host is the address to bind.
    Tcp {
        /// Name or address, without brackets.
        host: String,
        /// Port; 0 lets the listening side choose one.
        port: u16,
    },
    /// A unix socket, by its absolute path.
    Unix(String),
}

/// A text that is not an endpoint.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadEndpoint {
    /// Not an address.
    #[error("{0:?} is neither HOST:PORT nor an absolute path of a socket")]
    Address(String),
    /// Its port is too large.
    #[error("{0:?} has a port above 65535")]
    Port(String),
    /// An address without a host, or with port 0.
    #[error("nothing can connect to {0:?}: a target has a host and a port from 1 to 65535")]
    Target(String),
}

impl Endpoint {
    /// A TCP port.
    pub fn tcp(host: impl Into<String>, port: u16) -> Self {
        Self::Tcp {
            host: host.into(),
            port,
        }
    }

    /// Parses `HOST:PORT`, `[ADDRESS]:PORT`, `PORT` or `/PATH`. A port alone is on `default_host`.
    ///
    /// # Errors
    /// [`BadEndpoint`].
    pub fn parse(text: &str, default_host: &str) -> Result<Self, BadEndpoint> {
        let bad = BadEndpoint::Address(text.to_owned());
        if text.starts_with('/') {
            if text.contains('\0') || text.ends_with('/') {
                return Err(bad);
            }
            return Ok(Self::Unix(text.to_owned()));
        }
        let (host, port) = text.rsplit_once(':').unwrap_or((default_host, text));
        if port.is_empty() || !port.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(bad);
        }
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        // Colons of an address need brackets: in `::1:22` nobody knows where the port begins.
        if bare.is_none() && host.contains(':') {
            return Err(bad);
        }
        let host = bare.unwrap_or(host);
        // A host with a slash would be shown as the path of a socket; one with brackets or spaces is not the
        // name of a host.
        if host.contains(|c: char| c.is_control() || c.is_whitespace() || "/[]".contains(c)) {
            return Err(bad);
        }
        // Digits alone are a number, unless it is too large.
        let port = port.parse().map_err(|_| BadEndpoint::Port(text.to_owned()))?;
        Ok(Self::tcp(host, port))
    }

    /// Parses an endpoint that streams are connected to.
    ///
    /// # Errors
    /// [`BadEndpoint`].
    pub fn parse_target(text: &str, default_host: &str) -> Result<Self, BadEndpoint> {
        let endpoint = Self::parse(text, default_host)?;
        match &endpoint {
            Self::Tcp { host, port } if host.is_empty() || *port == 0 => {
                Err(BadEndpoint::Target(text.to_owned()))
            }
            Self::Tcp { .. } | Self::Unix(_) => Ok(endpoint),
        }
    }

    /// Whether only processes of the same machine can connect to it, if it listens there.
    pub fn is_local(&self) -> bool {
        match self {
            Self::Unix(_) => true,
            Self::Tcp { host, .. } => {
                let address = host.parse::<std::net::IpAddr>();
                host == "localhost" || address.is_ok_and(|address| address.is_loopback())
            }
        }
    }
}

/// A target, as configurations name it. A port alone is on this machine's loopback.
impl TryFrom<String> for Endpoint {
    type Error = BadEndpoint;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        Self::parse_target(&text, "127.0.0.1")
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Self::Tcp { host, port } => write!(f, "{host}:{port}"),
            Self::Unix(path) => write!(f, "{path}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_are_shown_as_they_are_parsed() {
        for text in ["web1:80", "[::1]:8080", "/run/app.sock", "127.0.0.1:0"] {
            assert_eq!(Endpoint::parse(text, "x").unwrap().to_string(), text);
        }
        assert_eq!(
            Endpoint::parse("80", "localhost"),
            Ok(Endpoint::tcp("localhost", 80))
        );
    }

    #[test]
    fn what_is_neither_a_host_nor_a_path_is_refused() {
        for text in [
            "::1:80",
            "web1:http",
            "web1:+80",
            "web1:",
            "",
            "relative/socket",
            "relative/socket:80",
            "[/run/app.sock]:80",
            "[[::1]]:80",
            "web 1:80",
            "/run/\0app.sock",
            "/run/",
            "/",
        ] {
            let refused = Endpoint::parse(text, "localhost");
            assert_eq!(
                refused,
                Err(BadEndpoint::Address(text.to_owned())),
                "{text}"
            );
        }
        for text in ["web1:65536", "70000", "[::1]:99999999999999999999"] {
            let refused = Endpoint::parse(text, "localhost");
            assert_eq!(refused, Err(BadEndpoint::Port(text.to_owned())), "{text}");
        }
    }

    #[test]
    fn a_target_has_a_host_and_a_port() {
        for text in [":80", "[]:80", "web1:0", "0"] {
            let refused = Endpoint::parse_target(text, "localhost");
            assert_eq!(refused, Err(BadEndpoint::Target(text.to_owned())), "{text}");
        }
        for text in ["web1:80", "[::1]:65535", "/run/app.sock"] {
            let target = Endpoint::parse_target(text, "localhost").unwrap();
            assert_eq!(target.to_string(), text);
        }
    }

    #[test]
    fn loopback_addresses_are_local() {
        assert!(Endpoint::tcp("127.0.0.9", 1).is_local());
        assert!(Endpoint::tcp("::1", 1).is_local());
        assert!(!Endpoint::tcp("0.0.0.0", 1).is_local());
        assert!(!Endpoint::tcp("", 1).is_local());
    }
}
