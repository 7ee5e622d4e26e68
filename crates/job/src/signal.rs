//! Names of signals.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// A signal that can be sent to a job: those of RFC 4254 §6.10, and the three for job control.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Signal(&'static str);

/// How a job is signalled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kill {
    /// The signal.
    pub signal: Signal,
    /// Time after which processes that are still alive get KILL, if at all.
    pub grace: Option<Duration>,
}

impl Kill {
    /// A signal, followed by KILL after the grace.
    pub fn new(signal: Signal, grace: Option<Duration>) -> Self {
        Self { signal, grace }
    }
}

/// Names without `SIG`, with the number where all systems agree on it.
const SIGNALS: [(&str, Option<u8>); 16] = [
    ("HUP", Some(1)),
    ("INT", Some(2)),
    ("QUIT", Some(3)),
    ("ILL", Some(4)),
    ("ABRT", Some(6)),
    ("FPE", Some(8)),
    ("KILL", Some(9)),
    ("SEGV", Some(11)),
    ("PIPE", Some(13)),
    ("ALRM", Some(14)),
    ("TERM", Some(15)),
    ("USR1", None),
    ("USR2", None),
    ("STOP", None),
    ("TSTP", None),
    ("CONT", None),
];

/// A text that does not name a signal.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("{0:?} is not a signal")]
pub struct UnknownSignal(pub String);

impl Signal {
    /// Asks a command to end.
    pub const TERM: Self = Self("TERM");
    /// Ends a command without asking.
    pub const KILL: Self = Self("KILL");
    /// Sent by Ctrl-C.
    pub const INT: Self = Self("INT");

    /// The name without `SIG`.
    pub fn name(self) -> &'static str {
        self.0
    }

    /// Whether it usually ends a command.
    pub fn ends(self) -> bool {
        ["HUP", "INT", "QUIT", "ABRT", "KILL", "TERM"].contains(&self.0)
    }

    /// Whether it may end a command. Signals for job control only stop and continue it.
    pub fn may_end(self) -> bool {
        !["STOP", "TSTP", "CONT"].contains(&self.0)
    }

    /// The signal that a shell reports by an exit status of 128 or more.
    pub fn of_status(status: u32) -> Option<Self> {
        Self::of_number(i32::try_from(status.checked_sub(128)?).ok()?)
    }

    /// The signal with this number, where all systems agree on it.
    pub fn of_number(number: i32) -> Option<Self> {
        SIGNALS
            .iter()
            .find(|(_, known): &&(_, Option<u8>)| known.map(i32::from) == Some(number))
            .map(|(name, _)| Self(name))
    }

    /// The names of all signals, for hints.
    pub fn names() -> impl Iterator<Item = &'static str> {
        SIGNALS.iter().map(|(name, _)| *name)
    }
}

impl FromStr for Signal {
    type Err = UnknownSignal;

    /// Parses any usual spelling: `TERM`, `sigterm`, `15`.
    fn from_str(text: &str) -> Result<Self, UnknownSignal> {
        let upper = text.trim().to_ascii_uppercase();
        let name = upper.strip_prefix("SIG").unwrap_or(&upper);
        let number = name.parse::<u8>().ok();
        SIGNALS
            .iter()
            .find(|(known, known_number)| {
                *known == name || (number.is_some() && *known_number == number)
            })
            .map(|(known, _)| Self(known))
            .ok_or_else(|| UnknownSignal(text.to_owned()))
    }
}

impl fmt::Display for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_usual_spelling_names_a_signal() {
        for spelling in ["TERM", "SIGTERM", "sigterm", "15", " term "] {
            assert_eq!(spelling.parse(), Ok(Signal::TERM));
        }
    }

    #[test]
    fn an_unknown_signal_is_refused() {
        for spelling in ["", "SIG", "FOO", "0", "64", "-9", "TERM;reboot"] {
            assert_eq!(
                spelling.parse::<Signal>(),
                Err(UnknownSignal(spelling.to_owned()))
            );
        }
    }
}
