//! Arguments of `policy` and its subcommands.

use clap::{Args, Subcommand};
use clap_complete::engine::ArgValueCandidates;

use super::candidates;
use super::token::RoleChoice;

/// Arguments of `policy`.
#[derive(Debug, Args)]
#[command(after_help = "\
The policy file is that of --policy, or `file` in the table [policy] of the configuration.
docs/policy.md explains how to write one.

Examples:
  sshjobs policy check --policy policy.toml
  sshjobs policy explain agent1 web1 -- systemctl restart nginx
  sshjobs policy explain agent1 web1 --template restart --param unit=nginx
  sshjobs policy test && systemctl reload sshjobs")]
pub struct PolicyArgs {
    /// The subcommand.
    #[command(subcommand)]
    pub verb: PolicySubcommand,
}

/// Subcommands of `policy`.
#[derive(Debug, Subcommand)]
pub enum PolicySubcommand {
    /// Check that the policy file has no mistake, and that all of it can take effect.
    Check(PolicyCheckArgs),
    /// Show the decision on a call, and the rules that make it.
    Explain(PolicyExplainArgs),
    /// Run the test cases of the policy file.
    Test(PolicyTestArgs),
}

/// Arguments of `policy check`.
#[derive(Debug, Args)]
#[command(after_help = "\
Exit status: 0 if the file can be used, perhaps with warnings; 2 if it has a mistake.")]
pub struct PolicyCheckArgs {
    /// Write one JSON object.
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `policy explain`.
#[derive(Debug, Args)]
#[command(after_help = "\
Exit status: 0 if the call is allowed, also if someone has to agree first; 1 if it is denied; 2 if
the policy file has a mistake.")]
pub struct PolicyExplainArgs {
    /// Name of the caller.
    pub caller: String,
    /// The host, as a caller names it.
    #[arg(add = ArgValueCandidates::new(candidates::hosts))]
    pub host: String,
    /// The command. Which one it is does not matter: a policy allows all commands, or templates.
    #[arg(trailing_var_arg = true, value_name = "COMMAND")]
    pub command: Vec<String>,
    /// Role of the caller.
    #[arg(long, value_enum, default_value = "run")]
    pub role: RoleChoice,
    /// A claim of the caller's token.
    #[arg(long = "claim", value_name = "NAME=VALUE", value_parser = parameter)]
    pub claims: Vec<(String, String)>,
    /// Verb of the call.
    #[arg(long, value_name = "VERB", default_value = "run", value_parser = verb)]
    pub verb: sshjobs_core::jobs::Verb,
    /// Template that the command is made from.
    #[arg(long, value_name = "NAME", conflicts_with = "command")]
    pub template: Option<String>,
    /// Value of a parameter of the template.
    #[arg(long = "param", value_name = "NAME=VALUE", requires = "template", value_parser = parameter)]
    pub params: Vec<(String, String)>,
    /// User that the command becomes.
    #[arg(long, value_name = "USER")]
    pub r#become: Option<String>,
    /// Target of a forward.
    #[arg(long, value_name = "HOST:PORT")]
    pub target: Option<String>,
    /// Time of the call in UTC, such as "mon 10:00". Default: now.
    #[arg(long, value_name = "TIME", value_parser = week_minute)]
    pub at: Option<sshjobs_core::jobs::WeekMinute>,
    /// Write one JSON object.
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `policy test`.
#[derive(Debug, Args)]
#[command(after_help = "\
Exit status: 0 if all cases pass; 1 if one fails, or if there is none; 2 if the policy file has a
mistake.")]
pub struct PolicyTestArgs {
    /// Write a line of JSON for each case.
    #[arg(long)]
    pub json: bool,
}

fn verb(name: &str) -> Result<sshjobs_core::jobs::Verb, String> {
    use sshjobs_core::jobs::Verb;
    Verb::named(name).ok_or_else(|| {
        let known = Verb::ALL.map(Verb::as_str).join(", ");
        format!("use one of {known}")
    })
}

/// Parses `NAME=VALUE`.
pub(super) fn parameter(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        Some(_) | None => Err("use NAME=VALUE, such as unit=nginx".to_owned()),
    }
}

fn week_minute(text: &str) -> Result<sshjobs_core::jobs::WeekMinute, String> {
    sshjobs_core::jobs::minute_of_week(text)
        .ok_or_else(|| "use a day and a time: mon 10:00".to_owned())
}
