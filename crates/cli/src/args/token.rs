//! Arguments of `token` and its subcommands.

use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};

use super::values::ClusterArg;

/// Arguments of `token`.
#[derive(Debug, Args)]
#[command(after_help = "\
Tokens are stored as hashes, in the state directory or in the cluster. Servers see a change at
once, and replicas of a cluster within a second.

Examples:
  sshjobs token new ci --hosts 'web*,tag:ci' --expires 30d
  sshjobs token new dashboard --role read
  sshjobs token list
  sshjobs token revoke ci")]
pub struct TokenArgs {
    /// The cluster whose tokens these are.
    #[command(flatten)]
    pub cluster: ClusterArg,
    /// The subcommand.
    #[command(subcommand)]
    pub verb: TokenVerb,
}

/// Subcommands of `token`.
#[derive(Debug, Subcommand)]
pub enum TokenVerb {
    /// Create a token and print it. It is not shown again.
    New(NewTokenArgs),
    /// List all tokens.
    List(ListTokensArgs),
    /// Revoke a token. Servers refuse it from now on; jobs continue.
    Revoke {
        /// The caller's name.
        name: String,
    },
}

/// Arguments of `token new`.
#[derive(Debug, Args)]
pub struct NewTokenArgs {
    /// The caller's name, which owns the jobs it starts.
    pub name: String,
    /// Rights of the caller.
    #[arg(long, value_enum, default_value = "run")]
    pub role: RoleChoice,
    /// Allowed hosts: names with * and ?, and tag:NAME, separated by commas; ! excludes. Default:
    /// all.
    #[arg(long, value_name = "LIST", value_parser = host_list)]
    pub hosts: Option<String>,
    /// Validity: 12h, 30d. Default: until it is revoked.
    #[arg(long, value_name = "TIME", value_parser = lifetime)]
    pub expires: Option<Duration>,
    /// Write a line of JSON.
    #[arg(long)]
    pub json: bool,
}

/// Parses a list of hosts. An empty one is most likely an unset variable.
fn host_list(text: &str) -> Result<String, String> {
    let has_inclusion = text.split(',').any(|pattern| !pattern.trim().starts_with('!'));
    if !has_inclusion {
        return Err("a list of exclusions alone includes no host; write '*,!NAME'".to_owned());
    }
    if text.split(',').all(|pattern: &str| {
        let name = pattern.trim().trim_start_matches('!').trim_start_matches("tag:");
        !name.is_empty() && !name.contains(|c: char| c.is_whitespace() || c.is_control())
    }) {
        return Ok(text.to_owned());
    }
    Err(
        "use names, patterns and tag:NAME, separated by commas; omit --hosts for all hosts"
            .to_owned(),
    )
}

/// Parses the validity of a token.
fn lifetime(text: &str) -> Result<Duration, String> {
    let least = Duration::from_secs(1);
    let most = Duration::from_secs(100 * 365 * 24 * 3600);
    let lifetime = humantime::parse_duration(text)
        .ok()
        .filter(|lifetime| (least..=most).contains(lifetime));
    lifetime.ok_or_else(|| "use 1s to 100years, as 12h or 30d".to_owned())
}

/// Arguments of `token list`.
#[derive(Debug, Args)]
pub struct ListTokensArgs {
    /// Write a line of JSON for each.
    #[arg(long)]
    pub json: bool,
}

/// Rights of a caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum RoleChoice {
    /// See hosts and its own jobs, and read output.
    Read,
    /// See how the jobs of all callers stand, without their output.
    Observe,
    /// See the jobs of all callers, with their output.
    ObserveOutput,
    /// Start jobs, write to them, signal and delete them.
    Run,
    /// Also see and end the jobs of all callers.
    Admin,
}
