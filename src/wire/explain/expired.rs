use crate::jobs::Tombstone;
use crate::wire::{Code, Error, Standing};

/// A job that is known by its tombstone only.
pub(super) fn expired(tombstone: &Tombstone, hint: &str) -> Error {
    let Tombstone { id, host, status, .. } = tombstone;
    let standing = Standing::of(status);
    let message =
        format!("job {id} on {host} {standing} after {} lines, and is no longer kept", status.total_lines);
    Error::new(Code::ExpiredJob, message, hint)
}
