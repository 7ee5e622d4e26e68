//! Patterns of files that are copied back from a host when a job has ended.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Files below a job's working directory: names with `*`, `?` and `[…]` as in a shell, and `**` for any number of directories.
/// A directory stands for all files in it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct FetchPattern(String);

/// Why a text is no [`FetchPattern`].
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
pub enum BadFetchPattern {
    /// It has no names, or too many bytes.
    #[error("{0:?} is no pattern of 1 to {LONGEST} bytes")]
    Length(String),
    /// Its files have no place below the directory into which they are copied.
    #[error("{0:?} leads out of the job's working directory")]
    Outside(String),
    /// It has a NUL.
    #[error("{0:?} has a NUL byte")]
    Nul(String),
}

/// Maximum bytes of a pattern.
const LONGEST: usize = 1024;

impl FetchPattern {
    /// Its names, one for each directory and the last for files.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.split('/').filter(|name| !matches!(*name, "" | "."))
    }
}

impl FromStr for FetchPattern {
    type Err = BadFetchPattern;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let is_outside = |name| name == "..";
        let pattern = Self(text.to_owned());
        if text.contains('\0') {
            return Err(BadFetchPattern::Nul(text.to_owned()));
        }
        if text.starts_with(['/', '~']) || text.split('/').any(is_outside) {
            return Err(BadFetchPattern::Outside(text.to_owned()));
        }
        if text.len() > LONGEST || (pattern.names().next().is_none() && !text.starts_with('.')) {
            return Err(BadFetchPattern::Length(text.chars().take(80).collect()));
        }
        Ok(pattern)
    }
}

impl TryFrom<String> for FetchPattern {
    type Error = BadFetchPattern;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<FetchPattern> for String {
    fn from(pattern: FetchPattern) -> Self {
        pattern.0
    }
}

impl fmt::Display for FetchPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_stays_below_the_working_directory() {
        for (text, names) in [
            ("runs/**", &["runs", "**"][..]),
            ("./out//*.csv", &["out", "*.csv"]),
            ("model..bin", &["model..bin"]),
            (".", &[]),
        ] {
            let pattern: FetchPattern = text.parse().unwrap();
            assert_eq!(pattern.names().collect::<Vec<_>>(), names, "{text}");
        }
        for text in ["/etc/passwd", "~/x", "../x", "a/../../x", "a/.."] {
            let refused = text.parse::<FetchPattern>();
            assert_eq!(refused, Err(BadFetchPattern::Outside(text.to_owned())));
        }
        for text in ["", &"x".repeat(LONGEST + 1)] {
            let refused = text.parse::<FetchPattern>();
            assert!(matches!(refused, Err(BadFetchPattern::Length(_))), "{text}");
        }
        assert!("a\0b".parse::<FetchPattern>().is_err());
    }
}
