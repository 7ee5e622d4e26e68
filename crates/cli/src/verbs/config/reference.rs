//! All keys of the configuration, with their defaults and what they mean; also in docs/config.md.

use toml::de::DeTable;

const REFERENCE: &str = include_str!("reference.toml");
/// The table with a table for each host.
const HOSTS: &str = "hosts";
/// Beginnings of tables that are examples as a whole. An array of tables begins with a second bracket.
const EXAMPLE_TABLES: [&str; 8] = [
    "tags", "hosts", "secrets", "[oidc", "oidc", "[notify", "notify", "queues",
];
/// Tables and keys whose value in the reference is an example.
const EXAMPLES: [(&str, &str); 13] = [
    ("defaults", "abandoned"),
    ("", "ssh_config"),
    ("", "state_dir"),
    ("policy", "file"),
    ("cluster", "nats"),
    ("cluster", "copies"),
    ("cluster", "credentials_file"),
    ("cluster", "user"),
    ("cluster", "password"),
    ("cluster", "token"),
    ("cluster", "ca_file"),
    ("cluster", "certificate_file"),
    ("cluster", "key_file"),
];

/// A key of the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ConfigKey {
    /// Its table; empty at the top.
    pub(super) table: String,
    pub(super) name: String,
    /// Its default, as TOML. `None` if there is none.
    pub(super) default: Option<String>,
}

/// All keys outside of [`EXAMPLE_TABLES`], in the order of the reference.
pub(super) fn keys() -> Vec<ConfigKey> {
    let mut keys: Vec<ConfigKey> = Vec::new();
    let mut table = String::new();
    for line in REFERENCE.lines() {
        let line = line.trim();
        if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.split(']').next()) {
            name.clone_into(&mut table);
        } else if let Some((name, value)) = line.split_once('=')
            && !EXAMPLE_TABLES.iter().any(|start| table.starts_with(start))
        {
            let name = name.trim();
            let value = value.split(" #").next().unwrap_or_default().trim();
            let is_example = EXAMPLES.contains(&(table.as_str(), name));
            keys.push(ConfigKey {
                table: table.clone(),
                name: name.to_owned(),
                default: (!is_example).then(|| value.to_owned()),
            });
        }
    }
    keys
}

/// The reference as a file in which nothing is set.
pub(super) fn commented() -> String {
    let lines = REFERENCE.lines().map(|line| {
        if line.is_empty() {
            String::new()
        } else {
            format!("# {line}")
        }
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// A value that a file sets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SetValue {
    pub(super) table: String,
    pub(super) name: String,
    /// The value, as it is written there.
    pub(super) text: String,
    pub(super) line: usize,
}

/// All values that a file sets, in its order. Empty if the file has errors.
pub(super) fn values_in(text: &str) -> Vec<SetValue> {
    let Ok(document) = DeTable::parse(text) else { return Vec::new() };
    let mut values = Vec::new();
    collect(text, "", document.get_ref(), &mut values);
    values.sort_by_key(|value| value.line);
    values
}

fn collect(text: &str, table: &str, entries: &DeTable<'_>, values: &mut Vec<SetValue>) {
    for (name, value) in entries {
        let span = value.span();
        let written = text.get(span.clone()).unwrap_or_default();
        // The tables of the configuration, also if they are written inline. Any other inline table,
        // such as the source of a password, is a value.
        let is_section = table.is_empty() || table == HOSTS;
        match value.get_ref().as_table() {
            Some(inner) if is_section || !written.starts_with('{') => {
                let path = quoted(name.get_ref());
                let path = if table.is_empty() {
                    path
                } else {
                    format!("{table}.{path}")
                };
                collect(text, &path, inner, values);
            }
            _ => values.push(SetValue {
                table: table.to_owned(),
                name: name.get_ref().to_string(),
                text: written.to_owned(),
                line: text.get(..name.span().start).unwrap_or_default().matches('\n').count() + 1,
            }),
        }
    }
}

/// A key as TOML writes it.
pub(super) fn quoted(key: &str) -> String {
    let is_bare =
        !key.is_empty() && key.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_'));
    if is_bare {
        key.to_owned()
    } else {
        toml::Value::from(key).to_string()
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use sshjobs_core::jobs::Config;
    use sshjobs_wire::parse_config;

    #[test]
    fn the_reference_has_the_real_defaults() {
        let mut text = String::new();
        let mut table = String::new();
        for key in keys() {
            let Some(default) = key.default else { continue };
            if key.table != table {
                text.push_str(&format!("[{}]\n", key.table));
                table = key.table;
            }
            text.push_str(&format!("{} = {default}\n", key.name));
        }
        let config = parse_config(Path::new("reference.toml"), &text).unwrap();
        assert_eq!(config, Config::default());
        parse_config(Path::new("reference.toml"), REFERENCE).unwrap();
    }

    #[test]
    fn the_documentation_has_the_same_reference() {
        assert!(include_str!("../../../../../docs/config.md").contains(REFERENCE));
    }

    #[test]
    fn a_commented_reference_sets_nothing() {
        let config = parse_config(Path::new("c.toml"), &commented()).unwrap();
        assert_eq!(config, Config::default());
    }

    #[test]
    fn tables_that_are_written_inline_are_tables_all_the_same() {
        let values = values_in("limits = { max_jobs = 5 }\n[hosts]\nweb1 = { port = 22 }\n");
        let tables: Vec<&str> = values.iter().map(|value| value.table.as_str()).collect();
        assert_eq!(tables, ["limits", "hosts.web1"]);
    }

    #[test]
    fn values_are_found_with_their_table_and_line() {
        let text = "store = false\n\n[limits]\nmax_jobs = 5 # few\n[hosts.\"db.example\"]\npassword = { env = \"A\" }\ntags = [\"a\", \"b\"]\n";
        let values = values_in(text);
        let found: Vec<(&str, &str, &str, usize)> = values
            .iter()
            .map(|value| {
                (
                    value.table.as_str(),
                    value.name.as_str(),
                    value.text.as_str(),
                    value.line,
                )
            })
            .collect();
        assert_eq!(
            found,
            [
                ("", "store", "false", 1),
                ("limits", "max_jobs", "5", 4),
                ("hosts.\"db.example\"", "password", "{ env = \"A\" }", 6),
                ("hosts.\"db.example\"", "tags", "[\"a\", \"b\"]", 7),
            ]
        );
    }
}
