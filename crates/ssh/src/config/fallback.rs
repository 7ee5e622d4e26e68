//! Interprets ssh_config(5) where no `ssh` program is installed. Handles the most common options
//! and refuses the rest: misunderstanding a line could mean connecting to another host, or trusting
//! more than ssh would.

use std::path::Path;

use super::ConfigError;
use super::destination::Destination;
use super::expand::{Expander, local_user};
use super::lines::{self, ConfigLine, Item, Location, Unreadable};
use super::table::{OptionKind, kind_of};
use sshjobs_base::host_pattern::matches_list;

/// The options for `destination` that sshjobs uses, as `ssh -G` would print them.
pub(super) fn resolve(
    file: Option<&Path>,
    destination: &Destination,
) -> Result<Vec<(String, String)>, ConfigError> {
    let items = lines::read(file)
        .map_err(|Unreadable { file, source }| ConfigError::Unreadable { file, source })?;
    let mut found = MatchedValue {
        host: &destination.host,
        options: Vec::new(),
    };
    // First, because the first value of an option applies.
    if let Some(user) = &destination.user {
        found.add("user", user.clone());
    }
    if let Some(port) = destination.port {
        found.add("port", port.to_string());
    }
    // Whether lines apply at this point of each open file: the last entry is for the current file,
    // the one before it for the block that includes the file. If that block does not match, no line
    // of the file applies. The first entry stands for no file.
    let mut applies = vec![true];
    for item in items {
        let including = applies.len().checked_sub(2).is_none_or(|outer| applies[outer]);
        let here = applies.last_mut().expect("files begin before they end");
        match item {
            Item::Begin => {
                let inherited = *here;
                applies.push(inherited);
            }
            Item::End => drop(applies.pop()),
            Item::Line(line) => match line.keyword.as_str() {
                "host" => *here = including && matches_list(&line.arguments, &destination.host),
                "match" if line.arguments == ["all"] => *here = including,
                "match" => return Err(not_understood(&line, "Match")),
                "include" => return Err(not_understood(&line, "an Include nested this deep")),
                // Before the options, so that those of other hosts need not be understood.
                _ if !*here => {}
                key => found.option(&line).ok_or_else(|| not_understood(&line, key))?,
            },
        }
    }
    found.finish()
}

fn not_understood(line: &ConfigLine, what: &str) -> ConfigError {
    let Location { file, line } = line.location.clone();
    ConfigError::NotUnderstood {
        file,
        line,
        what: what.to_owned(),
    }
}

/// The options found so far.
struct MatchedValue<'a> {
    host: &'a str,
    options: Vec<(String, String)>,
}

impl MatchedValue<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        self.options
            .iter()
            .find(|(known, _)| known == key)
            .map(|(_, value)| value.as_str())
    }

    fn add(&mut self, key: &str, value: String) {
        self.options.push((key.to_owned(), value));
    }

    /// Adds an option. `None` if it is not understood.
    fn option(&mut self, line: &ConfigLine) -> Option<()> {
        let key = line.keyword.as_str();
        let kind = kind_of(&line.keyword)?;
        if kind == OptionKind::Ignored {
            return Some(());
        }
        if kind != OptionKind::Command && line.text.contains(['\'', '\\']) {
            // ssh interprets these itself.
            return None;
        }
        let value = match (kind, line.arguments.as_slice()) {
            (OptionKind::Command, _) => line.rest().to_owned(),
            (OptionKind::List, [_, ..]) => line.arguments.join(" "),
            (OptionKind::Number, [value]) => value.parse::<u32>().ok()?.to_string(),
            (OptionKind::Word, [value]) => value.to_lowercase(),
            (OptionKind::Text | OptionKind::Repeated, [value]) => value.clone(),
            _ => return None,
        };
        if kind == OptionKind::Repeated || self.is_first(key) {
            self.add(key, value);
        }
        Some(())
    }

    /// Whether an option is not set yet. Of ProxyJump and ProxyCommand only the first applies.
    fn is_first(&self, key: &str) -> bool {
        let other = match key {
            "proxyjump" => "proxycommand",
            "proxycommand" => "proxyjump",
            _ => key,
        };
        self.get(key).is_none() && self.get(other).is_none()
    }

    /// Adds ssh's defaults.
    fn finish(mut self) -> Result<Vec<(String, String)>, ConfigError> {
        let user = local_user().unwrap_or_default();
        let hostname = match self.get("hostname") {
            // ssh_config(5) allows only `%%` and `%h` in HostName, so the other
            // values do not matter.
            Some(hostname) => Expander {
                name: self.host,
                address: self.host,
                port: 22,
                user: &user,
                alias: None,
                jumps: None,
            }
            .tokens(hostname)?,
            None => self.host.to_owned(),
        };
        // `get` returns the first value, so the unexpanded one must go.
        self.options.retain(|(key, _)| key != "hostname");
        self.add("hostname", hostname);
        for (key, value) in [
            ("user", user.as_str()),
            ("port", "22"),
            (
                "userknownhostsfile",
                "~/.ssh/known_hosts ~/.ssh/known_hosts2",
            ),
            (
                "globalknownhostsfile",
                "/etc/ssh/ssh_known_hosts /etc/ssh/ssh_known_hosts2",
            ),
        ] {
            if self.get(key).is_none() {
                self.add(key, value.to_owned());
            }
        }
        if self.get("identityfile").is_none() {
            for kind in ["rsa", "ecdsa", "ecdsa_sk", "ed25519", "ed25519_sk"] {
                self.add("identityfile", format!("~/.ssh/id_{kind}"));
            }
        }
        Ok(self.options)
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    fn to(host: &str) -> Destination {
        Destination {
            host: host.to_owned(),
            user: None,
            port: None,
        }
    }

    fn written(text: &str) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        file
    }

    /// What `ssh -G` prints of the options that we use, and do not expand in another way.
    fn asked(file: &Path, host: &str) -> Vec<(String, String)> {
        let output = Command::new("ssh").arg("-F").arg(file).args(["-G", host]).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let pairs = text.lines().filter_map(|line| line.split_once(' '));
        pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
    }

    #[test]
    fn it_says_what_ssh_says() {
        let more = written("Host inner\n  Port 2022\nHost *\n  User included\n");
        let file = written(&format!(
            "# comment\nHost web1 web2\n  HostName %h.example.org\n  Port=2222\n  IdentityFile \"~/my key\"\n  IdentityFile ~/k2\n\
             Host *.example.org !bad.example.org\n\tUser deploy # not part of it\n  ProxyJump bastion\n  ProxyCommand nc %h %p\n\
             Host bad.example.org\n  ProxyCommand nc -X \"5\" %h %p\n  ProxyJump none\n\
             Host inner\n  Include {}\nHost *\n  User last\n  ServerAliveInterval 7\n  ConnectTimeout 3\n  ForwardAgent yes\n\
             Match all\n  HostKeyAlias alias\n  BatchMode yes\n",
            more.path().display()
        ));
        let compared = [
            "hostname",
            "port",
            "user",
            "identityfile",
            "proxyjump",
            "proxycommand",
            "serveraliveinterval",
            "connecttimeout",
            "hostkeyalias",
            "batchmode",
        ];
        for host in [
            "web1",
            "web2",
            "a.example.org",
            "bad.example.org",
            "inner",
            "elsewhere",
        ] {
            let ours = resolve(Some(file.path()), &to(host)).unwrap();
            let theirs = asked(file.path(), host);
            for key in compared {
                let of = |pairs: &[(String, String)]| -> Vec<String> {
                    let mine = pairs.iter().filter(|(known, _)| known == key);
                    mine.map(|(_, value)| value.clone()).filter(|value| value != "none").collect()
                };
                // Without one, ssh lists the default keys, which differ from release to release.
                if key != "identityfile" || host.starts_with("web") {
                    assert_eq!(of(&ours), of(&theirs), "{key} of {host}");
                }
            }
        }
    }

    #[test]
    fn what_it_does_not_understand_it_refuses() {
        for (text, line, what) in [
            ("Host x\nMatch exec \"true\"\n", 2, "Match"),
            ("Frobnicate yes\n", 1, "frobnicate"),
            ("\nCanonicalizeHostname yes\n", 2, "canonicalizehostname"),
            ("Port 22 23\n", 1, "port"),
            ("IdentityFile a b\n", 1, "identityfile"),
            ("User\n", 1, "user"),
            ("ConnectTimeout 1m\n", 1, "connecttimeout"),
            ("UserKnownHostsFile '/k'\n", 1, "userknownhostsfile"),
            ("HostKeyAlgorithms ssh-ed25519\n", 1, "hostkeyalgorithms"),
        ] {
            let file = written(text);
            match resolve(Some(file.path()), &to("x")) {
                Err(ConfigError::NotUnderstood {
                    line: at,
                    what: found,
                    ..
                }) => {
                    assert_eq!((at, found.as_str()), (line, what), "{text:?}");
                }
                other => panic!("{text:?} gives {other:?}"),
            }
        }
        let file = written("Host other\n  Frobnicate yes\n");
        assert!(
            resolve(Some(file.path()), &to("x")).is_ok(),
            "options of other hosts need not be understood"
        );
    }
}
