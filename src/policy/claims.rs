//! Claims of a caller's token, as rules look at them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Claims of a caller's token: values by name. A claim inside of another has both names, as in
/// `realm_access.roles`. A claim with several words, such as `scope`, also has each of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Claims(BTreeMap<String, Vec<String>>);

/// Maximum values, and bytes of one value. More are ignored, so that rules match less.
const MOST_VALUES: usize = 200;
const LONGEST_VALUE: usize = 1000;

impl Claims {
    /// The claims of a token's payload.
    pub fn of(payload: &serde_json::Map<String, Value>) -> Self {
        let mut claims = Self::default();
        let mut count = 0;
        for (name, value) in payload {
            claims.add(name, value, &mut count);
        }
        claims
    }

    /// Claims with these values.
    pub fn with(values: impl IntoIterator<Item = (String, String)>) -> Self {
        let values = values.into_iter().map(|(name, value)| (name, Value::String(value)));
        Self::of(&values.collect())
    }

    fn add(&mut self, name: &str, value: &Value, count: &mut usize) {
        let text = match value {
            Value::Object(inner) => {
                for (inner_name, value) in inner {
                    self.add(&format!("{name}.{inner_name}"), value, count);
                }
                return;
            }
            Value::Array(values) => {
                for value in values {
                    self.add(name, value, count);
                }
                return;
            }
            Value::String(text) => text.clone(),
            Value::Number(number) => number.to_string(),
            Value::Bool(is_true) => is_true.to_string(),
            Value::Null => return,
        };
        if *count == MOST_VALUES || text.len() > LONGEST_VALUE {
            return;
        }
        *count += 1;
        let values = self.0.entry(name.to_owned()).or_default();
        if name == "scope" {
            values.extend(text.split(' ').map(str::to_owned));
        }
        values.push(text);
    }

    /// The values of a claim.
    pub fn values(&self, name: &str) -> &[String] {
        self.0.get(name).map_or(&[], Vec::as_slice)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claims_have_the_names_and_values_that_rules_compare() {
        let payload = serde_json::json!({
            "sub": "x", "scope": "a b", "n": 7, "yes": true, "none": null,
            "realm_access": {"roles": ["dev", "ops"]},
        });
        let claims = Claims::of(payload.as_object().unwrap());
        assert_eq!(claims.values("realm_access.roles"), ["dev", "ops"]);
        assert_eq!(claims.values("scope"), ["a", "b", "a b"]);
        assert_eq!(
            (claims.values("n"), claims.values("yes")),
            (&["7".to_owned()][..], &["true".to_owned()][..])
        );
        assert!(claims.values("none").is_empty() && claims.values("other").is_empty());
    }

    #[test]
    fn too_many_and_too_long_values_are_ignored() {
        let long = "x".repeat(LONGEST_VALUE + 1);
        let many: Vec<String> = (0..1000).map(|number| number.to_string()).collect();
        let payload = serde_json::json!({"long": long, "many": many});
        let claims = Claims::of(payload.as_object().unwrap());
        assert_eq!(
            (claims.values("long").len(), claims.values("many").len()),
            (0, MOST_VALUES)
        );
    }
}
