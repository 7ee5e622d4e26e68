//! The working tree in a directory of this machine: what a sync sends.

use std::collections::BTreeSet;
use std::fs::Metadata;
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use ignore::gitignore::{Gitignore, GitignoreBuilder};
use ignore::{DirEntry, WalkBuilder};

use crate::git;
use crate::manifest::SYNC_DIRECTORY;
use crate::tree::{EntryKind, FileFacts, Tree};

/// Name of the directory or file with git's own data.
const GIT: &str = ".git";

/// Patterns of files that are left out, in the form of a `.gitignore`.
#[derive(Clone, Debug)]
pub struct Exclusions {
    patterns: Vec<String>,
}

/// A pattern can't be read.
#[derive(Clone, Debug, thiserror::Error)]
#[error("the pattern {pattern:?} can't be read: {why}")]
pub struct BadExclusion {
    pattern: String,
    why: String,
}

impl Exclusions {
    /// Checks patterns.
    ///
    /// # Errors
    /// [`BadExclusion`] for the first one that can't be read.
    pub fn new(patterns: Vec<String>) -> Result<Self, BadExclusion> {
        let exclusions = Self { patterns };
        exclusions.below(Path::new("/"))?;
        Ok(exclusions)
    }

    /// Removes what they name from a list of entries, with all that is below it.
    pub fn remove_from(&self, tree: &mut Tree) {
        // Checked in `new`.
        let Ok(excluded) = self.below(Path::new("/")) else { return };
        let mut removed: BTreeSet<PathBuf> = BTreeSet::new();
        tree.entries.retain(|path, kind| {
            let is_directory = matches!(kind, EntryKind::Directory { .. });
            let is_kept = !path.parent().is_some_and(|above| removed.contains(above))
                && !excluded.matched(path, is_directory).is_ignore();
            if !is_kept {
                removed.insert(path.clone());
            }
            is_kept
        });
    }

    /// The patterns, for paths below `root`.
    fn below(&self, root: &Path) -> Result<Gitignore, BadExclusion> {
        let mut builder = GitignoreBuilder::new(root);
        // git takes an unclosed class for plain text. A person has mistyped it.
        builder.allow_unclosed_class(false);
        let bad = |pattern: &str, error: ignore::Error| BadExclusion {
            pattern: pattern.to_owned(),
            why: error.to_string(),
        };
        for pattern in &self.patterns {
            builder.add_line(None, pattern).map_err(|error| bad(pattern, error))?;
        }
        builder.build().map_err(|error| bad(&self.patterns.join(" "), error))
    }
}

/// The working tree in a directory.
#[derive(Clone, Debug, Default)]
pub struct WorkingTree {
    /// Its entries.
    pub tree: Tree,
    /// Entries that can't be read, and why.
    pub unreadable: Vec<(PathBuf, String)>,
    /// The commit that is checked out, if it is a working tree of git.
    pub commit: Option<String>,
}

impl WorkingTree {
    /// Reads the tree in `root`. Links are not followed.
    ///
    /// Left out are `.git`, what `.ignore` files and `exclusions` name, and what `.gitignore` files name and git does not
    /// track.
    ///
    /// # Errors
    /// If `root` is no directory that can be read.
    pub fn read(root: &Path, exclusions: &Exclusions) -> io::Result<Self> {
        std::fs::read_dir(root)?;
        let mut found = Self {
            commit: git::commit(root),
            ..Self::default()
        };
        let excluded = exclusions.below(root).map_err(io::Error::other)?;
        let mut walk = new_walk(root, excluded.clone(), |_| true);
        found.add_all(root, &mut walk);
        found.add_tracked(root, excluded);
        Ok(found)
    }

    /// Reads all entries of `root` but `.git`, for a directory that is written.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn read_all(root: &Path) -> io::Result<Self> {
        std::fs::read_dir(root)?;
        let mut found = Self::default();
        let mut walk = WalkBuilder::new(root);
        walk.standard_filters(false).follow_links(false);
        walk.filter_entry(|entry| entry.depth() == 0 || is_of_tree(entry));
        found.add_all(root, &mut walk);
        Ok(found)
    }

    /// Adds files that git tracks although a `.gitignore` names them.
    fn add_tracked(&mut self, root: &Path, excluded: Gitignore) {
        let tracked = git::tracked_files(root).unwrap_or_else(|why| {
            self.unreadable.push((GIT.into(), why));
            Vec::new()
        });
        let missing: BTreeSet<PathBuf> = tracked
            .into_iter()
            .filter(|path| !self.tree.entries.contains_key(path))
            .collect();
        if missing.is_empty() {
            return;
        }
        let leading: BTreeSet<PathBuf> = missing
            .iter()
            .flat_map(|path| path.ancestors())
            .map(|path| root.join(path))
            .collect();
        let mut walk = new_walk(root, excluded, move |path| leading.contains(path));
        walk.git_ignore(false).git_global(false).git_exclude(false);
        self.add_all(root, &mut walk);
    }

    fn add_all(&mut self, root: &Path, walk: &mut WalkBuilder) {
        for entry in walk.build() {
            match entry {
                Ok(entry) => self.add(root, &entry),
                Err(error) => {
                    let (path, why) = path_and_reason(&error);
                    let below = path.strip_prefix(root).unwrap_or(&path).to_owned();
                    self.unreadable.push((below, why));
                }
            }
        }
    }

    fn add(&mut self, root: &Path, entry: &DirEntry) {
        let Ok(below) = entry.path().strip_prefix(root) else { return };
        if let Some(error) = entry.error() {
            if error.is_io() {
                // What it names must not be sent.
                let (_, why) = path_and_reason(error);
                self.unreadable.push((below.join(".gitignore or .ignore"), why));
            } else {
                tracing::warn!(%error, "a line of an ignore file can't be read");
            }
        }
        if below.as_os_str().is_empty() {
            return;
        }
        match entry_kind(entry) {
            Ok(kind) => {
                self.tree.entries.insert(below.to_owned(), kind);
            }
            // Removed meanwhile.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => self.unreadable.push((below.to_owned(), error.to_string())),
        }
    }
}

/// A walk over the paths for which `is_wanted`, without what does not belong to a working tree.
fn new_walk(
    root: &Path,
    excluded: Gitignore,
    is_wanted: impl Fn(&Path) -> bool + Send + Sync + 'static,
) -> WalkBuilder {
    let mut walk = WalkBuilder::new(root);
    walk.hidden(false).follow_links(false).require_git(false);
    walk.filter_entry(move |entry| {
        let is_directory = entry.file_type().is_some_and(|kind| kind.is_dir());
        let is_excluded = || excluded.matched(entry.path(), is_directory).is_ignore();
        entry.depth() == 0 || (is_of_tree(entry) && is_wanted(entry.path()) && !is_excluded())
    });
    walk
}

fn is_of_tree(entry: &DirEntry) -> bool {
    entry.file_name() != GIT && entry.file_name() != SYNC_DIRECTORY
}

fn entry_kind(entry: &DirEntry) -> io::Result<EntryKind> {
    let metadata = entry.path().symlink_metadata()?;
    Ok(if metadata.is_dir() {
        EntryKind::Directory {
            mode: permissions(&metadata),
        }
    } else if metadata.is_symlink() {
        EntryKind::Link {
            target: entry.path().read_link()?,
        }
    } else if metadata.is_file() {
        EntryKind::File(FileFacts {
            size: metadata.len(),
            modified: metadata.mtime(),
            nanoseconds: u32::try_from(metadata.mtime_nsec()).unwrap_or_default(),
            mode: permissions(&metadata),
        })
    } else {
        EntryKind::Other
    })
}

fn permissions(metadata: &Metadata) -> u32 {
    metadata.permissions().mode() & 0o777
}

/// The path that an error is about, and the reason.
fn path_and_reason(error: &ignore::Error) -> (PathBuf, String) {
    if let ignore::Error::WithPath { path, err } = error {
        return (path.clone(), err.to_string());
    }
    if let ignore::Error::WithDepth { err, .. } | ignore::Error::WithLineNumber { err, .. } = error
    {
        return path_and_reason(err);
    }
    (PathBuf::new(), error.to_string())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::process::Command;

    use super::*;

    fn write(root: &Path, path: &str, text: &str) {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn files(root: &Path, excluded: &[&str]) -> Vec<String> {
        let patterns = excluded.iter().map(|&pattern| pattern.to_owned()).collect();
        let read = WorkingTree::read(root, &Exclusions::new(patterns).unwrap()).unwrap();
        read.tree.files().map(|(path, _)| path.display().to_string()).collect()
    }

    fn git(root: &Path, words: &[&str]) {
        let ended = Command::new("git")
            .args(["-c", "user.name=t", "-c", "user.email=t@example.org"])
            .args(words)
            .current_dir(root)
            .output()
            .unwrap();
        assert!(ended.status.success(), "{ended:?}");
    }

    #[test]
    fn ignored_files_are_left_out_except_those_that_git_tracks() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        write(root, ".gitignore", "*.log\nbuild/\n");
        write(root, ".ignore", "secret.txt\n");
        write(root, "build/out/tracked.bin", "t");
        write(root, "build/out/other.bin", "o");
        write(root, "kept.log", "t");
        write(root, "left.log", "u");
        write(root, "secret.txt", "s");
        write(root, "src/main.rs", "m");
        write(root, ".hidden", "h");
        git(root, &["init", "-q"]);
        git(
            root,
            &[
                "add",
                "-f",
                "build/out/tracked.bin",
                "kept.log",
                "secret.txt",
                "src/main.rs",
            ],
        );
        git(root, &["commit", "-q", "-m", "first"]);
        let all = [
            ".gitignore",
            ".hidden",
            ".ignore",
            "build/out/tracked.bin",
            "kept.log",
            "src/main.rs",
        ];

        assert_eq!(files(root, &[]), all);
        let without: Vec<_> = all.into_iter().filter(|path| !path.starts_with("build")).collect();
        assert_eq!(files(root, &["/build"]), without);
        assert_eq!(files(root, &["*", "!src/", "!*.rs"]), ["src/main.rs"]);
        let without_src: Vec<_> = all.into_iter().filter(|path| *path != "src/main.rs").collect();
        assert_eq!(files(root, &["*.rs", "*.log", "!kept.log"]), without_src);
        let read = WorkingTree::read(root, &Exclusions::new(vec![]).unwrap()).unwrap();
        assert_eq!(read.commit.map(|commit| commit.len()), Some(40));
    }

    #[test]
    fn the_rules_of_a_repository_hold_in_its_directories() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        write(root, ".gitignore", "*.log\n");
        write(root, "part/a.log", "l");
        write(root, "part/a.rs", "r");
        git(root, &["init", "-q"]);
        git(root, &["add", "-A"]);

        assert_eq!(files(&root.join("part"), &[]), ["a.rs"]);
    }

    #[test]
    fn no_hook_of_a_repository_runs() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        write(root, "a", "a");
        git(root, &["init", "-q"]);
        git(root, &["add", "-A"]);
        let hook = root.join("hook");
        fs::write(
            &hook,
            format!("#!/bin/sh\ntouch {}\n", root.join("ran").display()),
        )
        .unwrap();
        fs::set_permissions(&hook, PermissionsExt::from_mode(0o755)).unwrap();
        git(root, &["config", "core.fsmonitor", hook.to_str().unwrap()]);

        assert_eq!(files(root, &[]), ["a", "hook"]);
        assert!(!root.join("ran").exists());
    }

    #[test]
    fn links_are_not_followed() {
        let outside = tempfile::tempdir().unwrap();
        write(outside.path(), "private", "p");
        let root = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink(outside.path(), root.path().join("out")).unwrap();

        let read = WorkingTree::read(root.path(), &Exclusions::new(vec![]).unwrap()).unwrap();
        let target = outside.path().to_owned();
        assert_eq!(
            read.tree.entries[Path::new("out")],
            EntryKind::Link { target }
        );
        assert_eq!(read.tree.entries.len(), 1);
    }

    #[test]
    fn a_list_loses_what_is_excluded() {
        let mut tree = Tree::default();
        for path in ["a", "a/keep.txt", "a/x.bin", "a/x.bin/below", "b"] {
            let is_directory = ["a", "a/x.bin"].contains(&path);
            let kind = if is_directory {
                EntryKind::Directory { mode: 0o755 }
            } else {
                EntryKind::Other
            };
            tree.entries.insert(path.into(), kind);
        }
        Exclusions::new(vec!["*.bin".to_owned(), "/b".to_owned()])
            .unwrap()
            .remove_from(&mut tree);
        let left: Vec<_> = tree.entries.keys().map(|path| path.to_str().unwrap()).collect();
        assert_eq!(left, ["a", "a/keep.txt"]);
    }

    #[test]
    fn a_bad_pattern_is_named() {
        let bad = Exclusions::new(vec!["a[".to_owned()]).unwrap_err();
        assert!(bad.to_string().contains("\"a[\""), "{bad}");
    }
}
