//! Adds an entry to a YAML file: that of Goose.
//!
//! No YAML library keeps comments, so the entry is inserted as text, after the line `extensions:` at the top
//! level. The result is parsed: it must have the entry and be the same otherwise. A file in which that is not
//! so is left alone.

use serde_json::{Value, json};

use super::entry::{CantAdd, ServerEntry};

const KEY: &str = "extensions";
/// Indentation of an entry if the file has none yet.
const INDENT: usize = 2;
/// More than the longest wait of a tool.
const TIMEOUT_S: u32 = 300;

/// Reason for which a file is left alone.
const FORM: CantAdd = CantAdd::OtherForm("it is not written as Goose writes it");

/// The text with the entry below `extensions`.
pub(super) fn with_entry(text: &str, entry: &ServerEntry) -> Result<String, CantAdd> {
    let mut wanted = parsed(text)?;
    if let Some(known) = wanted[KEY].get(&entry.name) {
        return if entry.starts_like(known, "cmd") {
            Ok(text.to_owned())
        } else if entry.replaces {
            Err(CantAdd::OtherForm("its entry has to be removed first"))
        } else {
            Err(CantAdd::Exists(entry.name.clone()))
        };
    }
    let changed = inserted(text, entry)?;

    let Value::Object(whole) = &mut wanted else { return Err(FORM) };
    let extensions = whole.entry(KEY).or_insert_with(|| json!({}));
    if extensions.is_null() {
        *extensions = json!({});
    }
    let Value::Object(extensions) = extensions else { return Err(FORM) };
    extensions.insert(entry.name.clone(), value_of(entry));
    if parsed(&changed).as_ref() == Ok(&wanted) {
        Ok(changed)
    } else {
        Err(FORM)
    }
}

/// The values of a text. An empty one has none.
fn parsed(text: &str) -> Result<Value, CantAdd> {
    let value: Option<Value> =
        serde_saphyr::from_str(text).map_err(|error| CantAdd::Malformed(error.to_string()))?;
    Ok(value.unwrap_or_else(|| json!({})))
}

/// The text with the lines of the entry in it.
fn inserted(text: &str, entry: &ServerEntry) -> Result<String, CantAdd> {
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let Some(at) = lines.iter().position(|line| line.starts_with("extensions:")) else {
        lines.push(format!("{KEY}:"));
        lines.extend(block(entry, INDENT));
        return Ok(joined(&lines));
    };
    let value = without_comment(lines[at].split_once(':').map_or("", |(_, value)| value));
    match value.trim() {
        "" => {}
        "{}" | "null" | "~" => lines[at] = format!("{KEY}:"),
        _ => return Err(FORM),
    }
    let below = lines[at + 1..].iter().find(|line| !without_comment(line).trim().is_empty());
    let indent = below.map_or(0, |line| indent_of(line));
    let indent = if indent == 0 { INDENT } else { indent };
    lines.splice(at + 1..at + 1, block(entry, indent));
    Ok(joined(&lines))
}

fn value_of(entry: &ServerEntry) -> Value {
    json!({
        "enabled": true,
        "type": "stdio",
        "name": entry.name,
        "cmd": entry.command,
        "args": entry.arguments,
        "timeout": TIMEOUT_S,
    })
}

/// A text in quotes as in JSON, which YAML reads alike.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// The lines of the entry.
fn block(entry: &ServerEntry, indent: usize) -> Vec<String> {
    let arguments: Vec<String> = entry.arguments.iter().map(|argument| quoted(argument)).collect();
    let name = quoted(&entry.name);
    let fields = [
        "enabled: true".to_owned(),
        "type: stdio".to_owned(),
        format!("name: {name}"),
        format!("cmd: {}", quoted(&entry.command)),
        format!("args: [{}]", arguments.join(", ")),
        format!("timeout: {TIMEOUT_S}"),
    ];
    let mut lines = vec![format!("{}{name}:", " ".repeat(indent))];
    lines.extend(fields.map(|field| format!("{}{field}", " ".repeat(2 * indent))));
    lines
}

/// A line without the comment behind it. A `#` in a quoted text cuts too much, which the parser finds.
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

    const BLOCK: &str = "  \"sshjobs\":\n    enabled: true\n    type: stdio\n    name: \"sshjobs\"\n    \
                         cmd: \"/usr/bin/sshjobs\"\n    args: [\"serve\"]\n    timeout: 300\n";

    #[test]
    fn the_entry_comes_first_below_its_key_and_the_rest_stays() {
        let before = "# mine\nextensions: # those I use\n  # built in\n  developer:\n    enabled: true\nGOOSE_MODE: auto\n";
        let text = with_entry(before, &ServerEntry::example()).unwrap();
        let (head, tail) = before.split_at(before.find("  # built in").unwrap());
        assert_eq!(text, format!("{head}{BLOCK}{tail}"));
        assert_eq!(with_entry(&text, &ServerEntry::example()).unwrap(), text);
    }

    #[test]
    fn a_file_without_extensions_gets_them() {
        for before in ["", "GOOSE_MODE: auto\n"] {
            let text = with_entry(before, &ServerEntry::example()).unwrap();
            assert_eq!(text, format!("{before}extensions:\n{BLOCK}"));
        }
        let text = with_entry("extensions: {}\n", &ServerEntry::example()).unwrap();
        assert_eq!(text, format!("extensions:\n{BLOCK}"));
    }

    #[test]
    fn an_entry_in_another_order_and_style_is_found() {
        let before = "extensions:\n  sshjobs:\n    args:\n    - serve\n    cmd: /usr/bin/sshjobs\n    envs: {}\n";
        assert_eq!(with_entry(before, &ServerEntry::example()).unwrap(), before);
    }

    #[test]
    fn another_form_or_another_entry_is_left_alone() {
        for text in [
            "extensions: {a: {}}\n",
            "extensions:\n- a\n",
            "extensions:\n  sshjobs:\n    cmd: old\n",
            "{a: 1}\n",
            "{\n\"a\": 1,\n\"extensions\": {}\n}\n",
            "a: 1\n...\n",
            "  extensions:\n    o: {}\n  z: 1\n",
            "text: \"multi\nextensions:\n  line\"\n",
            "- a\n",
            "just text\n",
            "a: [1\n",
            "extensions:\n\to:\n",
            "extensions :\n  o: {}\n",
            "? extensions\n: o: {}\n",
            "\"ext\\u0065nsions\":\n  o: {}\n",
            "extensions:\n  \"ssh\\x6aobs\": {cmd: a}\n",
            "a: 1\nextensions: {}\nextensions: {}\n",
            "a: 1\n---\nb: 2\n",
        ] {
            let refused = with_entry(text, &ServerEntry::example());
            assert!(refused.is_err(), "{text:?}: {refused:?}");
        }
    }
}
