//! The parameters of a template, and the values that they accept.

use regex::Regex;

/// A parameter of a template.
#[derive(Clone, Debug)]
pub struct Parameter {
    /// The values that it accepts.
    pub kind: ParameterKind,
    /// Whether a value may begin with `-`, as an option does.
    pub allows_dash: bool,
    /// The value that is used if a call has none.
    pub default: Option<String>,
}

/// The values that a parameter accepts.
#[derive(Clone, Debug)]
pub enum ParameterKind {
    /// One of these.
    Enum(Vec<String>),
    /// A whole number in this range, both ends included.
    Int {
        /// The lowest number.
        least: i64,
        /// The highest number.
        most: i64,
    },
    /// A text that a regular expression matches as a whole.
    Word(WordForm),
    /// A path below this directory.
    Path(String),
    /// Any text of at most this many characters, without control characters.
    Text(usize),
}

/// A regular expression that has to match a text as a whole.
#[derive(Clone, Debug)]
pub struct WordForm {
    text: String,
    anchored: Regex,
}

/// Why a parameter does not accept a value. Never contains the value, which may be secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadValue {
    /// It begins with `-`, as an option does.
    #[error("may not begin with -")]
    Dash,
    /// It has a control character, such as a line end.
    #[error("may not contain control characters")]
    Control,
    /// It is none of the listed values.
    #[error("must be one of {0}")]
    NotListed(String),
    /// It is not a number in the range.
    #[error("must be a whole number from {least} to {most}")]
    NotInRange {
        /// The lowest number.
        least: i64,
        /// The highest number.
        most: i64,
    },
    /// The regular expression does not match it.
    #[error("must match {0} as a whole")]
    NoMatch(String),
    /// It is not below the directory.
    #[error("must be a path below {0}")]
    NotBelow(String),
    /// It is too long.
    #[error("has more than {0} characters")]
    TooLong(usize),
}

impl Parameter {
    /// Returns the value as the command gets it: a number or path in its plainest form.
    ///
    /// # Errors
    /// If the parameter does not accept the value.
    pub fn accept(&self, value: &str) -> Result<String, BadValue> {
        if value.chars().any(char::is_control) {
            return Err(BadValue::Control);
        }
        let accepted = self.kind.accept(value)?;
        // A shell may drop spaces before a word, also those outside ASCII, and then it is an option.
        if accepted.trim_start().starts_with('-') && !self.allows_dash {
            return Err(BadValue::Dash);
        }
        Ok(accepted)
    }
}

impl ParameterKind {
    fn accept(&self, value: &str) -> Result<String, BadValue> {
        match self {
            Self::Enum(values) if !values.iter().any(|known| known == value) => {
                Err(BadValue::NotListed(values.join(", ")))
            }
            Self::Int { least, most } => {
                let number = value.parse::<i64>().ok();
                match number.filter(|number| (least..=most).contains(&number)) {
                    Some(number) => Ok(number.to_string()),
                    None => Err(BadValue::NotInRange {
                        least: *least,
                        most: *most,
                    }),
                }
            }
            Self::Word(form) if !form.anchored.is_match(value) => {
                Err(BadValue::NoMatch(form.text.clone()))
            }
            Self::Path(root) => {
                path_below(root, value).ok_or_else(|| BadValue::NotBelow(root.clone()))
            }
            Self::Text(most) if value.chars().count() > *most => Err(BadValue::TooLong(*most)),
            Self::Enum(_) | Self::Word(_) | Self::Text(_) => Ok(value.to_owned()),
        }
    }

    /// In short, for people and agents.
    pub fn description(&self) -> String {
        match self {
            Self::Enum(values) => format!("one of {}", values.join(", ")),
            Self::Int { least, most } => format!("a whole number from {least} to {most}"),
            Self::Word(form) => format!("a text that matches {} as a whole", form.text),
            Self::Path(root) => format!("a path below {root}"),
            Self::Text(most) => format!("a text of at most {most} characters"),
        }
    }
}

impl WordForm {
    /// Compiles a regular expression.
    pub(super) fn new(text: &str) -> Result<Self, regex::Error> {
        // Compiled alone first: the anchors must not repair an expression such as `a)|(b`.
        Regex::new(text)?;
        Ok(Self {
            text: text.to_owned(),
            anchored: Regex::new(&format!(r"\A(?:{text})\z"))?,
        })
    }
}

/// A path below a directory, absolute and without `.`, `..` and empty parts. `None` if it leads out
/// of the directory. Links on the host are not followed here: keep the directory free of them.
fn path_below(root: &str, path: &str) -> Option<String> {
    let root = root.trim_end_matches('/');
    let absolute = if path.starts_with('/') {
        path.to_owned()
    } else {
        format!("{root}/{path}")
    };
    let mut parts = Vec::new();
    for part in absolute.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            part => parts.push(part),
        }
    }
    let plain = format!("/{}", parts.join("/"));
    let is_below = plain
        .strip_prefix(root)
        .is_some_and(|rest| rest.starts_with('/') && rest != "/");
    is_below.then_some(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(kind: ParameterKind) -> Parameter {
        Parameter {
            kind,
            allows_dash: false,
            default: None,
        }
    }

    #[track_caller]
    fn check(parameter: &Parameter, value: &str, expected: Result<&str, BadValue>) {
        let accepted = parameter.accept(value);
        assert_eq!(
            accepted.as_deref().map_err(Clone::clone),
            expected,
            "{value:?}"
        );
    }

    #[test]
    fn a_listed_value_is_accepted() {
        let units = of(ParameterKind::Enum(vec![
            "nginx".to_owned(),
            "app".to_owned(),
        ]));
        check(&units, "app", Ok("app"));
        check(
            &units,
            "sshd",
            Err(BadValue::NotListed("nginx, app".to_owned())),
        );
    }

    #[test]
    fn a_text_may_have_as_many_characters_as_its_limit() {
        let text = of(ParameterKind::Text(3));
        check(&text, "äöü", Ok("äöü"));
        check(&text, "four", Err(BadValue::TooLong(3)));
    }

    #[test]
    fn each_kind_describes_its_values() {
        let word = WordForm::new("[a-z]+").unwrap();
        for (kind, expected) in [
            (
                ParameterKind::Enum(vec!["a".to_owned(), "b".to_owned()]),
                "one of a, b",
            ),
            (
                ParameterKind::Int { least: 1, most: 9 },
                "a whole number from 1 to 9",
            ),
            (
                ParameterKind::Word(word),
                "a text that matches [a-z]+ as a whole",
            ),
            (ParameterKind::Path("/srv".to_owned()), "a path below /srv"),
            (ParameterKind::Text(5), "a text of at most 5 characters"),
        ] {
            assert_eq!(kind.description(), expected);
        }
    }

    #[test]
    fn a_number_is_written_plainly() {
        let number = of(ParameterKind::Int {
            least: -5,
            most: 100,
        });
        let not_in_range = BadValue::NotInRange {
            least: -5,
            most: 100,
        };
        check(&number, "007", Ok("7"));
        check(&number, "+7", Ok("7"));
        check(&number, "101", Err(not_in_range.clone()));
        check(&number, "7; reboot", Err(not_in_range.clone()));
        check(&number, "", Err(not_in_range));
        check(&number, "-3", Err(BadValue::Dash));
    }

    #[test]
    fn a_word_is_matched_as_a_whole() {
        let word = of(ParameterKind::Word(
            WordForm::new("[a-z]+|v[0-9]+").unwrap(),
        ));
        let no_match = BadValue::NoMatch("[a-z]+|v[0-9]+".to_owned());
        check(&word, "nginx", Ok("nginx"));
        check(&word, "v12", Ok("v12"));
        check(&word, "v12; reboot", Err(no_match.clone()));
        check(&word, "x v12", Err(no_match));
        check(&word, "nginx\n", Err(BadValue::Control));
        assert!(WordForm::new("a)|(b").is_err());
    }

    #[test]
    fn a_path_stays_below_its_directory() {
        let path = of(ParameterKind::Path("/var/log/".to_owned()));
        let not_below = BadValue::NotBelow("/var/log/".to_owned());
        check(&path, "app/x.log", Ok("/var/log/app/x.log"));
        check(&path, "/var/log//app/./y", Ok("/var/log/app/y"));
        check(&path, "app/../x.log", Ok("/var/log/x.log"));
        for outside in [
            "../log2/x",
            "/var/logs/x",
            "/etc/passwd",
            "a/../../b",
            "../../../../..",
            "/var/log",
            "",
        ] {
            check(&path, outside, Err(not_below.clone()));
        }
    }

    #[test]
    fn an_option_is_refused_unless_the_parameter_allows_it() {
        let text = of(ParameterKind::Text(10));
        check(&text, "-rf", Err(BadValue::Dash));
        check(&text, "a text", Ok("a text"));
        check(&text, "a longer text", Err(BadValue::TooLong(10)));
        let with_options = Parameter {
            allows_dash: true,
            ..text
        };
        check(&with_options, "-rf", Ok("-rf"));
    }
}
