//! Paths of sockets. `sun_path` limits them to about a hundred bytes, see unix(7).

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

/// Longest path that every system accepts.
const LONGEST: usize = 100;

/// A path to a socket that is short enough for bind and connect. Valid while this value lives.
pub(super) struct ShortPath {
    path: PathBuf,
    /// Descriptor of the directory that the path goes through.
    _directory: Option<File>,
}

impl ShortPath {
    /// Returns a path to the same file: through the descriptor of its directory if the path itself is
    /// too long. The file's name must be short.
    pub(super) fn of(path: &Path) -> io::Result<Self> {
        let directory = path.parent().ok_or(io::ErrorKind::InvalidInput)?;
        let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
        if path.as_os_str().len() <= LONGEST {
            return Ok(Self {
                path: path.to_owned(),
                _directory: None,
            });
        }
        if !cfg!(target_os = "linux") {
            return Err(io::Error::other(
                "the state directory has too long a name for a socket",
            ));
        }
        let directory = File::open(directory)?;
        let path = PathBuf::from(format!("/proc/self/fd/{}", directory.as_raw_fd())).join(name);
        Ok(Self {
            path,
            _directory: Some(directory),
        })
    }

    pub(super) fn as_path(&self) -> &Path {
        &self.path
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_socket_deep_below_is_bound_and_connected_to() {
        let directory = tempfile::tempdir().unwrap();
        let deep = directory.path().join("d".repeat(120));
        std::fs::create_dir(&deep).unwrap();
        let path = deep.join("s.sock");

        let bound = ShortPath::of(&path).unwrap();
        let _listener = tokio::net::UnixListener::bind(bound.as_path()).unwrap();

        let short = ShortPath::of(&path).unwrap();
        assert!(tokio::net::UnixStream::connect(short.as_path()).await.is_ok());
    }
}
