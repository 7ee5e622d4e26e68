//! The description of the command line as people read it: verbs in groups, values on one line, and
//! paragraphs that fit any terminal.

use clap::builder::StyledStr;
use clap::{Arg, Command, CommandFactory};

use super::paragraphs::joined;
use super::version::long_version;
use crate::args::cli::Cli;
use crate::args::values::GLOBAL;

/// The verbs, in the groups of the program's help. A test checks that none is missing.
pub(crate) const GROUPS: [(&str, &[&str]); 7] = [
    ("Run commands", &["run", "spawn", "rerun", "demo"]),
    (
        "Follow jobs",
        &[
            "tail", "log", "attach", "screen", "inspect", "top", "wait", "watch", "read", "search",
            "export",
        ],
    ),
    (
        "Manage jobs",
        &["jobs", "queue", "write", "signal", "forget"],
    ),
    (
        "Files and ports",
        &["put", "get", "sync", "fetch", "edit", "forward"],
    ),
    ("Hosts", &["hosts", "ping", "trust"]),
    (
        "Server",
        &[
            "serve",
            "mcp",
            "token",
            "policy",
            "approvals",
            "approve",
            "deny",
            "audit",
            "cluster",
            "store",
        ],
    ),
    ("Other", &["init", "config", "completions", "man", "help"]),
];

/// The command line, as it is parsed and described.
pub(crate) fn command_line() -> Command {
    let program = Cli::command();
    let verbs: Vec<String> =
        program.get_subcommands().map(|verb| verb.get_name().to_owned()).collect();
    let template = format!(
        "{{about}}\n\nUsage: {{usage}}\n\n{}{GLOBAL}:\n{{options}}{{after-help}}",
        in_groups(&program)
    );
    let program = readable(program).long_version(long_version()).help_template(template);
    verbs.into_iter().fold(program, |program, verb| {
        program.mut_subcommand(verb, readable)
    })
}

/// The verbs of the program, with a line for each.
fn in_groups(program: &Command) -> String {
    let mut text = String::new();
    for (group, verbs) in GROUPS {
        text.push_str(&format!("{group}:\n"));
        for verb in verbs.iter().filter_map(|verb| program.find_subcommand(verb)) {
            let about = verb.get_about().map(StyledStr::to_string).unwrap_or_default();
            let aliases: Vec<&str> = verb.get_visible_aliases().collect();
            let aliases = match aliases.as_slice() {
                [] => String::new(),
                aliases => format!(" ({})", aliases.join(", ")),
            };
            text.push_str(&format!("  {:<12}{about}{aliases}\n", verb.get_name()));
        }
        text.push('\n');
    }
    text
}

/// A verb's description for people.
fn readable(verb: Command) -> Command {
    let after = verb.get_after_help().map(|text| joined(&text.to_string()));
    let verb = match after {
        Some(after) => verb.after_help(after),
        None => verb,
    };
    let subverbs: Vec<String> =
        verb.get_subcommands().map(|verb| verb.get_name().to_owned()).collect();
    let verb = verb.mut_args(with_values_on_one_line);
    subverbs
        .into_iter()
        .fold(verb, |verb, name| verb.mut_subcommand(name, readable))
}

/// An option with its possible values in its own text, and not as a list below it.
fn with_values_on_one_line(option: Arg) -> Arg {
    let values = option.get_possible_values();
    let takes_values = option.get_action().takes_values();
    if values.is_empty() || !takes_values || option.is_hide_possible_values_set() {
        return option;
    }
    let names: Vec<&str> = values.iter().map(clap::builder::PossibleValue::get_name).collect();
    let help = option.get_help().map(StyledStr::to_string).unwrap_or_default();
    let help = format!("{}: {}", help.trim_end_matches('.'), names.join(", "));
    option.help(help).hide_possible_values(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_verb_is_in_one_group() {
        let mut grouped: Vec<&str> = GROUPS.iter().flat_map(|(_, verbs)| *verbs).copied().collect();
        let program = Cli::command();
        let mut verbs: Vec<&str> = program.get_subcommands().map(Command::get_name).collect();
        grouped.sort_unstable();
        verbs.sort_unstable();
        assert_eq!(grouped, verbs);
    }

    #[test]
    fn the_command_line_is_free_of_contradictions() {
        command_line().debug_assert();
    }

    #[test]
    fn no_help_is_longer_than_a_few_screens() {
        let mut program = command_line();
        program.build();
        for verb in program.get_subcommands_mut() {
            let help = verb.render_help().to_string();
            let lines = help.lines().count();
            assert!(lines < 110, "{} --help has {lines} lines", verb.get_name());
        }
    }
}
