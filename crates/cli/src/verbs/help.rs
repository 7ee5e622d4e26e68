use std::io::stdout;

use clap::builder::StyledStr;

use crate::args::{HelpArgs, TOPICS, command_line, wrapped};
use crate::exit::print;
use crate::terminal::{Pager, PagerEnds, colours_are_wanted, terminal_width};
use crate::{ProgramExit, report};
use sshjobs_core::jobs::nearest;
use sshjobs_wire::Error;

/// Width of a text in a pipe or on a wide terminal.
const WIDTH: usize = 100;

/// Explains a topic or a verb, or the whole program.
pub fn help(args: &HelpArgs) -> ProgramExit {
    // Before the pager takes the place of stdout.
    let width = terminal_width().unwrap_or(WIDTH).min(WIDTH);
    let in_pager = |text: &str| {
        let _pager = Pager::start(PagerEnds::IfItFits);
        print(text.trim_end())
    };
    let mut program = command_line();
    let Some(wanted) = &args.topic else {
        return in_pager(&program.render_help().to_string());
    };
    if let Some((_, text)) = TOPICS.iter().find(|(topic, _)| topic == wanted) {
        return in_pager(&wrapped(text, width));
    }
    // Adds the global options to each verb, and the program's name to its usage.
    program.build();
    if let Some(verb) = program.find_subcommand_mut(wanted) {
        return in_pager(&verb.render_help().to_string());
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

/// Prints a help text, through the pager on a terminal, and ends the program.
pub fn print_help(text: &StyledStr) -> ! {
    // The pager catches Ctrl-C, which needs a runtime.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let guard = runtime.as_ref().map(tokio::runtime::Runtime::enter);
    let text = if colours_are_wanted(&stdout()) {
        text.ansi().to_string()
    } else {
        text.to_string()
    };
    let pager = guard.is_ok().then(|| Pager::start(PagerEnds::IfItFits)).flatten();
    let printed = print(text.trim_end());
    drop(pager);
    std::process::exit(printed.code().into())
}
