//! Parsing of arguments: unknown names are refused first, values are never quoted.

use std::collections::BTreeMap;

use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

use super::error::Error;

/// The arguments of a call: an object of plain data, with a schema of names, types and ranges.
pub trait WireRequest: Sized {
    /// Parses the arguments.
    ///
    /// # Errors
    /// `invalid_argument`, which names the argument and never quotes its value, because that may be
    /// a password.
    fn parse(object: Map<String, Value>) -> Result<Self, Error>;

    /// The JSON schema of the arguments (draft 2020-12).
    fn schema() -> Map<String, Value>;
}

/// Parses arguments with serde.
pub(super) fn parse<T: DeserializeOwned>(mut object: Map<String, Value>) -> Result<T, Error> {
    // Models write null for arguments that they omit.
    let omitted: Vec<String> = object
        .iter()
        .filter(|(_, value)| value.is_null())
        .map(|(name, _)| name.clone())
        .collect();
    for name in omitted {
        object.remove(&name);
        check_name::<T>(name)?;
    }
    // Only the top level: arguments with numbers further inside read them with `whole_numbers`.
    object.values_mut().for_each(whole_number);
    serde_path_to_error::deserialize(Value::Object(object)).map_err(|error| bad_arguments(&error))
}

/// Refuses an unknown name. Serde reports it before it examines values or misses any, so null is
/// good enough as the value.
fn check_name<T: DeserializeOwned>(name: String) -> Result<(), Error> {
    let alone = Value::Object(Map::from_iter([(name, Value::Null)]));
    match serde_path_to_error::deserialize::<_, T>(alone) {
        Err(error) if error.inner().to_string().starts_with("unknown field") => {
            Err(bad_arguments(&error))
        }
        Ok(_) | Err(_) => Ok(()),
    }
}

/// Turns a whole floating point number into an integer, because some clients have no others, and
/// an integer beyond `i64` into the nearest one, which is then clamped like any other.
fn whole_number(value: &mut Value) {
    let is_too_large = value.as_u64().is_some_and(|number| i64::try_from(number).is_err());
    if is_too_large {
        *value = i64::MAX.into();
        return;
    }
    // serde_json also holds integers below `i64::MIN` and above `u64::MAX` as floats.
    if let Some(number) = value.as_f64().filter(|number| value.is_f64() && number.fract() == 0.0) {
        #[expect(
            clippy::cast_possible_truncation,
            reason = "it is whole, and a cast takes the nearest integer"
        )]
        let number = number as i64;
        *value = number.into();
    }
}

/// Reads a map of whole numbers. Some clients write 12 as 12.0.
pub(super) fn whole_numbers<'de, D>(deserializer: D) -> Result<BTreeMap<String, u64>, D::Error>
where
    D: Deserializer<'de>,
{
    let mut numbers = Map::deserialize(deserializer)?;
    numbers.values_mut().for_each(whole_number);
    serde_json::from_value(Value::Object(numbers)).map_err(D::Error::custom)
}

fn bad_arguments(error: &serde_path_to_error::Error<serde_json::Error>) -> Error {
    let message = in_words_of_json(&without_value(&error.inner().to_string()));
    let path = error.path().to_string();
    let message = if path == "." {
        message
    } else {
        format!("{path}: {message}")
    };
    Error::invalid(
        message,
        "see the tool's input schema for names, types and ranges",
    )
}

/// The expectation, in terms of JSON instead of Rust.
fn in_words_of_json(message: &str) -> String {
    let Some((start, expected)) = message.rsplit_once("expected ") else {
        return message.to_owned();
    };
    let expected = match expected {
        "f64" => "a number",
        "i64" => "a whole number",
        "u64" | "usize" => "a whole number, 0 or more",
        "u32" => "a whole number from 0 to 4294967295",
        "a sequence" => "a list",
        "a map" => "an object",
        other => other,
    };
    format!("{start}expected {expected}")
}

/// serde quotes a value of the wrong type, which may be a password.
fn without_value(message: &str) -> String {
    // From the first quote to the last ", expected", because the value may contain both.
    match (message.find(['`', '"']), message.rfind(", expected")) {
        (Some(start), Some(end)) if message.starts_with("invalid ") && start < end => {
            let (kind, _) = message.split_at(start);
            let (_, expected) = message.split_at(end);
            format!("{}{expected}", kind.trim_end())
        }
        _ => message.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TailRequest;

    #[test]
    fn a_whole_number_beyond_all_integers_becomes_the_nearest_one() {
        for (text, expected) in [
            ("5.0", serde_json::json!(5)),
            ("-9719884528220356608", i64::MIN.into()),
            ("17254781455025403904", i64::MAX.into()),
            ("391159260475784232960", i64::MAX.into()),
            ("0.5", serde_json::json!(0.5)),
        ] {
            let mut value: Value = serde_json::from_str(text).unwrap();
            whole_number(&mut value);
            assert_eq!(value, expected, "{text}");
        }
    }

    #[test]
    fn cursors_may_be_whole_floating_point_numbers() {
        let object = serde_json::json!({"job_ids": ["a", "b"], "cursors": {"a": 12.0, "b": 3}});
        let request = TailRequest::parse(object.as_object().cloned().unwrap()).unwrap();
        assert_eq!(request.cursors.into_values().collect::<Vec<_>>(), [12, 3]);
    }

    #[test]
    fn null_stands_for_what_is_left_away_under_names_that_there_are() {
        let object =
            |text: &str| serde_json::from_str::<Value>(text).unwrap().as_object().cloned().unwrap();

        let request = TailRequest::parse(object(
            r#"{"job_id": "web1-00000000", "filter": null, "max_lines": null}"#,
        ));
        assert!(request.unwrap().filter.is_none());

        for strange in ["", "filters"] {
            let error =
                TailRequest::parse(object(&format!(r#"{{"job_id": "x", "{strange}": null}}"#)))
                    .unwrap_err();
            assert!(error.message.contains("unknown field"), "{error}");
        }
    }

    #[test]
    fn the_expected_type_is_named_as_in_json() {
        #[derive(Debug, serde::Deserialize)]
        #[expect(dead_code, reason = "only the types matter")]
        struct WireRequest {
            count: Option<u64>,
            offset: Option<i64>,
            words: Option<Vec<String>>,
            env: Option<std::collections::BTreeMap<String, String>>,
        }
        for (name, value, expected) in [
            ("count", serde_json::json!(-2), "a whole number, 0 or more"),
            ("offset", serde_json::json!(0.5), "a whole number"),
            ("words", serde_json::json!("x"), "a list"),
            ("env", serde_json::json!([]), "an object"),
        ] {
            let arguments = Map::from_iter([(name.to_owned(), value)]);
            let error = parse::<WireRequest>(arguments).unwrap_err();
            assert!(
                error.message.starts_with(&format!("{name}: invalid ")),
                "{error}"
            );
            assert!(
                error.message.ends_with(&format!("expected {expected}")),
                "{error}"
            );
        }
    }

    #[test]
    fn a_value_of_the_wrong_type_is_not_quoted() {
        #[derive(Debug, serde::Deserialize)]
        struct WireRequest {
            #[expect(dead_code, reason = "only its type matters")]
            data: String,
        }
        for secret in [
            "31337",
            "[31337]",
            "{\"31337\": \"`31337`, expected\"}",
            "true",
        ] {
            let arguments: Value =
                serde_json::from_str(&format!("{{\"data\": {secret}}}")).unwrap();
            let error = serde_path_to_error::deserialize::<_, WireRequest>(arguments).unwrap_err();
            let message = bad_arguments(&error).message;
            assert!(
                message.starts_with("data: invalid type: ")
                    && message.ends_with("expected a string"),
                "{message}"
            );
            assert!(!message.contains("31337"), "{message}");
        }
        let flag =
            serde_path_to_error::deserialize::<_, bool>(serde_json::json!("a\"`, expected b"));
        assert_eq!(
            bad_arguments(&flag.unwrap_err()).message,
            "invalid type: string, expected a boolean"
        );
    }
}
