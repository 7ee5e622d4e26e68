//! Whether the clock may be trusted to delete old jobs: one that is days ahead for a few seconds must delete nothing.
//!
//! The reading at each sweep is compared with the one before it, also that of an earlier process. While the machine
//! runs, its uptime shows how much time has passed. Over a restart of the machine, only a step back or of many days is
//! a jump.

use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use sshjobs_store::{SharedText, StoreError};

/// The last reading and the doubts about it. Stored, so that short-lived processes know them, too.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct RetentionClock {
    last: Option<ClockReading>,
    /// Since the clock has jumped: milliseconds for which it has held. `None` if it is trusted.
    held: Option<u64>,
}

/// A reading of the machine's clocks, in milliseconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct ClockReading {
    /// Since the Unix epoch.
    wall: u64,
    /// Since the machine was started, also while it slept.
    uptime: u64,
    /// Differs after each start of the machine.
    boot: String,
}

const HOUR: u64 = 3_600_000;
/// Difference from which on the clock has jumped.
const JUMP: u64 = HOUR;
/// Time for which a clock must hold after a jump.
const MUST_HOLD: u64 = 24 * HOUR;
/// Longest time for which a machine is believed to have been off.
const LONGEST_OFF: u64 = 3 * 24 * HOUR;
/// How often a reading is stored while the clock is trusted. The uptime bridges the time between.
const STORED_EVERY: u64 = HOUR;

impl RetentionClock {
    /// Takes a reading. Returns whether the clock is trusted.
    fn judge(&mut self, now: &ClockReading) -> bool {
        let Some(last) = self.last.replace(now.clone()) else { return true };
        // Some containers have an uptime of their own, and the host's boot id.
        let passed = if last.boot == now.boot && now.uptime >= last.uptime {
            now.uptime - last.uptime
        } else {
            now.wall.saturating_sub(last.wall).min(LONGEST_OFF)
        };
        let difference = now.wall.abs_diff(last.wall.saturating_add(passed));
        if difference > JUMP {
            tracing::warn!(
                "the clock has jumped by {} hours: no old job is deleted until it has held for a day",
                difference / HOUR
            );
            self.held = Some(0);
        } else if let Some(held) = self.held {
            let held = held.saturating_add(passed);
            self.held = (held < MUST_HOLD).then_some(held);
        }
        self.held.is_none()
    }

    /// Whether the stored state has to be replaced by this one.
    fn differs_much_from(&self, stored: &Self) -> bool {
        let (Some(now), Some(last)) = (&self.last, &stored.last) else { return true };
        self.held != stored.held
            || now.boot != last.boot
            || now.wall.abs_diff(last.wall) >= STORED_EVERY
    }
}

impl ClockReading {
    /// The clocks of this machine now.
    pub(super) fn now() -> Self {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
        let seconds_up = std::fs::read_to_string("/proc/uptime").ok().and_then(|text| {
            let seconds: f64 = text.split(' ').next()?.parse().ok()?;
            Some(seconds)
        });
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok();
        Self {
            wall: u64::try_from(wall).unwrap_or(u64::MAX),
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "a cast of a float saturates"
            )]
            uptime: seconds_up.map_or(0, |seconds| (seconds * 1000.0) as u64),
            // Without either, each reading counts as one after a restart.
            boot: match (boot, seconds_up) {
                (Some(boot), Some(_)) => boot.trim().to_owned(),
                _ => format!("unknown-{wall}"),
            },
        }
    }
}

/// Takes a reading, and stores the new state. Returns whether the clock is trusted. Blocking.
///
/// # Errors
/// If the state can't be read: then it is not known whether the clock has jumped.
pub(super) fn is_clock_trusted(
    text: &dyn SharedText,
    now: &ClockReading,
) -> Result<bool, StoreError> {
    text.refresh()?;
    let current = text.read();
    // Damaged state counts as none.
    let stored: RetentionClock = serde_json::from_str(&current.text).unwrap_or_default();
    let mut clock = stored.clone();
    let is_trusted = clock.judge(now);
    if clock.differs_much_from(&stored) {
        let changed = serde_json::to_string(&clock).expect("numbers and text can be written");
        match text.replace(&changed, current.version) {
            // Another process was faster. The next sweep looks again.
            Ok(false) => return Ok(false),
            Ok(true) => {}
            // A full disk must not keep old jobs.
            Err(error) => tracing::warn!(%error, "the time of this sweep could not be stored"),
        }
    }
    Ok(is_trusted)
}

#[cfg(test)]
mod tests {
    use super::*;
    use sshjobs_store::MemoryText;

    const DAY: u64 = 24 * HOUR;

    fn reading(boot: &str, wall: u64, uptime: u64) -> ClockReading {
        ClockReading {
            wall,
            uptime,
            boot: boot.to_owned(),
        }
    }

    /// The answers to readings in turn, by processes that share their state.
    fn answers(readings: &[ClockReading]) -> Vec<bool> {
        let text = MemoryText::default();
        readings
            .iter()
            .map(|reading| is_clock_trusted(&text, reading).unwrap())
            .collect()
    }

    #[test]
    fn a_clock_that_goes_on_is_trusted_also_after_long_pauses() {
        let readings = [
            reading("a", 100 * DAY, HOUR),
            reading("a", 100 * DAY + 30_000, HOUR + 30_000),
            // The program has not run for a month.
            reading("a", 130 * DAY, 30 * DAY + HOUR),
            // The machine was off for two days.
            reading("b", 132 * DAY, 60_000),
        ];
        assert_eq!(answers(&readings), [true; 4]);
    }

    #[test]
    fn a_clock_that_has_jumped_is_trusted_after_a_day() {
        for jump in [2 * HOUR, 16 * DAY] {
            let readings = [
                reading("a", 100 * DAY, 0),
                reading("a", 100 * DAY + jump, 10_000),
                reading("a", 100 * DAY + jump + 23 * HOUR, 23 * HOUR + 10_000),
                reading("a", 101 * DAY + jump, DAY + 10_000),
            ];
            assert_eq!(answers(&readings), [true, false, false, true], "{jump}");
        }
    }

    #[test]
    fn a_clock_that_is_wrong_for_ten_seconds_deletes_nothing_for_a_day() {
        let readings = [
            reading("a", 100 * DAY, 0),
            reading("a", 116 * DAY, 10_000),
            reading("a", 100 * DAY + 20_000, 20_000),
            reading("a", 101 * DAY + 20_000, DAY + 20_000),
        ];
        assert_eq!(answers(&readings), [true, false, false, true]);
    }

    #[test]
    fn a_machine_that_starts_with_a_wrong_clock_is_not_trusted_at_once() {
        for wrong in [90 * DAY, 116 * DAY] {
            let readings = [reading("a", 100 * DAY, 0), reading("b", wrong, 1000)];
            assert_eq!(answers(&readings), [true, false], "{wrong}");
        }
        // A machine that is switched on each day for eight hours: their sum counts.
        let mut readings = vec![reading("a", 100 * DAY, 0), reading("0", 110 * DAY, 0)];
        for day in 0..4 {
            let boot = day.to_string();
            let wall = (110 + day) * DAY;
            readings.push(reading(&boot, wall, 0));
            readings.push(reading(&boot, wall + 8 * HOUR, 8 * HOUR));
        }
        let answers = answers(&readings);
        assert_eq!((answers[1], answers.last()), (false, Some(&true)));
    }

    #[test]
    fn this_machine_has_clocks() {
        let (first, second) = (ClockReading::now(), ClockReading::now());
        assert_eq!(first.boot, second.boot);
        assert!(first.wall > 0 && first.uptime > 0);
    }
}
