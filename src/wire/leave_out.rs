//! What replies leave out: values that say nothing.

#![expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands over references")]

pub(super) fn is_zero(number: &u64) -> bool {
    *number == 0
}

pub(super) fn is_none_left(count: &usize) -> bool {
    *count == 0
}

pub(super) fn is_one(number: &u64) -> bool {
    *number == 1
}

/// What a number that is left out for being one was.
pub(super) fn one() -> u64 {
    1
}

pub(super) fn is_false(truth: &bool) -> bool {
    !*truth
}
