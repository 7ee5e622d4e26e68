use std::ops::RangeInclusive;

use schemars::JsonSchema;
use serde::Serialize;

use super::Error;

/// A value that was out of its range, and what was used instead.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(inline)]
pub struct Clamped {
    /// The argument's name.
    pub field: String,
    /// What was asked for.
    pub asked: i64,
    /// What was used.
    pub used: i64,
}

/// Brings values into their ranges and keeps book.
#[derive(Debug, Default)]
pub(super) struct Clamps(pub(super) Vec<Clamped>);

impl Clamps {
    pub(super) fn clamp(&mut self, field: &str, asked: i64, range: RangeInclusive<i64>) -> u64 {
        let used = asked.clamp(*range.start(), *range.end());
        self.note(field, asked, used);
        u64::try_from(used).unwrap_or(0)
    }

    /// A size: a negative one is a mistake.
    pub(super) fn size(
        &mut self,
        field: &str,
        asked: i64,
        range: RangeInclusive<i64>,
    ) -> Result<usize, Error> {
        if asked < 0 {
            let (least, most) = (range.start(), range.end());
            return Err(Error::invalid(
                format!("{field} can't be negative"),
                format!("use {least} to {most}, or leave it away"),
            ));
        }
        Ok(usize::try_from(self.clamp(field, asked, range)).unwrap_or(usize::MAX))
    }

    /// A wait: under 10 ms is none.
    pub(super) fn wait_ms(&mut self, field: &str, asked: i64, longest: u64) -> u64 {
        let longest = i64::try_from(longest).unwrap_or(i64::MAX);
        let used = if asked < 10 { 0 } else { asked.min(longest) };
        self.note(field, asked, used);
        u64::try_from(used).unwrap_or(0)
    }

    fn note(&mut self, field: &str, asked: i64, used: i64) {
        if asked != used {
            self.0.push(Clamped { field: field.to_owned(), asked, used });
        }
    }
}
