//! Arguments of the verbs on hosts.

use clap::{Args, Subcommand};
use clap_complete::engine::{ArgValueCandidates, ArgValueCompleter};

use super::candidates;
use super::values::SshArgs;

/// Arguments of `trust`.
#[derive(Debug, Args)]
#[command(after_help = "\
Compare the fingerprint with that of the host itself, over a channel that you trust: its console,
its administrator, or the output of `ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub` there. A host
that is listed with another key is refused. Of several hosts, all keys are shown before one question,
and yes accepts them all.

Exit codes: 0 all keys are trusted; 1 you declined; 255 a host is unreachable, or has another key.

Examples:
  sshjobs trust web1
  sshjobs trust web1 web2 'db*'
  sshjobs trust web1 --fingerprint SHA256:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU   for scripts")]
pub struct TrustArgs {
    /// Host names or aliases, as in ssh; lists, patterns and tag:NAME as in run.
    #[arg(required = true, value_name = "HOST", add = ArgValueCandidates::new(candidates::hosts))]
    pub hosts: Vec<String>,
    /// Don't ask; accept only the key with this SHA-256 fingerprint.
    #[arg(long, value_name = "SHA256:…")]
    pub fingerprint: Option<String>,
    /// Options as in ssh.
    #[command(flatten)]
    pub ssh: SshArgs,
}

/// Arguments of `ping`.
#[derive(Debug, Args)]
#[command(after_help = "\
Without a host, --server is tested: whether it answers and accepts work, as a health check of a
container or supervisor. No token is needed for that.

Exit codes: 0 all hosts can be reached, or the server is ready; 255 some can't, or it is not.

Examples:
  sshjobs ping web1 db1
  sshjobs ping tag:web,db1
  sshjobs --server http://127.0.0.1:8022 ping     is the server ready?
  sshjobs ping '*' --json | jq -r 'select(.connected | not) | .name'")]
pub struct PingArgs {
    /// Hosts: names, patterns and tag:NAME over the hosts that `sshjobs hosts` lists, @FILE;
    /// separated by commas or spaces.
    #[arg(value_name = "HOST[,HOST…]", add = ArgValueCompleter::new(candidates::many_hosts))]
    pub hosts: Vec<String>,
    /// Write one line of JSON per host.
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `hosts`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, disable_help_subcommand = true)]
#[command(after_help = "\
Examples:
  sshjobs hosts
  sshjobs hosts web1                              connect and report the result
  sshjobs hosts --gpus --tag gpu                  which GPUs are free?
  sshjobs hosts add web1 deploy@10.0.0.7 --tag prod
  sshjobs hosts --json | jq")]
pub struct HostsArgs {
    /// Add a host instead of listing them.
    #[command(subcommand)]
    pub verb: Option<HostsVerb>,
    /// Connect to this host and report the result.
    #[arg(add = ArgValueCandidates::new(candidates::hosts))]
    pub host: Option<String>,
    /// List only hosts with this tag (`tags` of their [hosts.NAME] table).
    #[arg(long, value_name = "TAG", conflicts_with = "host")]
    pub tag: Option<String>,
    /// List the GPUs of the host, or of all hosts, with their use and their jobs.
    #[arg(long)]
    pub gpus: bool,
    /// Write JSON.
    #[arg(long)]
    pub json: bool,
    /// Options as in ssh.
    #[command(flatten)]
    pub ssh: SshArgs,
}

/// Subcommands of `hosts`.
#[derive(Debug, Subcommand)]
pub enum HostsVerb {
    /// Add a host to the configuration.
    Add(AddHostArgs),
}

/// Arguments of `hosts add`.
#[derive(Debug, Args)]
#[command(after_help = "\
The host is written as [hosts.NAME] into the configuration. Its key must be in known_hosts:
`sshjobs trust NAME` shows and accepts it.

Examples:
  sshjobs hosts add web1 deploy@10.0.0.7 --tag prod --tag web
  sshjobs hosts add lab 192.168.1.9:2222 --identity ~/.ssh/lab")]
pub struct AddHostArgs {
    /// Name by which people and agents call the host.
    #[arg(value_parser = word)]
    pub name: String,
    /// Where it is: `[USER@]ADDRESS[:PORT]`.
    #[arg(value_name = "[USER@]ADDRESS[:PORT]", value_parser = host_address)]
    pub address: HostAddress,
    /// TCP port.
    #[arg(long, short, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    pub port: Option<u16>,
    /// Private key to use.
    #[arg(long, short, value_name = "FILE")]
    pub identity: Option<String>,
    /// Tag by which several hosts are selected (tag:NAME). May be repeated.
    #[arg(long, short, value_name = "TAG", value_parser = word)]
    pub tag: Vec<String>,
}

/// Where a host is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostAddress {
    /// The account.
    pub user: Option<String>,
    /// Name or address.
    pub host: String,
    /// TCP port.
    pub port: Option<u16>,
}

/// Parses the name of a host or a tag: a word that selections of hosts do not take apart.
fn word(text: &str) -> Result<String, String> {
    let is_word = text.chars().all(|c| c.is_alphanumeric() || matches!(c, '-' | '_' | '.'));
    if is_word && !text.is_empty() && !text.starts_with('-') {
        Ok(text.to_owned())
    } else {
        Err("use letters, digits, - _ and .".to_owned())
    }
}

/// Parses `[USER@]ADDRESS[:PORT]`. An IPv6 address with a port is in brackets.
fn host_address(text: &str) -> Result<HostAddress, String> {
    const USAGE: &str =
        "use an address, as 10.0.0.7, deploy@web1.example.com or [2001:db8::7]:2222";
    let (user, rest) = match text.rsplit_once('@') {
        Some((user, rest)) => (Some(user.to_owned()), rest),
        None => (None, text),
    };
    let (host, port) = match rest.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((host, "")) => (host, None),
        Some((host, port)) => (host, Some(port.strip_prefix(':').ok_or(USAGE)?)),
        // More than one colon is an IPv6 address.
        None if rest.matches(':').count() == 1 => {
            let (host, port) = rest.split_once(':').ok_or(USAGE)?;
            (host, Some(port))
        }
        None => (rest, None),
    };
    let port: Option<u16> = port.map(str::parse).transpose().map_err(|_| USAGE)?;
    if port == Some(0) || !is_word(host) || user.as_deref().is_some_and(|user| !is_word(user)) {
        return Err(USAGE.to_owned());
    }
    Ok(HostAddress {
        user,
        host: host.to_owned(),
        port,
    })
}

/// Whether a text can be the name of a host or a user.
fn is_word(word: &str) -> bool {
    !word.is_empty()
        && !word.starts_with('-')
        && !word.contains(|c: char| c.is_whitespace() || c.is_control() || c == '/')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(user: Option<&str>, host: &str, port: Option<u16>) -> HostAddress {
        HostAddress {
            user: user.map(str::to_owned),
            host: host.to_owned(),
            port,
        }
    }

    #[test]
    fn an_address_has_a_user_and_a_port_if_they_are_given() {
        assert_eq!(
            host_address("10.0.0.7"),
            Ok(address(None, "10.0.0.7", None))
        );
        assert_eq!(
            host_address("a@b:22"),
            Ok(address(Some("a"), "b", Some(22)))
        );
        assert_eq!(host_address("[::1]:22"), Ok(address(None, "::1", Some(22))));
        assert_eq!(host_address("::1"), Ok(address(None, "::1", None)));
        for mistake in [
            "",
            "@b",
            "a@",
            "b:x",
            "b:70000",
            "-oProxyCommand=x",
            "a b",
            "[::1]22",
        ] {
            assert!(host_address(mistake).is_err(), "{mistake:?}");
        }
    }
}
