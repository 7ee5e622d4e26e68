//! The entry of a server, and why it can't be added.

/// The entry of a server in a client's configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    /// The entry's name.
    pub(super) name: String,
    /// Path of the program.
    pub(super) command: String,
    pub(super) arguments: Vec<String>,
}

/// Why an entry can't be added to a file. `Display` follows the file's name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum CantAdd {
    /// The text can't be parsed.
    #[error("can't be read: {0}")]
    Malformed(String),
    /// A value has another type than the client expects.
    #[error("has a value of another kind at {0:?}")]
    OtherKind(String),
    /// The file is written in a form that is not changed automatically.
    #[error("is written in a form that sshjobs does not change")]
    OtherForm,
    /// There is an entry with this name, and it is different.
    #[error("has another entry {0:?} already")]
    Exists(String),
}
