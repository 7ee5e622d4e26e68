//! The entries of a directory and of all directories below it.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// All entries below a directory, by their paths below it. Each directory comes before its entries.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tree {
    /// The entries.
    pub entries: BTreeMap<PathBuf, EntryKind>,
}

/// What an entry of a tree is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EntryKind {
    /// A directory.
    Directory {
        /// Its permissions, such as 0o755.
        mode: u32,
    },
    /// A regular file.
    File(FileFacts),
    /// A symbolic link.
    Link {
        /// Where it leads to. Never followed.
        target: PathBuf,
    },
    /// A device, a socket or a pipe.
    Other,
}

/// What is known of a file without its content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileFacts {
    /// Size in bytes.
    pub size: u64,
    /// Time of the last change of its content, in seconds since 1970.
    pub modified: i64,
    /// The nanoseconds after that second; 0 where they are not known.
    pub nanoseconds: u32,
    /// Its permissions, such as 0o644.
    pub mode: u32,
}

impl FileFacts {
    /// Whether both have the same size and the same second of their last change. SFTP and tar send whole seconds.
    pub(crate) fn has_size_and_second_of(&self, other: &Self) -> bool {
        (self.size, self.modified) == (other.size, other.modified)
    }
}

/// Why a list of a host's entries can't be read.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
pub enum BadEntry {
    /// A path leads out of the tree.
    #[error("the host lists {0:?}, which is not below the directory")]
    LeadsOut(PathBuf),
    /// A field is missing or is no number.
    #[error("the list of the host's files can't be read at {0:?}")]
    Field(String),
}

impl Tree {
    /// Parses the output of GNU find with `-printf` [`FIND_FORMAT`](Self::FIND_FORMAT), up to an entry with an empty path. Also
    /// returns what follows that.
    ///
    /// # Errors
    /// [`BadEntry`]. The output is not trusted.
    pub fn from_find(printed: &[u8]) -> Result<(Self, &[u8]), BadEntry> {
        let mut tree = Self::default();
        let mut rest = printed;
        loop {
            let cut = || BadEntry::Field("its end".to_owned());
            let path = Path::new(OsStr::from_bytes(next_text(&mut rest).ok_or_else(cut)?));
            let facts = next_text(&mut rest).ok_or_else(cut)?;
            let target = next_text(&mut rest).ok_or_else(cut)?;
            if path.as_os_str().is_empty() {
                return Ok((tree, rest));
            }
            if !is_below(path) {
                return Err(BadEntry::LeadsOut(path.to_owned()));
            }
            let facts = String::from_utf8_lossy(facts);
            let kind = found_kind(&facts, target);
            let kind = kind.ok_or_else(|| BadEntry::Field(facts.into_owned()))?;
            tree.entries.insert(path.to_owned(), kind);
        }
    }

    /// Path, type with mode, size and time, and the target of a link.
    pub const FIND_FORMAT: &str = "%P\\0%y %m %s %T@\\0%l\\0";

    /// Its regular files.
    pub fn files(&self) -> impl Iterator<Item = (&Path, &FileFacts)> {
        self.entries.iter().filter_map(|(path, kind)| match kind {
            EntryKind::File(facts) => Some((path.as_path(), facts)),
            EntryKind::Directory { .. } | EntryKind::Link { .. } | EntryKind::Other => None,
        })
    }

    /// The facts of a file.
    pub fn file(&self, path: &Path) -> Option<&FileFacts> {
        match self.entries.get(path)? {
            EntryKind::File(facts) => Some(facts),
            EntryKind::Directory { .. } | EntryKind::Link { .. } | EntryKind::Other => None,
        }
    }

    /// The entries below `directory`, by their paths below it, which are removed from this tree.
    #[must_use]
    pub fn split_off(&mut self, directory: &Path) -> Self {
        let mut within = Self::default();
        self.entries.retain(|path, kind| {
            let Ok(below) = path.strip_prefix(directory) else { return true };
            if !below.as_os_str().is_empty() {
                within.entries.insert(below.to_owned(), kind.clone());
            }
            false
        });
        within
    }
}

/// The text up to the next NUL, which is taken off `rest`.
fn next_text<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let end = rest.iter().position(|byte| *byte == 0)?;
    let (text, behind) = rest.split_at(end);
    *rest = behind.get(1..)?;
    Some(text)
}

fn found_kind(facts: &str, target: &[u8]) -> Option<EntryKind> {
    let mut fields = facts.split(' ');
    let kind = fields.next()?;
    let mode = u32::from_str_radix(fields.next()?, 8).ok()? & 0o777;
    let size = fields.next()?.parse().ok()?;
    // Seconds with a fraction, as 1700000000.1234567890.
    let time = fields.next()?;
    let (seconds, fraction) = time.split_once('.').unwrap_or((time, ""));
    let nanoseconds: String = fraction.chars().chain("000000000".chars()).take(9).collect();
    Some(match kind {
        "d" => EntryKind::Directory { mode },
        "f" => EntryKind::File(FileFacts {
            size,
            modified: seconds.parse().ok()?,
            nanoseconds: nanoseconds.parse().ok()?,
            mode,
        }),
        "l" => EntryKind::Link {
            target: OsStr::from_bytes(target).into(),
        },
        _ => EntryKind::Other,
    })
}

/// Whether a path has names only, so that it is below the directory to which it is appended.
pub fn is_below(path: &Path) -> bool {
    let mut names = path.as_os_str().as_bytes().split(|byte| *byte == b'/');
    names.all(|name| !name.is_empty() && name != b"." && name != b"..")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_find_prints_becomes_a_tree() {
        let printed =
            b"src\0d 755 4096 1700000000.5\0\0src/a\nb\0f 644 7 1700000000.1234567890\0\0\
            now\0l 777 3 1700000000.0\0src\0pipe\0p 644 0 1.0\0\0\0\0\0rest";
        let (tree, rest) = Tree::from_find(printed).unwrap();
        assert_eq!(rest, b"rest");
        let file = FileFacts {
            size: 7,
            modified: 1_700_000_000,
            nanoseconds: 123_456_789,
            mode: 0o644,
        };
        assert_eq!(tree.file(Path::new("src/a\nb")), Some(&file));
        assert_eq!(
            tree.entries[Path::new("src")],
            EntryKind::Directory { mode: 0o755 }
        );
        let target = PathBuf::from("src");
        assert_eq!(tree.entries[Path::new("now")], EntryKind::Link { target });
        assert_eq!(tree.entries[Path::new("pipe")], EntryKind::Other);
    }

    #[test]
    fn paths_that_lead_out_are_refused() {
        for path in ["/etc", "../x", "a/../../x", ".", "a//b", "a/"] {
            let printed = format!("{path}\0f 644 7 1.0\0\0\0\0\0");
            assert_eq!(
                Tree::from_find(printed.as_bytes()),
                Err(BadEntry::LeadsOut(path.into())),
                "{path}"
            );
        }
        let nothing: &[u8] = b"";
        assert_eq!(Tree::from_find(b"\0\0\0"), Ok((Tree::default(), nothing)));
        // A list that was cut.
        for printed in [&b""[..], b"a", b"a\0f 644 7 1.0\0\0"] {
            assert!(Tree::from_find(printed).is_err(), "{printed:?}");
        }
    }

    #[test]
    fn a_part_of_a_tree_is_split_off() {
        let mut tree = Tree::default();
        for path in ["a", "a/b", "a/b/c", "ab"] {
            tree.entries.insert(path.into(), EntryKind::Other);
        }
        let part = tree.split_off(Path::new("a/b"));
        assert_eq!(part.entries.keys().collect::<Vec<_>>(), [Path::new("c")]);
        assert_eq!(
            tree.entries.keys().collect::<Vec<_>>(),
            [Path::new("a"), Path::new("ab")]
        );
    }
}
