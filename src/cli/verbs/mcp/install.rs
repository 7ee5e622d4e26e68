//! Shows the change of a client's file, asks, and writes it.

use std::io::{self, BufRead, IsTerminal, Write, stderr, stdin};
use std::path::{Path, PathBuf};

use super::client_file::{Directories, own_file, project_file, with_entry};
use super::entry::Entry;
use crate::bounded_file::read_text;
use crate::cli::args::{McpArgs, McpInstallArgs, McpSubcommand};
use crate::cli::exit::print;
use crate::cli::verbs::config::{replace, trouble};
use crate::cli::{Exit, note};
use crate::jobs::{printable, unified_diff};
use crate::wire::Error;

/// Performs a subcommand of `mcp`.
///
/// # Errors
/// `invalid_argument` if the file can't be changed safely, or nobody can be asked; `io`.
pub fn mcp(args: &McpArgs) -> Result<Exit, Error> {
    let McpSubcommand::Install(args) = &args.verb;
    let file = file_of(args)?;
    let before = match read_text(&file) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
        Err(error) => return Err(trouble("read", &file, &error)),
    };
    let entry = entry_of(args)?;
    let after = with_entry(args.client, &before, &entry).map_err(|error| {
        let arguments = entry.arguments.join(" ");
        Error::invalid(
            format!("{} {error}", file.display()),
            format!(
                "add {} with the arguments {arguments:?} yourself",
                entry.command
            ),
        )
    })?;
    if after == before {
        note(&format!("{} has this entry already", file.display()));
        return Ok(Exit::SUCCESS);
    }

    let shown = print(&change(&file, &before, &after));
    if args.dry_run || shown != Exit::SUCCESS {
        return Ok(shown);
    }
    if !args.yes && !is_confirmed(&file)? {
        note("nothing was written");
        return Ok(Exit::DECLINED);
    }
    replace(&file, &after).map_err(|error| trouble("write", &file, &error))?;
    note("written; restart the client, and ask it to list your hosts");
    Ok(Exit::SUCCESS)
}

fn file_of(args: &McpInstallArgs) -> Result<PathBuf, Error> {
    if args.project {
        return project_file(args.client).map(Path::to_owned).ok_or_else(|| {
            Error::invalid(
                "this client has no file for a project",
                "omit --project to change your own",
            )
        });
    }
    let directories = Directories::of_user().ok_or_else(|| {
        Error::invalid("there is no home directory", "set HOME, or use --project")
    })?;
    Ok(own_file(args.client, &directories))
}

fn entry_of(args: &McpInstallArgs) -> Result<Entry, Error> {
    let is_word = |c: char| c.is_ascii_alphanumeric() || "-_".contains(c);
    if args.name.is_empty() || !args.name.chars().all(is_word) {
        return Err(Error::invalid(
            format!("{:?} is no name for an entry", args.name),
            "use letters, digits, - and _",
        ));
    }
    let arguments = if args.arguments.is_empty() {
        vec!["serve".to_owned()]
    } else {
        args.arguments.clone()
    };
    // A file that a team shares must not name a path of one machine.
    let command = if args.project {
        "sshjobs".to_owned()
    } else {
        own_path()?
    };
    Ok(Entry {
        name: args.name.clone(),
        command,
        arguments,
    })
}

/// Path of this program, as clients with windows need it, which have another PATH. The one in PATH if that is
/// this program: unlike the path of the file itself it may stay the same when the program is upgraded.
fn own_path() -> Result<String, Error> {
    let own = std::env::current_exe()
        .map_err(|error| trouble("find", Path::new("this program"), &error))?;
    let path = std::env::var_os("PATH").unwrap_or_default();
    let in_path = std::env::split_paths(&path)
        .map(|directory| directory.join("sshjobs"))
        .find(|file| file.is_absolute() && file.is_file());
    let is_own = |file: &PathBuf| file.canonicalize().is_ok_and(|file| file == own);
    let shown = in_path.filter(is_own).unwrap_or(own);
    shown.into_os_string().into_string().map_err(|path| {
        Error::invalid(
            format!("the path of this program is not UTF-8: {}", path.display()),
            "move it to another directory",
        )
    })
}

/// The changed lines.
fn change(file: &Path, before: &str, after: &str) -> String {
    let diff = unified_diff(before, after);
    // Lines around the change may have other servers' secrets.
    let changed = diff.lines().filter(|line| line.starts_with(['+', '-', '@']));
    let mut lines = vec![printable(&file.display().to_string())];
    lines.extend(changed.map(printable));
    lines.join("\n")
}

fn is_confirmed(file: &Path) -> Result<bool, Error> {
    if !stdin().is_terminal() || !stderr().is_terminal() {
        return Err(Error::invalid(
            "you can't be asked, so nothing was written",
            "add --yes to write the change, or --dry-run to see it only",
        ));
    }
    // Ignored: a closed stderr can't be asked.
    write!(
        stderr(),
        "Write this to {}? [y/N] ",
        printable(&file.display().to_string())
    )
    .ok();
    let mut answer = String::new();
    let is_read = stdin().lock().read_line(&mut answer).is_ok();
    Ok(is_read && matches!(answer.trim(), "y" | "Y" | "yes"))
}
