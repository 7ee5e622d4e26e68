use serde::{Deserialize, Serialize};

/// The number of a line in its job's output: 1 is the first, 0 is "before the first".
///
/// As a cursor it means "I have read up to here". Eviction does not invalidate it: reading from an
/// evicted number starts at the oldest line left.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct LineNo(u64);

impl LineNo {
    /// Before the first line.
    pub const START: Self = Self(0);

    /// The line with this number.
    pub const fn new(number: u64) -> Self {
        Self(number)
    }

    /// The number itself.
    pub const fn value(self) -> u64 {
        self.0
    }

    /// The line after this one.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }

    /// Number of lines from `earlier` (inclusive) to this one (exclusive); 0 if `earlier` is not
    /// earlier.
    pub const fn since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}
