//! Tokens, variables and `~` in ssh_config values.

use std::path::PathBuf;

use nix::unistd::{User, getuid};
use sha1::{Digest, Sha1};

use super::ConfigError;

/// Expands TOKENS and environment variables of ssh_config(5) for one host.
pub(super) struct Expander<'a> {
    /// Name given by the user (`%n`).
    pub(super) name: &'a str,
    /// Address of the host (`%h`).
    pub(super) address: &'a str,
    pub(super) port: u16,
    pub(super) user: &'a str,
    /// HostKeyAlias (`%k`), once known.
    pub(super) alias: Option<&'a str>,
    /// ProxyJump (`%j`).
    pub(super) jumps: Option<&'a str>,
}

impl Expander<'_> {
    /// A path: tokens, `${VAR}` and a leading `~/`.
    pub(super) fn path(&self, text: &str) -> Result<PathBuf, ConfigError> {
        let text = self.tokens(&self.variables(text)?)?;
        Ok(match (text.strip_prefix("~/"), home_dir()) {
            (Some(rest), Some(home)) => home.join(rest),
            _ => PathBuf::from(text),
        })
    }

    /// Several paths as `ssh -G` prints them, separated by spaces and without quotes. Words that
    /// name a file only when joined are one path.
    pub(super) fn paths(&self, text: &str) -> Result<Vec<PathBuf>, ConfigError> {
        let words: Vec<&str> =
            text.split(' ').filter(|word| *word != "none" && !word.is_empty()).collect();
        let mut paths = Vec::new();
        let mut rest = words.as_slice();
        while !rest.is_empty() {
            let mut taken = 1;
            for count in 2..=rest.len() {
                // A word that names a file by itself is never joined with the next.
                if !self.path(rest[0])?.exists() && self.path(&rest[..count].join(" "))?.exists() {
                    taken = count;
                    break;
                }
            }
            // The rest of a path with spaces, whose file is missing, must not be taken for a file
            // in this directory.
            if words.len() > 1 && !rest[0].starts_with(['/', '~', '$', '%']) {
                return Err(self.unknown("a path with spaces", text));
            }
            paths.push(self.path(&rest[..taken].join(" "))?);
            rest = &rest[taken..];
        }
        Ok(paths)
    }

    /// Tokens only.
    pub(super) fn tokens(&self, text: &str) -> Result<String, ConfigError> {
        let mut expanded = String::new();
        let mut chars = text.chars();
        while let Some(c) = chars.next() {
            if c != '%' {
                expanded.push(c);
                continue;
            }
            let token = chars.next();
            let value = token.and_then(|token| self.token(token));
            expanded +=
                &value.ok_or_else(|| self.unknown(&format!("%{}", token.unwrap_or(' ')), text))?;
        }
        Ok(expanded)
    }

    fn token(&self, token: char) -> Option<String> {
        Some(match token {
            '%' => "%".to_owned(),
            // ssh hashes `%l%h%p%r%j`.
            'C' => {
                let jumps = self.jumps.unwrap_or_default();
                let whole = [
                    &*local_name(),
                    self.address,
                    &self.port.to_string(),
                    self.user,
                    jumps,
                ]
                .concat();
                Sha1::digest(whole).iter().map(|byte| format!("{byte:02x}")).collect()
            }
            'd' => home_dir()?.to_str()?.to_owned(),
            'h' => self.address.to_owned(),
            'i' => getuid().as_raw().to_string(),
            'j' => self.jumps.unwrap_or_default().to_owned(),
            'k' => self.alias.unwrap_or(self.name).to_owned(),
            'L' => local_name().split('.').next().unwrap_or_default().to_owned(),
            'l' => local_name(),
            'n' => self.name.to_owned(),
            'p' => self.port.to_string(),
            'r' => self.user.to_owned(),
            'u' => local_user()?,
            _ => return None,
        })
    }

    fn variables(&self, text: &str) -> Result<String, ConfigError> {
        let mut expanded = String::new();
        let mut rest = text;
        while let Some((before, from)) = rest.split_once("${") {
            let (name, after) = from.split_once('}').ok_or_else(|| self.unknown("${", text))?;
            expanded += before;
            expanded +=
                &std::env::var(name).map_err(|_| self.unknown(&format!("${{{name}}}"), text))?;
            rest = after;
        }
        Ok(expanded + rest)
    }

    fn unknown(&self, token: &str, text: &str) -> ConfigError {
        ConfigError::Token {
            name: self.name.to_owned(),
            what: format!("{token} in {text:?}"),
        }
    }
}

fn local_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// The password database's entry of the current account.
fn account() -> Option<User> {
    User::from_uid(getuid()).ok().flatten()
}

/// Name of the current account. `USER` may be missing, as under cron.
pub(super) fn local_user() -> Option<String> {
    account().map(|account| account.name).or_else(|| std::env::var("USER").ok())
}

/// Home directory of the current account, from the password database and not from `HOME`, as in
/// ssh.
pub(super) fn home_dir() -> Option<PathBuf> {
    account().map(|account| account.dir).or_else(|| etcetera::home_dir().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expander() -> Expander<'static> {
        Expander {
            name: "web",
            address: "10.0.0.1",
            port: 2222,
            user: "me",
            alias: Some("key"),
            jumps: None,
        }
    }

    #[test]
    fn tokens_and_variables_are_expanded() {
        let home = home_dir().unwrap();
        assert_eq!(
            expander().path("~/k_%h_%n").unwrap(),
            home.join("k_10.0.0.1_web")
        );
        assert_eq!(
            expander().path("${CARGO_MANIFEST_DIR}/%%x").unwrap(),
            PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("%x")
        );
        assert_eq!(
            expander().tokens("nc %h %p %r %k").unwrap(),
            "nc 10.0.0.1 2222 me key"
        );
        assert_eq!(expander().tokens("%C").unwrap().len(), 40);
    }

    #[test]
    fn what_is_not_known_is_an_error_and_never_left_as_it_is() {
        for bad in ["%Z", "100%", "${NO_SUCH_VARIABLE}", "${HOME"] {
            assert!(expander().path(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_path_with_spaces_is_found_by_what_exists() {
        let dir = tempfile::tempdir().unwrap();
        let spaced = dir.path().join("known hosts of mine");
        std::fs::write(&spaced, "").unwrap();
        let missing = dir.path().join("missing");
        let also_missing = dir.path().join("also-missing");
        let text = format!(
            "{} {} {}",
            missing.display(),
            spaced.display(),
            also_missing.display()
        );
        let expected = [missing, spaced, also_missing];
        assert_eq!(expander().paths(&text).unwrap(), expected);
    }
}
