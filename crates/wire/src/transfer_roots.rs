//! Files of this machine that an agent may copy: below the configured roots, and nowhere else.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use cap_std::ambient_authority;
use cap_std::fs::Dir;
use rustix::fs::FlockOperation;
use rustix::io::Errno;
use tokio::time::{Instant, sleep};

use super::Service;
use super::error::{Code, Error};

/// How long a copy of a directory waits for another.
const PATIENCE: Duration = Duration::from_secs(10 * 60);
/// Pause between two attempts to lock a root.
const PAUSE: Duration = Duration::from_millis(100);

/// The file or directory at a path below a root.
pub(super) enum FoundBelowRoot {
    File(File),
    Directory(DirectoryBelowRoot),
}

/// An open directory below a root. On Linux it stays the same even if a link takes its place.
pub(super) struct DirectoryBelowRoot {
    opened: OwnedFd,
    /// What the caller named.
    named: PathBuf,
}

impl DirectoryBelowRoot {
    fn new(opened: Dir, named: &Path) -> Self {
        Self {
            opened: opened.into_std_file().into(),
            named: named.to_owned(),
        }
    }

    /// A path to the directory.
    pub(super) fn path(&self) -> PathBuf {
        if cfg!(target_os = "linux") {
            // Through the open directory, so that a link that takes its place is not followed.
            return format!("/proc/self/fd/{}", self.opened.as_raw_fd()).into();
        }
        self.named.clone()
    }
}

/// A file or directory of this machine that may be written.
pub(super) struct PathBelowRoot {
    root: File,
    directory: DirectoryBelowRoot,
    name: PathBuf,
}

impl PathBelowRoot {
    /// A path to it.
    pub(super) fn path(&self) -> PathBuf {
        self.directory.path().join(&self.name)
    }

    /// Locks the root until this value is dropped, waiting for another copy to finish. Otherwise a link
    /// that the other copy brings could lead this one out of the root. Holds between processes, too.
    pub(super) async fn lock_root(&self) -> Result<(), Error> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            match rustix::fs::flock(&self.root, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(()),
                Err(Errno::WOULDBLOCK) if Instant::now() < deadline => sleep(PAUSE).await,
                Err(Errno::WOULDBLOCK) => {
                    return Err(Error::new(
                        Code::Timeout,
                        "another directory is being copied into the same root",
                        "try again when it is done",
                    ));
                }
                Err(error) => return Err(not_usable(&self.path(), &error.into())),
            }
        }
    }
}

impl Service {
    /// Opens a file or a directory below a root, to read it.
    pub(super) fn transfer_source(&self, path: &Path) -> Result<FoundBelowRoot, Error> {
        let (root, below) = self.root_of("from", path)?;
        if below.as_os_str().is_empty() {
            let directory = DirectoryBelowRoot::new(root, path);
            return Ok(FoundBelowRoot::Directory(directory));
        }
        // Opening a pipe without a writer would take forever.
        let found = root.metadata(&below).map_err(|error| not_usable(path, &error))?;
        if found.is_dir() {
            let opened = root.open_dir(&below).map_err(|error| not_usable(path, &error))?;
            let directory = DirectoryBelowRoot::new(opened, path);
            return Ok(FoundBelowRoot::Directory(directory));
        }
        if !found.is_file() {
            return Err(Error::invalid(
                format!("from: {} is not a file or a directory", path.display()),
                "name a regular file or a directory",
            ));
        }
        let file = root.open(below).map_err(|error| not_usable(path, &error))?;
        Ok(FoundBelowRoot::File(file.into_std()))
    }

    /// The place of a file or a directory below a root, to write it.
    pub(super) fn transfer_place(&self, path: &Path) -> Result<PathBelowRoot, Error> {
        let (root, below) = self.root_of("to", path)?;
        let Some(name) = below.file_name() else {
            return Err(Error::invalid(
                format!("to: {} names no file", path.display()),
                "give the path of the file or directory to write",
            ));
        };
        // An `O_PATH` descriptor, which the directories here have, can't be locked.
        let lockable = root.open(".").map_err(|error| not_usable(path, &error))?;
        let parent = below.parent().unwrap_or(Path::new(""));
        let directory = if parent.as_os_str().is_empty() {
            root
        } else {
            root.open_dir(parent).map_err(|error| not_usable(path, &error))?
        };
        let named = path.parent().unwrap_or(Path::new("/"));
        Ok(PathBelowRoot {
            root: lockable.into_std(),
            directory: DirectoryBelowRoot::new(directory, named),
            name: name.into(),
        })
    }

    /// The root that contains a path, and the path below it.
    fn root_of(&self, field: &str, path: &Path) -> Result<(Dir, PathBuf), Error> {
        if !self.offers_local_files() {
            return Err(no_local_files(field));
        }
        let roots = &self.jobs.config().transfer_roots;
        for root in roots {
            if let Ok(below) = path.strip_prefix(root) {
                let opened = Dir::open_ambient_dir(root, ambient_authority());
                let opened = opened.map_err(|error| not_usable(root, &error))?;
                return Ok((opened, below.to_owned()));
            }
        }
        let roots: Vec<String> = roots.iter().map(|root| root.display().to_string()).collect();
        Err(Error::new(
            Code::PolicyDenied,
            format!(
                "{field}: {} is not below a root for transfers",
                path.display()
            ),
            format!("use an absolute path below {}", roots.join(" or ")),
        ))
    }
}

/// The error where files of this machine are not offered.
fn no_local_files(field: &str) -> Error {
    Error::new(
        Code::PolicyDenied,
        format!("{field}: this server does not copy files of its own machine"),
        "send or read the content itself, or use `sshjobs put` and `sshjobs get` on that machine; \
         a server on stdin and stdout copies below transfer_roots of its configuration",
    )
}

fn not_usable(path: &Path, error: &io::Error) -> Error {
    let message = format!("can't use {} on this machine: {error}", path.display());
    let kind = error.kind();
    if kind == io::ErrorKind::NotFound {
        let hint = "check the path on the server's machine";
        return Error::new(Code::NoSuchFile, message, hint);
    }
    // Also for a link that leads out of the root.
    if kind == io::ErrorKind::PermissionDenied {
        let hint = "use a path below transfer_roots that no link leads out of";
        return Error::new(Code::PolicyDenied, message, hint);
    }
    Error::new(Code::Io, message, "check the path on the server's machine")
}
