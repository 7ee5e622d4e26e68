//! The inputs of a decision: who, what, where, with which command, and when.

use super::claims::Claims;
use super::role::Role;
use super::verb::Verb;
use sshjobs_base::host_pattern::canonical_host;

/// A call, as far as a policy looks at it.
#[derive(Clone, Copy, Debug)]
pub struct PolicyRequest<'a> {
    /// Who calls.
    pub caller: &'a PolicyCaller,
    /// The verb.
    pub verb: Verb,
    /// The machine that the call is about. `None` for a call about no machine, such as a list.
    pub endpoint: Option<&'a MachineAccount>,
    /// The command that it starts or feeds, if any.
    pub command: Option<CommandSource<'a>>,
    /// Where a forward leads to, as `HOST:PORT`.
    pub target: Option<&'a str>,
    /// The time, for rules with hours.
    pub minute: WeekMinute,
}

/// Who calls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyCaller {
    /// The caller's name.
    pub name: String,
    /// Its role.
    pub role: Role,
    /// Claims of its token. Empty unless an OpenID Connect issuer made it.
    pub claims: Claims,
}

/// An account of a machine, and how it is reached.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MachineAccount {
    /// The machine.
    pub machine: Machine,
    /// The accounts that a call uses: the one that logs in, and the one that the command becomes. A
    /// rule with users allows a call only if it names all of them.
    pub users: Vec<String>,
    /// The machines through which it is reached.
    pub jumps: Vec<Machine>,
}

/// A machine: the names that a call uses for it, and all others that the configuration has.
///
/// A rule that denies looks at all of them, so that no other name leads around it. A rule that allows
/// looks only at those that the call uses: a name that the rule does not have must not be allowed
/// because of another one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Machine {
    used: MachineNames,
    others: MachineNames,
}

/// Names and addresses in canonical form, each also with the port; and tags.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct MachineNames {
    names: Vec<String>,
    tags: Vec<String>,
}

impl Machine {
    /// A machine with the name that a call uses, its addresses, and its tags.
    pub fn new(
        names: impl IntoIterator<Item = impl AsRef<str>>,
        port: u16,
        tags: impl IntoIterator<Item = String>,
    ) -> Self {
        Self {
            used: MachineNames::new(names, port, tags),
            others: MachineNames::default(),
        }
    }

    /// The same machine, with other names that it has, and their tags.
    #[must_use]
    pub fn also_known_as(
        self,
        names: impl IntoIterator<Item = impl AsRef<str>>,
        port: u16,
        tags: impl IntoIterator<Item = String>,
    ) -> Self {
        Self {
            others: MachineNames::new(names, port, tags),
            ..self
        }
    }

    /// Whether a test holds for a name or address that the call uses, or one that the machine has
    /// besides.
    pub(super) fn has_name(&self, which: Which, is_meant: impl Fn(&str) -> bool) -> bool {
        self.of(which).any(|names| names.names.iter().any(|name| is_meant(name)))
    }

    /// Whether it has a tag.
    pub(super) fn has_tag(&self, which: Which, tag: &str) -> bool {
        self.of(which).any(|names| names.tags.iter().any(|known| known == tag))
    }

    fn of(&self, which: Which) -> impl Iterator<Item = &MachineNames> {
        let others = match which {
            Which::Used => None,
            Which::All => Some(&self.others),
        };
        std::iter::once(&self.used).chain(others)
    }

    /// The names and addresses that the call uses, each also with the port.
    pub fn names(&self) -> &[String] {
        &self.used.names
    }

    /// The other names of the machine, each also with the port.
    pub fn other_names(&self) -> &[String] {
        &self.others.names
    }

    /// The tags of the used name.
    pub fn tags(&self) -> &[String] {
        &self.used.tags
    }
}

/// Which names of a machine count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Which {
    /// Those that the call uses.
    Used,
    /// All of them.
    All,
}

impl MachineNames {
    fn new(
        names: impl IntoIterator<Item = impl AsRef<str>>,
        port: u16,
        tags: impl IntoIterator<Item = String>,
    ) -> Self {
        let mut all: Vec<String> = Vec::new();
        for name in names {
            let name = canonical_host(name.as_ref());
            // For patterns that name a port, in the way of ssh: an IPv6 address has brackets.
            let with_port = if name.contains(':') {
                format!("[{name}]:{port}")
            } else {
                format!("{name}:{port}")
            };
            all.extend([name, with_port]);
        }
        all.sort();
        all.dedup();
        Self {
            names: all,
            tags: tags.into_iter().collect(),
        }
    }
}

/// Where a command comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommandSource<'a> {
    /// The caller has written it.
    Free,
    /// A template of this name.
    Template(&'a str),
}

/// A minute of the week: 0 is Monday 00:00.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct WeekMinute(u16);

impl WeekMinute {
    /// Number of minutes in a week.
    pub const COUNT: u16 = 7 * 24 * 60;

    /// Minute `minute` of day `day`. Day 0 is Monday; days after 6 wrap to the next week.
    pub fn new(day: u16, minute: u16) -> Self {
        Self((day * 24 * 60 + minute) % Self::COUNT)
    }

    /// The minute of a time in UTC, from the seconds since 1970.
    pub fn of_unix_time(seconds: u64) -> Self {
        // 1970-01-01 was a Thursday.
        let minutes = (seconds / 60 + 3 * 24 * 60) % u64::from(Self::COUNT);
        Self(u16::try_from(minutes).expect("a week has fewer minutes"))
    }

    /// The number of the minute.
    pub fn number(self) -> u16 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_week_begins_on_monday() {
        // 2024-01-01 was a Monday.
        let monday = 1_704_067_200;
        for (seconds, expected) in [
            (monday, 0),
            (monday + 59, 0),
            (monday + 26 * 3600, 26 * 60),
            (monday - 1, WeekMinute::COUNT - 1),
        ] {
            assert_eq!(WeekMinute::of_unix_time(seconds).number(), expected);
        }
    }

    #[test]
    fn a_machine_has_its_names_with_and_without_the_port() {
        let machine = Machine::new(["Web1"], 22, ["staging".to_owned()]).also_known_as(
            ["2001:db8::1"],
            2222,
            ["db".to_owned()],
        );
        assert_eq!(machine.names(), ["web1", "web1:22"]);
        assert_eq!(machine.other_names(), ["2001:db8::1", "[2001:db8::1]:2222"]);
        assert_eq!(machine.tags(), ["staging"]);
    }
}
