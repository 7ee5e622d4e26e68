//! Unix sockets that only their owner can connect to.

use std::io;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::io::{Errno, FdFlags, fcntl_setfd, ioctl_fionbio};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketType, connect, socket};
use tokio::net::{UnixListener, UnixStream};

/// Maximum bytes of a socket's path: `sun_path` without its NUL, unix(7).
const MOST_PATH_BYTES: usize = 107;

/// A unix socket that listens, and that only its owner can connect to. Its file is removed on drop.
pub struct PrivateSocket {
    listener: UnixListener,
    path: PathBuf,
}

impl PrivateSocket {
    /// Listens at a path, in the place of a socket of a program that has ended. Must be called within a tokio
    /// runtime.
    ///
    /// # Errors
    /// `AddrInUse` if another file is there, `InvalidInput` if the path is too long for a socket, or the
    /// error of the file system.
    pub fn bind(path: &Path) -> io::Result<Self> {
        // Checked here, because the socket is made under a short name and then linked, and link(2)
        // accepts paths that are too long to connect to.
        let bytes = path.as_os_str().len();
        if bytes > MOST_PATH_BYTES {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("a socket's path may have {MOST_PATH_BYTES} bytes, not {bytes}"),
            ));
        }
        if is_abandoned(path) {
            std::fs::remove_file(path)?;
        }
        let directory = path
            .parent()
            .filter(|parent| !parent.as_os_str().is_empty())
            .unwrap_or(Path::new("."));
        // Between bind and chmod others could connect, so the socket is made in a directory that
        // only its owner can enter, and then gets its name.
        let private_directory = tempfile::Builder::new()
            .prefix(".sj")
            .rand_bytes(4)
            .tempdir_in(directory)
            // Without the name of the private directory, which the caller did not choose.
            .map_err(|error| io::Error::from(error.kind()))?;
        let made = private_directory.path().join("s");
        let listener = UnixListener::bind(&made)?;
        std::fs::set_permissions(&made, PermissionsExt::from_mode(0o600))?;
        // Not by rename(2), which would replace an existing file.
        std::fs::hard_link(&made, path).map_err(|error| {
            if error.kind() == io::ErrorKind::AlreadyExists {
                io::ErrorKind::AddrInUse.into()
            } else {
                error
            }
        })?;
        Ok(Self {
            listener,
            path: path.to_owned(),
        })
    }

    /// Accepts a connection. Cancel safe.
    pub async fn accept(&self) -> io::Result<UnixStream> {
        let (stream, _) = self.listener.accept().await?;
        Ok(stream)
    }
}

impl Drop for PrivateSocket {
    fn drop(&mut self) {
        // Without a listener it would only be in the way.
        std::fs::remove_file(&self.path).ok();
    }
}

/// Whether a path is a socket at which nothing listens.
fn is_abandoned(path: &Path) -> bool {
    let is_socket = path.symlink_metadata().is_ok_and(|found| found.file_type().is_socket());
    // Another error, such as a missing permission, may come from a socket at which a program listens.
    is_socket && try_to_connect(path) == Err(Errno::CONNREFUSED)
}

/// Connects to a socket and hangs up. Does not wait for a program that accepts no connections.
fn try_to_connect(path: &Path) -> rustix::io::Result<()> {
    let client = socket(AddressFamily::UNIX, SocketType::STREAM, None)?;
    fcntl_setfd(&client, FdFlags::CLOEXEC)?;
    ioctl_fionbio(&client, true)?;
    connect(&client, &SocketAddrUnix::new(path)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_socket_is_replaced_only_after_its_program_has_ended() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("s.sock");
        let other = std::os::unix::net::UnixListener::bind(&path).unwrap();
        let error = PrivateSocket::bind(&path).err().unwrap();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);

        // It accepts none of them. Another one would wait.
        let mut waiting = 0;
        while try_to_connect(&path).is_ok() {
            waiting += 1;
            assert!(waiting < 100_000);
        }
        let error = PrivateSocket::bind(&path).err().unwrap();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);

        drop(other);
        let _socket = PrivateSocket::bind(&path).unwrap();
        UnixStream::connect(&path).await.unwrap();
    }

    #[tokio::test]
    async fn only_the_owner_can_connect_and_no_file_stays() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("s.sock");
        let files = || std::fs::read_dir(directory.path()).unwrap().count();

        let socket = PrivateSocket::bind(&path).unwrap();
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(files(), 1);
        UnixStream::connect(&path).await.unwrap();

        drop(socket);
        assert_eq!(files(), 0);
    }

    #[tokio::test]
    async fn an_existing_file_is_left_alone() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        std::fs::write(&path, "mine").unwrap();

        let error = PrivateSocket::bind(&path).err().unwrap();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "mine");
    }

    #[tokio::test]
    async fn a_path_that_nobody_could_connect_to_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let of_length = |bytes: usize| {
            let name_bytes = bytes - directory.path().as_os_str().len() - "/".len();
            directory.path().join("s".repeat(name_bytes))
        };

        let longest = of_length(MOST_PATH_BYTES);
        let _socket = PrivateSocket::bind(&longest).unwrap();
        UnixStream::connect(&longest).await.unwrap();

        let error = PrivateSocket::bind(&of_length(MOST_PATH_BYTES + 1)).err().unwrap();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    }
}
