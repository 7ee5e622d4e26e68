//! Interprets ssh_config(5) without running ssh. Handles the most common options and refuses the rest:
//! misunderstanding a line could mean connecting to another host, or trusting more than ssh would.

use std::collections::HashSet;
use std::net::Ipv4Addr;
use std::num::NonZeroU16;

use super::ConfigError;
use super::destination::Destination;
use super::expand::{Expander, local_user};
use super::lines::{ConfigLine, Item, Location};
use super::table::{LEFT_TO_SSH, OptionKind, kind_of};
use sshjobs_base::host_pattern::matches_list;

/// The options for `destination` that sshjobs uses, as `ssh -G` would print them. `items` may leave out blocks
/// for other hosts.
pub(super) fn resolve<'a>(
    items: impl Iterator<Item = &'a Item>,
    destination: &Destination,
    defaults: &SshDefaults,
) -> Result<Vec<(String, String)>, ConfigError> {
    let mut found = MatchedOptions {
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
                "host" if line.text.contains(['\'', '\\']) => {
                    return Err(not_understood(line, "a quoted name"));
                }
                "host" => *here = including && matches_list(&line.arguments, &destination.host),
                "match" if line.arguments == ["all"] => *here = including,
                "match" => return Err(not_understood(line, "Match")),
                "include" => return Err(not_understood(line, "an Include nested this deep")),
                // Before the options, so that those of other hosts need not be understood.
                _ if !*here => {}
                key => found.option(line).ok_or_else(|| not_understood(line, key))?,
            },
        }
    }
    found.finish(defaults)
}

fn not_understood(line: &ConfigLine, what: &str) -> ConfigError {
    let Location { file, line } = line.location.clone();
    ConfigError::NotUnderstood {
        file,
        line,
        what: what.to_owned(),
    }
}

/// The value of an option. `None` if it is not understood.
fn value(kind: OptionKind, line: &ConfigLine) -> Option<String> {
    if kind != OptionKind::Command && line.text.contains(['\'', '\\']) {
        // ssh interprets these itself.
        return None;
    }
    let flags = ["yes", "no", "true", "false"];
    match (kind, line.arguments.as_slice()) {
        (OptionKind::Command, [_, ..]) => Some(line.rest().to_owned()),
        (OptionKind::List, [_, ..]) => Some(line.arguments.join(" ")),
        (OptionKind::Number, [number]) => Some(number.parse::<u32>().ok()?.to_string()),
        (OptionKind::Port, [port]) => Some(port.parse::<NonZeroU16>().ok()?.to_string()),
        (OptionKind::Flag, [word]) => one_of(&flags, word),
        (OptionKind::HostKeyChecking, [word]) => {
            one_of(&[&flags[..], &["ask", "off", "accept-new"]].concat(), word)
        }
        (OptionKind::Text | OptionKind::Jumps | OptionKind::Repeated, [value]) => {
            Some(value.clone())
        }
        _ => None,
    }
}

fn one_of(known: &[&str], word: &str) -> Option<String> {
    let word = word.to_ascii_lowercase();
    known.contains(&word.as_str()).then_some(word)
}

/// Of ProxyJump and ProxyCommand, the one that is not `key`.
fn other_route(key: &str) -> Option<&'static str> {
    match key {
        "proxyjump" => Some("proxycommand"),
        "proxycommand" => Some("proxyjump"),
        _ => None,
    }
}

/// Whether every release of ssh is known to accept a line, also in a block that does not apply, and to make the
/// same of it. Values of options that are ignored are not looked at. The line is plain text.
pub(super) fn is_understood(line: &ConfigLine) -> bool {
    // Some releases take it for a gap.
    let has_sign = line.text.contains('=');
    match (line.keyword.as_str(), line.arguments.as_slice()) {
        (_, []) => false,
        ("host", _) => !has_sign,
        ("match", arguments) => arguments == ["all"] && !has_sign,
        (keyword, arguments) => match kind_of(keyword) {
            Some(OptionKind::Ignored) => true,
            Some(OptionKind::Command) => {
                is_none_or_plain(line.rest()) && !line.rest().starts_with('=')
            }
            Some(kind) => {
                !has_sign
                    && value(kind, line).is_some()
                    && arguments.iter().all(|word| is_plain_value(keyword, kind, word))
                    && (arguments.len() == 1 || !arguments.iter().any(|word| is_none(word)))
                    && arguments.len() <= MOST_FILES
            }
            None => LEFT_TO_SSH.contains(&keyword),
        },
    }
}

/// Number of files of an option that every release of ssh accepts.
const MOST_FILES: usize = 8;

fn is_plain_value(keyword: &str, kind: OptionKind, word: &str) -> bool {
    // Variables are refused in some places, and `~user` is a home directory that is not looked up here.
    if word.contains('$') || (word.starts_with('~') && !word.starts_with("~/")) {
        return false;
    }
    match (keyword, kind) {
        ("hostname", _) => !word.replace("%%", "").replace("%h", "").contains('%'),
        ("hostkeyalias", _) => !is_none(word),
        ("user", _) => !word.contains('%'),
        (_, OptionKind::Number) => word.parse::<i32>().is_ok(),
        (_, OptionKind::Jumps) => word == "none" || word.split(',').all(is_plain_jump),
        _ => is_none_or_plain(word),
    }
}

/// A destination that every release of ssh accepts as a jump host: `[user@]host[:port]`.
fn is_plain_jump(jump: &str) -> bool {
    let has_known_letters = jump.chars().all(|c| c.is_ascii_alphanumeric() || "._-@:".contains(c));
    let has_port_0 = Destination::parse(jump).is_ok_and(|jump| jump.port == Some(0));
    has_known_letters
        && !is_none(jump)
        && jump.matches([':']).count() <= 1
        && jump.matches(['@']).count() <= 1
        && Destination::parse(jump).is_ok()
        && !has_port_0
}

fn is_none(word: &str) -> bool {
    word.eq_ignore_ascii_case("none")
}

/// Releases of ssh differ in whether `None` is `none`.
fn is_none_or_plain(word: &str) -> bool {
    word == "none" || !is_none(word)
}

/// Whether ssh takes a name or an address as it is, and not in another form of it, as of `127.1` or `::0001`.
pub(super) fn is_plain_hostname(hostname: &str) -> bool {
    let begins_with_digit = hostname.starts_with(|c: char| c.is_ascii_digit());
    let is_name = !begins_with_digit && !hostname.contains(':');
    let is_known = hostname.chars().all(|c| c.is_ascii_alphanumeric() || "._-".contains(c));
    is_known && (is_name || hostname.parse::<Ipv4Addr>().is_ok())
}

/// The values that ssh uses where ssh_config sets none.
#[derive(Clone, Debug)]
pub(super) struct SshDefaults(Vec<(String, String)>);

impl SshDefaults {
    /// Those that `ssh -G` prints for any host without a configuration.
    pub(super) fn printed(options: Vec<(String, String)>) -> Self {
        let of_host = ["host", "hostname"];
        let general = options.into_iter().filter(|(key, _)| !of_host.contains(&key.as_str()));
        Self(general.collect())
    }

    /// Those of OpenSSH, as far as they matter here.
    pub(super) fn without_ssh() -> Self {
        let user = local_user().unwrap_or_default();
        let mut defaults = vec![
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
        ];
        let keys = ["rsa", "ecdsa", "ecdsa_sk", "ed25519", "ed25519_sk"];
        let keys = keys.map(|kind| format!("~/.ssh/id_{kind}"));
        defaults.extend(keys.iter().map(|key| ("identityfile", key.as_str())));
        let owned = defaults.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned()));
        Self(owned.collect())
    }

    /// The first value of an option.
    pub(super) fn get(&self, option: &str) -> Option<&str> {
        self.0.iter().find(|(key, _)| key == option).map(|(_, value)| value.as_str())
    }
}

/// The options found so far.
struct MatchedOptions<'a> {
    host: &'a str,
    options: Vec<(String, String)>,
}

impl MatchedOptions<'_> {
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
        let value = value(kind, line)?;
        if other_route(key).is_some_and(|other| self.get(other) == Some("none")) {
            // Releases of ssh differ in whether `none` stands for both.
            return None;
        }
        let is_there = if kind == OptionKind::Repeated {
            // As in ssh, each file counts once.
            self.options.iter().any(|(known, of)| known == key && *of == value)
        } else {
            self.is_set(key)
        };
        if !is_there {
            self.add(key, value);
        }
        Some(())
    }

    /// Whether an option has a value, or the other of ProxyJump and ProxyCommand: only the first of these applies.
    fn is_set(&self, key: &str) -> bool {
        let other = other_route(key).and_then(|other| self.get(other));
        self.get(key).is_some() || other.is_some()
    }

    /// Adds ssh's defaults.
    fn finish(mut self, defaults: &SshDefaults) -> Result<Vec<(String, String)>, ConfigError> {
        let hostname = match self.get("hostname") {
            // ssh_config(5) allows only `%%` and `%h` in HostName, so the other
            // values do not matter.
            Some(hostname) => Expander {
                name: self.host,
                address: self.host,
                port: 22,
                user: "",
                alias: None,
                jumps: None,
            }
            .tokens(hostname)?,
            None => self.host.to_owned(),
        };
        // `get` returns the first value, so the unexpanded one must go.
        self.options.retain(|(key, _)| key != "hostname");
        let set: HashSet<String> = self.options.iter().map(|(key, _)| key.clone()).collect();
        let unset = defaults.0.iter().filter(|(key, _)| !set.contains(key));
        self.options.extend(unset.cloned());
        self.add("hostname", hostname.to_ascii_lowercase());
        Ok(self.options)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::process::Command;

    use super::super::lines::ConfigText;
    use super::super::ssh_config::SshConfig;
    use super::*;

    fn read(file: &Path, host: &str) -> Result<Vec<(String, String)>, ConfigError> {
        let config = SshConfig::new(ConfigText::read(Some(file)).unwrap());
        resolve(
            config.items_for(host),
            &to(host),
            &SshDefaults::without_ssh(),
        )
    }

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
            let ours = read(file.path(), host).unwrap();
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
            match read(file.path(), "x") {
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
            read(file.path(), "x").is_ok(),
            "options of other hosts need not be understood"
        );
    }
}
