//! A call with everything that decides about its effect.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// A call with everything that decides about its effect. An approval is for exactly this call.
///
/// Fields that do not apply are empty, and omitted when it is written.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ExactCall {
    // In alphabetical order, which makes the text canonical.
    /// Who calls.
    pub caller: String,
    /// The command of a start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// The input for a job, or both ends of a forward.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content: Option<String>,
    /// Working directory of a start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// Whether the job outlives the server.
    #[serde(skip_serializing_if = "is_false")]
    pub durable: bool,
    /// Names of the variables that a start sets.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub env: Vec<String>,
    /// The host, as named by the caller.
    pub host: String,
    /// The keys that are trusted for the host and its jump hosts.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub host_keys: Vec<String>,
    /// The job that is written to or signalled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job: Option<String>,
    /// Names and addresses of the machine.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub machine: Vec<String>,
    /// More settings of a start, in words: restarts, files that come back, GPUs.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub options: Vec<String>,
    /// Values of the template's parameters.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub params: BTreeMap<String, String>,
    /// SHA-256 of the policy file that asks for the approval, in hexadecimal.
    pub policy: String,
    /// Whether the command runs on a terminal.
    #[serde(skip_serializing_if = "is_false")]
    pub pty: bool,
    /// The script that is sent with a start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub script: Option<String>,
    /// A hash of all settings of a start, with the values of its variables and its stdin, and of the
    /// caller. Only servers that share the jobs can compute it, and it differs for another caller, so
    /// that no approver finds out a short secret by trying.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub settings: Option<String>,
    /// The stdin of a start: its size, or that it stays open.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stdin: Option<String>,
    /// Where a forward leads to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// The template that the command is made from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub template: Option<String>,
    /// The jump hosts on the way.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub through: Vec<String>,
    /// Time limit of a start in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    /// The accounts that it uses there: the one that logs in, and the one that it becomes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub users: Vec<String>,
    /// The verb.
    pub verb: String,
}

impl ExactCall {
    /// The call as canonical JSON (RFC 8785): keys in order, no spaces.
    pub fn canonical(&self) -> String {
        serde_json::to_string(self).expect("it has only texts, numbers and lists")
    }

    /// Whether two calls, as canonical JSON, ask for the same effect. The policy and the host's keys may have
    /// changed in between.
    pub fn ask_for_the_same(one: &str, other: &str) -> bool {
        let request_in = |text| {
            serde_json::from_str::<Self>(text).ok().map(|call| Self {
                policy: String::new(),
                host_keys: Vec::new(),
                ..call
            })
        };
        request_in(one).is_some_and(|request| request_in(other) == Some(request))
    }

    /// SHA-256 of a canonical text, in hexadecimal.
    pub fn hash(canonical: &str) -> String {
        crate::sha256_hex(canonical)
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
fn is_false(value: &bool) -> bool {
    !*value
}

#[cfg(test)]
mod tests {
    use super::*;

    fn full() -> ExactCall {
        let text = || Some("x".to_owned());
        let list = || vec!["x".to_owned()];
        ExactCall {
            caller: "agent".to_owned(),
            command: text(),
            content: text(),
            cwd: text(),
            durable: true,
            env: list(),
            host: "web1".to_owned(),
            host_keys: list(),
            job: text(),
            machine: list(),
            options: Vec::new(),
            params: BTreeMap::from([("b".to_owned(), "1".to_owned())]),
            policy: "0".to_owned(),
            pty: true,
            script: Some("print(1)".into()),
            settings: text(),
            stdin: text(),
            target: text(),
            template: text(),
            through: list(),
            timeout_ms: Some(1),
            users: list(),
            verb: "run".to_owned(),
        }
    }

    #[test]
    fn the_text_of_a_call_is_canonical_json() {
        let text = full().canonical();

        // A map of serde_json's has its keys in order, unless a crate asks for another one.
        let fields: BTreeMap<String, serde_json::Value> = serde_json::from_str(&text).unwrap();
        assert_eq!(serde_json::to_string(&fields).unwrap(), text);
        assert_eq!(serde_json::from_str::<ExactCall>(&text).unwrap(), full());
    }

    #[test]
    fn every_field_of_a_call_changes_its_hash() {
        let text = full().canonical();
        let fields: BTreeMap<String, serde_json::Value> = serde_json::from_str(&text).unwrap();
        assert_eq!(fields.len(), 22, "all fields are written");

        for name in fields.keys() {
            let mut without = fields.clone();
            without.remove(name);
            let other = serde_json::to_string(&without).unwrap();
            let other: ExactCall = serde_json::from_str(&other).unwrap();
            assert_ne!(
                ExactCall::hash(&other.canonical()),
                ExactCall::hash(&text),
                "{name}"
            );
        }
    }
}
