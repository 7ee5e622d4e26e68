//! Restarts of a command on its host, and the signal before a time limit.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use regex::Regex;
use serde::{Deserialize, Serialize};

use crate::Signal;

/// When a command is started again after it has ended. The supervisor of a durable job does it, without a connection.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Restart {
    /// After which ends.
    pub after: RestartAfter,
    /// Maximum restarts. `None` for no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub most: Option<u32>,
    /// Failures that count. All, if there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub retry_if: Vec<RetryCondition>,
    /// Whether a reboot of the host counts as a failure.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub after_reboot: bool,
}

/// After which ends a command is started again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RestartAfter {
    /// After an exit status other than 0, and after a signal.
    Failure,
    /// After every end.
    AnyEnd,
}

/// A failure after which a command is started again.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RetryCondition {
    /// This exit status.
    Status(u8),
    /// Output of the attempt with a line that this extended regular expression (POSIX) matches.
    Output(String),
}

/// Error for a text that is no rule for restarts.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
pub enum BadRestart {
    /// The text has another form.
    #[error("{0:?} does not say when to restart")]
    Form(String),
    /// The number is out of range.
    #[error("{0:?} is no number of restarts from 1 to {MOST_RESTARTS}")]
    Number(String),
    /// A condition is empty, too long, or has a line end.
    #[error(
        "{0:?} is no exit status and no regular expression of up to {LONGEST_PATTERN} bytes on one line"
    )]
    Condition(String),
    /// There are too many conditions.
    #[error("more than {MOST_CONDITIONS} conditions are given")]
    TooMany,
    /// The text is not a signal and a time.
    #[error("{0:?} is not SIGNAL@TIME")]
    Warning(String),
}

const MOST_RESTARTS: u32 = 1_000_000;
const MOST_CONDITIONS: usize = 16;
const LONGEST_PATTERN: usize = 200;

impl Restart {
    /// Adds failures that count.
    ///
    /// # Errors
    /// [`BadRestart`] for the first condition that can't be used.
    pub fn only_if(mut self, conditions: &[String]) -> Result<Self, BadRestart> {
        if conditions.len() > MOST_CONDITIONS {
            return Err(BadRestart::TooMany);
        }
        self.retry_if = conditions.iter().map(|text| text.parse()).collect::<Result<_, _>>()?;
        Ok(self)
    }
}

impl FromStr for Restart {
    type Err = BadRestart;

    /// Parses `on-failure[:N]` and `always[:N]`.
    fn from_str(text: &str) -> Result<Self, BadRestart> {
        let (word, number) = match text.split_once(':') {
            Some((word, number)) => (word, Some(number)),
            None => (text, None),
        };
        let after = match word {
            "on-failure" => RestartAfter::Failure,
            "always" => RestartAfter::AnyEnd,
            _ => return Err(BadRestart::Form(text.to_owned())),
        };
        let most = number.map(|number| match number.parse() {
            Ok(most) if (1..=MOST_RESTARTS).contains(&most) => Ok(most),
            Ok(_) | Err(_) => Err(BadRestart::Number(number.to_owned())),
        });
        Ok(Self {
            after,
            most: most.transpose()?,
            retry_if: Vec::new(),
            after_reboot: false,
        })
    }
}

/// The form that is parsed, without conditions.
impl fmt::Display for Restart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.after {
            RestartAfter::Failure => "on-failure",
            RestartAfter::AnyEnd => "always",
        })?;
        self.most.map_or(Ok(()), |most| write!(f, ":{most}"))
    }
}

impl FromStr for RetryCondition {
    type Err = BadRestart;

    fn from_str(text: &str) -> Result<Self, BadRestart> {
        if let Ok(status) = text.parse() {
            return Ok(Self::Status(status));
        }
        let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
        let is_usable = (1..=LONGEST_PATTERN).contains(&text.len())
            && !text.contains(['\n', '\0'])
            && !is_number
            && Regex::new(text).is_ok();
        if is_usable {
            Ok(Self::Output(text.to_owned()))
        } else {
            Err(BadRestart::Condition(text.to_owned()))
        }
    }
}

/// The form that is parsed.
impl fmt::Display for RetryCondition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Status(status) => write!(f, "{status}"),
            Self::Output(pattern) => f.write_str(pattern),
        }
    }
}

/// A signal that a job gets some time before its time limit, to save its work.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct EarlyWarning {
    /// Name of the signal, without `SIG`.
    pub signal: String,
    /// How long before the limit.
    pub before: Duration,
}

impl EarlyWarning {
    /// Parses `SIGNAL@TIME`: the signal, and how long before the time limit it is sent.
    ///
    /// # Errors
    /// [`BadRestart::Warning`].
    pub fn parse(
        text: &str,
        parse_time: impl Fn(&str) -> Option<Duration>,
    ) -> Result<Self, BadRestart> {
        let parsed = text.split_once('@').and_then(|(signal, time)| {
            let signal: Signal = signal.parse().ok()?;
            let before = parse_time(time).filter(|time| !time.is_zero())?;
            Some(Self {
                signal: signal.name().to_owned(),
                before,
            })
        });
        parsed.ok_or_else(|| BadRestart::Warning(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn restarts_are_read_and_shown() {
        for text in ["on-failure", "on-failure:3", "always", "always:1"] {
            assert_eq!(text.parse::<Restart>().unwrap().to_string(), text);
        }
        for (text, bad) in [
            ("", BadRestart::Form(String::new())),
            ("never", BadRestart::Form("never".to_owned())),
            ("always:0", BadRestart::Number("0".to_owned())),
            ("on-failure:-1", BadRestart::Number("-1".to_owned())),
            ("on-failure:x", BadRestart::Number("x".to_owned())),
        ] {
            assert_eq!(text.parse::<Restart>(), Err(bad), "{text}");
        }
    }

    #[test]
    fn conditions_are_a_status_or_a_pattern() {
        let restart: Restart = "always".parse().unwrap();
        let words = ["75".to_owned(), "CUDA (error|out of memory)".to_owned()];
        let restart = restart.only_if(&words).unwrap();
        assert_eq!(restart.retry_if[0], RetryCondition::Status(75));
        let shown: Vec<_> = restart.retry_if.iter().map(ToString::to_string).collect();
        assert_eq!(shown, words);
        for text in ["", "a\nb", "300", "(", "a["] {
            assert!(text.parse::<RetryCondition>().is_err(), "{text:?}");
        }
        assert_eq!(
            restart.only_if(&vec!["1".to_owned(); 17]),
            Err(BadRestart::TooMany)
        );
    }

    #[test]
    fn a_warning_is_a_signal_and_a_time() {
        let seconds = |text: &str| text.parse().ok().map(Duration::from_secs);
        let warning = EarlyWarning::parse("sigusr1@120", seconds).unwrap();
        assert_eq!(
            (warning.signal.as_str(), warning.before.as_secs()),
            ("USR1", 120)
        );
        for text in ["USR1", "@5", "USR1@", "USR1@0", "NONE@5"] {
            assert!(EarlyWarning::parse(text, seconds).is_err(), "{text}");
        }
    }
}
