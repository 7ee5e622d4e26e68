//! Paths of files on hosts, and the errors about them.

use crate::error::Error;
use sshjobs_core::jobs::{FilesError, RemotePath};

/// A path of a request.
pub(in crate::verbs) fn remote_path(path: &[u8]) -> Result<RemotePath, Error> {
    RemotePath::new(path.to_vec())
        .map_err(|error| sshjobs_core::jobs::Error::from(FilesError::from(error)).into())
}

/// Converts an error, with the host in its hints.
pub(in crate::verbs) fn about(host: &str) -> impl FnOnce(FilesError) -> Error {
    let host = host.to_owned();
    move |error| Error::from(sshjobs_core::jobs::Error::from(error)).about(&host)
}
