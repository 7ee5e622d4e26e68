//! Patterns in rules: of names, callers and hosts. They are compiled once, so that a decision costs
//! little.

use super::mistake::unknown;
use super::request::{Machine, PolicyCaller, Which};
use super::role::Role;
use sshjobs_base::host_pattern::{canonical_host, glob_matches};

/// A pattern of names with `*` and `?`, as in ssh_config.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum NamePattern {
    /// Every name.
    Any,
    /// One name.
    Exact(String),
    /// Names that begin with a text: a pattern with one `*`, at its end.
    Prefix(String),
    /// Any other pattern.
    Wildcards(String),
}

fn has_wildcards(text: &str) -> bool {
    text.contains(['*', '?'])
}

impl NamePattern {
    pub(super) fn new(text: &str) -> Self {
        if text == "*" {
            return Self::Any;
        }
        match text.strip_suffix('*') {
            Some(start) if !has_wildcards(start) => Self::Prefix(start.to_owned()),
            _ if has_wildcards(text) => Self::Wildcards(text.to_owned()),
            _ => Self::Exact(text.to_owned()),
        }
    }

    pub(super) fn matches(&self, name: &str) -> bool {
        match self {
            Self::Any => true,
            Self::Exact(text) => text == name,
            Self::Prefix(start) => name.starts_with(start.as_str()),
            Self::Wildcards(pattern) => glob_matches(pattern, name),
        }
    }

    /// Whether it matches the name of an account in some case. A directory such as SSSD's may know an account
    /// by its name in any case, so that a rule which denies must not depend on it.
    pub(super) fn matches_in_any_case(&self, account: &str) -> bool {
        let account = account.to_lowercase();
        match self {
            Self::Any => true,
            Self::Exact(text) => text.to_lowercase() == account,
            Self::Prefix(start) => account.starts_with(&start.to_lowercase()),
            Self::Wildcards(pattern) => glob_matches(&pattern.to_lowercase(), &account),
        }
    }

    /// Whether it matches every name that another pattern matches. May miss some such pairs.
    pub(super) fn includes(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Any, _) => true,
            (_, Self::Exact(name)) => self.matches(name),
            (Self::Prefix(start), Self::Prefix(longer)) => longer.starts_with(start.as_str()),
            (_, _) => self == other,
        }
    }
}

impl std::fmt::Display for NamePattern {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Any => f.write_str("*"),
            Self::Exact(text) | Self::Wildcards(text) => f.write_str(text),
            Self::Prefix(start) => write!(f, "{start}*"),
        }
    }
}

/// A pattern of callers: `NAME` with `*` and `?`, `role:ROLE`, or `claim:NAME=PATTERN`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallerPattern(Callers);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Callers {
    /// Callers with such a name.
    Name(NamePattern),
    /// Callers with this role, or with one that includes it.
    Role(Role),
    /// Callers whose token has this claim, with such a value.
    Claim { name: String, value: NamePattern },
}

/// The names of the callers that a pattern may match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NamedCallers<'a> {
    /// Only the caller of this name.
    One(&'a str),
    /// Only callers whose name begins with this text.
    BeginningWith(&'a str),
    /// Callers of any name: the pattern must be tried.
    Any,
}

impl CallerPattern {
    /// The names of the callers that it may match.
    pub(super) fn named_callers(&self) -> NamedCallers<'_> {
        match &self.0 {
            Callers::Name(NamePattern::Exact(name)) => NamedCallers::One(name),
            Callers::Name(NamePattern::Prefix(start)) => NamedCallers::BeginningWith(start),
            Callers::Name(NamePattern::Any | NamePattern::Wildcards(_))
            | Callers::Role(_)
            | Callers::Claim { .. } => NamedCallers::Any,
        }
    }

    /// Reads a pattern.
    ///
    /// # Errors
    /// A message that says why the text is not a pattern.
    pub fn parse(text: &str) -> Result<Self, String> {
        if let Some(name) = text.strip_prefix("role:") {
            let role = Role::named(name);
            let role = role.ok_or_else(|| unknown("role", name, &Role::ALL.map(Role::as_str)))?;
            return Ok(Self(Callers::Role(role)));
        }
        if let Some(claim) = text.strip_prefix("claim:") {
            let parts = claim.split_once('=').filter(|(name, _)| !name.is_empty());
            let (name, value) = parts.ok_or("write a claim as claim:NAME=VALUE")?;
            if name.contains(['*', '?']) || value.is_empty() {
                let why = "only the value of a claim has wildcards, and it must not be empty";
                return Err(format!("{text}: {why}"));
            }
            return Ok(Self(Callers::Claim {
                name: name.to_owned(),
                value: NamePattern::new(value),
            }));
        }
        if text.trim().is_empty() {
            return Err("the name of a caller is empty".to_owned());
        }
        Ok(Self(Callers::Name(NamePattern::new(text))))
    }

    /// Whether it matches a caller.
    pub fn matches(&self, caller: &PolicyCaller) -> bool {
        match &self.0 {
            Callers::Name(pattern) => pattern.matches(&caller.name),
            Callers::Role(role) => caller.role >= *role,
            Callers::Claim { name, value } => {
                caller.claims.values(name).iter().any(|text| value.matches(text))
            }
        }
    }

    /// Whether it matches every caller that another pattern matches. May miss some such pairs.
    pub(super) fn includes(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (Callers::Name(NamePattern::Any), _) => true,
            (Callers::Name(pattern), Callers::Name(other)) => pattern.includes(other),
            (Callers::Role(role), Callers::Role(other)) => role <= other,
            (_, _) => self == other,
        }
    }
}

/// A pattern of hosts: `tag:NAME`, or a name or address, perhaps with a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum HostPattern {
    /// Hosts with this tag.
    Tag(String),
    /// Hosts with such a name or address.
    Name(NamePattern),
}

impl HostPattern {
    pub(super) fn new(text: &str) -> Self {
        match text.strip_prefix("tag:") {
            Some(tag) => Self::Tag(tag.to_owned()),
            None => Self::Name(NamePattern::new(&canonical_place(text))),
        }
    }

    /// The single host that the pattern names, as `HOST` or `HOST:PORT`. `None` for a tag or a pattern with
    /// wildcards.
    pub(super) fn exact_host(&self) -> Option<String> {
        match self {
            Self::Name(NamePattern::Exact(name)) => Some(name.clone()),
            Self::Name(_) | Self::Tag(_) => None,
        }
    }

    /// Whether any of these names or tags of a machine matches.
    pub(super) fn matches(&self, machine: &Machine, which: Which) -> bool {
        match self {
            Self::Tag(tag) => machine.has_tag(which, tag),
            Self::Name(pattern) => machine.has_name(which, |name| pattern.matches(name)),
        }
    }

    /// Whether it matches every machine that another pattern matches. May miss some such pairs.
    pub(super) fn includes(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Name(NamePattern::Any), _) => true,
            (Self::Name(pattern), Self::Name(other)) => pattern.includes(other),
            (_, _) => self == other,
        }
    }
}

/// A host pattern in canonical form: `HOST`, `HOST:PORT` or `[ADDRESS]:PORT`.
fn canonical_place(text: &str) -> String {
    let (host, port) = match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((host, rest)) => (host, rest.strip_prefix(':')),
        None => match text.split_once(':') {
            // A second colon means an IPv6 address.
            Some((host, port)) if !port.contains(':') => (host, Some(port)),
            _ => (text, None),
        },
    };
    let host = canonical_host(host);
    match port {
        None => host,
        Some(port) if host.contains(':') => format!("[{host}]:{port}"),
        Some(port) => format!("{host}:{port}"),
    }
}

/// Whether one of some patterns includes each of others. An empty list has everything.
pub(super) fn all_included<P>(wide: &[P], narrow: &[P], includes: impl Fn(&P, &P) -> bool) -> bool {
    if wide.is_empty() {
        return true;
    }
    !narrow.is_empty() && narrow.iter().all(|one| wide.iter().any(|other| includes(other, one)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Claims;

    fn callers(text: &str) -> CallerPattern {
        CallerPattern::parse(text).unwrap()
    }

    #[track_caller]
    fn check_callers(wide: &str, narrow: &str, expected: bool) {
        let includes = callers(wide).includes(&callers(narrow));
        assert_eq!(includes, expected, "{wide} includes {narrow}");
    }

    #[track_caller]
    fn check_hosts(wide: &str, narrow: &str, expected: bool) {
        let includes = HostPattern::new(wide).includes(&HostPattern::new(narrow));
        assert_eq!(includes, expected, "{wide} includes {narrow}");
    }

    #[test]
    fn a_wider_pattern_of_callers_includes_a_narrower_one() {
        for (wide, narrow) in [
            ("*", "role:admin"),
            ("agent*", "agent-1"),
            ("agent*", "agent-*"),
            ("a?b", "a?b"),
            ("role:run", "role:admin"),
            ("role:run", "role:run"),
            ("claim:team=ops", "claim:team=ops"),
        ] {
            check_callers(wide, narrow, true);
        }
        for (wide, narrow) in [
            ("agent-1", "agent*"),
            ("agent-*", "agent*"),
            ("role:admin", "role:run"),
            ("claim:team=ops", "claim:team=dev"),
            ("agent*", "role:run"),
        ] {
            check_callers(wide, narrow, false);
        }
    }

    #[test]
    fn a_wider_pattern_of_hosts_includes_a_narrower_one() {
        for (wide, narrow) in [("*", "tag:db"), ("web*", "web1"), ("tag:db", "tag:db")] {
            check_hosts(wide, narrow, true);
        }
        for (wide, narrow) in [("web1", "web*"), ("tag:db", "tag:web"), ("web*", "tag:web")] {
            check_hosts(wide, narrow, false);
        }
    }

    #[test]
    fn an_empty_list_includes_everything() {
        let includes = |wide: &[u8], narrow: &[u8]| all_included(wide, narrow, |a, b| a == b);
        assert!(includes(&[], &[1]) && includes(&[1, 2], &[2]));
        assert!(!includes(&[1], &[]) && !includes(&[1], &[1, 2]));
    }

    #[test]
    fn a_role_is_matched_by_it_and_by_those_that_include_it() {
        let caller = |role| PolicyCaller {
            name: "alice".to_owned(),
            role,
            claims: Claims::default(),
        };
        let pattern = callers("role:run");
        assert!(pattern.matches(&caller(Role::Run)) && pattern.matches(&caller(Role::Admin)));
        assert!(!pattern.matches(&caller(Role::Read)));
    }

    #[test]
    fn a_claim_has_a_name_without_wildcards_and_a_value() {
        for text in ["claim:=ops", "claim:team", "claim:team=", "claim:te*m=ops"] {
            assert!(CallerPattern::parse(text).is_err(), "{text}");
        }
        assert!(CallerPattern::parse("claim:team=o*").is_ok());
    }

    #[test]
    fn a_place_has_one_spelling() {
        for (text, expected) in [
            ("WEB1", "web1"),
            ("WEB1:22", "web1:22"),
            ("2001:DB8::1", "2001:db8::1"),
            ("[2001:DB8::1]:22", "[2001:db8::1]:22"),
        ] {
            assert_eq!(canonical_place(text), expected);
        }
    }
}
