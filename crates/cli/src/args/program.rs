//! Arguments of the verbs about the program itself, and the help topics.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use clap_complete::engine::{ArgValueCandidates, CompletionCandidate};

/// Arguments of `demo`.
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  sshjobs demo -- 'for i in 1 2 3; do echo $i; sleep 1; done; exit 3'"
)]
pub struct DemoArgs {
    /// Command to run instead of the built-in one.
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<String>,
}

/// Arguments of `completions`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  source <(sshjobs completions bash)                                  in ~/.bashrc
  source <(sshjobs completions zsh)                                   in ~/.zshrc
  sshjobs completions fish > ~/.config/fish/completions/sshjobs.fish")]
pub struct CompletionsArgs {
    /// The shell.
    pub shell: CompletedShell,
}

/// A shell with completion support.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum CompletedShell {
    /// GNU bash.
    Bash,
    /// zsh.
    Zsh,
    /// fish.
    Fish,
}

/// Arguments of `man`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  sshjobs man run | man -l -
  sshjobs man --directory ~/.local/share/man/man1 && man sshjobs-run")]
pub struct ManArgs {
    /// Verb whose page is printed; without one, the page of the program.
    #[arg(value_name = "VERB", conflicts_with = "directory")]
    pub verb: Option<String>,
    /// Write all pages to this directory, which is created if missing.
    #[arg(long, short, value_name = "DIR")]
    pub directory: Option<PathBuf>,
}

/// Arguments of `config`.
#[derive(Debug, Args)]
#[command(after_help = "\
Each value is followed by its source: a line of the file, an option, a variable, or the default. The
output is a valid configuration.

Examples:
  sshjobs config
  sshjobs config --json | jq -r .file")]
pub struct ConfigArgs {
    /// Write JSON.
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `init`.
#[derive(Debug, Args)]
#[command(after_help = "\
Writes ~/.config/sshjobs/config.toml with all keys as comments, and offers the hosts of known_hosts
that ssh_config does not list. A file that exists is not changed, except for hosts that you choose.

Example:
  sshjobs init")]
pub struct InitArgs {
    /// Add all of these hosts without asking.
    #[arg(long)]
    pub all_hosts: bool,
}

/// Arguments of `help`.
#[derive(Debug, Args)]
pub struct HelpArgs {
    /// A topic (exit-codes, waiting, durable, fleets, trust, terminals) or a verb.
    #[arg(add = ArgValueCandidates::new(topics))]
    pub topic: Option<String>,
}

/// Help topics besides the verbs.
pub(crate) const TOPICS: [(&str, &str); 6] = [
    ("exit-codes", include_str!("../topics/exit-codes.txt")),
    ("waiting", include_str!("../topics/waiting.txt")),
    ("durable", include_str!("../topics/durable.txt")),
    ("fleets", include_str!("../topics/fleets.txt")),
    ("trust", include_str!("../topics/trust.txt")),
    ("terminals", include_str!("../topics/terminals.txt")),
];

fn topics() -> Vec<CompletionCandidate> {
    TOPICS.iter().map(|(topic, _)| CompletionCandidate::new(*topic)).collect()
}
