//! Values that replies omit because they carry no information.

#![expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde hands over references"
)]

pub(super) fn is_zero(number: &u64) -> bool {
    *number == 0
}

pub(super) fn is_zero_count(count: &usize) -> bool {
    *count == 0
}

pub(super) fn is_one(number: &u64) -> bool {
    *number == 1
}

/// Default for a count that is omitted when it is 1.
pub(super) fn one() -> u64 {
    1
}

pub(super) fn is_false(truth: &bool) -> bool {
    !*truth
}
