//! Shows the change of a client's file, asks, and writes it.

use std::io::{self, BufRead, IsTerminal, Write, stderr, stdin};
use std::path::{Path, PathBuf};

use super::client_file::{Directories, own_file, project_file, with_entry};
use super::entry::{CantAdd, ServerEntry};
use crate::args::{McpArgs, McpInstallArgs, McpSubcommand};
use crate::exit::print;
use crate::verbs::config::{replace, trouble};
use crate::{ProgramExit, note};
use sshjobs_base::bounded_file::read_text;
use sshjobs_core::jobs::printable;
use sshjobs_wire::Error;

/// Performs a subcommand of `mcp`.
///
/// # Errors
/// `invalid_argument` if the file can't be changed safely, or no person can be asked; `io`.
pub fn mcp(args: &McpArgs) -> Result<ProgramExit, Error> {
    let McpSubcommand::Install(args) = &args.verb;
    let file = file_of(args)?;
    let before = text_of(&file)?;
    let entry = entry_of(args)?;
    let after = with_entry(args.client, &before, &entry)
        .map_err(|error| cant_add(&file, &error, args, &entry))?;
    if after == before {
        note(&format!("{} has this entry already", file.display()));
        return Ok(ProgramExit::SUCCESS);
    }

    let change = format!(
        "{} gets this entry:\n{}",
        printable(&file.display().to_string()),
        alone(args, &entry)
    );
    let shown = print(&change);
    if args.dry_run || shown != ProgramExit::SUCCESS {
        return Ok(shown);
    }
    if !args.yes && !is_confirmed(&file)? {
        note("nothing was written");
        return Ok(ProgramExit::DECLINED);
    }
    // Clients write their files, too.
    if text_of(&file)? != before {
        return Err(Error::invalid(
            format!(
                "{} has changed meanwhile, and nothing was written",
                file.display()
            ),
            "run this again",
        ));
    }
    replace(&file, &after).map_err(|error| trouble("write", &file, &error))?;
    note("written; restart the client, and ask it to list your hosts");
    Ok(ProgramExit::SUCCESS)
}

/// The text of a file. A file that does not exist has none.
fn text_of(file: &Path) -> Result<String, Error> {
    let is_regular = match std::fs::metadata(file) {
        Ok(metadata) => metadata.is_file(),
        // A link that leads nowhere would be replaced by a file.
        Err(error) if error.kind() == io::ErrorKind::NotFound && !file.is_symlink() => {
            return Ok(String::new());
        }
        Err(error) => return Err(trouble("read", file, &error)),
    };
    if !is_regular {
        return Err(Error::invalid(
            format!("{} is not a regular file", file.display()),
            "move it away",
        ));
    }
    read_text(file).map_err(|error| trouble("read", file, &error))
}

/// The entry in the form of the client's file, without anything else: other entries may have secrets.
fn alone(args: &McpInstallArgs, entry: &ServerEntry) -> String {
    // An empty file takes every entry.
    let text = with_entry(args.client, "", entry).unwrap_or_default();
    text.lines().map(printable).collect::<Vec<_>>().join("\n")
}

fn cant_add(file: &Path, error: &CantAdd, args: &McpInstallArgs, entry: &ServerEntry) -> Error {
    let hint = match error {
        CantAdd::Exists(_) => {
            "--replace replaces it with all of its fields; --name takes another name".to_owned()
        }
        CantAdd::Malformed(_) | CantAdd::OtherKind(_) | CantAdd::OtherForm(_) => {
            format!("add this yourself:\n{}", alone(args, entry))
        }
    };
    Error::invalid(format!("{} {error}", file.display()), hint)
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

fn entry_of(args: &McpInstallArgs) -> Result<ServerEntry, Error> {
    let begins_with_letter = args.name.starts_with(|c: char| c.is_ascii_alphabetic());
    let is_word = args.name.chars().all(|c| c.is_ascii_alphanumeric() || "-_".contains(c));
    if !begins_with_letter || args.name.len() > 64 || !is_word {
        return Err(Error::invalid(
            format!("{:?} is not a name for an entry", args.name),
            "use up to 64 letters, digits, - and _, with a letter first",
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
    Ok(ServerEntry {
        name: args.name.clone(),
        command,
        arguments,
        replaces: args.replace,
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
    let shown = match in_path {
        Some(file) if file.canonicalize().is_ok_and(|file| file == own) => file,
        Some(_) | None => own,
    };
    shown.into_os_string().into_string().map_err(|path| {
        Error::invalid(
            format!("the path of this program is not UTF-8: {}", path.display()),
            "move it to another directory",
        )
    })
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
