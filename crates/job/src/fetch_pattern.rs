//! Patterns of files that are copied back from a host when a job has ended.

use std::fmt;
use std::str::FromStr;

use glob::{MatchOptions, Pattern};
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
    #[error("{0:?} must be 1 to {LONGEST} bytes long")]
    Length(String),
    /// It leads out of the working directory.
    #[error("{0:?} leads out of the job's working directory")]
    Outside(String),
    /// One of its names is no pattern of a shell.
    #[error("{0:?} is no pattern: {1}")]
    Name(String, &'static str),
    /// It has a NUL.
    #[error("{0:?} has a NUL byte")]
    Nul(String),
}

/// Maximum bytes of a pattern.
const LONGEST: usize = 1024;

impl FetchPattern {
    /// Its names, one for each directory and the last for files.
    pub fn names(&self) -> Vec<&str> {
        let mut names: Vec<&str> =
            self.0.split('/').filter(|name| !matches!(*name, "" | ".")).collect();
        // Several in a row mean the same as one.
        names.dedup_by(|one, before| one == before && *one == Self::ANY_DEPTH);
        names
    }

    /// The name that stands for any number of directories.
    pub const ANY_DEPTH: &str = "**";

    /// Whether it asks for a file, by the names of its path below the working directory.
    pub fn covers(&self, path: &[&str]) -> bool {
        covers(&self.names(), path)
    }
}

/// As in a shell: `*` does not match a leading point.
const AS_IN_A_SHELL: MatchOptions = MatchOptions {
    case_sensitive: true,
    require_literal_separator: true,
    require_literal_leading_dot: true,
};

fn covers(names: &[&str], path: &[&str]) -> bool {
    let Some((name, names)) = names.split_first() else {
        // A directory stands for all files in it.
        return true;
    };
    if *name == FetchPattern::ANY_DEPTH {
        return (0..=path.len())
            .any(|depth| path.get(depth..).is_some_and(|rest| covers(names, rest)));
    }
    let Some((first, path)) = path.split_first() else { return false };
    let matches = Pattern::new(name).is_ok_and(|name| name.matches_with(first, AS_IN_A_SHELL));
    matches && covers(names, path)
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
        if text.len() > LONGEST || (pattern.names().is_empty() && !text.starts_with('.')) {
            return Err(BadFetchPattern::Length(text.chars().take(80).collect()));
        }
        let bad_name = |name: &&str| *name != Self::ANY_DEPTH && Pattern::new(name).is_err();
        if let Some(name) = pattern.names().into_iter().find(bad_name) {
            let why = if name.contains("**") {
                "** must stand alone between slashes"
            } else {
                "[ needs a ]; write it as [[]"
            };
            return Err(BadFetchPattern::Name(text.to_owned(), why));
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
            ("**/**/a", &["**", "a"]),
        ] {
            let pattern: FetchPattern = text.parse().unwrap();
            assert_eq!(pattern.names(), names, "{text}");
        }
        for text in ["/etc/passwd", "~/x", "../x", "a/../../x", "a/.."] {
            let refused = text.parse::<FetchPattern>();
            assert_eq!(refused, Err(BadFetchPattern::Outside(text.to_owned())));
        }
        for text in ["", &"x".repeat(LONGEST + 1)] {
            let refused = text.parse::<FetchPattern>();
            assert!(matches!(refused, Err(BadFetchPattern::Length(_))), "{text}");
        }
        for text in ["a\0b", "runs/**.csv", "[a", "***"] {
            assert!(text.parse::<FetchPattern>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn a_pattern_covers_what_it_asks_for_and_nothing_else() {
        for (pattern, path, is_covered) in [
            ("out.csv", "out.csv", true),
            ("out.csv", ".bashrc", false),
            ("runs", "runs/a/b", true),
            ("runs/**", "runs/a/.b", true),
            ("runs/**", "runs2/a", false),
            ("**/*.log", "x.log", true),
            ("**/*.log", "a/b/x.log", true),
            ("**/*.log", "a/b/x.txt", false),
            ("*", ".ssh", false),
            ("*", "a/b", true),
            (".", ".ssh/x", true),
        ] {
            let pattern: FetchPattern = pattern.parse().unwrap();
            let names: Vec<&str> = path.split('/').collect();
            assert_eq!(pattern.covers(&names), is_covered, "{pattern} {path}");
        }
    }
}
