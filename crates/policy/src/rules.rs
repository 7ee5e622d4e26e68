//! The rules of a policy, and an index that finds those about a caller.

use std::collections::HashMap;

use super::pattern::NamedCallers;
use super::request::PolicyCaller;
use super::rule::Rule;

/// Rules in the order of their file, indexed by caller: most rules of a large policy are about other
/// callers.
#[derive(Clone, Debug, Default)]
pub(super) struct Rules {
    all: Vec<Rule>,
    /// Positions of the rules for a caller of this name.
    by_name: HashMap<String, Vec<usize>>,
    /// Positions of the rules for callers whose name begins with this text.
    by_prefix: HashMap<String, Vec<usize>>,
    /// Positions of the rules for everyone, for roles, claims and other patterns.
    for_any_name: Vec<usize>,
}

impl Rules {
    pub(super) fn new(all: Vec<Rule>) -> Self {
        let mut rules = Self::default();
        for (position, rule) in all.iter().enumerate() {
            if rule.callers.is_empty() {
                rules.for_any_name.push(position);
            }
            for pattern in &rule.callers {
                let positions = match pattern.named_callers() {
                    NamedCallers::One(name) => rules.by_name.entry(name.to_owned()).or_default(),
                    NamedCallers::BeginningWith(start) => {
                        rules.by_prefix.entry(start.to_owned()).or_default()
                    }
                    NamedCallers::Any => &mut rules.for_any_name,
                };
                positions.push(position);
            }
        }
        rules.all = all;
        rules
    }

    pub(super) fn all(&self) -> &[Rule] {
        &self.all
    }

    /// The rules that can match a caller, in the order of the file. All others name different callers.
    pub(super) fn for_caller(&self, caller: &PolicyCaller) -> impl Iterator<Item = &Rule> {
        let name = caller.name.as_str();
        // Patterns with an empty prefix are in `for_any_name`.
        let starts = (1..=name.len()).filter_map(|length| name.get(..length));
        let mut positions: Vec<usize> = starts
            .filter_map(|start| self.by_prefix.get(start))
            .chain(self.by_name.get(name))
            .chain(std::iter::once(&self.for_any_name))
            .flatten()
            .copied()
            .collect();
        positions.sort_unstable();
        // A rule may name a caller twice.
        positions.dedup();
        positions.into_iter().filter_map(|position| self.all.get(position))
    }
}
