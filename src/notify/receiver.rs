//! Whom a notification is for.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Whom a notification is for. What it is was decided when the job was started, by the process that
/// has checked the caller: a process with another configuration must not take a name for a command.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Receiver {
    /// A target of the configuration, by its name.
    Target(String),
    /// A URL, which a person on this machine has named.
    Url(String),
    /// A command for the shell, which a person on this machine has named.
    Command(String),
}

impl Receiver {
    /// A URL or a command that a person has named.
    pub fn named_by_a_person(text: &str) -> Self {
        if text.starts_with("https://") || text.starts_with("http://") {
            Self::Url(text.to_owned())
        } else {
            Self::Command(text.to_owned())
        }
    }

    /// For lists: without what may be secret, which is the path of a URL and the text of a command.
    pub fn shown(&self) -> String {
        match self {
            Self::Target(name) => name.clone(),
            Self::Command(_) => "a command".to_owned(),
            Self::Url(url) => {
                let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
                let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
                let host = authority.rsplit('@').next().unwrap_or_default();
                format!("{scheme}://{host}/…")
            }
        }
    }
}

impl fmt::Debug for Receiver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neither_lists_nor_logs_show_a_secret() {
        let url = "https://user:pass@hooks.example.com/T0/B0/secret?x=y";
        for (text, expected) in [
            (url, "https://hooks.example.com/…"),
            ("curl -d token=secret x", "a command"),
        ] {
            let receiver = Receiver::named_by_a_person(text);
            assert_eq!(receiver.shown(), expected);
            assert!(!format!("{receiver:?}").contains("secret"));
        }
    }
}
