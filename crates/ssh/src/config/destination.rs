use super::ConfigError;
use sshjobs_base::host_pattern::canonical_host;

/// A destination as in ssh(1) and ProxyJump: `[user@]host[:port]`, or an ssh URI.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Destination {
    /// The host, as written.
    pub host: String,
    /// The account, if given.
    pub user: Option<String>,
    /// The TCP port, if given.
    pub port: Option<u16>,
}

impl Destination {
    /// Parses a destination.
    ///
    /// # Errors
    /// [`ConfigError::BadName`].
    pub fn parse(text: &str) -> Result<Self, ConfigError> {
        let bad = || ConfigError::BadName(text.to_owned());
        let bare = text.strip_prefix("ssh://").unwrap_or(text).trim_end_matches('/');
        let (user, place) = bare
            .rsplit_once('@')
            .map_or((None, bare), |(user, place)| (Some(user.to_owned()), place));
        let (host, port) = match place.strip_prefix('[').and_then(|place| place.split_once(']')) {
            Some((host, "")) => (host, None),
            Some((host, port)) => (host, Some(port.strip_prefix(':').ok_or_else(bad)?)),
            None => match place.split_once(':') {
                // More than one colon is an IPv6 address without a port.
                Some((host, port)) if !port.contains(':') => (host, Some(port)),
                _ => (place, None),
            },
        };
        let port = port.map(|port| port.parse().map_err(|_| bad())).transpose()?;
        check_name(host)?;
        // In a URI, a user's `@` is written as `%40` (RFC 3986 §2.1).
        let user = match user {
            Some(user) if text.starts_with("ssh://") => Some(decoded(&user).ok_or_else(bad)?),
            user => user,
        };
        user.as_deref().map(check_user).transpose()?;
        Ok(Self {
            host: host.to_owned(),
            user,
            port,
        })
    }

    /// The host name in canonical form; see [`canonical_host`].
    pub fn canonical_host(&self) -> String {
        canonical_host(&self.host)
    }
}

/// Checks that the program that resolves a name can't mistake it for an option or anything else.
pub(super) fn check_name(name: &str) -> Result<(), ConfigError> {
    if name.is_empty()
        || name.starts_with('-')
        // The longest name in DNS (RFC 1035 §2.3.4).
        || name.len() > 255
        || name.contains(|c: char| {
            c.is_control() || c.is_whitespace() || "'\"\\`$;&|<>(){}*?!,#/@".contains(c)
        })
    {
        return Err(ConfigError::BadName(name.to_owned()));
    }
    Ok(())
}

/// Checks the name of an account as ssh checks that of its command line. A directory may have accounts such as
/// `alice@corp` and `CORP\alice`. A ProxyCommand may get it in a shell command, by `%r`.
pub(super) fn check_user(user: &str) -> Result<(), ConfigError> {
    let has_meaning = |c: char| c.is_control() || c.is_whitespace() || "'\"`$;&<>|(){}".contains(c);
    if user.is_empty()
        || user.starts_with('-')
        || user.ends_with('\\')
        || user.len() > 255
        || user.contains(has_meaning)
    {
        return Err(ConfigError::BadUser(user.to_owned()));
    }
    Ok(())
}

/// The text that a percent-encoded one stands for. `None` if it is no text.
fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let high = char::from(rest.next()?).to_digit(16)?;
        let low = char::from(rest.next()?).to_digit(16)?;
        bytes.push(u8::try_from(high * 16 + low).ok()?);
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_jump_host_is_named_in_every_form_that_ssh_takes() {
        let parse = |text| Destination::parse(text).map(|host| (host.user, host.host, host.port));
        let user = || Some("me".to_owned());
        assert_eq!(parse("bastion").unwrap(), (None, "bastion".into(), None));
        assert_eq!(
            parse("me@bastion:2222").unwrap(),
            (user(), "bastion".into(), Some(2222))
        );
        assert_eq!(
            parse("ssh://me@bastion:2222/").unwrap(),
            (user(), "bastion".into(), Some(2222))
        );
        assert_eq!(
            parse("me@[::1]:22").unwrap(),
            (user(), "::1".into(), Some(22))
        );
        assert_eq!(parse("::1").unwrap(), (None, "::1".into(), None));
        for bad in [
            "",
            "@host",
            "host:port",
            "host:99999",
            "-oX=y",
            "a b",
            "[::1]x",
            "me@-x",
        ] {
            assert!(parse(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn users_are_named_as_for_ssh() {
        for (text, user) in [
            ("alice@corp@t1", "alice@corp"),
            (r"CORP\alice@t1", r"CORP\alice"),
            ("alice#x@t1", "alice#x"),
            ("ssh://alice%40corp@t1:22", "alice@corp"),
        ] {
            let destination = Destination::parse(text).unwrap();
            assert_eq!(
                (destination.user.as_deref(), &*destination.host),
                (Some(user), "t1")
            );
        }
        for bad in [
            "-x@t1",
            "a;b@t1",
            r"x\@t1",
            "$(id)@t1",
            "a b@t1",
            "ssh://a%@t1",
            "ssh://%ff@t1",
        ] {
            assert!(Destination::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn names_of_the_same_host_are_compared_in_one_form() {
        for text in [
            "db1",
            "DB1",
            "db1.",
            "root@db1",
            "db1:22",
            "ssh://db1",
            "[db1]",
            "db1/",
        ] {
            assert_eq!(
                Destination::parse(text).unwrap().canonical_host(),
                "db1",
                "{text}"
            );
        }
        assert_eq!(canonical_host("0:0:0:0:0:0:0:1"), "::1");
        assert_eq!(canonical_host("::ffff:10.0.0.9"), "10.0.0.9");
    }

    #[test]
    fn names_that_could_mean_something_to_a_program_are_refused() {
        for name in ["", "-oProxyCommand=x", "a b", "a\nb", "$(x)", "a;b", "`x`"] {
            assert!(check_name(name).is_err(), "{name:?}");
        }
        for name in ["web1", "10.0.0.1", "user.example.org", "::1", "web_1"] {
            assert!(check_name(name).is_ok(), "{name:?}");
        }
    }
}
