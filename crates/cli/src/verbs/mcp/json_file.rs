//! Adds an entry to a JSON file, which may have comments.

use jsonc_parser::ParseOptions;
use jsonc_parser::cst::{CstInputValue, CstObject, CstRootNode};

use super::entry::{CantAdd, ServerEntry};

/// JSON with comments, as editors write it, and nothing else.
const FORM: ParseOptions = ParseOptions {
    allow_comments: true,
    allow_loose_object_property_names: false,
    allow_trailing_commas: true,
    allow_missing_commas: false,
    allow_single_quoted_strings: false,
    allow_hexadecimal_numbers: false,
    allow_unary_plus_numbers: false,
    allow_bare_decimal_point_numbers: false,
    allow_non_finite_numbers: false,
    allow_extended_string_escapes: false,
};

/// The text with the entry in the object `servers`. `names_transport` is for clients whose entries name
/// the transport, here stdin and stdout.
pub(super) fn with_entry(
    text: &str,
    servers: &str,
    names_transport: bool,
    entry: &ServerEntry,
) -> Result<String, CantAdd> {
    let root =
        CstRootNode::parse(text, &FORM).map_err(|error| CantAdd::Malformed(error.to_string()))?;
    let whole = root
        .object_value_or_create()
        .ok_or_else(|| CantAdd::OtherKind("its top level".to_owned()))?;
    require_one(&whole, servers)?;
    let all = whole
        .object_value_or_create(servers)
        .ok_or_else(|| CantAdd::OtherKind(servers.to_owned()))?;
    require_one(&all, &entry.name)?;

    let value = value_of(entry, names_transport);
    if let Some(before) = all.get(&entry.name) {
        let known = before.value().and_then(|value| value.to_serde_value()).unwrap_or_default();
        if entry.starts_like(&known, "command") {
            return Ok(text.to_owned());
        }
        if !entry.replaces {
            return Err(CantAdd::Exists(entry.name.clone()));
        }
        before.set_value(value);
    } else {
        all.append(&entry.name, value);
    }
    let mut changed = root.to_string();
    if !changed.ends_with('\n') {
        changed.push('\n');
    }
    Ok(changed)
}

/// Refuses an object with several properties of one name: parsers take the last one.
fn require_one(object: &CstObject, name: &str) -> Result<(), CantAdd> {
    let properties = object.properties();
    let names = properties.iter().filter_map(|property| property.name()?.decoded_value().ok());
    if names.filter(|known| known == name).count() > 1 {
        return Err(CantAdd::OtherForm("it has a name twice"));
    }
    Ok(())
}

fn value_of(entry: &ServerEntry, names_transport: bool) -> CstInputValue {
    let arguments = entry.arguments.iter().map(|argument| text(argument)).collect();
    let mut fields = Vec::new();
    if names_transport {
        fields.push(("type".to_owned(), text("stdio")));
    }
    fields.push(("command".to_owned(), text(&entry.command)));
    fields.push(("args".to_owned(), CstInputValue::Array(arguments)));
    CstInputValue::Object(fields)
}

fn text(text: &str) -> CstInputValue {
    CstInputValue::String(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_does_not_exist_begins_with_the_entry() {
        let text = with_entry("", "servers", true, &ServerEntry::example()).unwrap();
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(
            value,
            serde_json::json!({"servers": {"sshjobs":
                {"type": "stdio", "command": "/usr/bin/sshjobs", "args": ["serve"]}}})
        );
    }

    #[test]
    fn comments_and_other_entries_stay() {
        let before = "{\n  // my theme\n  \"theme\": \"dark\",\n  \"mcpServers\": {\n    \"other\": { \"command\": \"x\" } // mine\n  }\n}\n";
        let text = with_entry(before, "mcpServers", false, &ServerEntry::example()).unwrap();
        for kept in [
            "// my theme",
            "\"theme\": \"dark\"",
            "{ \"command\": \"x\" }",
            "// mine",
        ] {
            assert!(text.contains(kept), "{text}");
        }
        assert!(text.contains("\"command\": \"/usr/bin/sshjobs\""), "{text}");
        assert_eq!(
            with_entry(&text, "mcpServers", false, &ServerEntry::example()).unwrap(),
            text
        );
    }

    #[test]
    fn an_entry_that_starts_the_same_stays_as_it_is() {
        let before = r#"{"mcpServers": {"sshjobs": {"env": {"A": "b"}, "args": ["serve"], "command": "/usr/bin/sshjobs"}}}"#;
        assert_eq!(
            with_entry(before, "mcpServers", false, &ServerEntry::example()).unwrap(),
            before
        );
    }

    #[test]
    fn an_entry_that_starts_something_else_is_replaced_only_on_request() {
        let before = r#"{"mcpServers": {"sshjobs": {"command": "old", "args": []}, "b": {}}}"#;
        let refused = with_entry(before, "mcpServers", false, &ServerEntry::example());
        assert_eq!(refused, Err(CantAdd::Exists("sshjobs".to_owned())));

        let replacing = ServerEntry {
            replaces: true,
            ..ServerEntry::example()
        };
        let text = with_entry(before, "mcpServers", false, &replacing).unwrap();
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        let servers = value["mcpServers"].as_object().unwrap();
        assert_eq!(servers.len(), 2);
        assert_eq!(servers["sshjobs"]["command"], "/usr/bin/sshjobs");
    }

    #[test]
    fn a_file_that_makes_no_sense_is_left_alone() {
        for text in [
            "{",
            "[1]",
            "{\"mcpServers\": 7}",
            "{'a': 1}",
            "{\"a\": 1 \"b\": 2}",
            "{\"mcpServers\": {}, \"mcpServers\": {}}",
            "{\"mcpServers\": {\"sshjobs\": {}, \"sshjobs\": {}}}",
        ] {
            assert!(
                with_entry(text, "mcpServers", false, &ServerEntry::example()).is_err(),
                "{text}"
            );
        }
    }
}
