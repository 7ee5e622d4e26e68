//! Adds an entry to a TOML file: that of Codex.

use toml_edit::{Array, DocumentMut, Item, Table, value};

use super::entry::{CantAdd, ServerEntry};

const SERVERS: &str = "mcp_servers";

/// The text with the entry in the table of servers.
pub(super) fn with_entry(text: &str, entry: &ServerEntry) -> Result<String, CantAdd> {
    let mut document: DocumentMut = text
        .parse()
        .map_err(|error: toml_edit::TomlError| CantAdd::Malformed(error.message().to_owned()))?;
    let servers = document.entry(SERVERS).or_insert_with(|| {
        let mut servers = Table::new();
        // Without a header of its own: the entry's is enough.
        servers.set_implicit(true);
        Item::Table(servers)
    });
    let servers = servers
        .as_table_mut()
        .ok_or(CantAdd::OtherForm("mcp_servers is an inline table"))?;
    if let Some(before) = servers.get(&entry.name) {
        if starts_like(before, entry) {
            return Ok(text.to_owned());
        }
        if !entry.replaces {
            return Err(CantAdd::Exists(entry.name.clone()));
        }
    }
    let mut table = Table::new();
    table["command"] = value(&entry.command);
    table["args"] = value(entry.arguments.iter().collect::<Array>());
    servers.insert(&entry.name, Item::Table(table));
    Ok(document.to_string())
}

fn starts_like(known: &Item, entry: &ServerEntry) -> bool {
    let Some(known) = known.as_table_like() else { return false };
    known.get("command").and_then(Item::as_str) == Some(&entry.command)
        && known.get("args").and_then(texts).as_ref() == Some(&entry.arguments)
}

/// The elements of an array of strings.
fn texts(item: &Item) -> Option<Vec<String>> {
    let values = item.as_array()?.iter();
    values.map(|value| value.as_str().map(str::to_owned)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_entry_is_a_table_and_the_rest_stays() {
        let before = "# mine\nmodel = \"o5\"\n\n[mcp_servers.other]\ncommand = \"x\" # why\n";
        let text = with_entry(before, &ServerEntry::example()).unwrap();
        assert_eq!(
            text,
            format!(
                "{before}\n[mcp_servers.sshjobs]\ncommand = \"/usr/bin/sshjobs\"\nargs = [\"serve\"]\n"
            )
        );
        assert_eq!(with_entry(&text, &ServerEntry::example()).unwrap(), text);
    }

    #[test]
    fn a_new_file_has_only_the_entry() {
        let text = with_entry("", &ServerEntry::example()).unwrap();
        assert!(text.starts_with("[mcp_servers.sshjobs]\n"), "{text}");
    }

    #[test]
    fn an_entry_for_http_is_replaced_as_a_whole_on_request() {
        let before = "[mcp_servers.sshjobs]\nurl = \"http://x\"\nenabled = false\n";
        assert_eq!(
            with_entry(before, &ServerEntry::example()),
            Err(CantAdd::Exists("sshjobs".to_owned()))
        );
        let replacing = ServerEntry {
            replaces: true,
            ..ServerEntry::example()
        };
        let text = with_entry(before, &replacing).unwrap();
        assert!(!text.contains("url") && !text.contains("enabled"), "{text}");
    }

    #[test]
    fn a_file_that_makes_no_sense_is_left_alone() {
        for text in [
            "a = ",
            "mcp_servers = 7",
            "mcp_servers = {}",
            "[mcp_servers]\nsshjobs = 1\n",
        ] {
            assert!(with_entry(text, &ServerEntry::example()).is_err(), "{text}");
        }
    }
}
