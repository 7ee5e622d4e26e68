use std::fmt;
use std::ops::Deref;

use serde::{Deserialize, Serialize, Serializer};

/// What to do next, in the words of an agent's tools; and, where a person at the command line has other words, in those.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(from = "String")]
pub struct Hint {
    agent: String,
    person: Option<String>,
}

impl Hint {
    /// The same hint, with other words for a person.
    #[must_use]
    pub(super) fn or_for_a_person(self, person: impl Into<String>) -> Self {
        Self { person: Some(person.into()), ..self }
    }

    /// In the words of the command line.
    pub fn for_a_person(&self) -> &str {
        self.person.as_deref().unwrap_or(&self.agent)
    }

    pub(super) fn replace(&mut self, from: &str, to: &str) {
        self.agent = self.agent.replace(from, to);
        self.person = self.person.take().map(|person| person.replace(from, to));
    }

    /// Puts something before it.
    pub(super) fn prefixed(self, before: &str) -> Self {
        let both = |text: String| format!("{before}{text}");
        Self { agent: both(self.agent), person: self.person.map(both) }
    }
}

impl From<&str> for Hint {
    fn from(text: &str) -> Self {
        text.to_owned().into()
    }
}

impl From<String> for Hint {
    fn from(agent: String) -> Self {
        Self { agent, person: None }
    }
}

impl Deref for Hint {
    type Target = str;

    fn deref(&self) -> &str {
        &self.agent
    }
}

impl fmt::Display for Hint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.agent)
    }
}

impl Serialize for Hint {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.agent)
    }
}
