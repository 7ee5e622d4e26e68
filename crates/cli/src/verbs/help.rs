use crate::args::{HelpArgs, TOPICS, command_line, wrapped};
use crate::exit::print;
use crate::terminal::terminal_width;
use crate::{ProgramExit, report};
use sshjobs_core::jobs::nearest;
use sshjobs_wire::Error;

/// Width of a text in a pipe or on a wide terminal.
const WIDTH: usize = 100;

/// Explains a topic or a verb, or the whole program.
pub fn help(args: &HelpArgs) -> ProgramExit {
    let mut program = command_line();
    let Some(wanted) = &args.topic else {
        return print(program.render_help().to_string().trim_end());
    };
    if let Some((_, text)) = TOPICS.iter().find(|(topic, _)| topic == wanted) {
        let width = terminal_width().unwrap_or(WIDTH).min(WIDTH);
        return print(wrapped(text, width).trim_end());
    }
    // Adds the global options to each verb, and the program's name to its usage.
    program.build();
    if let Some(verb) = program.find_subcommand_mut(wanted) {
        return print(verb.render_help().to_string().trim_end());
    }
    let verbs: Vec<&str> = program.get_subcommands().map(clap::Command::get_name).collect();
    let known = TOPICS.iter().map(|(topic, _)| *topic).chain(verbs);
    let meant =
        nearest(wanted, known).map_or_else(String::new, |name| format!("did you mean {name:?}? "));
    let topics = TOPICS.map(|(topic, _)| topic).join(", ");
    let hint = format!("{meant}The topics are {topics}; a verb is one, too");
    report(&Error::invalid(
        format!("there is nothing to say about {wanted:?}"),
        hint,
    ));
    ProgramExit::USAGE
}
