use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema};
use serde_json::{Map, Value};

/// The schema of a request: what it accepts, in a form that all clients take.
pub(super) fn schema_of<Request: JsonSchema>() -> Map<String, Value> {
    let settings = SchemaSettings::draft2020_12();
    plain(settings.into_generator().into_root_schema_for::<Request>(), &[])
}

/// The schema of a request whose arguments are those of two.
pub(super) fn merged(mut one: Map<String, Value>, other: Map<String, Value>) -> Map<String, Value> {
    for (key, value) in other {
        match (one.get_mut(&key), value) {
            (Some(Value::Object(known)), Value::Object(more)) => known.extend(more),
            (Some(Value::Array(known)), Value::Array(more)) => known.extend(more),
            (Some(_), _) => {}
            (None, value) => drop(one.insert(key, value)),
        }
    }
    one
}

/// The whole schema of a reply, with what its fields mean; for people.
pub fn document_schema<Reply: JsonSchema>() -> Map<String, Value> {
    let settings = SchemaSettings::draft2020_12().for_serialize();
    plain(settings.into_generator().into_root_schema_for::<Reply>(), &[])
}

/// The schema of a tool's structured content: names and types. What they mean the names say, and every word here is one that
/// each model has to read.
pub fn reply_schema<Reply: JsonSchema>() -> Map<String, Value> {
    let settings = SchemaSettings::draft2020_12().for_serialize();
    let schema = settings.into_generator().into_root_schema_for::<Reply>();
    let mut schema = Value::Object(plain(schema, &["description", "enum"]));
    for property in properties(&mut schema) {
        // What is listed is told by its names and types, and what lies deeper by its type.
        match property.get_mut("items") {
            Some(items) => properties(items).for_each(only_type),
            None => only_type(property),
        }
    }
    object(schema)
}

fn properties(schema: &mut Value) -> impl Iterator<Item = &mut Value> {
    let properties = schema.get_mut("properties").and_then(Value::as_object_mut);
    properties.into_iter().flat_map(|properties| properties.values_mut())
}

fn only_type(schema: &mut Value) {
    if let Value::Object(fields) = schema {
        fields.retain(|name, _| name == "type");
    }
}

/// Takes away what says nothing to a model or makes clients complain, and all of `unwanted`; and writes every choice of
/// documented words (`oneOf` with a `const` each) as a plain `enum`, which all clients take.
fn plain(schema: Schema, unwanted: &[&str]) -> Map<String, Value> {
    let mut schema = schema.to_value();
    flatten(&mut schema, unwanted);
    let mut schema = object(schema);
    // The name of a type and its doc say nothing to whoever calls.
    schema.remove("title");
    schema.remove("description");
    schema
}

fn object(schema: Value) -> Map<String, Value> {
    let Value::Object(object) = schema else { unreachable!("the schema of a struct is an object") };
    object
}

fn flatten(schema: &mut Value, unwanted: &[&str]) {
    let Value::Object(object) = schema else { return };
    object.retain(|name, value| match name.as_str() {
        // Clients warn of formats that they don't know, such as uint64; what is left away has no default worth a word.
        "format" | "$schema" | "default" => false,
        "minimum" => value.as_f64().is_some_and(|minimum| minimum > 0.0),
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
    for name in ["items", "additionalProperties"] {
        if let Some(inner) = object.get_mut(name) {
            flatten(inner, unwanted);
        }
    }
    // A property may be called like a keyword.
    let properties = object.get_mut("properties").and_then(Value::as_object_mut);
    properties.into_iter().flat_map(|all| all.values_mut()).for_each(|property| flatten(property, unwanted));
}
