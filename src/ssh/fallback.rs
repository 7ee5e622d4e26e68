//! ssh_config(5) where there is no `ssh` program to ask. It reads what is most used and refuses the rest: to misunderstand a
//! line could mean to reach another host, or to trust more than ssh would.

use std::io;
use std::path::{Path, PathBuf};

use super::ConfigError;
use super::aliases::{MAX_DEPTH, included_files, keyword_and_arguments};
use super::expand::{Expander, home_dir, local_user};
use super::hop::Hop;
use super::known_hosts::glob_match;

/// Options with one value, of which the first counts.
const SINGLE: [&str; 18] = [
    "batchmode",
    "connecttimeout",
    "hashknownhosts",
    "hostkeyalias",
    "hostname",
    "identitiesonly",
    "identityagent",
    "kbdinteractiveauthentication",
    "numberofpasswordprompts",
    "passwordauthentication",
    "port",
    "proxycommand",
    "proxyjump",
    "pubkeyauthentication",
    "remotecommand",
    "serveraliveinterval",
    "stricthostkeychecking",
    "user",
];
/// Those of them that are numbers …
const NUMBERS: [&str; 4] = ["connecttimeout", "numberofpasswordprompts", "port", "serveraliveinterval"];
/// … and those that are words, in which case does not matter.
const WORDS: [&str; 7] = [
    "batchmode",
    "hashknownhosts",
    "identitiesonly",
    "kbdinteractiveauthentication",
    "passwordauthentication",
    "pubkeyauthentication",
    "stricthostkeychecking",
];
/// Options with several values on a line.
const LISTS: [&str; 2] = ["globalknownhostsfile", "userknownhostsfile"];
/// Options that may be given more than once.
const REPEATED: [&str; 2] = ["certificatefile", "identityfile"];
/// Options that change nothing here, whatever they say: docs/ssh.md lists them.
const IGNORED: [&str; 33] = [
    "addkeystoagent",
    "checkhostip",
    "ciphers",
    "clearallforwardings",
    "compression",
    "controlmaster",
    "controlpath",
    "controlpersist",
    "dynamicforward",
    "escapechar",
    "exitonforwardfailure",
    "fingerprinthash",
    "forwardagent",
    "forwardx11",
    "forwardx11timeout",
    "forwardx11trusted",
    "gssapiauthentication",
    "gssapidelegatecredentials",
    "hostbasedauthentication",
    "ipqos",
    "kexalgorithms",
    "localforward",
    "loglevel",
    "macs",
    "preferredauthentications",
    "pubkeyacceptedalgorithms",
    "remoteforward",
    "requesttty",
    "sendenv",
    "serveralivecountmax",
    "setenv",
    "tcpkeepalive",
    "visualhostkey",
];

/// What `ssh -G` would print for `hop`, as far as it is used.
pub(super) fn resolve(file: Option<&Path>, hop: &Hop) -> Result<Vec<(String, String)>, ConfigError> {
    let mut reader = Reader { host: &hop.host, found: Vec::new() };
    if let Some(user) = &hop.user {
        reader.add("user", user.clone());
    }
    if let Some(port) = hop.port {
        reader.add("port", port.to_string());
    }
    match file {
        Some(file) => reader.read(file, &home(".ssh"), 0, true)?,
        None => {
            reader.read(&home(".ssh/config"), &home(".ssh"), 0, true)?;
            reader.read(Path::new("/etc/ssh/ssh_config"), Path::new("/etc/ssh"), 0, true)?;
        }
    }
    reader.finish()
}

fn home(path: &str) -> PathBuf {
    home_dir().unwrap_or_default().join(path)
}

struct Reader<'a> {
    host: &'a str,
    found: Vec<(String, String)>,
}

impl Reader<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        self.found.iter().find(|(known, _)| known == key).map(|(_, value)| value.as_str())
    }

    fn add(&mut self, key: &str, value: String) {
        self.found.push((key.to_owned(), value));
    }

    /// Reads a file whose lines count, until a `Host` says otherwise, if `active`; inside what does not count nothing does.
    fn read(&mut self, file: &Path, base: &Path, depth: usize, active: bool) -> Result<(), ConfigError> {
        let text = match std::fs::read_to_string(file) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(source) => return Err(ConfigError::Unreadable { file: file.to_owned(), source }),
        };
        let mut counts = active;
        for (index, line) in text.lines().enumerate() {
            let Some((keyword, arguments)) = keyword_and_arguments(line) else { continue };
            let strange = |what: &str| ConfigError::NotUnderstood {
                file: file.to_owned(),
                line: index + 1,
                what: what.to_owned(),
            };
            match keyword.as_str() {
                "host" => counts = active && is_for(&arguments, self.host),
                "match" if arguments == ["all"] => counts = active,
                "match" => return Err(strange("Match")),
                "include" if depth == MAX_DEPTH => return Err(strange("so deep an Include")),
                "include" => {
                    for included in arguments.iter().flat_map(|pattern| included_files(pattern, base)) {
                        self.read(&included, base, depth + 1, counts)?;
                    }
                }
                _ if !counts => {}
                key => self.option(key, line, &arguments).ok_or_else(|| strange(key))?,
            }
        }
        Ok(())
    }

    /// Takes an option in. None when it is not understood.
    fn option(&mut self, key: &str, line: &str, arguments: &[String]) -> Option<()> {
        if IGNORED.contains(&key) {
            return Some(());
        }
        // Of these two the first one counts.
        let other = match key {
            "proxyjump" => "proxycommand",
            "proxycommand" => "proxyjump",
            _ => key,
        };
        let is_command = matches!(key, "proxycommand" | "remotecommand");
        if !is_command && line.contains(['\'', '\\']) {
            // ssh has its own ways with these.
            return None;
        }
        let is_new = self.get(key).is_none() && self.get(other).is_none();
        let value = match arguments {
            // A command is the rest of the line as it is.
            _ if is_command => rest_of(line).to_owned(),
            _ if LISTS.contains(&key) && !arguments.is_empty() => arguments.join(" "),
            [value] if REPEATED.contains(&key) => {
                self.add(key, value.clone());
                return Some(());
            }
            [value] if NUMBERS.contains(&key) => value.parse::<u32>().ok()?.to_string(),
            [value] if WORDS.contains(&key) => value.to_lowercase(),
            [value] if SINGLE.contains(&key) => value.clone(),
            _ => return None,
        };
        if is_new {
            self.add(key, value);
        }
        Some(())
    }

    /// Adds ssh's defaults.
    fn finish(mut self) -> Result<Vec<(String, String)>, ConfigError> {
        let user = local_user().unwrap_or_default();
        let hostname = match self.get("hostname") {
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
        self.found.retain(|(key, _)| key != "hostname");
        self.add("hostname", hostname);
        for (key, value) in [
            ("user", user.as_str()),
            ("port", "22"),
            ("userknownhostsfile", "~/.ssh/known_hosts ~/.ssh/known_hosts2"),
            ("globalknownhostsfile", "/etc/ssh/ssh_known_hosts /etc/ssh/ssh_known_hosts2"),
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
        Ok(self.found)
    }
}

fn is_for(patterns: &[String], host: &str) -> bool {
    let negated =
        |pattern: &String| pattern.strip_prefix('!').is_some_and(|pattern| glob_match(pattern, host));
    !patterns.iter().any(negated) && patterns.iter().any(|pattern| glob_match(pattern, host))
}

fn rest_of(line: &str) -> &str {
    let line = line.trim();
    let rest = line.split_once(|c: char| c.is_whitespace() || c == '=').map_or("", |(_, rest)| rest);
    rest.trim_start_matches(|c: char| c.is_whitespace() || c == '=')
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    fn hop(host: &str) -> Hop {
        Hop { host: host.to_owned(), user: None, port: None }
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
        for host in ["web1", "web2", "a.example.org", "bad.example.org", "inner", "elsewhere"] {
            let (ours, theirs) = (resolve(Some(file.path()), &hop(host)).unwrap(), asked(file.path(), host));
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
            match resolve(Some(file.path()), &hop("x")) {
                Err(ConfigError::NotUnderstood { line: at, what: found, .. }) => {
                    assert_eq!((at, found.as_str()), (line, what), "{text:?}");
                }
                other => panic!("{text:?} gives {other:?}"),
            }
        }
        let file = written("Host other\n  Frobnicate yes\n");
        assert!(resolve(Some(file.path()), &hop("x")).is_ok(), "what is for others need not be understood");
    }
}
