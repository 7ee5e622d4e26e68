//! Rights of callers: a role, and the hosts to which it applies.

use std::fmt;

use serde::{Deserialize, Serialize};

use sshjobs_base::host_pattern::{canonical_host, glob_matches};
use sshjobs_policy::{Claims, Role};
use sshjobs_ssh::Destination;

/// Role of a caller, and its hosts.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Rights {
    /// The role.
    pub role: Role,
    /// Hosts to which the role applies. A caller may read its own jobs on other hosts.
    pub hosts: HostPatterns,
    /// Claims of the caller's token, for rules of the policy. Empty unless an OpenID Connect issuer made
    /// the token.
    pub claims: Claims,
}

impl Rights {
    /// A role on all hosts.
    pub fn everywhere(role: Role) -> Self {
        Self {
            role,
            hosts: HostPatterns::default(),
            claims: Claims::default(),
        }
    }
}

/// A comma-separated list of hosts. `!` excludes the following pattern; an empty list means every
/// host.
///
/// A pattern is `tag:NAME` or `[USER@]HOST[:PORT]`, with `*` and `?` as in ssh_config. Hosts are
/// compared in canonical form ([`canonical_host`]). A destination with a user or port needs a
/// pattern that names it; an exclusion without them excludes the host for every user and port.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub struct HostPatterns(Vec<String>);

impl HostPatterns {
    /// Whether the list includes a host with this name and these tags.
    pub fn contain(&self, name: &str, tags: &[String]) -> bool {
        if self.0.is_empty() {
            return true;
        }
        // A name that is not a destination can't be connected to either.
        let Ok(destination) = Destination::parse(name) else { return false };
        let is_included = self.included().any(|pattern| pattern.includes(&destination, tags));
        is_included && !self.exclude(&destination, tags)
    }

    /// Whether an exclusion matches a destination, or one of its tags.
    pub fn exclude(&self, destination: &Destination, tags: &[String]) -> bool {
        self.excluded().any(|pattern| pattern.excludes(destination, tags))
    }

    /// Whether an exclusion matches an address.
    pub fn exclude_address(&self, address: &str) -> bool {
        let destination = Destination {
            host: address.to_owned(),
            user: None,
            port: None,
        };
        self.exclude(&destination, &[])
    }

    /// Whether a listed host is excluded, by one of its tags or by its name.
    pub fn exclude_tagged(&self, name: &str, tags: &[String]) -> bool {
        Destination::parse(name).is_ok_and(|destination| self.exclude(&destination, tags))
    }

    /// Destinations of the exclusions that have no `*` or `?`, with their port if they name one.
    /// Such a host need not be listed anywhere.
    pub fn excluded_names(&self) -> impl Iterator<Item = String> {
        self.excluded().filter_map(|pattern| match pattern {
            Pattern::Host { host, .. } if host.contains(['*', '?']) => None,
            Pattern::Host { host, port, .. } => Some(match port {
                Some(port) if !port.contains(['*', '?']) => format!("[{host}]:{port}"),
                Some(_) | None => host.to_owned(),
            }),
            Pattern::Tag(_) => None,
        })
    }

    /// Whether the list has exclusions.
    pub fn has_exclusions(&self) -> bool {
        self.excluded().next().is_some()
    }

    fn included(&self) -> impl Iterator<Item = Pattern<'_>> {
        self.0
            .iter()
            .filter(|text| !text.starts_with('!'))
            .map(|text| Pattern::parse(text))
    }

    fn excluded(&self) -> impl Iterator<Item = Pattern<'_>> {
        self.0.iter().filter_map(|text| text.strip_prefix('!')).map(Pattern::parse)
    }
}

/// One entry of a list, without `!`.
#[derive(Clone, Copy, Debug)]
enum Pattern<'a> {
    Tag(&'a str),
    Host {
        user: Option<&'a str>,
        host: &'a str,
        port: Option<&'a str>,
    },
}

impl<'a> Pattern<'a> {
    fn parse(text: &'a str) -> Self {
        if let Some(tag) = text.strip_prefix("tag:") {
            return Self::Tag(tag);
        }
        let (user, place) = match text.rsplit_once('@') {
            Some((user, place)) => (Some(user), place),
            None => (None, text),
        };
        let (host, port) = match place.strip_prefix('[').and_then(|place| place.split_once(']')) {
            Some((host, rest)) => (host, rest.strip_prefix(':')),
            None => match place.split_once(':') {
                // A second colon means an IPv6 address.
                Some((host, port)) if !port.contains(':') => (host, Some(port)),
                _ => (place, None),
            },
        };
        Self::Host { user, host, port }
    }

    /// A user or port in the destination must be named by the pattern.
    fn includes(self, destination: &Destination, tags: &[String]) -> bool {
        let chosen_user = destination.user.as_deref().unwrap_or_default();
        let chosen_port = destination.port.map(|port| port.to_string()).unwrap_or_default();
        match self {
            Self::Tag(tag) => {
                // A tag names neither user nor port, so it must not allow another account or port.
                chosen_user.is_empty() && chosen_port.is_empty() && has_tag(tags, tag)
            }
            Self::Host { user, host, port } => {
                // A user or port that is not given is the empty text: only `*` or a pattern that
                // does not give it either matches.
                glob_matches(user.unwrap_or_default(), chosen_user)
                    && glob_matches(port.unwrap_or_default(), &chosen_port)
                    && matches_host(host, destination)
            }
        }
    }

    /// A pattern without a user excludes every user, and one without a port every port. A pattern
    /// with a user or port also excludes a destination that does not specify it, because ssh_config
    /// may choose the excluded one.
    fn excludes(self, destination: &Destination, tags: &[String]) -> bool {
        match self {
            Self::Tag(tag) => has_tag(tags, tag),
            Self::Host { user, host, port } => {
                let is_user = match (user, destination.user.as_deref()) {
                    // A directory such as SSSD's may know an account by its name in any case.
                    (Some(pattern), Some(chosen)) => {
                        glob_matches(&pattern.to_lowercase(), &chosen.to_lowercase())
                    }
                    // If the destination names no user, ssh_config may choose the excluded one.
                    _ => true,
                };
                let is_port = match (port, destination.port) {
                    (Some(pattern), Some(chosen)) => glob_matches(pattern, &chosen.to_string()),
                    _ => true,
                };
                is_user && is_port && matches_host(host, destination)
            }
        }
    }
}

fn has_tag(tags: &[String], tag: &str) -> bool {
    tags.iter().any(|known| known == tag)
}

fn matches_host(pattern: &str, destination: &Destination) -> bool {
    glob_matches(&canonical_host(pattern), &destination.canonical_host())
}

impl From<String> for HostPatterns {
    fn from(list: String) -> Self {
        let patterns = list.split(',').map(str::trim).filter(|pattern| !pattern.is_empty());
        Self(patterns.map(str::to_owned).collect())
    }
}

impl From<HostPatterns> for String {
    fn from(patterns: HostPatterns) -> Self {
        patterns.to_string()
    }
}

impl fmt::Display for HostPatterns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_name_hosts_as_ssh_config_does_and_tags() {
        let patterns = HostPatterns::from("web*, tag:ci,db?".to_owned());
        for (name, tags, is_in) in [
            ("web1", &[][..], true),
            ("web", &[], true),
            ("xweb1", &[], false),
            ("db1", &[], true),
            ("db12", &[], false),
            ("build", &["ci".to_owned()], true),
            ("build", &["cix".to_owned()], false),
            ("tag:ci", &[], false),
        ] {
            assert_eq!(patterns.contain(name, tags), is_in, "{name} {tags:?}");
        }
        assert_eq!(patterns.to_string(), "web*,tag:ci,db?");
        assert!(HostPatterns::default().contain("anything", &[]));
        let all_but = HostPatterns::from("*,!tag:prod,!db1".to_owned());
        assert!(all_but.contain("web1", &[]) && !all_but.contain("db1", &[]));
        assert!(!all_but.contain("web1", &["prod".to_owned()]));
    }

    #[test]
    fn an_excluded_host_is_excluded_however_it_is_written() {
        let all_but = HostPatterns::from("*,*@*:*,!db1,!2001:db8::9,!10.0.0.*".to_owned());
        for name in [
            "db1",
            "root@db1",
            "db1:22",
            "ssh://db1",
            "[db1]",
            "db1/",
            "DB1",
            "db1.",
            "root@DB1.:2222",
        ] {
            assert!(!all_but.contain(name, &[]), "{name}");
        }
        for name in [
            "2001:db8::9",
            "[2001:DB8:0::9]:22",
            "me@10.0.0.7",
            "::ffff:10.0.0.7",
        ] {
            assert!(!all_but.contain(name, &[]), "{name}");
        }
        assert!(all_but.contain("root@web1:2222", &[]));
    }

    #[test]
    fn a_user_or_a_port_is_chosen_only_where_a_pattern_names_it() {
        for (patterns, name, is_in) in [
            ("bars*", "barsuser@db1", false),
            ("web*", "root@web1", false),
            ("web*", "web1:2222", false),
            ("web*", "WEB1.", true),
            ("root@web*", "root@web1", true),
            ("root@web*", "admin@web1", false),
            ("root@web*", "web1", false),
            ("*@web*", "web1", true),
            ("web*:22*", "web1:2222", true),
            ("web*:22*", "web1:3333", false),
            ("*,!root@db1", "root@db1", false),
            ("*,!root@db1", "db1", false),
            ("*@*,!root@db1", "admin@db1", true),
            ("*@*,!root@db1", "ROOT@db1", false),
            ("*@*,!Svc*@db1", "sVC1@db1", false),
        ] {
            assert_eq!(
                HostPatterns::from(patterns.to_owned()).contain(name, &[]),
                is_in,
                "{patterns}: {name}"
            );
        }
        let tagged = HostPatterns::from("tag:ci".to_owned());
        assert!(
            tagged.contain("build", &["ci".to_owned()])
                && !tagged.contain("root@build", &["ci".to_owned()])
        );
    }
}
