//! `sshjobs man`: man pages, generated from the description of the command line.

use std::io;
use std::path::Path;

use clap::Command;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};

use crate::args::{ManArgs, command_line};
use crate::exit::write_out;
use crate::{ProgramExit, note, report};
use sshjobs_wire::Error;

/// Name and meaning of a file or a variable.
type Entry = (&'static str, &'static str);

const FILES: [Entry; 5] = [
    (
        "~/.config/sshjobs/config.toml",
        "The configuration ($XDG_CONFIG_HOME). It need not exist.",
    ),
    (
        "~/.local/state/sshjobs/",
        "Records and output of jobs ($XDG_STATE_HOME). Only the user can read it.",
    ),
    (
        "~/.ssh/config, /etc/ssh/ssh_config",
        "Hosts, users, ports, keys and jump hosts, as for ssh.",
    ),
    (
        "~/.ssh/known_hosts, /etc/ssh/ssh_known_hosts",
        "Keys of hosts that are trusted. Any other host is refused.",
    ),
    (
        "~/.local/state/sshjobs/spool/ (on a host)",
        "Files of durable jobs there.",
    ),
];

const ENVIRONMENT: [Entry; 9] = [
    ("SSHJOBS_CONFIG", "The configuration file, as --config."),
    ("SSHJOBS_STATE_DIR", "The state directory, as --state-dir."),
    ("SSHJOBS_SERVER", "A running server to use, as --server."),
    ("SSHJOBS_TOKEN", "The token for that server."),
    ("SSHJOBS_LOG", "Which messages to log, as --log."),
    (
        "PAGER, LESS",
        "The pager of log, and its options if it is less.",
    ),
    (
        "NO_COLOR, CLICOLOR_FORCE",
        "Whether output is coloured, unless --color says it.",
    ),
    ("SSH_AUTH_SOCK", "The agent that signs for the user's keys."),
    (
        "SSH_ASKPASS",
        "The program that asks for passwords without a terminal.",
    ),
];

const EXIT_STATUS: [Entry; 9] = [
    ("0", "Success; of run and wait, that the command succeeded."),
    ("1", "Nothing was found, or you declined."),
    (
        "2",
        "The command line or the configuration is invalid, or a job does not exist.",
    ),
    (
        "0-255",
        "Of run, attach and wait: the exit status of the command.",
    ),
    ("128+N", "Signal N ended the command."),
    ("124", "A time limit has passed."),
    ("74", "The output could not be written."),
    ("141", "The reader of the output was closed."),
    ("255", "The host or the connection failed, as with ssh."),
];

/// Pages of other programs.
const SEE_ALSO: &str = "ssh(1), ssh_config(5), sshd(8), tmux(1)";

/// Prints a page, or writes all of them.
pub fn man(args: &ManArgs) -> ProgramExit {
    let mut program = command_line();
    // Adds the global options to each verb, and the program's name to its usage.
    program.build();
    if let Some(directory) = &args.directory {
        return write_all(&program, directory);
    }
    let page = match &args.verb {
        None => page(&program, &program),
        Some(verb) => match program.find_subcommand(verb) {
            Some(verb) => page(&program, verb),
            None => {
                let hint = "`sshjobs --help` lists the verbs";
                report(&Error::invalid(format!("there is no verb {verb:?}"), hint));
                return ProgramExit::USAGE;
            }
        },
    };
    write_out(page.expect("a vector takes all").as_slice())
}

fn try_write_all(program: &Command, directory: &Path) -> io::Result<()> {
    std::fs::create_dir_all(directory)?;
    let verbs = program.get_subcommands().filter(|verb| !verb.is_hide_set());
    for verb in [program].into_iter().chain(verbs) {
        let file = directory.join(format!("{}.1", page_name(program, verb)));
        std::fs::write(file, page(program, verb)?)?;
    }
    Ok(())
}

fn write_all(program: &Command, directory: &Path) -> ProgramExit {
    match try_write_all(program, directory) {
        Ok(()) => {
            note(&format!("the man pages are in {}", directory.display()));
            ProgramExit::SUCCESS
        }
        Err(error) => {
            let message = format!("can't write to {}: {error}", directory.display());
            let hint = "name a directory that you may write";
            report(&Error::invalid(message, hint));
            ProgramExit::OUTPUT
        }
    }
}

fn page_name(program: &Command, verb: &Command) -> String {
    if verb.get_name() == program.get_name() {
        program.get_name().to_owned()
    } else {
        format!("{}-{}", program.get_name(), verb.get_name())
    }
}

/// A page for the program or one of its verbs.
fn page(program: &Command, verb: &Command) -> io::Result<Vec<u8>> {
    let is_program = verb.get_name() == program.get_name();
    let name = page_name(program, verb);
    // The template of the help lists the verbs itself; the page has a section for them.
    let described = verb.clone().help_template("{all-args}").name(name.clone());
    let man = Man::new(described)
        .title(name.to_uppercase())
        .source(concat!("sshjobs ", env!("CARGO_PKG_VERSION")))
        .manual("sshjobs manual");
    let mut text = Vec::new();
    man.render_title(&mut text)?;
    man.render_name_section(&mut text)?;
    synopsis(verb, &mut text)?;
    man.render_description_section(&mut text)?;
    man.render_options_section(&mut text)?;
    if is_program {
        section("VERBS", &verbs(program), &mut text)?;
    }
    notes_and_examples(verb, &mut text)?;
    section("EXIT STATUS", &pairs(&EXIT_STATUS), &mut text)?;
    section("ENVIRONMENT", &pairs(&ENVIRONMENT), &mut text)?;
    section("FILES", &pairs(&FILES), &mut text)?;
    let own = if is_program {
        let pages = program.get_subcommands().map(|verb| page_name(program, verb) + "(1)");
        pages.collect::<Vec<_>>().join(", ")
    } else {
        format!("{}(1)", program.get_name())
    };
    let mut roff = Roff::new();
    roff.control("SH", ["SEE ALSO"]);
    roff.text([roman(format!("{own}, {SEE_ALSO}"))]);
    roff.to_writer(&mut text)?;
    Ok(text)
}

/// How the verb is called, with the names of values.
fn synopsis(verb: &Command, text: &mut Vec<u8>) -> io::Result<()> {
    let usage = verb.clone().render_usage().to_string();
    let mut roff = Roff::new();
    roff.control("SH", ["SYNOPSIS"]);
    roff.text([roman(usage.trim_start_matches("Usage:").trim())]);
    roff.to_writer(text)
}

fn is_heading(line: &str) -> bool {
    matches!(line, "Example:" | "Examples:")
}

/// The text after a verb's options.
fn notes_and_examples(verb: &Command, text: &mut Vec<u8>) -> io::Result<()> {
    let after = verb.get_after_help().map(ToString::to_string).unwrap_or_default();
    let examples: Vec<&str> = after
        .lines()
        .skip_while(|line| !is_heading(line))
        .skip(1)
        .take_while(|line| line.starts_with(' '))
        .collect();
    let others = after.lines().filter(|line| !is_heading(line) && !examples.contains(line));
    let notes = others.collect::<Vec<_>>().join("\n");
    let notes = notes.trim();
    let mut roff = Roff::new();
    if !notes.is_empty() {
        roff.control("SH", ["NOTES"]);
        for paragraph in notes.split("\n\n") {
            roff.control("PP", []);
            roff.text([roman(paragraph)]);
        }
    }
    if !examples.is_empty() {
        roff.control("SH", ["EXAMPLES"]);
        roff.control("nf", []);
        for example in examples {
            roff.text([roman(example)]);
        }
        roff.control("fi", []);
    }
    roff.to_writer(text)
}

fn verbs(program: &Command) -> Vec<(String, String)> {
    let verbs = program.get_subcommands().filter(|verb| !verb.is_hide_set());
    verbs
        .map(|verb| {
            let about = verb.get_about().map(ToString::to_string).unwrap_or_default();
            (verb.get_name().to_owned(), about)
        })
        .collect()
}

fn pairs(entries: &[Entry]) -> Vec<(String, String)> {
    entries
        .iter()
        .map(|(name, meaning)| ((*name).to_owned(), (*meaning).to_owned()))
        .collect()
}

/// A section with a list of names and meanings.
fn section(title: &str, entries: &[(String, String)], text: &mut Vec<u8>) -> io::Result<()> {
    let mut roff = Roff::new();
    roff.control("SH", [title]);
    for (name, meaning) in entries {
        roff.control("TP", []);
        roff.text([bold(name.as_str())]);
        roff.text([roman(meaning.as_str())]);
    }
    roff.to_writer(text)
}
