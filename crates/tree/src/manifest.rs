//! The manifest: what syncs have written into a directory, or found equal there. Only that may be deleted by a later one.
//!
//! A text: a first line with the version, then for each entry its type, its facts and its path, which ends with a NUL.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fmt::Write as _;
use std::io::Write as _;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use crate::tree::{EntryKind, FileFacts, Tree, is_below};

/// Directory in the root of a tree in which a sync keeps its manifest and unfinished files. It belongs to no tree.
pub const SYNC_DIRECTORY: &str = ".sshjobs-sync";
const FIRST_LINE: &str = "sshjobs-sync 1\n";

/// What syncs have written into a directory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Manifest {
    /// Files, by path.
    pub files: BTreeMap<PathBuf, FileRecord>,
    /// Directories.
    pub directories: BTreeMap<PathBuf, u32>,
    /// Symbolic links and their targets.
    pub links: BTreeMap<PathBuf, PathBuf>,
}

/// A file as it was at the source when it was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileRecord {
    /// Its facts at the source.
    pub facts: FileFacts,
    /// SHA-256 of its content.
    pub sha256: [u8; 32],
}

/// Why a manifest can't be read. Without one, nothing may be deleted.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
pub enum BadManifest {
    /// The first line has another version.
    #[error("the list of what earlier syncs have written has another version")]
    Version,
    /// An entry can't be read.
    #[error("the list of what earlier syncs have written can't be read at {0:?}")]
    Entry(String),
}

impl Manifest {
    /// Whether an entry of this kind was written at this path.
    pub fn has(&self, path: &Path, kind: &EntryKind) -> bool {
        match kind {
            EntryKind::Directory { .. } => self.directories.contains_key(path),
            EntryKind::File(_) => self.files.contains_key(path),
            EntryKind::Link { .. } => self.links.contains_key(path),
            EntryKind::Other => false,
        }
    }

    /// The digest of a file at the source, if it has not changed there since it was written.
    pub fn digest(&self, path: &Path, facts: &FileFacts) -> Option<[u8; 32]> {
        let record = self.files.get(path)?;
        (record.facts == *facts).then_some(record.sha256)
    }

    /// Adds the entries of another manifest.
    pub fn extend(&mut self, other: Self) {
        self.files.extend(other.files);
        self.directories.extend(other.directories);
        self.links.extend(other.links);
    }

    /// Keeps entries that `tree` has.
    pub fn retain_in(&mut self, tree: &Tree) {
        let kept = |path: &PathBuf| tree.entries.contains_key(path);
        self.files.retain(|path, _| kept(path));
        self.directories.retain(|path, _| kept(path));
        self.links.retain(|path, _| kept(path));
    }

    /// SHA-256 of all files (path, content, whether the owner may execute it) and links, in lowercase hexadecimal digits. Equal
    /// for equal trees, whenever and wherever they were written.
    pub fn content_hash(&self) -> String {
        let mut hasher = Sha256::new();
        for (path, FileRecord { facts, sha256 }) in &self.files {
            let is_executable = facts.mode & 0o100 != 0;
            hasher.update([b'f', u8::from(is_executable)]);
            hasher.update(sha256);
            hasher.update(path.as_os_str().as_bytes());
            hasher.update([0]);
        }
        for (path, target) in &self.links {
            hasher.update(b"l");
            hasher.update(path.as_os_str().as_bytes());
            hasher.update([0]);
            hasher.update(target.as_os_str().as_bytes());
            hasher.update([0]);
        }
        hex(&hasher.finalize())
    }

    /// Its text.
    pub fn encode(&self) -> Vec<u8> {
        let mut text = FIRST_LINE.as_bytes().to_vec();
        let mut record = |facts: String, path: &Path| {
            text.write_all(facts.as_bytes()).expect("a vector takes all");
            text.extend_from_slice(path.as_os_str().as_bytes());
            text.push(0);
        };
        for (path, mode) in &self.directories {
            record(format!("d {mode:o} "), path);
        }
        for (path, FileRecord { facts, sha256 }) in &self.files {
            let FileFacts {
                size,
                modified,
                nanoseconds,
                mode,
            } = facts;
            let sha256 = hex(sha256);
            record(
                format!("f {mode:o} {size} {modified} {nanoseconds} {sha256} "),
                path,
            );
        }
        for (path, target) in &self.links {
            record("l ".to_owned(), path);
            record(String::new(), target);
        }
        text
    }

    /// Reads a text that a host has sent, which is not trusted.
    ///
    /// # Errors
    /// [`BadManifest`].
    pub fn parse(text: &[u8]) -> Result<Self, BadManifest> {
        let entries = text.strip_prefix(FIRST_LINE.as_bytes()).ok_or(BadManifest::Version)?;
        if !entries.is_empty() && !entries.ends_with(&[0]) {
            return Err(BadManifest::Entry("its end".to_owned()));
        }
        let mut manifest = Self::default();
        let mut records = entries.split(|byte| *byte == 0);
        while let Some(record) = records.next() {
            if record.is_empty() {
                break;
            }
            let bad = || BadManifest::Entry(String::from_utf8_lossy(record).into_owned());
            manifest.read(record, &mut records).ok_or_else(bad)?;
        }
        Ok(manifest)
    }

    /// Reads one record, and the one that follows a link.
    fn read<'a>(
        &mut self,
        record: &'a [u8],
        following: &mut impl Iterator<Item = &'a [u8]>,
    ) -> Option<()> {
        let (kind, fields) = record.split_at_checked(2)?;
        match kind {
            b"d " => {
                let ([mode], path) = split_fields(fields)?;
                self.directories.insert(path, u32::from_str_radix(mode, 8).ok()?);
            }
            b"f " => {
                let ([mode, size, modified, nanoseconds, sha256], path) = split_fields(fields)?;
                let facts = FileFacts {
                    size: size.parse().ok()?,
                    modified: modified.parse().ok()?,
                    nanoseconds: nanoseconds.parse().ok()?,
                    mode: u32::from_str_radix(mode, 8).ok()?,
                };
                let sha256 = from_hex(sha256)?;
                self.files.insert(path, FileRecord { facts, sha256 });
            }
            b"l " => {
                let ([], path) = split_fields(fields)?;
                self.links.insert(path, OsStr::from_bytes(following.next()?).into());
            }
            _ => return None,
        }
        Some(())
    }
}

/// Fields that are followed by spaces, and the path after them.
fn split_fields<const N: usize>(record: &[u8]) -> Option<([&str; N], PathBuf)> {
    let mut fields = [""; N];
    let mut rest = record;
    for field in &mut fields {
        let end = rest.iter().position(|byte| *byte == b' ')?;
        *field = str::from_utf8(rest.get(..end)?).ok()?;
        rest = rest.get(end + 1..)?;
    }
    let path = Path::new(OsStr::from_bytes(rest));
    is_below(path).then(|| (fields, path.to_owned()))
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").expect("a string takes all");
        text
    })
}

fn from_hex(text: &str) -> Option<[u8; 32]> {
    let mut bytes = [0; 32];
    if text.len() != 64 || !text.is_ascii() {
        return None;
    }
    for (byte, digits) in bytes.iter_mut().zip(text.as_bytes().chunks(2)) {
        *byte = u8::from_str_radix(str::from_utf8(digits).ok()?, 16).ok()?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn paths() -> impl Strategy<Value = PathBuf> {
        // Any bytes that a name may have, also line ends and ones that are not UTF-8.
        let name =
            prop::collection::vec((1_u8..=255).prop_filter("no /", |byte| *byte != b'/'), 1..8)
                .prop_filter("a name", |name| name != b"." && name != b"..");
        prop::collection::vec(name, 1..4)
            .prop_map(|names| OsStr::from_bytes(&names.join(&b'/')).into())
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_again(
            files in prop::collection::btree_map(paths(), any::<(u64, i64, u32, [u8; 32])>(), 0..4),
            directories in prop::collection::btree_map(paths(), 0_u32..0o1000, 0..4),
            links in prop::collection::btree_map(paths(), paths(), 0..4),
        ) {
            let records = files.into_iter().map(|(path, (size, modified, nanoseconds, sha256))| {
                let facts = FileFacts { size, modified, nanoseconds, mode: 0o640 };
                (path, FileRecord { facts, sha256 })
            });
            let manifest = Manifest { files: records.collect(), directories, links };
            prop_assert_eq!(Manifest::parse(&manifest.encode()), Ok(manifest));
        }

        #[test]
        fn no_text_of_a_host_leads_out_of_the_directory(text in prop::collection::vec(any::<u8>(), 0..80)) {
            let text = [FIRST_LINE.as_bytes(), &text].concat();
            if let Ok(manifest) = Manifest::parse(&text) {
                prop_assert!(manifest.directories.keys().all(|path| is_below(path)));
            }
        }
    }

    #[test]
    fn hostile_texts_are_refused() {
        assert_eq!(Manifest::parse(b""), Err(BadManifest::Version));
        for record in [
            "d 755 ../x",
            "d 755 /etc",
            "d 755 a/../..",
            "f 1 2",
            "x a",
            "l /a",
        ] {
            let text = format!("{FIRST_LINE}{record}\0t\0");
            let bad = BadManifest::Entry(record.to_owned());
            assert_eq!(Manifest::parse(text.as_bytes()), Err(bad), "{record}");
        }
    }
}
