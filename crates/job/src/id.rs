//! Ids of jobs, and the words that mark their processes.

use std::fmt;

use rand::RngExt;
use serde::{Deserialize, Serialize};

/// Crockford's base 32 in lower case: no letter looks like a digit.
const ALPHABET: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";

/// The id of a job: short, starts with its host's name, can't be guessed (`web1-7f3k9q2m`).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct JobId(String);

impl JobId {
    /// A new id for a job on `host`, with 40 random bits.
    pub fn new(host: &str) -> Self {
        let slug: String = host
            .chars()
            .map(|c| c.to_ascii_lowercase())
            .map(|c| {
                if c.is_ascii_alphanumeric() || c == '.' {
                    c
                } else {
                    '-'
                }
            })
            .take(24)
            .collect();
        // An id that began with a hyphen would look like an option on the command line.
        let name = match slug.trim_matches('-') {
            "" => "job",
            name => name,
        };
        Self(format!("{name}-{}", random(8)))
    }

    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<&str> for JobId {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A random word that identifies a job on its host. It is part of the announcement of the process
/// group and of the environment of the job's processes. Other users of the host may see it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Nonce(String);

impl Nonce {
    /// A new word with 80 random bits.
    pub fn new() -> Self {
        Self(format!("sshjobs-{}", random(16)))
    }

    /// The word: ASCII letters, digits and `-`.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Default for Nonce {
    fn default() -> Self {
        Self::new()
    }
}

fn random(length: usize) -> String {
    let mut rng = rand::rng();
    (0..length)
        .map(|_| char::from(ALPHABET[rng.random_range(0..ALPHABET.len())]))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_id_tells_its_host_in_a_plain_alphabet() {
        let id = JobId::new("Web_1 [::1]/x");
        assert!(id.as_str().starts_with("web-1"), "{id}");
        assert!(
            id.as_str().chars().all(|c| c.is_ascii_alphanumeric() || "-.".contains(c)),
            "{id}"
        );
    }

    #[test]
    fn a_job_id_does_not_begin_with_a_hyphen_whatever_its_host_is_called() {
        assert!(JobId::new("東京").as_str().starts_with("job-"));
        assert!(JobId::new("_web").as_str().starts_with("web-"));
    }

    #[test]
    fn job_ids_differ() {
        assert_ne!(JobId::new("a"), JobId::new("a"));
    }
}
