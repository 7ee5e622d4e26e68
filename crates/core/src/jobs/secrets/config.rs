//! The table of one secret in the configuration.

use serde::Deserialize;
use serde_json::Value;

use crate::admission::HostPatterns;
use sshjobs_base::toml_text::explain;
use sshjobs_policy::{CallerPattern, PolicyCaller};
use sshjobs_ssh::SecretSource;

/// A secret that commands may use by its name: a table `[secrets.NAME]`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Value")]
pub struct SecretConfig {
    /// Where its value comes from.
    pub source: SecretSource,
    /// The hosts on which it may be used. An empty list means every host.
    pub hosts: HostPatterns,
    /// The callers that may use it. An empty list means every caller.
    pub callers: Vec<CallerPattern>,
    /// Whether the output of jobs that use it shows its name in place of its value.
    pub scrub: bool,
}

/// The table as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SecretTable {
    file: Option<Value>,
    command: Option<Value>,
    env: Option<Value>,
    hosts: Option<Vec<String>>,
    callers: Option<Vec<String>>,
    #[serde(default = "scrub_by_default")]
    scrub: bool,
}

fn scrub_by_default() -> bool {
    true
}

/// Errors do not repeat the text: it may be the secret itself.
impl TryFrom<Value> for SecretConfig {
    type Error = String;

    fn try_from(value: Value) -> Result<Self, String> {
        const FORMS: &str = "a secret is a table with one of file, command and env; the \
            configuration never contains its value";
        if !value.is_object() {
            return Err(FORMS.to_owned());
        }
        let table: SecretTable =
            serde_json::from_value(value).map_err(|error| match error.to_string() {
                message if message.starts_with("unknown field") => explain(&message),
                _ => "hosts and callers of a secret are lists of texts, and scrub is true or false"
                    .to_owned(),
            })?;
        let sources = [
            ("file", table.file),
            ("command", table.command),
            ("env", table.env),
        ];
        let given = sources.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?)));
        let source = Value::Object(given.collect());
        let source = SecretSource::try_from(source).map_err(|_| FORMS.to_owned())?;

        let hosts = not_empty("hosts", table.hosts)?;
        let callers = not_empty("callers", table.callers)?;
        let callers = callers.iter().map(|text| CallerPattern::parse(text));
        Ok(Self {
            source,
            hosts: HostPatterns::from(hosts.join(",")),
            callers: callers.collect::<Result<_, _>>()?,
            scrub: table.scrub,
        })
    }
}

/// A list that was left out is empty. One that is written must not be: it would mean everything.
fn not_empty(key: &str, list: Option<Vec<String>>) -> Result<Vec<String>, String> {
    let Some(list) = list else { return Ok(Vec::new()) };
    if list.is_empty() {
        return Err(format!("{key} is empty; omit it to allow all {key}"));
    }
    match list.iter().find(|text| text.trim().is_empty() || text.contains(',')) {
        Some(text) => Err(format!(
            "{key} has {text:?}; write each pattern as a text of its own"
        )),
        None => Ok(list),
    }
}

impl SecretConfig {
    /// Whether a caller may use it.
    pub(crate) fn is_for_caller(&self, caller: &PolicyCaller) -> bool {
        self.callers.is_empty() || self.callers.iter().any(|pattern| pattern.matches(caller))
    }
}
