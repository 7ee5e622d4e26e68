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
#[command(after_help = "Example:\n  sshjobs man ~/.local/share/man/man1 && man sshjobs-run")]
pub struct ManArgs {
    /// Directory; created if missing.
    pub directory: PathBuf,
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
