use clap::Args;
use clap_complete::engine::{ArgValueCandidates, ArgValueCompleter};

use super::candidates;
use super::values::SshArgs;

/// Arguments of `trust`.
#[derive(Debug, Args)]
#[command(after_help = "\
Compare the fingerprint with that of the host itself, over a channel that you trust: its console,
its administrator, or the output of `ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub` there. A host
that is listed with another key is refused.

Exit codes: 0 the key is trusted; 1 you declined; 255 the host is unreachable, or has another key.

Examples:
  sshjobs trust web1
  sshjobs trust web1 --fingerprint SHA256:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU   for scripts")]
pub struct TrustArgs {
    /// Host name or alias, as in ssh.
    #[arg(add = ArgValueCandidates::new(candidates::hosts))]
    pub host: String,
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
Exit codes: 0 all hosts can be reached; 255 some can't.

Examples:
  sshjobs ping web1
  sshjobs ping tag:web,db1
  sshjobs ping '*' --json | jq -r 'select(.connected | not) | .name'")]
pub struct PingArgs {
    /// Hosts: names, patterns and tag:NAME over the hosts that `sshjobs hosts` lists, @FILE;
    /// separated by commas.
    #[arg(value_name = "HOST[,HOST…]", add = ArgValueCompleter::new(candidates::many_hosts))]
    pub hosts: String,
    /// Write one line of JSON per host.
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `hosts`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  sshjobs hosts\n  sshjobs hosts web1        connect and report the \
        result\n  sshjobs hosts --json | jq"
)]
pub struct HostsArgs {
    /// Connect to this host and report the result.
    #[arg(add = ArgValueCandidates::new(candidates::hosts))]
    pub host: Option<String>,
    /// List only hosts with this tag (`tags` of their [hosts.NAME] table).
    #[arg(long, value_name = "TAG", conflicts_with = "host")]
    pub tag: Option<String>,
    /// Write JSON.
    #[arg(long)]
    pub json: bool,
    /// Options as in ssh.
    #[command(flatten)]
    pub ssh: SshArgs,
}
