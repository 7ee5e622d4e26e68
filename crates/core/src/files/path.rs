//! Paths on hosts: bytes, as the host has them.

use std::fmt;

use bytes::Bytes;

/// A path on a host. It may have any bytes except NUL; `/` separates its names.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RemotePath(Bytes);

/// Why a path can't be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadPath {
    /// It is empty.
    #[error("the path is empty")]
    Empty,
    /// It has a NUL.
    #[error("the path has a NUL byte")]
    Nul,
    /// It is longer than any system allows.
    #[error("the path has {0} bytes; {MOST_PATH} is the limit")]
    TooLong(usize),
}

/// Maximum bytes of a path (`PATH_MAX` on Linux).
const MOST_PATH: usize = 4096;
/// Maximum bytes of a name (`NAME_MAX`).
const MOST_NAME: usize = 255;

impl RemotePath {
    /// A path.
    ///
    /// # Errors
    /// [`BadPath`].
    pub fn new(path: impl Into<Bytes>) -> Result<Self, BadPath> {
        let path = path.into();
        if path.is_empty() {
            Err(BadPath::Empty)
        } else if path.contains(&0) {
            Err(BadPath::Nul)
        } else if path.len() > MOST_PATH {
            Err(BadPath::TooLong(path.len()))
        } else {
            Ok(Self(path))
        }
    }

    /// Its bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    pub(super) fn bytes(&self) -> Bytes {
        self.0.clone()
    }

    /// The path of an entry of this directory.
    #[must_use]
    pub fn join(&self, name: &[u8]) -> Self {
        let slash: &[u8] = if self.0.ends_with(b"/") { b"" } else { b"/" };
        Self([self.as_bytes(), slash, name].concat().into())
    }

    /// Its last name. Empty for `/`.
    pub fn name(&self) -> &[u8] {
        let path = self.without_slash();
        path.rsplit(|byte| *byte == b'/').next().unwrap_or_default()
    }

    /// The directory that contains it. A path without `/` is in `.`, the home directory.
    #[must_use]
    pub fn parent(&self) -> Self {
        let path = self.without_slash();
        match path.iter().rposition(|byte| *byte == b'/') {
            Some(0) => Self(Bytes::from_static(b"/")),
            Some(end) => Self(self.0.slice(..end)),
            None => Self(Bytes::from_static(b".")),
        }
    }

    /// Whether it ends with `/`, and so must be a directory.
    pub fn is_marked_directory(&self) -> bool {
        self.0.ends_with(b"/")
    }

    fn without_slash(&self) -> &[u8] {
        let end = self.0.iter().rposition(|byte| *byte != b'/').map_or(0, |last| last + 1);
        &self.0[..end]
    }

    /// A path beside this one, in the same directory: `before`, the name, `after`. A long name is
    /// cut, so that the result is a name that file systems accept.
    #[must_use]
    pub(super) fn beside(&self, before: &str, after: &str) -> Self {
        let room = MOST_NAME - before.len() - after.len();
        let name = self.name();
        let name = &name[..name.len().min(room)];
        self.parent().join(&[before.as_bytes(), name, after.as_bytes()].concat())
    }
}

/// Whether a name that a server sends may be used below a directory. A hostile server could name a
/// file outside of it.
pub(super) fn is_safe_name(name: &[u8]) -> bool {
    !name.is_empty()
        && name != b"."
        && name != b".."
        && name.len() <= MOST_PATH
        && !name.contains(&b'/')
        && !name.contains(&0)
}

/// For people and models: control characters and bytes that are not UTF-8 are escaped.
impl fmt::Display for RemotePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&shown(&self.0))
    }
}

impl fmt::Debug for RemotePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", String::from_utf8_lossy(&self.0))
    }
}

/// A name for people and models: control characters and bytes that are not UTF-8 as `\n` and `\xe9`.
pub fn shown(name: &[u8]) -> String {
    let mut text = String::new();
    for part in name.utf8_chunks() {
        for character in part.valid().chars() {
            if character.is_control() {
                text.extend(character.escape_default());
            } else {
                text.push(character);
            }
        }
        for byte in part.invalid() {
            text.push_str(&format!("\\x{byte:02x}"));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> RemotePath {
        RemotePath::new(text.to_owned()).unwrap()
    }

    #[test]
    fn a_path_has_a_name_and_a_parent() {
        let parts = |text: &str| {
            let path = path(text);
            (shown(path.name()), path.parent().to_string())
        };
        assert_eq!(parts("/etc/hosts"), ("hosts".to_owned(), "/etc".to_owned()));
        assert_eq!(parts("/etc"), ("etc".to_owned(), "/".to_owned()));
        assert_eq!(parts("notes"), ("notes".to_owned(), ".".to_owned()));
        assert_eq!(parts("a/b/"), ("b".to_owned(), "a".to_owned()));
        assert_eq!(parts("/"), (String::new(), ".".to_owned()));
    }

    #[test]
    fn a_name_beside_a_long_one_is_cut() {
        let long = path(&format!("/d/{}", "x".repeat(255)));
        let part = long.beside(".", ".sshjobs-0123456789ab.part");
        assert_eq!(part.name().len(), MOST_NAME);
        assert_eq!(part.parent(), path("/d"));
    }

    #[test]
    fn names_that_lead_elsewhere_are_refused() {
        for name in [&b""[..], b".", b"..", b"a/b", b"../x", b"a\0b"] {
            assert!(!is_safe_name(name), "{name:?}");
        }
        for name in [&b"a"[..], b"...", b"-rf", b"a\nb", b"\xff"] {
            assert!(is_safe_name(name), "{name:?}");
        }
    }

    #[test]
    fn empty_and_long_paths_are_refused() {
        assert_eq!(RemotePath::new(""), Err(BadPath::Empty));
        assert_eq!(RemotePath::new("a\0"), Err(BadPath::Nul));
        assert_eq!(
            RemotePath::new("x".repeat(5000)),
            Err(BadPath::TooLong(5000))
        );
    }
}
