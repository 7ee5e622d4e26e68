//! What is forwarded.

use std::fmt;

use sshjobs_ssh::{BadEndpoint, Endpoint};

/// What is forwarded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ForwardSpec {
    /// Listens on this machine; the host connects to the target (`ssh -L`).
    Local {
        /// Where this machine listens.
        listen: Endpoint,
        /// What the host connects to.
        target: Endpoint,
    },
    /// Listens on the host; this machine connects to the target (`ssh -R`).
    Remote {
        /// Where the host listens.
        listen: Endpoint,
        /// What this machine connects to.
        target: Endpoint,
    },
    /// Listens on this machine as a SOCKS5 proxy; the host connects to what clients name
    /// (`ssh -D`).
    Dynamic {
        /// Where this machine listens.
        listen: Endpoint,
    },
}

/// A text that is not a forward.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadForward {
    /// An address is wrong.
    #[error(transparent)]
    Endpoint(#[from] BadEndpoint),
    /// There are too few or too many parts.
    #[error("{0:?} is not [BIND:]PORT:HOST:PORT; a socket's path stands for an address and a port")]
    Parts(String),
}

/// Address of listeners that name none.
const LOOPBACK: &str = "127.0.0.1";
/// The same on the host, which knows its own addresses.
const REMOTE_LOOPBACK: &str = "localhost";

impl ForwardSpec {
    /// Parses the argument of `ssh -L`: `[BIND:]PORT:HOST:PORT`, with a socket's path in the place
    /// of either end.
    ///
    /// # Errors
    /// [`BadForward`].
    pub fn local(text: &str) -> Result<Self, BadForward> {
        let (listen, target) = ends(text, LOOPBACK)?;
        Ok(Self::Local { listen, target })
    }

    /// Parses the argument of `ssh -R`.
    ///
    /// # Errors
    /// [`BadForward`].
    pub fn remote(text: &str) -> Result<Self, BadForward> {
        let (listen, target) = ends(text, REMOTE_LOOPBACK)?;
        Ok(Self::Remote { listen, target })
    }

    /// Parses the argument of `ssh -D`: `[BIND:]PORT`.
    ///
    /// # Errors
    /// [`BadForward`].
    pub fn dynamic(text: &str) -> Result<Self, BadForward> {
        let listen = Endpoint::parse(text, LOOPBACK)?;
        Ok(Self::Dynamic { listen })
    }

    /// Where it listens.
    pub fn listen(&self) -> &Endpoint {
        match self {
            Self::Local { listen, .. } | Self::Remote { listen, .. } | Self::Dynamic { listen } => {
                listen
            }
        }
    }

    /// What streams are connected to. `None` if clients name it.
    pub fn target(&self) -> Option<&Endpoint> {
        match self {
            Self::Local { target, .. } | Self::Remote { target, .. } => Some(target),
            Self::Dynamic { .. } => None,
        }
    }

    /// The same forward at the place where it listens now.
    #[must_use]
    pub(super) fn bound_to(&self, listen: Endpoint) -> Self {
        match self.clone() {
            Self::Local { target, .. } => Self::Local { listen, target },
            Self::Remote { target, .. } => Self::Remote { listen, target },
            Self::Dynamic { .. } => Self::Dynamic { listen },
        }
    }
}

impl fmt::Display for ForwardSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Local { listen, target } => write!(f, "{listen} here to {target} there"),
            Self::Remote { listen, target } => write!(f, "{listen} there to {target} here"),
            Self::Dynamic { listen } => write!(f, "{listen} here to any target there, by SOCKS5"),
        }
    }
}

/// Listening end and target of a forward.
fn ends(text: &str, default_host: &str) -> Result<(Endpoint, Endpoint), BadForward> {
    let parts = split(text);
    let bad = BadForward::Parts(text.to_owned());
    // The target is a socket, or the last two parts.
    let target_parts = match parts.last() {
        Some(last) if last.starts_with('/') => 1,
        _ => 2,
    };
    let Some(listen_parts) = parts.len().checked_sub(target_parts) else {
        return Err(bad);
    };
    let (listen, target) = parts.split_at(listen_parts);
    let is_listener = match listen {
        [_] => true,
        [bind, _] => !bind.starts_with('/'),
        _ => false,
    };
    if !is_listener {
        return Err(bad);
    }
    let listen = Endpoint::parse(&listen.join(":"), default_host)?;
    let target = Endpoint::parse_target(&target.join(":"), default_host)?;
    Ok((listen, target))
}

/// Parts between colons, but not those within the brackets of an address.
fn split(text: &str) -> Vec<&str> {
    let mut is_bracketed = false;
    text.split(|c| {
        match c {
            '[' => is_bracketed = true,
            ']' => is_bracketed = false,
            _ => {}
        }
        c == ':' && !is_bracketed
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn local(text: &str) -> Option<(String, String)> {
        let spec = ForwardSpec::local(text).ok()?;
        Some((spec.listen().to_string(), spec.target()?.to_string()))
    }

    #[test]
    fn forwards_are_written_as_for_ssh() {
        let is = |listen: &str, target: &str| Some((listen.to_owned(), target.to_owned()));
        assert_eq!(local("8080:web:80"), is("127.0.0.1:8080", "web:80"));
        assert_eq!(local("0.0.0.0:8080:web:80"), is("0.0.0.0:8080", "web:80"));
        assert_eq!(local("[::1]:0:[fe80::1]:80"), is("[::1]:0", "[fe80::1]:80"));
        assert_eq!(
            local("5432:/run/db.sock"),
            is("127.0.0.1:5432", "/run/db.sock")
        );
        assert_eq!(local("/tmp/s:web:80"), is("/tmp/s", "web:80"));
        assert_eq!(local("/tmp/s:/run/db.sock"), is("/tmp/s", "/run/db.sock"));
        for text in [
            "",
            "80",
            "web:80",
            "a:b:c:d:e",
            "/s:1:web:80",
            "x:web:80",
            "80::80",
            "80:web:0",
        ] {
            assert_eq!(local(text), None, "{text}");
        }
        let dynamic = ForwardSpec::dynamic("1080").unwrap();
        assert_eq!(dynamic.listen().to_string(), "127.0.0.1:1080");
        let remote = ForwardSpec::remote("9000:localhost:3000").unwrap();
        assert_eq!(remote.listen().to_string(), "localhost:9000");
    }
}
