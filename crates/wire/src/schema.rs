//! JSON schemas in the flat form that all MCP clients accept.

use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema};
use serde_json::{Map, Value};

/// The schema of a request, in a form that all clients accept.
pub(super) fn schema_of<Request: JsonSchema>() -> Map<String, Value> {
    let settings = SchemaSettings::draft2020_12();
    plain(
        settings.into_generator().into_root_schema_for::<Request>(),
        &[],
    )
}

/// Merges the arguments of two requests into one schema.
pub(super) fn merged(mut one: Map<String, Value>, other: Map<String, Value>) -> Map<String, Value> {
    for (key, value) in other {
        match (one.get_mut(&key), value) {
            (Some(Value::Object(known)), Value::Object(more)) => known.extend(more),
            (Some(Value::Array(known)), Value::Array(more)) => known.extend(more),
            // `type` and `additionalProperties` are the same in both requests.
            (Some(_), _) => {}
            (None, value) => drop(one.insert(key, value)),
        }
    }
    one
}

/// The full schema of a reply, with the meaning of its fields, for people.
pub fn document_schema<Reply: JsonSchema>() -> Map<String, Value> {
    let settings = SchemaSettings::draft2020_12().for_serialize();
    plain(
        settings.into_generator().into_root_schema_for::<Reply>(),
        &["minimum"],
    )
}

/// The schema of a tool's structured content: names and types. The names carry the meaning, because
/// a model has to read every word here.
pub fn reply_schema<Reply: JsonSchema>() -> Map<String, Value> {
    let settings = SchemaSettings::draft2020_12().for_serialize();
    let schema = settings.into_generator().into_root_schema_for::<Reply>();
    let mut schema = Value::Object(plain(schema, &["description", "enum", "minimum"]));
    for property in properties(&mut schema) {
        // Items are described by their names and types, deeper values by their type.
        match property.get_mut("items") {
            Some(items) => {
                properties(items).for_each(only_type);
                // A model sees which fields an item has.
                if let Value::Object(fields) = items {
                    fields.remove("required");
                }
            }
            None => only_type(property),
        }
    }
    object(schema)
}

fn properties(schema: &mut Value) -> impl Iterator<Item = &mut Value> {
    let properties = schema.get_mut("properties").and_then(Value::as_object_mut);
    properties.into_iter().flat_map(|properties| properties.values_mut())
}

/// Leaves the type of a value, and of the items of a list.
fn only_type(schema: &mut Value) {
    if let Value::Object(fields) = schema {
        fields.retain(|name, _| name == "type" || name == "items");
        if let Some(items) = fields.get_mut("items") {
            only_type(items);
        }
    }
}

/// Removes keywords that don't help a model or cause warnings in clients, and all of `unwanted`.
/// Writes every documented choice (`oneOf` with a `const` each) as a plain `enum`, which all
/// clients accept.
fn plain(schema: Schema, unwanted: &[&str]) -> Map<String, Value> {
    let mut schema = schema.to_value();
    flatten(&mut schema, unwanted);
    let mut schema = object(schema);
    // The name and doc of a type don't help a caller.
    schema.remove("title");
    schema.remove("description");
    schema
}

fn object(schema: Value) -> Map<String, Value> {
    let Value::Object(object) = schema else {
        unreachable!("the schema of a struct is an object")
    };
    object
}

/// Leaves out that an optional field may be null: some clients accept no schema with two types.
fn without_null(object: &mut Map<String, Value>) {
    if let Some(Value::Array(types)) = object.get_mut("type") {
        types.retain(|name| name != "null");
        if let [only] = types.as_slice() {
            let only = only.clone();
            object.insert("type".to_owned(), only);
        }
    }
    if let Some(Value::Array(words)) = object.get_mut("enum") {
        words.retain(|word| !word.is_null());
    }
    let is_null = |choice: &Value| choice.get("type").is_some_and(|name| name == "null");
    let one_of_two = match object.get("anyOf").and_then(Value::as_array).map(Vec::as_slice) {
        Some([Value::Object(inner), null]) if is_null(null) => Some(inner.clone()),
        Some(_) | None => None,
    };
    if let Some(inner) = one_of_two {
        object.remove("anyOf");
        for (name, value) in inner {
            object.entry(name).or_insert(value);
        }
    }
}

fn flatten(schema: &mut Value, unwanted: &[&str]) {
    let Value::Object(object) = schema else { return };
    without_null(object);
    object.retain(|name, _| match name.as_str() {
        // Clients warn about formats that they don't know, such as uint64. Defaults are in the
        // descriptions.
        "format" | "$schema" | "default" => false,
        name => !unwanted.contains(&name),
    });
    let words: Option<Vec<_>> = object
        .get("oneOf")
        .and_then(Value::as_array)
        .and_then(|choices| choices.iter().map(|choice| choice.get("const").cloned()).collect());
    if let Some(words) = words {
        object.remove("oneOf");
        object.insert("type".to_owned(), "string".into());
        if !unwanted.contains(&"enum") {
            object.insert("enum".to_owned(), words.into());
        }
    }
    // `additionalProperties` has the type of `env`'s values; for a request itself it is `false`.
    for name in ["items", "additionalProperties"] {
        if let Some(inner) = object.get_mut(name) {
            flatten(inner, unwanted);
        }
    }
    // A property may have the name of a keyword.
    let properties = object.get_mut("properties").and_then(Value::as_object_mut);
    properties
        .into_iter()
        .flat_map(|all| all.values_mut())
        .for_each(|property| flatten(property, unwanted));
}
