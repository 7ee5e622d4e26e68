//! Tells a write that another one has overtaken from a write that has failed.

use std::error::Error;
use std::time::Duration;

use async_nats::jetstream::context::{PublishError, PublishErrorKind};
use async_nats::jetstream::kv::{CreateError, CreateErrorKind, UpdateError, UpdateErrorKind};
use async_nats::jetstream::{Error as Refusal, ErrorCode};

/// Pause before a read after a lost race: the other write may not be stored yet.
pub(super) const RACE_PAUSE: Duration = Duration::from_millis(10);

/// Whether a conditional write was refused because another one has changed the value, or is about to.
///
/// NATS has two codes for it: 10071 once the other write is stored, and 10164 while the leader still waits for
/// its other servers to store it. async-nats has a kind for the first one only.
pub(super) fn lost_race(error: &(dyn Error + 'static)) -> bool {
    let is_lost = causes(error).any(|cause| {
        if let Some(update) = cause.downcast_ref::<UpdateError>() {
            update.kind() == UpdateErrorKind::WrongLastRevision
        } else if let Some(create) = cause.downcast_ref::<CreateError>() {
            create.kind() == CreateErrorKind::AlreadyExists
        } else if let Some(publish) = cause.downcast_ref::<PublishError>() {
            publish.kind() == PublishErrorKind::WrongLastSequence
        } else {
            false
        }
    });
    is_lost || is_undecided(error)
}

/// Whether the write that was faster is not stored yet: reading may still return what was before it.
pub(super) fn is_undecided(error: &(dyn Error + 'static)) -> bool {
    causes(error).any(|cause| {
        cause.downcast_ref::<Refusal>().is_some_and(|refusal| {
            refusal.error_code() == ErrorCode::STREAM_WRONG_LAST_SEQUENCE_CONSTANT
        })
    })
}

/// An error and its causes.
fn causes<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |error: &&'a (dyn Error + 'static)| {
        (*error).source()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The answer of NATS to a publish, as async-nats reports it.
    fn refused(code: u64) -> PublishError {
        let answer = serde_json::json!({"code": 400, "err_code": code, "description": "wrong last sequence"});
        let refusal: Refusal = serde_json::from_value(answer).unwrap();
        let kind = if code == 10071 {
            PublishErrorKind::WrongLastSequence
        } else {
            PublishErrorKind::Other
        };
        PublishError::with_source(kind, refusal)
    }

    #[test]
    fn both_answers_to_a_racer_that_was_slower_are_a_lost_race() {
        for code in [10071, 10164] {
            let update = UpdateError::from(refused(code));
            let create = CreateError::from(UpdateError::from(refused(code)));
            assert!(lost_race(&refused(code)), "{code}");
            assert!(lost_race(&update), "{code}: {update:?}");
            assert!(lost_race(&create), "{code}: {create:?}");
            assert_eq!(is_undecided(&update), code == 10164);
        }
        assert!(!lost_race(&UpdateError::from(refused(10077))));
        assert!(!lost_race(&UpdateError::new(UpdateErrorKind::TimedOut)));
    }
}
