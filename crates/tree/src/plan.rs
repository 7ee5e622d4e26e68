//! Compares source, target and manifest. Does no I/O.

use std::path::{Path, PathBuf};

use crate::manifest::Manifest;
use crate::tree::{EntryKind, Tree};

/// What a sync has to do, by paths below both directories.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SyncPlan {
    /// Directories to make, each before those below it.
    pub make: Vec<PathBuf>,
    /// Files and links to send.
    pub send: Vec<PathBuf>,
    /// Files with the same size and another time: their content decides.
    pub compare: Vec<PathBuf>,
    /// Files and directories with other permissions only.
    pub set_mode: Vec<PathBuf>,
    /// Files and links to delete.
    pub delete: Vec<PathBuf>,
    /// Directories to delete if they are then empty, the deepest first.
    pub delete_directories: Vec<PathBuf>,
    /// Files of earlier syncs that were changed at the target since: they are not deleted.
    pub changed_there: Vec<PathBuf>,
    /// Entries that can't be written.
    pub blocked: Vec<Blocked>,
    /// Files and links that are equal.
    pub unchanged: u64,
    /// Devices, sockets and pipes of the source.
    pub skipped: Vec<PathBuf>,
}

/// An entry that is not written, because another one that no sync has made is in its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blocked {
    /// The path of the entry.
    pub path: PathBuf,
    /// What is there: a directory, a file, a link or a device.
    pub by: &'static str,
}

impl SyncPlan {
    /// Compares the source with the target, of which syncs have written `written`.
    ///
    /// An entry is only deleted if a sync has written it, `is_at_source` does not know it any more, and it is as it was
    /// written.
    pub fn new(
        source: &Tree,
        target: &Tree,
        written: &Manifest,
        is_at_source: impl Fn(&Path) -> bool,
    ) -> Self {
        let mut plan = Self::default();
        for (path, wanted) in &source.entries {
            let is_blocked = plan.blocked.iter().any(|blocked| path.starts_with(&blocked.path));
            if !is_blocked {
                plan.add(path, wanted, target.entries.get(path), written);
            }
        }
        let is_gone = |path: &Path| !source.entries.contains_key(path) && !is_at_source(path);
        for (path, record) in written.files.iter().filter(|(path, _)| is_gone(path)) {
            match target.entries.get(path) {
                Some(EntryKind::File(found)) if found.has_size_and_second_of(&record.facts) => {
                    plan.delete.push(path.clone());
                }
                Some(_) => plan.changed_there.push(path.clone()),
                None => {}
            }
        }
        for (path, linked) in written.links.iter().filter(|(path, _)| is_gone(path)) {
            match target.entries.get(path) {
                Some(EntryKind::Link { target }) if target == linked => {
                    plan.delete.push(path.clone());
                }
                Some(_) => plan.changed_there.push(path.clone()),
                None => {}
            }
        }
        let gone = written.directories.keys().filter(|path| is_gone(path));
        let gone = gone.filter(|&path| is_directory(target.entries.get(path)));
        plan.delete_directories.extend(gone.cloned());
        plan.delete_directories.sort_by(|one, other| other.cmp(one));
        plan
    }

    /// Whether the target stays as it is.
    pub fn is_empty(&self) -> bool {
        self.make.is_empty()
            && self.send.is_empty()
            && self.compare.is_empty()
            && self.set_mode.is_empty()
            && self.delete.is_empty()
            && self.delete_directories.is_empty()
    }

    fn add(
        &mut self,
        path: &Path,
        wanted: &EntryKind,
        found: Option<&EntryKind>,
        written: &Manifest,
    ) {
        let path = path.to_owned();
        match (wanted, found) {
            (EntryKind::Other, _) => self.skipped.push(path),
            (EntryKind::Directory { .. }, None) => self.make.push(path),
            (EntryKind::File(_) | EntryKind::Link { .. }, None) => self.send.push(path),
            (EntryKind::Directory { mode }, Some(EntryKind::Directory { mode: found })) => {
                if mode != found {
                    self.set_mode.push(path);
                }
            }
            (EntryKind::File(wanted), Some(EntryKind::File(found))) => {
                // Within one second, only the nanoseconds of the source show a change.
                let has_changed = written.files.get(&path).is_some_and(|was| was.facts != *wanted);
                if wanted.size != found.size {
                    self.send.push(path);
                } else if has_changed || !wanted.has_size_and_second_of(found) {
                    self.compare.push(path);
                } else if wanted.mode != found.mode {
                    self.set_mode.push(path);
                } else {
                    self.unchanged += 1;
                }
            }
            (EntryKind::Link { target }, Some(EntryKind::Link { target: found }))
                if target == found =>
            {
                self.unchanged += 1;
            }
            // Another kind, or another link. What no sync has written stays.
            (wanted, Some(found)) if written.has(&path, found) => {
                if is_directory(Some(found)) {
                    self.delete_directories.push(path.clone());
                } else {
                    self.delete.push(path.clone());
                }
                if is_directory(Some(wanted)) {
                    self.make.push(path);
                } else {
                    self.send.push(path);
                }
            }
            (_, Some(found)) => self.blocked.push(Blocked {
                path,
                by: kind_name(found),
            }),
        }
    }
}

fn is_directory(entry: Option<&EntryKind>) -> bool {
    matches!(entry, Some(EntryKind::Directory { .. }))
}

fn kind_name(entry: &EntryKind) -> &'static str {
    match entry {
        EntryKind::Directory { .. } => "a directory",
        EntryKind::File(_) => "a file",
        EntryKind::Link { .. } => "a symbolic link",
        EntryKind::Other => "a device, a socket or a pipe",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest::FileRecord;
    use crate::tree::FileFacts;

    const FILE: EntryKind = EntryKind::File(facts(3, 100, 0o644));
    const DIRECTORY: EntryKind = EntryKind::Directory { mode: 0o755 };

    const fn facts(size: u64, modified: i64, mode: u32) -> FileFacts {
        FileFacts {
            size,
            modified,
            nanoseconds: 0,
            mode,
        }
    }

    fn link(target: &str) -> EntryKind {
        EntryKind::Link {
            target: target.into(),
        }
    }

    fn tree(entry: Option<&EntryKind>) -> Tree {
        let entries = entry.map(|kind| (PathBuf::from("x"), kind.clone()));
        Tree {
            entries: entries.into_iter().collect(),
        }
    }

    fn manifest(entry: Option<&EntryKind>) -> Manifest {
        let mut manifest = Manifest::default();
        match entry {
            Some(EntryKind::File(facts)) => {
                let record = FileRecord {
                    facts: *facts,
                    sha256: [0; 32],
                };
                manifest.files.insert("x".into(), record);
            }
            Some(EntryKind::Link { target }) => {
                manifest.links.insert("x".into(), target.clone());
            }
            Some(EntryKind::Directory { mode }) => {
                manifest.directories.insert("x".into(), *mode);
            }
            Some(EntryKind::Other) | None => {}
        }
        manifest
    }

    /// What becomes of the only entry.
    fn fate(
        source: Option<&EntryKind>,
        target: Option<&EntryKind>,
        written: Option<&EntryKind>,
    ) -> String {
        let plan = SyncPlan::new(&tree(source), &tree(target), &manifest(written), |_| false);
        let steps = [
            ("delete", !plan.delete.is_empty()),
            ("delete directory", !plan.delete_directories.is_empty()),
            ("make", !plan.make.is_empty()),
            ("send", !plan.send.is_empty()),
            ("compare", !plan.compare.is_empty()),
            ("set mode", !plan.set_mode.is_empty()),
            ("changed there", !plan.changed_there.is_empty()),
            ("blocked", !plan.blocked.is_empty()),
            ("unchanged", plan.unchanged > 0),
            ("skipped", !plan.skipped.is_empty()),
        ];
        let steps = steps.iter().filter(|(_, is_taken)| *is_taken).map(|(step, _)| *step);
        steps.collect::<Vec<_>>().join(", ")
    }

    #[test]
    fn each_pair_of_entries_has_its_fate() {
        let file = |size, modified, mode| EntryKind::File(facts(size, modified, mode));
        let (f, d, l) = (Some(&FILE), Some(&DIRECTORY), Some(link("a")));
        let l = l.as_ref();
        let other_link = Some(link("b"));
        let within_the_second = EntryKind::File(FileFacts {
            nanoseconds: 1,
            ..facts(3, 100, 0o644)
        });
        let device = Some(&EntryKind::Other);
        for (source, target, written, expected) in [
            (None, None, None, ""),
            (f, None, None, "send"),
            (d, None, None, "make"),
            (l, None, None, "send"),
            (device, None, None, "skipped"),
            (f, f, None, "unchanged"),
            (f, Some(&file(4, 100, 0o644)), None, "send"),
            (f, Some(&file(3, 101, 0o644)), None, "compare"),
            (f, Some(&file(3, 100, 0o755)), None, "set mode"),
            (f, f, f, "unchanged"),
            (f, f, Some(&file(3, 99, 0o644)), "compare"),
            (f, f, Some(&within_the_second), "compare"),
            (d, d, None, ""),
            (
                d,
                Some(&EntryKind::Directory { mode: 0o700 }),
                None,
                "set mode",
            ),
            (l, l, None, "unchanged"),
            // What a person has put there stays.
            (f, l, None, "blocked"),
            (f, d, None, "blocked"),
            (d, l, None, "blocked"),
            (d, f, None, "blocked"),
            (l, other_link.as_ref(), None, "blocked"),
            (f, device, None, "blocked"),
            // What a sync has written makes room.
            (f, l, l, "delete, send"),
            (l, other_link.as_ref(), other_link.as_ref(), "delete, send"),
            (d, f, f, "delete, make"),
            (f, d, d, "delete directory, send"),
            // Gone at the source.
            (None, f, None, ""),
            (None, f, f, "delete"),
            (None, l, l, "delete"),
            (None, d, d, "delete directory"),
            (None, Some(&file(9, 100, 0o644)), f, "changed there"),
            (None, Some(&file(3, 999, 0o644)), f, "changed there"),
            (None, d, f, "changed there"),
            (None, None, f, ""),
        ] {
            let found = fate(source, target, written);
            assert_eq!(
                found, expected,
                "{source:?} onto {target:?}, written {written:?}"
            );
        }
    }

    #[test]
    fn the_deepest_directory_is_deleted_first() {
        let mut target = tree(Some(&DIRECTORY));
        target.entries.insert("x/y".into(), DIRECTORY);
        let mut written = manifest(Some(&DIRECTORY));
        written.directories.insert("x/y".into(), 0o755);
        let plan = SyncPlan::new(&tree(Some(&FILE)), &target, &written, |_| false);
        assert_eq!(plan.delete_directories, [Path::new("x/y"), Path::new("x")]);
    }

    #[test]
    fn what_is_only_ignored_now_is_not_deleted() {
        let (target, written) = (tree(Some(&FILE)), manifest(Some(&FILE)));
        let plan = SyncPlan::new(&Tree::default(), &target, &written, |_| true);
        assert!(plan.is_empty(), "{plan:?}");
    }

    #[test]
    fn nothing_is_written_below_what_blocks() {
        let mut source = tree(Some(&DIRECTORY));
        source.entries.insert("x/below".into(), FILE);
        let target = tree(Some(&link("/etc")));
        let plan = SyncPlan::new(&source, &target, &Manifest::default(), |_| false);
        assert_eq!(plan.blocked.len(), 1);
        assert!(plan.is_empty(), "{plan:?}");
    }
}
