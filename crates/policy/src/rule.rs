//! One rule of a policy, compiled.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::hours::Hours;
use super::pattern::{CallerPattern, HostPattern, NamePattern, all_included};
use super::request::{CommandSource, Machine, MachineAccount, PolicyRequest, Which};
use super::verb::{Verb, Verbs};

/// A rule. An empty list stands for everything: every caller, host, user or target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Rule {
    /// Its name, for people.
    pub(super) name: String,
    /// Line of the file where it begins, from 1.
    pub(super) line: usize,
    pub(super) effect: Effect,
    pub(super) callers: Vec<CallerPattern>,
    pub(super) hosts: Vec<HostPattern>,
    /// Accounts on the hosts.
    pub(super) users: Vec<NamePattern>,
    pub(super) verbs: Verbs,
    pub(super) commands: Commands,
    /// Targets of forwards, as `HOST:PORT`.
    pub(super) targets: Vec<NamePattern>,
    /// When it holds. `None` for always.
    pub(super) hours: Option<Hours>,
    /// Who has to agree to a call that it allows.
    pub(super) approval: ApprovalFrom,
    /// Number of callers who have to agree.
    pub(super) approvals: u32,
    /// Limits on the calls that it allows.
    pub(super) limits: RuleLimits,
}

/// What a rule does with a call that it matches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Effect {
    /// It is allowed, unless another rule denies it.
    #[default]
    Allow,
    /// It is denied, whatever other rules say.
    Deny,
}

/// The commands of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Commands {
    /// Every command. Also for verbs without a command.
    Any,
    /// The commands of these templates.
    Templates(Vec<String>),
}

/// Who has to agree to a call.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum ApprovalFrom {
    /// Nobody.
    #[default]
    None,
    /// The caller's own client asks its user. The client may answer by itself.
    Client,
    /// An approver who is not the caller.
    Person,
}

/// Limits on the calls that a rule allows, for each caller.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RuleLimits {
    /// Maximum jobs that run at the same time.
    pub jobs: Option<u32>,
    /// Maximum time limit of a job, which is also the time limit of a job without one.
    pub timeout: Option<Duration>,
    /// Maximum bytes of one file.
    pub bytes: Option<u64>,
    /// Maximum starts in a minute.
    pub starts_per_minute: Option<u32>,
}

impl Rule {
    /// Whether the rule is about a call.
    pub(super) fn matches(&self, request: &PolicyRequest<'_>) -> bool {
        self.matches_somewhere(request) && self.has_endpoint(request.endpoint)
    }

    /// Whether the rule is about a call, perhaps on another machine.
    pub(super) fn matches_somewhere(&self, request: &PolicyRequest<'_>) -> bool {
        // The cheapest test first: most rules are about other verbs.
        self.verbs.contains(request.verb)
            && self.hours.as_ref().is_none_or(|hours| hours.contain(request.minute))
            && (self.callers.is_empty()
                || self.callers.iter().any(|pattern| pattern.matches(request.caller)))
            && (!request.verb.has_command() || self.has_command(request.command))
            && (request.verb != Verb::Forward || self.has_target(request.target))
    }

    fn has_command(&self, command: Option<CommandSource<'_>>) -> bool {
        match (&self.commands, command) {
            (Commands::Any, _) => true,
            (Commands::Templates(names), Some(CommandSource::Template(name))) => {
                names.iter().any(|known| known == name)
            }
            (Commands::Templates(_), Some(CommandSource::Free) | None) => false,
        }
    }

    fn has_target(&self, target: Option<&str>) -> bool {
        if self.targets.is_empty() {
            return true;
        }
        match target {
            Some(target) => self.targets.iter().any(|pattern| pattern.matches(target)),
            // The clients of a SOCKS proxy name any target.
            None => self.effect == Effect::Deny,
        }
    }

    fn has_endpoint(&self, endpoint: Option<&MachineAccount>) -> bool {
        if self.hosts.is_empty() && self.users.is_empty() {
            return true;
        }
        let Some(endpoint) = endpoint else {
            // A call about no machine, such as a list. Its entries are decided one by one.
            return self.effect == Effect::Allow;
        };
        match self.effect {
            Effect::Allow => {
                self.has_machine(&endpoint.machine, Which::Used)
                    && (self.users.is_empty() || self.has_all_users(&endpoint.users))
            }
            // A machine behind a denied one is reached through that one.
            Effect::Deny => {
                let mut machines = std::iter::once(&endpoint.machine).chain(&endpoint.jumps);
                machines.any(|machine| self.has_machine(machine, Which::All))
                    && (self.users.is_empty()
                        || endpoint.users.iter().any(|user| self.has_user_in_any_case(user)))
            }
        }
    }

    fn has_machine(&self, machine: &Machine, which: Which) -> bool {
        self.hosts.is_empty() || self.hosts.iter().any(|pattern| pattern.matches(machine, which))
    }

    /// False for no user: an account that is not known is not allowed.
    fn has_all_users(&self, users: &[String]) -> bool {
        !users.is_empty() && users.iter().all(|user| self.has_user(user))
    }

    fn has_user(&self, user: &str) -> bool {
        self.users.iter().any(|pattern| pattern.matches(user))
    }

    fn has_user_in_any_case(&self, user: &str) -> bool {
        self.users.iter().any(|pattern| pattern.matches_in_any_case(user))
    }

    /// Whether it matches every call that another rule matches. May miss some such pairs.
    pub(super) fn includes(&self, other: &Self) -> bool {
        let commands = match (&self.commands, &other.commands) {
            (Commands::Any, _) => true,
            (Commands::Templates(_), Commands::Any) => false,
            (Commands::Templates(wide), Commands::Templates(narrow)) => {
                narrow.iter().all(|name| wide.contains(name))
            }
        };
        commands
            && self.hours.is_none()
            && self.verbs.contains_all(other.verbs)
            && all_included(&self.callers, &other.callers, CallerPattern::includes)
            && all_included(&self.hosts, &other.hosts, HostPattern::includes)
            && all_included(&self.users, &other.users, NamePattern::includes)
            && all_included(&self.targets, &other.targets, NamePattern::includes)
    }
}
