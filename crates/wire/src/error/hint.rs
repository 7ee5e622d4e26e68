//! Hints, with other words for agents than for people.

use std::fmt;
use std::ops::Deref;

use serde::{Deserialize, Serialize, Serializer};

/// What to do next, with the names of tools for agents and, if they differ, of verbs for people.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(from = "String")]
pub struct Hint {
    agent: String,
    person: Option<String>,
}

impl Hint {
    /// The same hint, with other words for a person.
    #[must_use]
    pub(crate) fn or_for_a_person(self, person: impl Into<String>) -> Self {
        Self {
            person: Some(person.into()),
            ..self
        }
    }

    /// The words for a person. Names of tools become those of verbs, so that a hint of a server,
    /// which has only the agent's words, also helps at the command line.
    pub fn for_a_person(&self) -> String {
        match &self.person {
            Some(person) => person.clone(),
            None => with_verbs(&self.agent),
        }
    }

    pub(crate) fn replace(&mut self, from: &str, to: &str) {
        self.agent = self.agent.replace(from, to);
        self.person = self.person.take().map(|person| person.replace(from, to));
    }

    /// Adds a prefix.
    pub(crate) fn prefixed(self, before: &str) -> Self {
        Self {
            agent: format!("{before}{}", self.agent),
            person: self.person.map(|person| format!("{before}{person}")),
        }
    }
}

/// The verbs that are also tools.
const VERBS: [&str; 14] = [
    "forward", "get", "put", "spawn", "run", "tail", "read", "search", "write", "signal", "wait",
    "jobs", "hosts", "forget",
];

/// Arguments of tools, and the options that mean the same.
const OPTIONS: [(&str, &str); 4] = [
    ("pty=true", "--pty"),
    ("force=true", "--force"),
    ("in_place=true", "--in-place"),
    ("what=output", "--output"),
];

/// A text for agents, with `` `sshjobs jobs` `` in place of `ssh_jobs`, and `--pty` in place of `pty=true`.
fn with_verbs(text: &str) -> String {
    let text = VERBS.iter().fold(text.to_owned(), |text, verb| {
        text.replace(&format!("ssh_{verb}"), &format!("`sshjobs {verb}`"))
    });
    OPTIONS.iter().fold(text, |text, (argument, option)| {
        text.replace(argument, option)
    })
}

impl From<&str> for Hint {
    fn from(text: &str) -> Self {
        text.to_owned().into()
    }
}

impl From<String> for Hint {
    fn from(agent: String) -> Self {
        Self {
            agent,
            person: None,
        }
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
        // The wire has no second text: a person who uses `--server` gets the agent's words.
        serializer.serialize_str(&self.agent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hint_for_agents_names_verbs_at_the_command_line() {
        let hint = Hint::from("ssh_jobs lists them; end it with ssh_signal, or see ssh_config");
        assert_eq!(
            hint.for_a_person(),
            "`sshjobs jobs` lists them; end it with `sshjobs signal`, or see ssh_config"
        );
        assert!(hint.to_string().contains("ssh_jobs"));
        let hint = Hint::from("start the job with pty=true");
        assert_eq!(hint.for_a_person(), "start the job with --pty");
    }
}
