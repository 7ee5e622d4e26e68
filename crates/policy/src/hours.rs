//! Hours of the week in which a rule holds, such as `mon-fri 08:00-18:00`.

use super::request::WeekMinute;

/// Spans of a week, in UTC.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Hours(Vec<HourSpan>);

/// A span of the week: `minutes` minutes, beginning with `from`. It may cross the end of the week.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct HourSpan {
    from: WeekMinute,
    minutes: u16,
}

/// Why hours can't be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a span of hours; write mon-fri 08:00-18:00, times in UTC")]
pub(super) struct BadHours(String);

const DAYS: [&str; 7] = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"];
const DAY: u16 = 24 * 60;

impl Hours {
    /// Reads spans, each as `DAYS HH:MM-HH:MM`; DAYS is a day, or the first and the last of some. A
    /// span whose end is not after its start ends on the next day.
    ///
    /// # Errors
    /// If one can't be read.
    pub(super) fn parse(spans: &[String]) -> Result<Self, BadHours> {
        let mut all = Vec::new();
        for text in spans {
            let (days, from, minutes) = parse_span(text).ok_or_else(|| BadHours(text.clone()))?;
            all.extend(days.into_iter().map(|day| HourSpan {
                from: WeekMinute::new(day, from),
                minutes,
            }));
        }
        Ok(Self(all))
    }

    /// Whether a minute is in one of the spans.
    pub(super) fn contain(&self, minute: WeekMinute) -> bool {
        self.0.iter().any(|span| {
            let since =
                (minute.number() + WeekMinute::COUNT - span.from.number()) % WeekMinute::COUNT;
            since < span.minutes
        })
    }
}

/// Days, the first minute of a day, and the number of minutes.
fn parse_span(text: &str) -> Option<(Vec<u16>, u16, u16)> {
    let (days, times) = text.trim().split_once(' ')?;
    let (first, last) = days.split_once('-').unwrap_or((days, days));
    let (first, last) = (day(first)?, day(last)?);
    let last = if last < first { last + 7 } else { last };
    let days = (first..=last).collect();
    let (from, to) = times.trim().split_once('-')?;
    let (from, to) = (minute_of_day(from)?, minute_of_day(to)?);
    let minutes = if to > from {
        to - from
    } else {
        to + DAY - from
    };
    Some((days, from, minutes))
}

/// A minute of the week, as `mon 10:00`.
pub fn minute_of_week(text: &str) -> Option<WeekMinute> {
    let (name, time) = text.trim().split_once(' ')?;
    Some(WeekMinute::new(day(name)?, minute_of_day(time.trim())?))
}

fn day(name: &str) -> Option<u16> {
    let name = name.to_ascii_lowercase();
    let index = DAYS.iter().position(|day| *day == name)?;
    u16::try_from(index).ok()
}

fn minute_of_day(text: &str) -> Option<u16> {
    let (hours, minutes) = text.split_once(':')?;
    let (hours, minutes): (u16, u16) = (hours.parse().ok()?, minutes.parse().ok()?);
    if hours > 24 || minutes > 59 {
        return None;
    }
    let minute = hours * 60 + minutes;
    (minute <= DAY).then_some(minute)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(span: &str, inside: &[&str], outside: &[&str]) {
        let hours = Hours::parse(&[span.to_owned()]).unwrap();
        for time in inside {
            assert!(
                hours.contain(minute_of_week(time).unwrap()),
                "{time} in {span}"
            );
        }
        for time in outside {
            assert!(
                !hours.contain(minute_of_week(time).unwrap()),
                "{time} not in {span}"
            );
        }
    }

    #[test]
    fn a_span_has_its_first_minute_and_not_its_last() {
        check(
            "mon-fri 08:00-18:00",
            &["mon 08:00", "wed 12:30", "fri 17:59"],
            &["mon 07:59", "fri 18:00", "sat 12:00", "sun 12:00"],
        );
    }

    #[test]
    fn a_span_may_cross_midnight_and_the_end_of_the_week() {
        check(
            "sun 22:00-06:00",
            &["sun 22:00", "mon 05:59"],
            &["sun 21:59", "mon 06:00", "sat 23:00"],
        );
        check(
            "sat 08:00-08:00",
            &["sat 08:00", "sun 07:59"],
            &["sat 07:59", "sun 08:00"],
        );
        check(
            "fri-mon 00:00-24:00",
            &["sun 00:00", "mon 23:59"],
            &["tue 00:00", "thu 23:59"],
        );
    }

    #[test]
    fn other_texts_are_refused() {
        for text in [
            "",
            "mon",
            "8-18",
            "mon 8-18",
            "mon 25:00-26:00",
            "mon 08:60-09:00",
            "moon 08:00-09:00",
        ] {
            assert!(Hours::parse(&[text.to_owned()]).is_err(), "{text:?}");
        }
    }
}
