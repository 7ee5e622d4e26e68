//! The verbs that a policy decides on.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::role::Role;

/// A verb that a policy decides on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verb {
    /// List hosts and templates.
    Hosts,
    /// List jobs.
    Jobs,
    /// Read the output of a job as it comes.
    Tail,
    /// Read any part of the output of a job.
    Read,
    /// Search in the output of a job.
    Search,
    /// Wait for the end of a job.
    Wait,
    /// Start a command and wait for it.
    Run,
    /// Start a command.
    Spawn,
    /// Run a command that only looks: of the table in `look`, or of a template with `read_only`.
    Look,
    /// Write to the stdin of a job, resize its terminal, or sit at it.
    Write,
    /// Signal a job.
    Signal,
    /// Read files of a host.
    Get,
    /// Write files of a host.
    Put,
    /// Change parts of a file of a host.
    Edit,
    /// Forward a port through a host.
    Forward,
    /// Log in to a host to see whether it answers.
    Probe,
    /// Accept the key of a host.
    Trust,
    /// Delete a job or its output.
    Forget,
}

impl Verb {
    /// All verbs.
    pub const ALL: [Self; 18] = [
        Self::Hosts,
        Self::Jobs,
        Self::Tail,
        Self::Read,
        Self::Search,
        Self::Wait,
        Self::Run,
        Self::Spawn,
        Self::Look,
        Self::Write,
        Self::Signal,
        Self::Get,
        Self::Put,
        Self::Edit,
        Self::Forward,
        Self::Probe,
        Self::Trust,
        Self::Forget,
    ];

    /// Verbs that a rule about commands is about, if it names none.
    pub const OF_COMMANDS: [Self; 4] = [Self::Run, Self::Spawn, Self::Write, Self::Signal];

    /// The name in a policy file.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Hosts => "hosts",
            Self::Jobs => "jobs",
            Self::Tail => "tail",
            Self::Read => "read",
            Self::Search => "search",
            Self::Wait => "wait",
            Self::Run => "run",
            Self::Spawn => "spawn",
            Self::Look => "look",
            Self::Write => "write",
            Self::Signal => "signal",
            Self::Get => "get",
            Self::Put => "put",
            Self::Edit => "edit",
            Self::Forward => "forward",
            Self::Probe => "probe",
            Self::Trust => "trust",
            Self::Forget => "forget",
        }
    }

    /// The verb with a name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|verb| verb.as_str() == name)
    }

    /// Whether the verb is about a command, so that the commands of a rule matter.
    pub fn has_command(self) -> bool {
        Self::OF_COMMANDS.contains(&self)
    }

    /// Minimum role for the verb, whatever the policy says.
    pub fn needed_role(self) -> Role {
        match self {
            Self::Hosts | Self::Jobs | Self::Tail | Self::Read | Self::Search | Self::Wait => {
                Role::Read
            }
            // Files are read with the rights of the account on the host, as by a command.
            Self::Run
            | Self::Spawn
            | Self::Look
            | Self::Write
            | Self::Signal
            | Self::Get
            | Self::Put
            | Self::Edit
            | Self::Forward
            | Self::Probe
            | Self::Trust
            | Self::Forget => Role::Run,
        }
    }

    /// Whether the verb connects to a host, so that the host has to be certain.
    pub fn connects(self) -> bool {
        match self {
            Self::Hosts
            | Self::Jobs
            | Self::Tail
            | Self::Read
            | Self::Search
            | Self::Wait
            | Self::Write
            | Self::Signal
            | Self::Forget => false,
            Self::Run
            | Self::Spawn
            | Self::Look
            | Self::Get
            | Self::Put
            | Self::Edit
            | Self::Forward
            | Self::Probe
            | Self::Trust => true,
        }
    }

    /// Whether someone can be asked to agree to a call with this verb. Reads are too many, and the
    /// content of a file is not known before it is sent.
    pub fn can_be_approved(self) -> bool {
        matches!(
            self,
            Self::Run | Self::Spawn | Self::Write | Self::Signal | Self::Forward
        )
    }

    /// Whether the verb runs what the caller sends, so that a rule that allows it must say which
    /// commands it allows.
    pub fn runs_commands(self) -> bool {
        matches!(self, Self::Run | Self::Spawn | Self::Write)
    }
}

impl fmt::Display for Verb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A set of verbs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Verbs(u32);

impl Verbs {
    /// Whether the set has a verb.
    pub(super) fn contains(self, verb: Verb) -> bool {
        self.0 & Self::bit(verb) != 0
    }

    /// Whether the set has all verbs of another one.
    pub(super) fn contains_all(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// The verbs, in order.
    pub(super) fn iter(self) -> impl Iterator<Item = Verb> {
        Verb::ALL.into_iter().filter(move |&verb| self.contains(verb))
    }

    fn bit(verb: Verb) -> u32 {
        1 << verb as u32
    }
}

impl FromIterator<Verb> for Verbs {
    fn from_iter<T: IntoIterator<Item = Verb>>(verbs: T) -> Self {
        Self(verbs.into_iter().fold(0, |bits, verb| bits | Self::bit(verb)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_has_the_verbs_it_was_made_of() {
        let set: Verbs = [Verb::Run, Verb::Get, Verb::Run].into_iter().collect();
        assert_eq!(set.iter().collect::<Vec<_>>(), [Verb::Run, Verb::Get]);
        let more: Verbs = [Verb::Get, Verb::Put].into_iter().collect();
        assert!(set.contains_all([Verb::Get].into_iter().collect()));
        assert!(!set.contains_all(more));
    }

    #[test]
    fn verbs_differ_in_what_they_need() {
        assert!(Verb::Run.connects() && !Verb::Tail.connects());
        assert!(Verb::Run.has_command() && !Verb::Hosts.has_command());
    }
}
