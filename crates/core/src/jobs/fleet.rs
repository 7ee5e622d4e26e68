//! Which hosts a fleet has: names, ranges, patterns, tags and exclusions.

use super::door::Door;
use super::error::Error;
use crate::hosts::HostBook;
use crate::jobs::{FleetPlan, HostError, StopAfter};
use sshjobs_base::host_pattern::glob_matches;
use sshjobs_job::{MOST_NAMES, RangeError, fold, unfold};
use sshjobs_policy::Verb;

/// The hosts of a command, as a caller names them, and how it is rolled out.
#[derive(Clone, Debug, Default)]
pub struct FleetSpec {
    /// Names, with ranges (`web[1-3,7]`); patterns with `*` and `?`, and `tag:NAME`, over the
    /// listed hosts. `!` excludes the following name.
    pub hosts: Vec<String>,
    /// Maximum members at the same time; 64 by default.
    pub max_parallel: Option<usize>,
    /// Number of members that start first. The others start when all of these have succeeded.
    pub canary: usize,
    /// Number of failures after which no further member starts.
    pub stop_after: Option<StopAfter>,
    /// How often a member that failed to start is tried again.
    pub retries: u32,
}

/// Longest name of a fleet: enough for a list.
const LONGEST_NAME: usize = 60;

impl FleetSpec {
    /// These hosts, in order, with the default roll-out.
    pub fn of(hosts: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self {
            hosts: hosts.into_iter().map(Into::into).collect(),
            ..Self::default()
        }
    }

    /// Whether a word, after its ranges are expanded, names exactly one host.
    pub fn is_plain(word: &str) -> bool {
        !word.contains(['*', '?', '!']) && !word.starts_with("tag:")
    }

    /// Expands the ranges of words, to at most 10,000 names.
    pub fn unfolded(words: &[String]) -> Result<Vec<String>, Error> {
        let mut unfolded = Vec::new();
        for word in words {
            unfolded.extend(unfold(word).map_err(HostError::from)?);
            if unfolded.len() > MOST_NAMES {
                return Err(HostError::from(RangeError::TooMany("the list".to_owned())).into());
            }
        }
        Ok(unfolded)
    }

    /// The selected hosts, without duplicates, in the requested order.
    pub(super) async fn plan(&self, door: &Door) -> Result<FleetPlan, Error> {
        let book = door.book();
        let hosts = Self::unfolded(&self.hosts)?;
        let listed = if hosts.iter().all(|word| Self::is_plain(word)) {
            Vec::new()
        } else {
            // Patterns select only usable hosts. Plain names are checked in `find_hosts`.
            door.admission
                .usable(Verb::Hosts, book.listed().await?.into_keys().collect())
                .await
        };
        let mut members: Vec<String> = Vec::new();
        for word in hosts.iter().filter(|word| !word.starts_with('!')) {
            let found: Vec<String> = if Self::is_plain(word) {
                vec![word.clone()]
            } else {
                listed.iter().filter(|name| is_meant(word, name, book)).cloned().collect()
            };
            if found.is_empty() {
                let total = listed.len();
                return Err(match word.strip_prefix("tag:") {
                    Some(tag) => HostError::UnknownTag {
                        tag: tag.to_owned(),
                        total,
                    }
                    .into(),
                    None => HostError::NoMatch {
                        pattern: word.clone(),
                        total,
                    }
                    .into(),
                });
            }
            members.extend(found);
        }
        let excluded: Vec<&str> = hosts.iter().filter_map(|word| word.strip_prefix('!')).collect();
        let mut seen = std::collections::HashSet::new();
        members.retain(|name| {
            // Excluded last, so that the place of a `!` word in the list does not matter.
            !excluded.iter().any(|word| is_meant(word, name, book)) && seen.insert(name.clone())
        });
        let Self {
            max_parallel,
            canary,
            stop_after,
            retries,
            ..
        } = *self;
        let plan = FleetPlan::new(members);
        let max_parallel = max_parallel.unwrap_or(plan.max_parallel);
        Ok(FleetPlan {
            max_parallel,
            canary,
            stop_after,
            retries,
            ..plan
        })
    }
}

/// Whether a word of a list of hosts, a pattern or a tag, selects a name.
fn is_meant(word: &str, name: &str, book: &HostBook) -> bool {
    match word.strip_prefix("tag:") {
        Some(tag) => book.tags(name).iter().any(|known| known == tag),
        None => glob_matches(word, name),
    }
}

/// Name of a fleet in lists of jobs.
pub(super) fn name(plan: &FleetPlan) -> String {
    let folded = fold(plan.members.iter().map(String::as_str));
    match folded.char_indices().nth(LONGEST_NAME) {
        Some((end, _)) => format!("{}…", folded.split_at(end).0),
        None => folded,
    }
}
