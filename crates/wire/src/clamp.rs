use std::ops::RangeInclusive;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::Error;

/// A value that was out of range, and the value used instead; or a text that was read as another type.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct Clamped {
    /// The argument's name.
    pub field: String,
    /// The requested value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked: Option<i64>,
    /// The value used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used: Option<i64>,
    /// The type as which a text was read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_as: Option<String>,
}

impl Clamped {
    /// A text that was read as another type. It is not quoted: it may be a variable with a password.
    pub(super) fn of_text(field: &str, kind: &str) -> Self {
        Self {
            field: field.to_owned(),
            asked: None,
            used: None,
            read_as: Some(kind.to_owned()),
        }
    }
}

/// Brings values into their ranges and records the changes.
#[derive(Debug, Default)]
pub(super) struct Clamps(pub(super) Vec<Clamped>);

impl Clamps {
    pub(super) fn clamp(&mut self, field: &str, asked: i64, range: RangeInclusive<i64>) -> u64 {
        let used = asked.clamp(*range.start(), *range.end());
        self.note(field, asked, used);
        // No range begins below 0, so this never fails.
        u64::try_from(used).unwrap_or(0)
    }

    /// A size. A negative one is an error.
    pub(super) fn size(
        &mut self,
        field: &str,
        asked: i64,
        range: RangeInclusive<i64>,
    ) -> Result<usize, Error> {
        if asked < 0 {
            let least = range.start();
            let most = range.end();
            return Err(Error::invalid(
                format!("{field} can't be negative"),
                format!("use {least} to {most}, or omit it"),
            ));
        }
        Ok(usize::try_from(self.clamp(field, asked, range)).unwrap_or(usize::MAX))
    }

    /// A wait. Less than 10 ms is 0.
    pub(super) fn wait_ms(&mut self, field: &str, asked: i64, longest: u64) -> u64 {
        let longest = i64::try_from(longest).unwrap_or(i64::MAX);
        let used = if asked < 10 { 0 } else { asked.min(longest) };
        self.note(field, asked, used);
        u64::try_from(used).unwrap_or(0)
    }

    fn note(&mut self, field: &str, asked: i64, used: i64) {
        if asked != used {
            self.0.push(Clamped {
                field: field.to_owned(),
                asked: Some(asked),
                used: Some(used),
                read_as: None,
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Code;

    #[test]
    fn a_value_out_of_range_is_clamped_and_reported() {
        let mut clamps = Clamps::default();
        assert_eq!(clamps.clamp("max_lines", 50, 1..=100), 50);
        assert_eq!(clamps.clamp("max_lines", 500, 1..=100), 100);
        assert_eq!(clamps.clamp("since_line_no", -5, 0..=100), 0);
        let told: Vec<_> = clamps
            .0
            .iter()
            .map(|clamped| (&*clamped.field, clamped.asked, clamped.used))
            .collect();
        assert_eq!(
            told,
            [
                ("max_lines", Some(500), Some(100)),
                ("since_line_no", Some(-5), Some(0))
            ]
        );
    }

    #[test]
    fn a_negative_size_is_a_mistake_and_says_what_can_be() {
        let mut clamps = Clamps::default();
        let error = clamps.size("max_bytes", -1, 1..=10).unwrap_err();
        assert_eq!(
            (error.code, &*error.hint),
            (Code::InvalidArgument, "use 1 to 10, or omit it")
        );
        assert_eq!(
            (clamps.size("max_bytes", 0, 1..=10).unwrap(), clamps.0.len()),
            (1, 1)
        );
    }

    #[test]
    fn a_wait_of_less_than_ten_milliseconds_is_none() {
        let mut clamps = Clamps::default();
        let waits =
            [-1, 0, 9, 10, 50, 70_000].map(|asked| clamps.wait_ms("wait_ms", asked, 50_000));
        assert_eq!(waits, [0, 0, 0, 10, 50, 50_000]);
        assert_eq!(
            clamps.0.len(),
            3,
            "none is none, however it is written: {:?}",
            clamps.0
        );
    }
}
