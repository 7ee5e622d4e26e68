use crate::Standing;
use crate::error::{Code, Error};
use sshjobs_core::jobs::Tombstone;

/// A job of which only the tombstone is left.
pub(super) fn expired(tombstone: &Tombstone, hint: &str) -> Error {
    let Tombstone {
        id, host, status, ..
    } = tombstone;
    let standing = Standing::of(status);
    let message = format!(
        "job {id} on {host} {standing} after {} lines, and is no longer kept",
        status.total_lines
    );
    Error::new(Code::ExpiredJob, message, hint)
}
