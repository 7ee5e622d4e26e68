//! The entry of a server, and why it can't be added.

use serde_json::Value;

/// The entry of a server in a client's configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ServerEntry {
    /// The entry's name.
    pub(super) name: String,
    /// Path of the program.
    pub(super) command: String,
    pub(super) arguments: Vec<String>,
    /// Whether an entry with this name that starts something else is replaced, with all of its fields.
    pub(super) replaces: bool,
}

/// Why an entry can't be added to a file. `Display` follows the file's name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum CantAdd {
    /// The text can't be parsed.
    #[error("can't be read: {0}")]
    Malformed(String),
    /// A value has another type than the client expects.
    #[error("has no table or object at {0:?}")]
    OtherKind(String),
    /// The file is written in a form that is not changed automatically.
    #[error("is not changed automatically, because {0}")]
    OtherForm(&'static str),
    /// There is an entry with this name, and it starts something else.
    #[error("has an entry {0:?} already, which starts something else")]
    Exists(String),
}

impl ServerEntry {
    /// An entry for tests.
    #[cfg(test)]
    pub(super) fn example() -> Self {
        Self {
            name: "sshjobs".to_owned(),
            command: "/usr/bin/sshjobs".to_owned(),
            arguments: vec!["serve".to_owned()],
            replaces: false,
        }
    }

    /// Whether another entry, read from a file, starts the same. `command` is the name of its field.
    pub(super) fn starts_like(&self, other: &Value, command: &str) -> bool {
        other[command] == self.command.as_str() && other["args"] == Value::from(&*self.arguments)
    }
}
