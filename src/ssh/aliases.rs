use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use super::expand::home_dir;

/// How deep `Include` may nest, as in ssh.
pub(super) const MAX_DEPTH: usize = 16;

/// Where each name is listed first.
pub type Aliases = BTreeMap<String, Location>;

/// A line of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Location {
    /// The file.
    pub file: PathBuf,
    /// The line, from 1.
    pub line: usize,
}

/// The host names that ssh_config's `Host` lines spell out, without wildcards or negations, `Include`s followed.
///
/// What a name means is for `ssh -G` to say; this only lists them. A file that doesn't exist is empty.
pub fn concrete_aliases(file: Option<&Path>) -> io::Result<Aliases> {
    let mut aliases = Aliases::new();
    let home = home_dir().unwrap_or_default();
    match file {
        Some(file) => {
            // One that was named must be there.
            std::fs::metadata(file).map_err(|error| with_path(file, &error))?;
            read(file, &home.join(".ssh"), 0, &mut aliases)?;
        }
        None => {
            read(&home.join(".ssh/config"), &home.join(".ssh"), 0, &mut aliases)?;
            read(Path::new("/etc/ssh/ssh_config"), Path::new("/etc/ssh"), 0, &mut aliases)?;
        }
    }
    Ok(aliases)
}

fn read(file: &Path, base: &Path, depth: usize, aliases: &mut Aliases) -> io::Result<()> {
    let text = match std::fs::read_to_string(file) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(with_path(file, &error)),
    };
    for (index, line) in text.lines().enumerate() {
        let Some((keyword, arguments)) = keyword_and_arguments(line) else { continue };
        match keyword.as_str() {
            "host" => {
                for name in arguments.into_iter().filter(|name| is_concrete(name)) {
                    let here = || Location { file: file.to_owned(), line: index + 1 };
                    aliases.entry(name).or_insert_with(here);
                }
            }
            "include" if depth < MAX_DEPTH => {
                for included in arguments.iter().flat_map(|pattern| included_files(pattern, base)) {
                    read(&included, base, depth + 1, aliases)?;
                }
            }
            _ => {}
        }
    }
    Ok(())
}

fn with_path(file: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", file.display()))
}

fn is_concrete(name: &str) -> bool {
    !name.contains(['*', '?', '!'])
}

pub(super) fn included_files(pattern: &str, base: &Path) -> Vec<PathBuf> {
    let home = home_dir().unwrap_or_default();
    let path = match pattern.strip_prefix("~/") {
        Some(rest) => home.join(rest),
        None => base.join(pattern),
    };
    let matches = path.to_str().and_then(|path| glob::glob(path).ok());
    matches.into_iter().flatten().filter_map(Result::ok).collect()
}

/// `Keyword a "b c" # comment`, `Keyword=a`; the keyword in lower case.
pub(super) fn keyword_and_arguments(line: &str) -> Option<(String, Vec<String>)> {
    let line = line.trim();
    if line.is_empty() || line.starts_with('#') {
        return None;
    }
    let (keyword, rest) = line.split_once(|c: char| c.is_whitespace() || c == '=').unwrap_or((line, ""));
    let rest = rest.trim_start_matches(|c: char| c.is_whitespace() || c == '=');
    let mut arguments = Vec::new();
    for (index, part) in rest.split('"').enumerate() {
        match index % 2 {
            0 => {
                for word in part.split_whitespace() {
                    if word.starts_with('#') {
                        return Some((keyword.to_ascii_lowercase(), arguments));
                    }
                    arguments.push(word.to_owned());
                }
            }
            _ => arguments.push(part.to_owned()),
        }
    }
    Some((keyword.to_ascii_lowercase(), arguments))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn concrete_names_are_listed_and_includes_followed() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("config");
        let more = dir.path().join("more.conf");
        std::fs::write(&more, "Host inner \"quoted one\"\n  Include missing\n").unwrap();
        let text =
            format!("Include {}\n# Host no\nhost=web1 web2 *.x !y web?\n  User Host\n", more.display());
        std::fs::write(&file, text).unwrap();
        let aliases = concrete_aliases(Some(&file)).unwrap();
        let names: Vec<_> = aliases.keys().map(String::as_str).collect();
        assert_eq!(names, ["inner", "quoted one", "web1", "web2"]);
        assert_eq!(aliases["web2"], Location { file, line: 3 });
    }

    #[test]
    fn a_file_that_includes_itself_comes_to_an_end() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("config");
        std::fs::write(&file, format!("Include {}\nHost a\n", file.display())).unwrap();
        assert_eq!(concrete_aliases(Some(&file)).unwrap().len(), 1);
    }
}
