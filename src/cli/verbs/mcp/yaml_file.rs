//! Adds an entry to a YAML file: that of Goose.
//!
//! No YAML library keeps comments, so the entry is inserted as text, behind the line `extensions:` at the top
//! level. A file in any other form is left alone.

use super::entry::{CantAdd, Entry};

const KEY: &str = "extensions";
/// Indentation of an entry if the file has none yet.
const INDENT: usize = 2;

/// The text with the entry below `extensions`.
pub(super) fn with_entry(text: &str, entry: &Entry) -> Result<String, CantAdd> {
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let Some(at) = lines.iter().position(|line| is_key(line, KEY)) else {
        lines.push(format!("{KEY}:"));
        lines.extend(block(entry, INDENT));
        return Ok(joined(&lines));
    };
    let value = without_comment(lines[at].split_once(':').map_or("", |(_, value)| value));
    match value.trim() {
        "" => {}
        "{}" | "null" | "~" => lines[at] = format!("{KEY}:"),
        _ => return Err(CantAdd::OtherForm),
    }

    let below: Vec<&String> = lines[at + 1..]
        .iter()
        .take_while(|line| is_blank(line) || indent_of(line) > 0)
        .filter(|line| !is_blank(line))
        .collect();
    let indent = below.first().map_or(INDENT, |line| indent_of(line));
    let is_there =
        |line: &&String| indent_of(line) == indent && is_key(line.trim_start(), &entry.name);
    if below.iter().copied().any(|line| is_there(&line)) {
        let wanted = block(entry, indent).join("\n");
        return if text.contains(&wanted) {
            Ok(text.to_owned())
        } else {
            Err(CantAdd::Exists(entry.name.clone()))
        };
    }
    lines.splice(at + 1..at + 1, block(entry, indent));
    Ok(joined(&lines))
}

/// The lines of the entry. Its texts are quoted as in JSON, which YAML reads alike.
fn block(entry: &Entry, indent: usize) -> Vec<String> {
    let quoted = |text: &str| serde_json::Value::from(text).to_string();
    let arguments: Vec<String> = entry.arguments.iter().map(|argument| quoted(argument)).collect();
    let name = &entry.name;
    let fields = [
        "enabled: true".to_owned(),
        "type: stdio".to_owned(),
        format!("name: {}", quoted(name)),
        format!("cmd: {}", quoted(&entry.command)),
        format!("args: [{}]", arguments.join(", ")),
        // Seconds: more than the longest wait of a tool.
        "timeout: 300".to_owned(),
    ];
    let mut lines = vec![format!("{}{name}:", " ".repeat(indent))];
    lines.extend(fields.map(|field| format!("{}{field}", " ".repeat(2 * indent))));
    lines
}

/// Whether a line begins with this key, at its start.
fn is_key(line: &str, key: &str) -> bool {
    let quoted = [
        format!("{key}:"),
        format!("\"{key}\":"),
        format!("'{key}':"),
    ];
    quoted.iter().any(|start| line.starts_with(start.as_str()))
}

fn is_blank(line: &str) -> bool {
    without_comment(line).trim().is_empty()
}

/// A value without the comment behind it. A `#` in a quoted text does not matter here: such a value is refused.
fn without_comment(text: &str) -> &str {
    text.split_once('#').map_or(text, |(before, _)| before)
}

fn indent_of(line: &str) -> usize {
    line.len() - line.trim_start_matches(' ').len()
}

fn joined(lines: &[String]) -> String {
    let mut text = lines.join("\n");
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry() -> Entry {
        Entry {
            name: "sshjobs".to_owned(),
            command: "/usr/bin/sshjobs".to_owned(),
            arguments: vec!["serve".to_owned()],
        }
    }

    const BLOCK: &str = "  sshjobs:\n    enabled: true\n    type: stdio\n    name: \"sshjobs\"\n    \
                         cmd: \"/usr/bin/sshjobs\"\n    args: [\"serve\"]\n    timeout: 300\n";

    #[test]
    fn the_entry_comes_first_below_its_key_and_the_rest_stays() {
        let before = "# mine\nextensions: # those I use\n  # built in\n  developer:\n    enabled: true\nGOOSE_MODE: auto\n";
        let text = with_entry(before, &entry()).unwrap();
        let (head, tail) = before.split_at(before.find("  # built in").unwrap());
        assert_eq!(text, format!("{head}{BLOCK}{tail}"));
        assert_eq!(with_entry(&text, &entry()).unwrap(), text);
    }

    #[test]
    fn a_file_without_extensions_gets_them() {
        for before in ["", "GOOSE_MODE: auto\n"] {
            let text = with_entry(before, &entry()).unwrap();
            assert_eq!(text, format!("{before}extensions:\n{BLOCK}"));
        }
        let text = with_entry("extensions: {}\n", &entry()).unwrap();
        assert_eq!(text, format!("extensions:\n{BLOCK}"));
    }

    #[test]
    fn another_form_or_another_entry_is_left_alone() {
        assert_eq!(
            with_entry("extensions: {a: {}}\n", &entry()),
            Err(CantAdd::OtherForm)
        );
        assert_eq!(
            with_entry("extensions:\n  sshjobs:\n    cmd: old\n", &entry()),
            Err(CantAdd::Exists("sshjobs".to_owned()))
        );
    }
}
