use std::collections::BTreeMap;

use super::Location;
use super::lines::Item;

/// The first place that lists each name.
pub type Aliases = BTreeMap<String, Location>;

/// Host names in ssh_config's `Host` lines without wildcards or negations.
pub(super) fn aliases_in(items: &[Item]) -> Aliases {
    let mut aliases = Aliases::new();
    for item in items {
        let Item::Line(line) = item else { continue };
        if line.keyword == "host" {
            for name in line.arguments.iter().filter(|name| is_concrete(name)) {
                aliases.entry(name.clone()).or_insert_with(|| line.location.clone());
            }
        }
    }
    aliases
}

fn is_concrete(name: &str) -> bool {
    !name.contains(['*', '?', '!'])
}

#[cfg(test)]
mod tests {
    use super::super::lines::ConfigText;
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
        let aliases = aliases_in(&ConfigText::read(Some(&file)).unwrap().items);
        let names: Vec<_> = aliases.keys().map(String::as_str).collect();
        assert_eq!(names, ["inner", "quoted one", "web1", "web2"]);
        assert_eq!(aliases["web2"], Location { file, line: 3 });
    }

    #[test]
    fn a_file_that_includes_itself_comes_to_an_end() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("config");
        std::fs::write(&file, format!("Include {}\nHost a\n", file.display())).unwrap();
        let text = ConfigText::read(Some(&file)).unwrap();
        assert_eq!(aliases_in(&text.items).len(), 1);
    }
}
