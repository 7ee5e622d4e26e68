use anstream::ColorChoice;
use clap::FromArgMatches;
use clap::builder::StyledStr;
use clap::error::ErrorKind;
use clap::parser::ValueSource;

use super::cli::{Cli, WhenColours};
use super::help::{command_line, unknown_verb};
use super::quick::quick_command_line;
use sshjobs_wire::Error;
use sshjobs_wire::remote::ServerAddress;

/// Parses the command line and applies `--color`. `print_help` shows a help text. A mistake other than an unknown verb, `--help` and
/// `--version` end the program here.
///
/// # Errors
/// `invalid_argument` for an unknown verb.
pub fn parse(print_help: fn(&StyledStr) -> !) -> Result<Cli, Error> {
    let matches = match quick_command_line().try_get_matches() {
        Ok(matches) => matches,
        // Mistakes and requests for help need the whole description.
        Err(_) => match command_line().try_get_matches() {
            Ok(matches) => matches,
            Err(error) => match unknown_verb(&error) {
                Some(error) => return Err(error),
                None if error.kind() == ErrorKind::DisplayHelp => print_help(&error.render()),
                None => error.exit(),
            },
        },
    };
    let mut cli = Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    matches.subcommand_name().unwrap_or_default().clone_into(&mut cli.verb_name);
    // The variable does not apply to verbs that are only about this machine.
    let is_variable = matches.value_source("server") == Some(ValueSource::EnvVariable);
    // A server on a socket is this user's own. What uses files and ports of this machine needs no server.
    let is_own = matches!(cli.global.server, Some(ServerAddress::Socket(_)));
    if is_variable && (cli.verb.runs_here_only() || (is_own && cli.verb.uses_this_machine())) {
        cli.global.server = None;
    }
    let choice = match cli.global.color {
        WhenColours::Auto => ColorChoice::Auto,
        WhenColours::Always => ColorChoice::Always,
        WhenColours::Never => ColorChoice::Never,
    };
    choice.write_global();
    Ok(cli)
}
