//! Ages in words.

use std::time::Duration;

/// A time in its largest unit: `45s`, `2m`, `3h`, `5d`.
pub fn in_largest_unit(time: Duration) -> String {
    match time.as_secs() {
        seconds @ 0..60 => format!("{seconds}s"),
        seconds @ 60..3600 => format!("{}m", seconds / 60),
        seconds @ 3600..86_400 => format!("{}h", seconds / 3600),
        seconds => format!("{}d", seconds / 86_400),
    }
}
