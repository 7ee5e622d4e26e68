//! The receiver of a notification.

use std::fmt;

use http::Uri;
use serde::{Deserialize, Serialize};

/// Receiver of a notification. The process that has checked the caller decides its kind when the job
/// starts, so that a process with another configuration never takes a name for a command.
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
    /// A URL or a command that a person has named. A command has a space or a slash; a word without them
    /// is more likely a mistyped name.
    ///
    /// # Errors
    /// Why it is neither, in words.
    pub fn named_by_a_person(text: &str) -> Result<Self, &'static str> {
        if text.chars().any(char::is_control) {
            return Err("it contains control characters");
        }
        let has_scheme =
            text.split([' ', '\'', '"']).next().is_some_and(|word| word.contains(":/"));
        if has_scheme {
            return check_url(text).map(|()| Self::Url(text.to_owned()));
        }
        if text.trim().contains([' ', '/']) {
            return Ok(Self::Command(text.to_owned()));
        }
        Err("no target has this name; a command needs a space or a slash, as ./notify has")
    }

    /// Text for lists and logs, without the path of a URL and the text of a command: these may be secret.
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

/// Checks that messages can be sent to a URL.
///
/// # Errors
/// Why they can't, in words.
pub fn check_url(text: &str) -> Result<(), &'static str> {
    // The parser also takes https:/host.
    if !text.contains("://") {
        return Err("the URL must begin with https:// or http://");
    }
    let url: Uri = text.parse().map_err(|_| "the URL can't be read")?;
    if !matches!(url.scheme_str(), Some("https" | "http")) {
        return Err("the URL must begin with https:// or http://");
    }
    let authority = url.authority().ok_or("the URL has no host")?;
    if authority.as_str().contains('@') {
        return Err("a user and a password in a URL are not sent; put a secret into its path");
    }
    let has_port = authority.port().is_some();
    if authority.host().is_empty() || has_port != ends_with_port(authority.as_str()) {
        return Err("the URL can't be read");
    }
    Ok(())
}

/// Whether an authority is written with a port, which may be out of range.
fn ends_with_port(authority: &str) -> bool {
    // The colons of an IPv6 address are in brackets.
    authority.rsplit(']').next().is_some_and(|end| end.contains(':'))
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
    fn a_mistyped_name_or_url_is_not_run_as_a_command() {
        for text in [
            "opz",
            "",
            " ",
            "ftp://example.com/x",
            "https:/example.com",
            "http://",
            "http://example.com:99999/",
            "https://user:pass@example.com/",
            "http://example.com/\r\nX-Evil: 1",
        ] {
            assert!(Receiver::named_by_a_person(text).is_err(), "{text:?}");
        }
        for text in [
            "HTTPS://example.com/x",
            "./notify",
            "notify-send done",
            "curl -d x http://a/b",
        ] {
            assert!(Receiver::named_by_a_person(text).is_ok(), "{text:?}");
        }
    }

    #[test]
    fn neither_lists_nor_logs_show_a_secret() {
        let url = "https://hooks.example.com/T0/B0/secret?x=y";
        for (text, expected) in [
            (url, "https://hooks.example.com/…"),
            ("curl -d token=secret x", "a command"),
        ] {
            let receiver = Receiver::named_by_a_person(text).unwrap();
            assert_eq!(receiver.shown(), expected);
            assert!(!format!("{receiver:?}").contains("secret"));
        }
    }
}
