//! A known_hosts file, read once for each of its states, whose lines are found by name.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock, Mutex};

use super::HostName;
use super::entry::{KnownHostsLine, UndecodedLine, undecoded_lines};
use crate::file_state::FileState;
use sshjobs_base::bounded_file::read_up_to;
use sshjobs_base::lock::lock;

/// Longest known_hosts file in bytes: some hundred thousand entries.
const LONGEST: u64 = 64 << 20;
/// Maximum number of files that are kept.
const MOST_FILES: usize = 16;

/// The files that were read last.
static FILES: LazyLock<Mutex<HashMap<PathBuf, Arc<LastRead>>>> = LazyLock::new(Mutex::default);

/// A file as it was last read, with its state then. Locked while it is read, so that one thread reads it for all
/// that want it.
type LastRead = Mutex<Option<(FileState, Arc<KnownHostsFile>)>>;

/// The lines of a known_hosts file. A key is decoded when its line is found: of thousands of lines, a
/// host needs one or two.
pub(super) struct KnownHostsFile {
    path: PathBuf,
    text: String,
    lines: Vec<UndecodedLine>,
    /// Lines whose names have no wildcards, by each of the names.
    by_name: HashMap<String, Vec<usize>>,
    /// Lines with wildcards or hashed names. They are compared with each name.
    others: Vec<usize>,
}

impl KnownHostsFile {
    /// The file at a path. It is read again only if it has changed.
    ///
    /// # Errors
    /// Those of reading.
    pub(super) fn open(path: &Path) -> io::Result<Arc<Self>> {
        let last_read = Self::last_read(path);
        let mut last_read = lock(&last_read);
        let file = File::open(path)?;
        let state = FileState::of(&file.metadata()?);
        if let Some((last_state, lines)) = &*last_read
            && *last_state == state
        {
            return Ok(Arc::clone(lines));
        }
        let is_settled = state.is_settled();
        let bytes = read_up_to(LONGEST, file)?;
        // Lossy, so that one broken line does not make the whole file unreadable.
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let lines = Arc::new(Self::new(path, text));
        *last_read = is_settled.then(|| (state, Arc::clone(&lines)));
        Ok(lines)
    }

    fn last_read(path: &Path) -> Arc<LastRead> {
        let mut files = lock(&FILES);
        if files.len() >= MOST_FILES && !files.contains_key(path) {
            files.clear();
        }
        Arc::clone(files.entry(path.to_owned()).or_default())
    }

    fn new(path: &Path, text: String) -> Self {
        let lines: Vec<UndecodedLine> = undecoded_lines(path, &text).collect();
        let mut by_name: HashMap<String, Vec<usize>> = HashMap::new();
        let mut others = Vec::new();
        for (index, line) in lines.iter().enumerate() {
            match line.hosts.plain_names() {
                Some(names) => {
                    for name in names {
                        by_name.entry(name.clone()).or_default().push(index);
                    }
                }
                None => others.push(index),
            }
        }
        Self {
            path: path.to_owned(),
            text,
            lines,
            by_name,
            others,
        }
    }

    /// The lines for a host, in the order of the file.
    pub(super) fn lines_for(&self, host: &HostName) -> Vec<KnownHostsLine> {
        let by_name = host.names().filter_map(|name| self.by_name.get(name)).flatten();
        let others = self.others.iter().filter(|index| self.lines[**index].is_for(host));
        let mut found: Vec<usize> = by_name.chain(others).copied().collect();
        found.sort_unstable();
        // A line may name a host with its port and without.
        found.dedup();
        found
            .into_iter()
            .filter_map(|index| self.lines[index].decode(&self.path, &self.text))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file_state::wait_until_settled;

    const KEY: &str =
        "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJdD7y3aLq454yWBdwLWbieU1ebz9/cu7/QEXn9OIeZJ";

    fn lines(path: &Path, host: &HostName) -> Vec<usize> {
        let file = KnownHostsFile::open(path).unwrap();
        file.lines_for(host).iter().map(|line| line.line).collect()
    }

    #[test]
    fn a_host_is_found_under_all_its_names_in_the_order_of_the_file() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("known_hosts");
        let host = HostName::new("web1", 2222);
        let text = format!(
            "web2 {KEY}\n{} {KEY}\nweb* {KEY}\n*,!web1 {KEY}\n[web1]:2222,web1 {KEY}\nWEB1 {KEY}\n",
            host.hashed()
        );
        std::fs::write(&path, text).unwrap();

        assert_eq!(lines(&path, &host), [2, 3, 4, 5, 6]);
        assert_eq!(lines(&path, &HostName::new("web2", 22)), [1, 3, 4]);
    }

    #[test]
    fn a_file_that_was_kept_is_read_again_after_a_change_of_the_same_length() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("known_hosts");
        let host = HostName::new("web1", 22);
        std::fs::write(&path, format!("web1 {KEY}\n")).unwrap();
        wait_until_settled(&path);
        let first = KnownHostsFile::open(&path).unwrap();
        assert!(Arc::ptr_eq(&first, &KnownHostsFile::open(&path).unwrap()));

        std::fs::write(&path, format!("web2 {KEY}\n")).unwrap();
        assert_eq!(lines(&path, &host), [0; 0]);
    }

    #[test]
    fn a_changed_file_is_read_again() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("known_hosts");
        let host = HostName::new("web1", 22);
        std::fs::write(&path, format!("web1 {KEY}\n")).unwrap();
        assert_eq!(lines(&path, &host), [1]);
        // Of the same length, and at once.
        std::fs::write(&path, format!("web2 {KEY}\n")).unwrap();
        assert_eq!(lines(&path, &host), [0; 0]);
    }
}
