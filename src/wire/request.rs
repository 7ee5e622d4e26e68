use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::schema::schema_of;
use super::{
    CommandRequest, Error, ForgetRequest, HostsRequest, JobsRequest, ReadRequest, SearchRequest,
    SignalRequest, TailRequest, WaitRequest, WriteRequest,
};

/// The arguments of a call: an object of plain data, whose schema tells names, types and ranges.
pub trait Request: Sized {
    /// Reads the arguments.
    ///
    /// # Errors
    /// `invalid_argument`, which names the argument and never quotes its value: that may be somebody's password.
    fn parse(object: Map<String, Value>) -> Result<Self, Error>;

    /// The JSON schema of the arguments (draft 2020-12).
    fn schema() -> Map<String, Value>;
}

macro_rules! plain_requests {
    ($($request:ty),*) => { $(
        impl Request for $request {
            fn parse(object: Map<String, Value>) -> Result<Self, Error> {
                parse(object)
            }

            fn schema() -> Map<String, Value> {
                schema_of::<Self>()
            }
        }
    )* };
}

plain_requests!(
    CommandRequest,
    TailRequest,
    ReadRequest,
    SearchRequest,
    WaitRequest,
    WriteRequest,
    SignalRequest,
    JobsRequest,
    HostsRequest,
    ForgetRequest
);

/// Reads arguments as serde does.
pub(super) fn parse<T: DeserializeOwned>(mut object: Map<String, Value>) -> Result<T, Error> {
    // Models write null for what they leave away.
    object.retain(|_, value| !value.is_null());
    object.values_mut().for_each(whole_number);
    serde_path_to_error::deserialize(Value::Object(object)).map_err(|error| bad_arguments(&error))
}

/// Some clients know only floating point numbers.
fn whole_number(value: &mut Value) {
    const EXACT: f64 = 9_007_199_254_740_992.0;
    let whole = |number: &f64| number.fract() == 0.0 && number.abs() <= EXACT;
    if let Some(number) = value.as_f64().filter(|number| value.is_f64() && whole(number)) {
        #[expect(clippy::cast_possible_truncation, reason = "it is whole and in range")]
        let number = number as i64;
        *value = number.into();
    }
}

fn bad_arguments(error: &serde_path_to_error::Error<serde_json::Error>) -> Error {
    let message = in_words_of_json(&without_value(&error.inner().to_string()));
    let path = error.path().to_string();
    let message = if path == "." { message } else { format!("{path}: {message}") };
    Error::invalid(message, "see the tool's input schema for names, types and ranges")
}

/// What is expected, in words that are not Rust's.
fn in_words_of_json(message: &str) -> String {
    let Some((start, expected)) = message.rsplit_once("expected ") else { return message.to_owned() };
    let expected = match expected {
        "i64" | "u64" | "u32" | "f64" => "a number",
        "a sequence" => "a list",
        "a map" => "an object",
        other => other,
    };
    format!("{start}expected {expected}")
}

/// serde quotes a value of the wrong type, which may be somebody's password.
fn without_value(message: &str) -> String {
    let quotes = |c| matches!(c, '`' | '"');
    match (message.find(quotes), message.rfind(", expected")) {
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

    #[test]
    fn a_value_of_the_wrong_type_is_not_quoted() {
        #[derive(Debug, serde::Deserialize)]
        struct Request {
            #[expect(dead_code, reason = "only its type matters")]
            data: String,
        }
        for secret in ["31337", "[31337]", "{\"31337\": \"`31337`, expected\"}", "true"] {
            let arguments: Value = serde_json::from_str(&format!("{{\"data\": {secret}}}")).unwrap();
            let error = serde_path_to_error::deserialize::<_, Request>(arguments).unwrap_err();
            let message = bad_arguments(&error).message;
            assert!(
                message.starts_with("data: invalid type: ") && message.ends_with("expected a string"),
                "{message}"
            );
            assert!(!message.contains("31337"), "{message}");
        }
        let flag = serde_path_to_error::deserialize::<_, bool>(serde_json::json!("a\"`, expected b"));
        assert_eq!(bad_arguments(&flag.unwrap_err()).message, "invalid type: string, expected a boolean");
    }
}
