//! Finds rules and templates that can't take effect. Such a mistake would otherwise show only when a
//! call is decided.

use std::collections::{BTreeMap, BTreeSet};

use super::mistake::{PolicyMistake, unknown};
use super::pattern::HostPattern;
use super::policy::Policy;
use super::request::{Machine, Which};
use super::rule::{ApprovalFrom, Commands, Effect, Rule};
use super::verb::Verb;

/// The hosts that the configuration lists, with their tags.
#[derive(Clone, Debug, Default)]
pub struct Inventory(pub BTreeMap<String, Vec<String>>);

/// Something in a policy file that is probably not meant so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warning {
    /// The line, from 1.
    pub line: usize,
    /// Description.
    pub message: String,
}

/// Verbs that have the same effect: denying only one of them denies nothing.
const SAME_EFFECT: [&[Verb]; 3] = [
    &[Verb::Run, Verb::Spawn],
    &[Verb::Put, Verb::Edit],
    &[Verb::Tail, Verb::Read, Verb::Search],
];

impl Policy {
    /// Checks that everything in the file can take effect, on these hosts.
    ///
    /// # Errors
    /// The first tag, rule or template that can't.
    pub fn check(&self, inventory: &Inventory) -> Result<Vec<Warning>, PolicyMistake> {
        let mut warnings = Vec::new();
        for rule in self.rules.all() {
            check_tags(rule, inventory)?;
            check_reach(rule, self.rules.all())?;
            warnings.extend(unmatched_hosts(rule, inventory));
            warnings.extend(half_denied(rule));
            warnings.extend(numbered_users(rule));
        }
        check_use(self)?;
        check_approvers(self)?;
        Ok(warnings)
    }
}

fn check_tags(rule: &Rule, inventory: &Inventory) -> Result<(), PolicyMistake> {
    let known: BTreeSet<&str> = inventory.0.values().flatten().map(String::as_str).collect();
    let known: Vec<&str> = known.into_iter().collect();
    for pattern in &rule.hosts {
        if let HostPattern::Tag(tag) = pattern
            && !known.contains(&tag.as_str())
        {
            return Err(mistake(rule, unknown("tag", tag, &known)));
        }
    }
    Ok(())
}

/// A rule that allows something which another rule always denies can never take effect.
fn check_reach(rule: &Rule, all: &[Rule]) -> Result<(), PolicyMistake> {
    let denying = all.iter().find(|other| other.effect == Effect::Deny && other.includes(rule));
    match (rule.effect, denying) {
        (Effect::Allow, Some(other)) => Err(mistake(
            rule,
            format!(
                "the rule {:?} can never take effect: {:?} denies all that it allows",
                rule.name, other.name
            ),
        )),
        (Effect::Allow | Effect::Deny, _) => Ok(()),
    }
}

fn unmatched_hosts(rule: &Rule, inventory: &Inventory) -> Vec<Warning> {
    rule.hosts
        .iter()
        .filter_map(|pattern| match pattern {
            HostPattern::Name(name) if !matches_any(pattern, inventory) => Some(Warning {
                line: rule.line,
                message: format!("the rule {:?}: {name} matches no listed host", rule.name),
            }),
            HostPattern::Name(_) | HostPattern::Tag(_) => None,
        })
        .collect()
}

fn matches_any(pattern: &HostPattern, inventory: &Inventory) -> bool {
    let mut names = inventory.0.keys();
    names.any(|name| pattern.matches(&Machine::new([name], 22, []), Which::Used))
}

/// Users that a rule names by number. Accounts are compared by name, so such a rule never matches.
fn numbered_users(rule: &Rule) -> Vec<Warning> {
    let users = rule.users.iter().map(ToString::to_string);
    let numbers = users.filter(|user| user.chars().all(|c| c.is_ascii_digit()));
    numbers
        .map(|number| Warning {
            line: rule.line,
            message: format!(
                "the rule {:?} has the user {number:?}: users are compared by name, as in \"root\"",
                rule.name
            ),
        })
        .collect()
}

fn half_denied(rule: &Rule) -> Vec<Warning> {
    if rule.effect == Effect::Allow {
        return Vec::new();
    }
    let mut warnings = Vec::new();
    for group in SAME_EFFECT {
        let denied = group.iter().find(|verb| rule.verbs.contains(**verb));
        let open = group.iter().find(|verb| !rule.verbs.contains(**verb));
        if let (Some(denied), Some(open)) = (denied, open) {
            warnings.push(Warning {
                line: rule.line,
                message: format!(
                    "the rule {:?} denies {denied} and not {open}, which has the same effect",
                    rule.name
                ),
            });
        }
    }
    warnings
}

/// A template that no rule allows can't be used.
fn check_use(policy: &Policy) -> Result<(), PolicyMistake> {
    for template in policy.templates.values() {
        let is_used = policy.rules.all().iter().any(|rule| {
            let runs_it = match &rule.commands {
                Commands::Any => rule.verbs.iter().any(Verb::runs_commands),
                Commands::Templates(names) => names.contains(&template.name),
            };
            let looks_by_it = template.read_only && rule.verbs.contains(Verb::Look);
            rule.effect == Effect::Allow && (runs_it || looks_by_it)
        });
        if !is_used {
            return Err(PolicyMistake {
                line: template.line,
                message: format!("no rule allows the template {:?}", template.name),
            });
        }
    }
    Ok(())
}

/// A call that needs a person can never be approved without approvers.
fn check_approvers(policy: &Policy) -> Result<(), PolicyMistake> {
    if !policy.approvers.is_empty() {
        return Ok(());
    }
    if let Some(rule) = policy.rules.all().iter().find(|rule| rule.approval == ApprovalFrom::Person)
    {
        let message = format!(
            "the rule {:?} asks a person, and there are no [[approvers]]",
            rule.name
        );
        return Err(mistake(rule, message));
    }
    let mut templates = policy.templates.values();
    match templates.find(|template| template.approval == ApprovalFrom::Person) {
        Some(template) => Err(PolicyMistake {
            line: template.line,
            message: format!(
                "the template {:?} asks a person, and there are no [[approvers]]",
                template.name
            ),
        }),
        None => Ok(()),
    }
}

fn mistake(rule: &Rule, message: String) -> PolicyMistake {
    PolicyMistake {
        line: rule.line,
        message,
    }
}
