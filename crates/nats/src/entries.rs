//! Reads of single entries of a bucket.
//!
//! Any server of NATS may answer a read of [`kv::Store`], also one that is behind. One that has just
//! lost its disk is behind with everything: to it, no entry exists.

use async_nats::jetstream::kv;
use async_nats::jetstream::stream::LastRawMessageErrorKind;
use bytes::Bytes;

use super::connection::failed;
use sshjobs_store::StoreError;

/// An entry that exists.
#[derive(Debug)]
pub(super) struct BucketEntry {
    pub(super) value: Bytes,
    /// Its sequence number in the stream of the bucket.
    pub(super) revision: u64,
}

/// Headers of the messages that mark a deleted entry: deleted by a client, and by NATS itself.
const DELETED: [&str; 2] = ["KV-Operation", "Nats-Marker-Reason"];

/// The entry of a key, as the leader has it. For decisions: nothing that it has accepted is missing.
pub(super) async fn exact(
    bucket: &kv::Store,
    key: &str,
) -> Result<Option<BucketEntry>, StoreError> {
    let subject = format!("{}{key}", bucket.prefix);
    match bucket.stream.get_last_raw_message_by_subject(&subject).await {
        Ok(message) => {
            let is_deleted = DELETED.iter().any(|name| message.headers.get(*name).is_some());
            Ok((!is_deleted).then_some(BucketEntry {
                value: message.payload,
                revision: message.sequence,
            }))
        }
        Err(error) if error.kind() == LastRawMessageErrorKind::NoMessageFound => Ok(None),
        Err(error) => Err(failed(error)),
    }
}

/// The value of a key, perhaps not the newest one. Asks the leader only if another server has none.
pub(super) async fn recent(bucket: &kv::Store, key: &str) -> Result<Option<Bytes>, StoreError> {
    if let Some(value) = bucket.get(key).await.map_err(failed)? {
        return Ok(Some(value));
    }
    Ok(exact(bucket, key).await?.map(|entry| entry.value))
}
