//! Records as they are written in buckets, and the names of their keys.

use super::connection::failed;
use super::options::subject_token;
use sshjobs_job::Caller;
use sshjobs_store::{Record, StoreError};

/// Key of a job's idempotency key. Callers can't reach each other's.
pub(super) fn key_of(record: &Record) -> Option<String> {
    let Record { caller, key, .. } = record;
    Some(idempotency_key(caller, key.as_ref()?))
}

fn idempotency_key(caller: &Caller, key: &str) -> String {
    format!("{}.{}", subject_token(caller.as_str()), subject_token(key))
}

pub(super) fn write(record: &Record) -> Result<Vec<u8>, StoreError> {
    serde_json::to_vec(record).map_err(failed)
}

pub(super) fn read(bytes: &[u8]) -> Result<Record, StoreError> {
    serde_json::from_slice(bytes).map_err(failed)
}
