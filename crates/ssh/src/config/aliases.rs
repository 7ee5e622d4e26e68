use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use super::Location;
use super::lines::{self, Item, Unreadable};

/// The first place that lists each name.
pub type Aliases = BTreeMap<String, Location>;

/// Host names in ssh_config's `Host` lines without wildcards or negations. Follows `Include`.
///
/// Lists names only; `ssh -G` decides what they mean. A missing file is empty, unless it was named
/// explicitly.
pub fn concrete_aliases(file: Option<&Path>) -> io::Result<Aliases> {
    if let Some(file) = file {
        std::fs::metadata(file).map_err(|error| with_path(file, &error))?;
    }
    let items =
        lines::read(file).map_err(|Unreadable { file, source }| with_path(&file, &source))?;
    let mut aliases = Aliases::new();
    for item in items {
        let Item::Line(line) = item else { continue };
        if line.keyword == "host" {
            for name in line.arguments.into_iter().filter(|name| is_concrete(name)) {
                aliases.entry(name).or_insert_with(|| line.location.clone());
            }
        }
    }
    Ok(aliases)
}

fn with_path(file: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", file.display()))
}

fn is_concrete(name: &str) -> bool {
    !name.contains(['*', '?', '!'])
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
        let text = format!(
            "Include {}\n# Host no\nhost=web1 web2 *.x !y web?\n  User Host\n",
            more.display()
        );
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
