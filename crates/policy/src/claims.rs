//! Claims of a caller's token, as rules look at them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Claims of a caller's token: values by name. A claim inside of another has both names, as in
/// `realm_access.roles`. The claim `scope` also has each of its words.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Claims(BTreeMap<String, Vec<String>>);

/// Maximum values, and bytes of one value.
const MOST_VALUES: usize = 500;
const LONGEST_VALUE: usize = 4000;

/// A token has too many claims, or one that is too long. Ignoring them would weaken rules that deny.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooManyClaims;

impl Claims {
    /// The claims of a token's payload.
    ///
    /// # Errors
    /// If it has too many.
    pub fn of(payload: &serde_json::Map<String, Value>) -> Result<Self, TooManyClaims> {
        let mut claims = Self::default();
        let mut count = 0;
        for (name, value) in payload {
            claims.add(name, value, &mut count)?;
        }
        Ok(claims)
    }

    /// Claims with these values.
    pub fn with(values: impl IntoIterator<Item = (String, String)>) -> Self {
        let values = values.into_iter().map(|(name, value)| (name, vec![value]));
        Self(values.collect())
    }

    fn add(&mut self, name: &str, value: &Value, count: &mut usize) -> Result<(), TooManyClaims> {
        let text = match value {
            Value::Object(inner) => {
                for (inner_name, value) in inner {
                    self.add(&format!("{name}.{inner_name}"), value, count)?;
                }
                return Ok(());
            }
            Value::Array(values) => {
                for value in values {
                    self.add(name, value, count)?;
                }
                return Ok(());
            }
            Value::String(text) => text.clone(),
            Value::Number(number) => number.to_string(),
            Value::Bool(is_true) => is_true.to_string(),
            Value::Null => return Ok(()),
        };
        if *count == MOST_VALUES || text.len() > LONGEST_VALUE {
            return Err(TooManyClaims);
        }
        *count += 1;
        let values = self.0.entry(name.to_owned()).or_default();
        if name == "scope" {
            values.extend(text.split(' ').map(str::to_owned));
        }
        values.push(text);
        Ok(())
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
        let claims = Claims::of(payload.as_object().unwrap()).unwrap();
        assert_eq!(claims.values("realm_access.roles"), ["dev", "ops"]);
        assert_eq!(claims.values("scope"), ["a", "b", "a b"]);
        assert_eq!(
            (claims.values("n"), claims.values("yes")),
            (&["7".to_owned()][..], &["true".to_owned()][..])
        );
        assert!(claims.values("none").is_empty() && claims.values("other").is_empty());
    }

    #[test]
    fn too_many_and_too_long_values_are_an_error() {
        let long = serde_json::json!({"long": "x".repeat(LONGEST_VALUE + 1)});
        let many = serde_json::json!({"many": vec![7; MOST_VALUES + 1]});
        for payload in [long, many] {
            assert_eq!(Claims::of(payload.as_object().unwrap()), Err(TooManyClaims));
        }
        let long = serde_json::json!({"long": "x".repeat(LONGEST_VALUE)});
        let many = serde_json::json!({"many": vec![7; MOST_VALUES]});
        for payload in [long, many] {
            assert!(Claims::of(payload.as_object().unwrap()).is_ok());
        }
    }

    #[test]
    fn claims_of_a_test_case_have_its_values() {
        let claims = Claims::with([("team".to_owned(), "web".to_owned())]);
        assert_eq!(claims.values("team"), ["web"]);
    }
}
