//! Files of this machine that an agent may copy: below the configured roots, and nowhere else.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use cap_std::ambient_authority;
use cap_std::fs::Dir;

use super::Service;
use super::error::{Code, Error};

/// A file of this machine that may be written.
pub(super) struct PathBelowRoot {
    /// Its open directory, which stays the same even if a link takes its place.
    directory: OwnedFd,
    /// What the caller named, without its last name.
    named: PathBuf,
    name: PathBuf,
}

impl PathBelowRoot {
    /// A path to the file.
    pub(super) fn path(&self) -> PathBuf {
        if cfg!(target_os = "linux") {
            // Through the open directory, so that a link that takes its place is not followed.
            let directory = format!("/proc/self/fd/{}", self.directory.as_raw_fd());
            return Path::new(&directory).join(&self.name);
        }
        self.named.join(&self.name)
    }
}

impl Service {
    /// Opens a file below a root, to read it.
    pub(super) fn transfer_source(&self, path: &Path) -> Result<File, Error> {
        let (root, below) = self.root_of("from", path)?;
        // Opening a pipe without a writer would take forever.
        let found = root.metadata(&below).map_err(|error| not_usable(path, &error))?;
        if !found.is_file() {
            return Err(Error::invalid(
                format!("from: {} is not a file", path.display()),
                "name a regular file",
            ));
        }
        let file = root.open(below).map_err(|error| not_usable(path, &error))?;
        Ok(file.into_std())
    }

    /// The place of a file below a root, to write it.
    pub(super) fn transfer_place(&self, path: &Path) -> Result<PathBelowRoot, Error> {
        let (root, below) = self.root_of("to", path)?;
        let Some(name) = below.file_name() else {
            return Err(Error::invalid(
                format!("to: {} names no file", path.display()),
                "give the path of the file to write",
            ));
        };
        let parent = below.parent().unwrap_or(Path::new(""));
        let directory = if parent.as_os_str().is_empty() {
            root
        } else {
            root.open_dir(parent).map_err(|error| not_usable(path, &error))?
        };
        Ok(PathBelowRoot {
            directory: directory.into_std_file().into(),
            named: path.parent().unwrap_or(Path::new("/")).to_owned(),
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
