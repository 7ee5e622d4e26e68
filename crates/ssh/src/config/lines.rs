//! Lines of ssh_config files, with includes.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use nix::unistd::getuid;

use super::expand::home_dir;
use crate::file_state::FileState;
use sshjobs_base::bounded_file::read_text_from;
use sshjobs_base::host_pattern::glob_matches;

/// Deepest nesting of `Include`, as in ssh.
const MAX_DEPTH: usize = 16;

/// A place in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Location {
    /// The file.
    pub file: PathBuf,
    /// The line, from 1.
    pub line: usize,
}

/// A file that exists and can't be read.
#[derive(Debug)]
pub(super) struct Unreadable {
    pub(super) file: PathBuf,
    pub(super) source: io::Error,
}

/// An item of ssh_config. `Include`s are expanded.
#[derive(Debug)]
pub(super) enum Item {
    /// A line with an option.
    Line(ConfigLine),
    /// Start of an included file. In a `Host` that does not match, nothing in it applies.
    Begin,
    /// End of an included file.
    End,
}

/// A line with an option.
#[derive(Debug)]
pub(super) struct ConfigLine {
    pub(super) location: Location,
    /// The line, unchanged.
    pub(super) text: String,
    /// The first word, in lower case. A remaining `include` is nested too deep to be followed.
    pub(super) keyword: String,
    pub(super) arguments: Vec<String>,
}

/// The text of all files of ssh_config.
#[derive(Debug, Default)]
pub(super) struct ConfigText {
    pub(super) items: Vec<Item>,
    /// The files with their states when they were read. `None` for a missing one.
    files: Vec<(PathBuf, Option<FileState>)>,
    /// Whether the next change of each file will show.
    is_settled: bool,
    /// The patterns of `Include`, with the files that they matched.
    includes: Vec<(PathBuf, Vec<PathBuf>)>,
    /// Whether ssh may refuse a file, or read it in another way: a named file is missing, other users may change a file
    /// whose rights ssh checks, or a line or an `Include` is not plain.
    pub(super) is_doubtful: bool,
}

/// The system's file.
pub(super) const SYSTEM_FILE: &str = "/etc/ssh/ssh_config";

/// Mode bits by which others than the owner may write a file.
const WRITABLE_BY_OTHERS: u32 = 0o022;

impl ConfigText {
    /// Reads `file` or, if it is not given, the user's and the system's file. A missing file is empty.
    pub(super) fn read(file: Option<&Path>) -> Result<Self, Unreadable> {
        let home = home_dir().unwrap_or_default();
        let mut text = Self {
            is_settled: true,
            ..Self::default()
        };
        match file {
            Some(file) => {
                text.is_doubtful = !file.exists();
                text.read_file(file, &home.join(".ssh"), 0)?;
            }
            None => {
                let own = home.join(".ssh/config");
                text.note_rights(&own);
                text.read_file(&own, &home.join(".ssh"), 0)?;
                text.read_file(Path::new(SYSTEM_FILE), Path::new("/etc/ssh"), 0)?;
            }
        }
        Ok(text)
    }

    /// Whether reading the files again would give the same.
    pub(super) fn is_current(&self) -> bool {
        let is_same = |(file, state): &(PathBuf, Option<FileState>)| {
            FileState::at(file).is_ok_and(|now| now == *state)
        };
        self.is_settled
            && self.files.iter().all(is_same)
            && self.includes.iter().all(|(pattern, files)| matching_files(pattern) == *files)
    }

    /// Reads a file as a scope of its own. Relative includes start from `base`.
    fn read_file(&mut self, file: &Path, base: &Path, depth: usize) -> Result<(), Unreadable> {
        let unreadable = |source| Unreadable {
            file: file.to_owned(),
            source,
        };
        let opened = match File::open(file) {
            Ok(opened) => opened,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.files.push((file.to_owned(), None));
                return Ok(());
            }
            Err(source) => return Err(unreadable(source)),
        };
        let state = FileState::of(&opened.metadata().map_err(unreadable)?);
        let is_settled = state.is_settled();
        let text = read_text_from(opened).map_err(unreadable)?;
        self.is_settled &= is_settled;
        self.files.push((file.to_owned(), Some(state)));
        self.items.push(Item::Begin);
        for (index, text) in text.lines().enumerate() {
            self.is_doubtful |= !is_plain(text);
            let Some((keyword, arguments)) = keyword_and_arguments(text) else { continue };
            // A deeper one stays a line, so that `fallback` can refuse it.
            if keyword == "include" && depth < MAX_DEPTH {
                self.is_doubtful |= arguments.is_empty()
                    || !arguments.iter().all(|pattern| is_plain_include(pattern));
                for pattern in arguments {
                    let pattern = include_pattern(&pattern, base);
                    let files = matching_files(&pattern);
                    self.includes.push((pattern, files.clone()));
                    for included in files {
                        self.note_rights(&included);
                        self.read_file(&included, base, depth + 1)?;
                    }
                }
            } else {
                let location = Location {
                    file: file.to_owned(),
                    line: index + 1,
                };
                self.items.push(Item::Line(ConfigLine {
                    location,
                    text: text.to_owned(),
                    keyword,
                    arguments,
                }));
            }
        }
        self.items.push(Item::End);
        Ok(())
    }

    fn note_rights(&mut self, file: &Path) {
        let owners = [0, getuid().as_raw()];
        let is_unsafe = file.metadata().is_ok_and(|found| {
            !owners.contains(&found.uid()) || found.mode() & WRITABLE_BY_OTHERS != 0
        });
        self.is_doubtful |= is_unsafe;
    }
}

fn include_pattern(pattern: &str, base: &Path) -> PathBuf {
    match pattern.strip_prefix("~/") {
        Some(rest) => home_dir().unwrap_or_default().join(rest),
        None => base.join(pattern),
    }
}

fn matching_files(pattern: &Path) -> Vec<PathBuf> {
    match (pattern.parent(), pattern.file_name()) {
        (Some(directory), Some(name)) if !has_wildcard(directory) => {
            files_in(directory, &name.to_string_lossy())
        }
        _ => {
            let matches = pattern.to_str().and_then(|pattern| glob::glob(pattern).ok());
            matches.into_iter().flatten().filter_map(Result::ok).collect()
        }
    }
}

fn has_wildcard(path: &Path) -> bool {
    path.to_string_lossy().contains(['*', '?', '['])
}

/// The files of a directory whose names match, sorted. As in ssh, a wildcard matches no hidden file.
fn files_in(directory: &Path, name: &str) -> Vec<PathBuf> {
    if !has_wildcard(Path::new(name)) {
        let file = directory.join(name);
        return if file.exists() {
            vec![file]
        } else {
            Vec::new()
        };
    }
    let entries = directory.read_dir().into_iter().flatten().filter_map(Result::ok);
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let mut matching: Vec<String> = names
        .filter(|found| !found.starts_with('.') && glob_matches(name, found))
        .collect();
    matching.sort_unstable();
    matching.into_iter().map(|found| directory.join(found)).collect()
}

/// Whether a line has only characters of which every release of ssh makes the same words. Comments may have any.
fn is_plain(line: &str) -> bool {
    let line = line.trim_matches([' ', '\t']);
    let is_known = |c: char| c.is_ascii_graphic() && !matches!(c, '"' | '\'' | '\\' | '#');
    line.starts_with('#') || line.chars().all(|c| is_known(c) || c == ' ' || c == '\t')
}

/// Whether ssh is known to find the same files for a pattern of `Include`.
fn is_plain_include(pattern: &str) -> bool {
    // ssh takes the home directory from the environment here.
    let is_absolute =
        pattern.starts_with('/') || std::env::var_os("HOME").map(PathBuf::from) == home_dir();
    let (directory, name) = pattern.rsplit_once('/').unwrap_or(("", pattern));
    let is_of_home = !pattern.starts_with('~') || pattern.starts_with("~/");
    is_absolute
        && is_of_home
        && !pattern.contains(['$', '%', '[', '{', '='])
        && !directory.contains(['*', '?'])
        && !(name.starts_with('.') && name.contains(['*', '?']))
}

impl ConfigLine {
    /// The rest of the line after the keyword, unchanged.
    pub(super) fn rest(&self) -> &str {
        split_keyword(self.text.trim()).1
    }
}

fn split_keyword(line: &str) -> (&str, &str) {
    let (keyword, rest) = line.split_once(is_gap).unwrap_or((line, ""));
    (keyword, rest.trim_start_matches(is_gap))
}

/// Splits `Keyword a "b c" # comment` or `Keyword=a`. The keyword is in lower case.
fn keyword_and_arguments(line: &str) -> Option<(String, Vec<String>)> {
    let line = line.trim();
    if line.is_empty() || line.starts_with('#') {
        return None;
    }
    let (keyword, rest) = split_keyword(line);
    let keyword = keyword.to_ascii_lowercase();
    let mut arguments = Vec::new();
    for (index, part) in rest.split('"').enumerate() {
        // Every other part is inside quotes.
        if index % 2 == 1 {
            arguments.push(part.to_owned());
            continue;
        }
        for word in part.split_whitespace() {
            if word.starts_with('#') {
                return Some((keyword, arguments));
            }
            arguments.push(word.to_owned());
        }
    }
    Some((keyword, arguments))
}

fn is_gap(c: char) -> bool {
    c.is_whitespace() || c == '='
}
