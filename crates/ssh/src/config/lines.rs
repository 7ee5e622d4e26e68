//! Lines of ssh_config files, with includes.

use std::io;
use std::path::{Path, PathBuf};

use super::expand::home_dir;
use sshjobs_base::bounded_file::read_text;

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

/// Reads `file` or, if it is not given, the user's and the system's file. A missing file is empty.
pub(super) fn read(file: Option<&Path>) -> Result<Vec<Item>, Unreadable> {
    let home = home_dir().unwrap_or_default();
    let mut items = Vec::new();
    match file {
        Some(file) => read_file(file, &home.join(".ssh"), 0, &mut items)?,
        None => {
            read_file(&home.join(".ssh/config"), &home.join(".ssh"), 0, &mut items)?;
            read_file(
                Path::new("/etc/ssh/ssh_config"),
                Path::new("/etc/ssh"),
                0,
                &mut items,
            )?;
        }
    }
    Ok(items)
}

/// Reads a file as a scope of its own. Relative includes start from `base`.
fn read_file(
    file: &Path,
    base: &Path,
    depth: usize,
    items: &mut Vec<Item>,
) -> Result<(), Unreadable> {
    let text = match read_text(file) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(source) => {
            return Err(Unreadable {
                file: file.to_owned(),
                source,
            });
        }
    };
    items.push(Item::Begin);
    for (index, text) in text.lines().enumerate() {
        let Some((keyword, arguments)) = keyword_and_arguments(text) else { continue };
        // A deeper one stays a line, so that `fallback` can refuse it.
        if keyword == "include" && depth < MAX_DEPTH {
            for included in arguments.iter().flat_map(|pattern| included_files(pattern, base)) {
                read_file(&included, base, depth + 1, items)?;
            }
        } else {
            let location = Location {
                file: file.to_owned(),
                line: index + 1,
            };
            items.push(Item::Line(ConfigLine {
                location,
                text: text.to_owned(),
                keyword,
                arguments,
            }));
        }
    }
    items.push(Item::End);
    Ok(())
}

fn included_files(pattern: &str, base: &Path) -> Vec<PathBuf> {
    let home = home_dir().unwrap_or_default();
    let path = match pattern.strip_prefix("~/") {
        Some(rest) => home.join(rest),
        None => base.join(pattern),
    };
    let matches = path.to_str().and_then(|path| glob::glob(path).ok());
    matches.into_iter().flatten().filter_map(Result::ok).collect()
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
