use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::UnixStream as StdUnixStream;
use std::path::{Path, PathBuf};

use tokio::net::{TcpListener, UnixListener};

use super::room::Places;

/// A network address or a unix socket that accepts connections.
pub(crate) enum Listener {
    Tcp(TcpListener),
    Unix {
        listener: UnixListener,
        _file: SocketFile,
    },
}

/// The file of a unix socket. Removed on drop.
pub(crate) struct SocketFile(PathBuf);

impl Drop for SocketFile {
    fn drop(&mut self) {
        std::fs::remove_file(&self.0).ok();
    }
}

impl Listener {
    pub(crate) async fn tcp(address: SocketAddr) -> io::Result<Self> {
        Ok(Self::Tcp(TcpListener::bind(address).await?))
    }

    /// Maximum connections.
    pub(crate) fn places(&self) -> Places {
        match self {
            Self::Tcp(_) => Places::NETWORK,
            Self::Unix { .. } => Places::SOCKET,
        }
    }

    /// Its network address, if it has one.
    pub(crate) fn address(&self) -> Option<SocketAddr> {
        match self {
            Self::Tcp(listener) => listener.local_addr().ok(),
            Self::Unix { .. } => None,
        }
    }

    /// Listens at a path to which only the owner may connect. Replaces a socket file left by
    /// another server.
    pub(crate) fn unix(path: &Path) -> io::Result<Self> {
        let is_socket = path.symlink_metadata().is_ok_and(|found| found.file_type().is_socket());
        // Only a server that still listens accepts this connection; its file stays.
        if is_socket && StdUnixStream::connect(path).is_err() {
            std::fs::remove_file(path)?;
        }
        let directory = path
            .parent()
            .filter(|parent| !parent.as_os_str().is_empty())
            .unwrap_or(Path::new("."));
        if path.symlink_metadata().is_ok() {
            return Err(io::ErrorKind::AddrInUse.into());
        }
        // In a directory of its own until its mode is set, so that no client connects before.
        // Below `directory`, since a rename can't leave the file system.
        let apart = tempfile::Builder::new().prefix(".sshjobs").tempdir_in(directory)?;
        let made = apart.path().join("s");
        let listener = UnixListener::bind(&made)?;
        std::fs::set_permissions(&made, PermissionsExt::from_mode(0o600))?;
        // A bound socket belongs to its inode, so that it can be reached under the new name.
        std::fs::rename(&made, path)?;
        Ok(Self::Unix {
            listener,
            _file: SocketFile(path.to_owned()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_socket_is_its_owners_and_a_stale_one_is_taken_over() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("sshjobs.sock");
        let listener = Listener::unix(&path).unwrap();
        assert_eq!(
            std::fs::metadata(&path).unwrap().permissions().mode() & 0o777,
            0o600
        );
        assert_eq!(
            Listener::unix(&path).err().unwrap().kind(),
            io::ErrorKind::AddrInUse,
            "it is in use"
        );
        drop(listener);
        assert!(!path.exists());
        // As a killed server leaves it.
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        assert!(Listener::unix(&path).is_ok());
        assert_eq!(
            std::fs::read_dir(directory.path()).unwrap().count(),
            0,
            "nothing is left behind"
        );
    }

    #[tokio::test]
    async fn a_file_that_is_not_a_socket_is_left_alone() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        std::fs::write(&path, "mine").unwrap();
        assert!(Listener::unix(&path).is_err());
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "mine");
    }
}
