use std::fmt;

use serde::{Deserialize, Serialize};

use crate::ssh::matches;

/// What a caller may do. Each role may do what those before it may.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Sees hosts and jobs, and reads output.
    Read,
    /// Also starts jobs, writes to them, signals and forgets them.
    Run,
    /// Also sees, and may end, the jobs of all callers.
    Admin,
}

impl Role {
    /// The name in token files and on the command line.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Run => "run",
            Self::Admin => "admin",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What a caller may do, and on which hosts.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Rights {
    /// What it may do.
    pub role: Role,
    /// On which hosts. What lies on others it may read, if it is its own.
    pub hosts: HostPatterns,
}

impl Rights {
    /// A role on every host.
    pub fn everywhere(role: Role) -> Self {
        Self { role, hosts: HostPatterns::default() }
    }
}

/// A comma-separated list of hosts: names, with `*` and `?` as in ssh_config, and `tag:NAME`; `!` excludes what follows it. An empty
/// list is every host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub struct HostPatterns(Vec<String>);

impl HostPatterns {
    /// Whether the list has a host with this name and these tags.
    pub fn contain(&self, name: &str, tags: &[String]) -> bool {
        let is_met = |pattern: &str| match pattern.strip_prefix("tag:") {
            Some(tag) => tags.iter().any(|known| known == tag),
            None => matches(pattern, name),
        };
        let (excluded, included): (Vec<&str>, Vec<&str>) =
            self.0.iter().map(String::as_str).partition(|pattern| pattern.starts_with('!'));
        let is_excluded = excluded.iter().any(|pattern| is_met(pattern.trim_start_matches('!')));
        self.0.is_empty() || (!is_excluded && included.iter().any(|pattern| is_met(pattern)))
    }
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
    fn each_role_may_do_what_those_before_it_may() {
        assert!(Role::Read < Role::Run && Role::Run < Role::Admin);
    }
}
