//! Listeners and targets on this machine.

use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::time::timeout;

use super::error::ForwardError;
use crate::ssh::Endpoint;

/// A stream of this machine.
pub(super) trait Socket: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Socket for S {}

/// A listener of this machine.
pub(super) enum Listener {
    Tcp(TcpListener),
    Unix {
        listener: UnixListener,
        path: PathBuf,
    },
}

/// Time limit for a target on this machine to accept a stream.
const CONNECT_TIME: Duration = Duration::from_secs(10);

impl Listener {
    /// Listens on an endpoint. A socket is for its owner alone.
    pub(super) async fn bind(at: &Endpoint) -> Result<Self, ForwardError> {
        let bound = match at {
            Endpoint::Tcp { host, port } => {
                // As for ssh, an empty name and a star stand for all (IPv4) addresses.
                let host = if host.is_empty() || host == "*" {
                    "0.0.0.0"
                } else {
                    host
                };
                TcpListener::bind((host, *port)).await.map(Self::Tcp)
            }
            Endpoint::Unix(path) => bind_socket(path),
        };
        bound.map_err(|source| ForwardError::Listen {
            at: at.clone(),
            source: Arc::new(source),
        })
    }

    /// Where it listens; for port 0, with the port that was chosen.
    pub(super) fn endpoint(&self, requested: &Endpoint) -> Endpoint {
        match (self, requested) {
            (Self::Tcp(listener), Endpoint::Tcp { host, port }) => {
                let chosen = listener.local_addr().map_or(*port, |address| address.port());
                Endpoint::tcp(host, chosen)
            }
            _ => requested.clone(),
        }
    }

    pub(super) async fn accept(&self) -> io::Result<Box<dyn Socket>> {
        match self {
            Self::Tcp(listener) => {
                let (stream, _) = listener.accept().await?;
                // A client that has gone already is noticed when it is served.
                stream.set_nodelay(true).ok();
                Ok(Box::new(stream))
            }
            Self::Unix { listener, .. } => {
                let (stream, _) = listener.accept().await?;
                Ok(Box::new(stream))
            }
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Self::Unix { path, .. } = self {
            // Without a listener it would only be in the way.
            std::fs::remove_file(path).ok();
        }
    }
}

/// Maximum bytes of a socket's path: `sun_path` without its NUL, unix(7).
const MOST_PATH_BYTES: usize = 107;

fn bind_socket(path: &str) -> io::Result<Listener> {
    // Checked here, because the socket is made under a short name and then linked, and link(2) accepts paths that are too
    // long to connect to.
    if path.len() > MOST_PATH_BYTES {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!(
                "the socket's path has {} bytes, and {MOST_PATH_BYTES} at most are possible",
                path.len()
            ),
        ));
    }
    let path = PathBuf::from(path);
    // Between bind and chmod others could connect, so the socket is made in a private directory and
    // then gets its name. By a link, because rename would replace an existing file.
    let beside = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let private = tempfile::Builder::new()
        .prefix(".sj")
        .rand_bytes(4)
        .tempdir_in(beside.unwrap_or(Path::new(".")))
        // Without the name of the private directory, which the caller did not choose.
        .map_err(|error| io::Error::from(error.kind()))?;
    let made = private.path().join("s");
    let listener = UnixListener::bind(&made)?;
    std::fs::set_permissions(&made, std::fs::Permissions::from_mode(0o600))?;
    std::fs::hard_link(&made, &path).map_err(|error| {
        if error.kind() == io::ErrorKind::AlreadyExists {
            io::ErrorKind::AddrInUse.into()
        } else {
            error
        }
    })?;
    Ok(Listener::Unix { listener, path })
}

/// Connects to a target of this machine, or one that it reaches.
pub(super) async fn connect(target: &Endpoint) -> io::Result<Box<dyn Socket>> {
    let connecting = async {
        match target {
            Endpoint::Tcp { host, port } => {
                let stream = TcpStream::connect((host.as_str(), *port)).await?;
                stream.set_nodelay(true)?;
                Ok(Box::new(stream) as Box<dyn Socket>)
            }
            Endpoint::Unix(path) => {
                Ok(Box::new(UnixStream::connect(path).await?) as Box<dyn Socket>)
            }
        }
    };
    timeout(CONNECT_TIME, connecting)
        .await
        .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_socket_that_nobody_could_connect_to_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let of_length = |bytes: usize| {
            let before = format!("{}/", dir.path().display());
            format!("{before}{}", "s".repeat(bytes - before.len()))
        };

        let longest = of_length(MOST_PATH_BYTES);
        let _listener = bind_socket(&longest).unwrap();
        UnixStream::connect(&longest).await.unwrap();
        assert!(bind_socket(&of_length(MOST_PATH_BYTES + 1)).is_err());
    }
}
