//! ssh_config, read once for each state of its files, whose lines are found by host.

use std::collections::HashMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use super::aliases::{Aliases, aliases_in};
use super::fallback;
use super::lines::{ConfigText, Item, Unreadable};
use sshjobs_base::lock::lock;

/// The lines of ssh_config, by host. With thousands of hosts, few lines concern one of them.
#[derive(Debug)]
pub(super) struct SshConfig {
    text: ConfigText,
    /// The names that it lists.
    pub(super) aliases: Arc<Aliases>,
    /// Blocks whose `Host` line has names without wildcards, by each of the names.
    by_name: HashMap<String, Vec<Range<usize>>>,
    /// All other items. Each of them may concern any host.
    for_all: Vec<Range<usize>>,
    /// Whether it is known, without running ssh, that ssh accepts every line and what the lines mean. Options
    /// that are left to ssh are refused only for hosts to which they apply.
    pub(super) is_understood: bool,
}

/// The configuration that was read last.
#[derive(Debug, Default)]
pub(super) struct LastSshConfig(Mutex<Option<ReadConfig>>);

#[derive(Debug)]
struct ReadConfig {
    /// The file that was named, if not those of the user and the system.
    file: Option<PathBuf>,
    config: Arc<SshConfig>,
}

impl LastSshConfig {
    /// The configuration in `file`, or without it that of the user and the system. It is read again only if a
    /// file has changed. Blocks while it is read.
    pub(super) fn read(&self, file: Option<&Path>) -> Result<Arc<SshConfig>, Unreadable> {
        // Locked while a file is read, so that one thread reads it for all that want it.
        let mut last = lock(&self.0);
        if let Some(read) = &*last
            && read.file.as_deref() == file
            && read.config.text.is_current()
        {
            return Ok(Arc::clone(&read.config));
        }
        let config = Arc::new(SshConfig::new(ConfigText::read(file)?));
        *last = Some(ReadConfig {
            file: file.map(Path::to_owned),
            config: Arc::clone(&config),
        });
        Ok(config)
    }
}

impl SshConfig {
    pub(super) fn new(text: ConfigText) -> Self {
        let mut by_name: HashMap<String, Vec<Range<usize>>> = HashMap::new();
        let mut for_all = Vec::new();
        let mut start = 0;
        while start < text.items.len() {
            let end = start + block_length(&text.items[start..]);
            match plain_names(&text.items[start..], text.items.get(end)) {
                Some(names) => {
                    for name in names {
                        by_name.entry(name.clone()).or_default().push(start..end);
                    }
                }
                None => for_all.push(start..end),
            }
            start = end;
        }
        let is_understood = text.items.iter().all(|item| match item {
            Item::Line(line) => fallback::is_understood(line),
            Item::Begin | Item::End => true,
        });
        Self {
            is_understood: is_understood && !text.is_doubtful,
            aliases: Arc::new(aliases_in(&text.items)),
            text,
            by_name,
            for_all,
        }
    }

    /// The items that may concern a host, in their order. Left out are blocks for other hosts.
    pub(super) fn items_for(&self, host: &str) -> impl Iterator<Item = &Item> {
        let of_host = self.by_name.get(host).into_iter().flatten();
        let mut blocks: Vec<&Range<usize>> = self.for_all.iter().chain(of_host).collect();
        blocks.sort_by_key(|block| block.start);
        // A `Host` line may have a name twice.
        blocks.dedup();
        blocks.into_iter().flat_map(|block| &self.text.items[block.clone()])
    }
}

/// Number of items in the block that begins with the first item: itself, and the options after it.
fn block_length(items: &[Item]) -> usize {
    let begins_block = |item: &Item| match item {
        Item::Line(line) => matches!(line.keyword.as_str(), "host" | "match"),
        Item::Begin | Item::End => true,
    };
    let next = items.iter().skip(1).position(begins_block);
    next.map_or(items.len(), |options| options + 1)
}

/// The names of a `Host` block that concerns no other host. `None` if it may concern any. `next` is the item
/// after the block.
fn plain_names<'a>(block: &'a [Item], next: Option<&Item>) -> Option<&'a [String]> {
    // The lines of an included file apply where the block does that includes it.
    if matches!(next, Some(Item::Begin)) {
        return None;
    }
    match block.first() {
        Some(Item::Line(line)) if line.keyword == "host" => {
            let is_plain = |name: &String| !name.contains(['*', '?', '!']);
            line.arguments.iter().all(is_plain).then_some(&line.arguments)
        }
        Some(Item::Line(_) | Item::Begin | Item::End) | None => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file_state::wait_until_settled;

    fn words_for(text: &str, host: &str) -> Vec<String> {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("config");
        let included = directory.path().join("included");
        std::fs::write(
            &included,
            "Host web1\n  User included\nHost web2\n  Port 2\n",
        )
        .unwrap();
        std::fs::write(&file, text.replace("INCLUDED", included.to_str().unwrap())).unwrap();
        let config = SshConfig::new(ConfigText::read(Some(&file)).unwrap());
        let lines = config.items_for(host).filter_map(|item| match item {
            Item::Line(line) => Some(line.text.trim().to_owned()),
            Item::Begin | Item::End => None,
        });
        lines.collect()
    }

    #[test]
    fn blocks_for_other_hosts_are_left_out() {
        let text =
            "Compression yes\nHost web1 web2\n  Port 1\nHost web2\n  Port 3\nHost w*\n  User w\n";
        assert_eq!(
            words_for(text, "web1"),
            [
                "Compression yes",
                "Host web1 web2",
                "Port 1",
                "Host w*",
                "User w"
            ]
        );
        assert_eq!(
            words_for(text, "db1"),
            ["Compression yes", "Host w*", "User w"]
        );
    }

    #[test]
    fn a_block_that_includes_a_file_is_kept() {
        let text = "Host db1\n  Port 1\n  Include INCLUDED\n  Port 4\nHost db1\n  Port 5\n";
        assert_eq!(
            words_for(text, "web1"),
            ["Host db1", "Port 1", "Host web1", "User included", "Port 4"]
        );
    }

    #[test]
    fn a_changed_or_new_file_is_read_again() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("config");
        let last = LastSshConfig::default();
        let names = || {
            let config = last.read(Some(&file)).unwrap();
            config.aliases.keys().cloned().collect::<Vec<_>>()
        };
        let included = directory.path().join("included");
        assert_eq!(names(), [""; 0]);
        std::fs::write(
            &file,
            format!("Host web1\nInclude {}*\n", included.display()),
        )
        .unwrap();
        assert_eq!(names(), ["web1"]);
        std::fs::write(included, "Host web2\n").unwrap();
        assert_eq!(names(), ["web1", "web2"]);
    }

    #[test]
    fn a_file_that_was_kept_is_read_again_after_a_change_of_the_same_length() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("config");
        let last = LastSshConfig::default();
        std::fs::write(&file, "Host web1\n").unwrap();
        wait_until_settled(&file);
        let first = last.read(Some(&file)).unwrap();
        assert!(Arc::ptr_eq(&first, &last.read(Some(&file)).unwrap()));

        std::fs::write(&file, "Host web2\n").unwrap();
        let changed = last.read(Some(&file)).unwrap();
        assert!(changed.aliases.contains_key("web2"));
    }

    #[test]
    fn a_hidden_file_is_included_only_by_its_name() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("config");
        std::fs::write(directory.path().join(".hidden.conf"), "Host hidden\n").unwrap();
        let shown = directory.path().display();
        let read = |pattern: &str| {
            std::fs::write(&file, format!("Include {shown}/{pattern}\n")).unwrap();
            let config = SshConfig::new(ConfigText::read(Some(&file)).unwrap());
            (config.aliases.len(), config.is_understood)
        };
        assert_eq!(read("*.conf"), (0, true));
        assert_eq!(read(".hidden.conf"), (1, true));
        assert!(!read(".hidden*").1, "it is left to ssh");
    }
}
