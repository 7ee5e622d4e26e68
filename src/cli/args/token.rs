use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};

/// Arguments of `token`.
#[derive(Debug, Args)]
#[command(after_help = "\
Tokens lie in the state directory, as hashes; servers with this state directory see a change at once.

Examples:
  sshjobs token new ci --hosts 'web*,tag:ci' --expires 30d
  sshjobs token new dashboard --role read
  sshjobs token list
  sshjobs token revoke ci")]
pub struct TokenArgs {
    /// What to do.
    #[command(subcommand)]
    pub verb: TokenVerb,
}

/// What to do with tokens.
#[derive(Debug, Subcommand)]
pub enum TokenVerb {
    /// Make a token, and print it: it is shown only now.
    New(NewTokenArgs),
    /// List the tokens there are.
    List(ListTokensArgs),
    /// Revoke a token. Servers refuse it from now on; jobs go on.
    Revoke {
        /// The caller whose token it is.
        name: String,
    },
}

/// Arguments of `token new`.
#[derive(Debug, Args)]
pub struct NewTokenArgs {
    /// The caller's name: its jobs belong to it.
    pub name: String,
    /// What the caller may do.
    #[arg(long, value_enum, default_value = "run")]
    pub role: RoleChoice,
    /// On which hosts: names with * and ?, and tag:NAME, separated by commas; ! excludes. Without it on all.
    #[arg(long, value_name = "LIST", value_parser = host_list)]
    pub hosts: Option<String>,
    /// For how long it is valid: 12h, 30d. Without it until it is revoked.
    #[arg(long, value_name = "TIME", value_parser = lifetime)]
    pub expires: Option<Duration>,
    /// Write a line of JSON.
    #[arg(long)]
    pub json: bool,
}

/// Reads a list of hosts; an empty one is most likely a variable that is not set.
fn host_list(text: &str) -> Result<String, String> {
    let is_pattern = |pattern: &str| {
        let name = pattern.trim().trim_start_matches('!').trim_start_matches("tag:");
        !name.is_empty() && !name.contains(|c: char| c.is_whitespace() || c.is_control())
    };
    if text.split(',').all(is_pattern) {
        return Ok(text.to_owned());
    }
    Err("use names, patterns and tag:NAME, separated by commas; leave --hosts away for all hosts".to_owned())
}

/// Reads for how long a token is valid.
fn lifetime(text: &str) -> Result<Duration, String> {
    let (least, most) = (Duration::from_secs(1), Duration::from_secs(100 * 365 * 24 * 3600));
    let lifetime = humantime::parse_duration(text).ok().filter(|lifetime| (least..=most).contains(lifetime));
    lifetime.ok_or_else(|| "use 1s to 100years, as 12h or 30d".to_owned())
}

/// Arguments of `token list`.
#[derive(Debug, Args)]
pub struct ListTokensArgs {
    /// Write a line of JSON for each.
    #[arg(long)]
    pub json: bool,
}

/// What a caller may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum RoleChoice {
    /// See hosts and its own jobs, and read output.
    Read,
    /// Also start jobs, write to them, signal and forget them.
    Run,
    /// Also see, and end, the jobs of all callers.
    Admin,
}
