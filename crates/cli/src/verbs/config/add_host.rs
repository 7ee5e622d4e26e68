//! `sshjobs hosts add`: a table for a host in the configuration.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;

use super::reference::quoted;
use crate::args::AddHostArgs;
use crate::{ProgramExit, note};
use sshjobs_base::bounded_file::read_text;
use sshjobs_core::jobs::Config;
use sshjobs_wire::{Code, Error, parse_config};

/// Adds a host to the configuration.
///
/// # Errors
/// `invalid_argument` if the file has such a host already, or would have errors with it.
pub fn add_host(file: Option<PathBuf>, args: &AddHostArgs) -> Result<ProgramExit, Error> {
    let file = file.or_else(Config::file).ok_or_else(no_directory)?;
    append(&file, std::slice::from_ref(&table(args)))?;
    note(&format!(
        "added to {}; `sshjobs trust {}` accepts its key, `sshjobs hosts {}` tries it",
        file.display(),
        args.name,
        args.name
    ));
    Ok(ProgramExit::SUCCESS)
}

/// A host's table.
pub(super) struct HostTable {
    pub(super) name: String,
    pub(super) lines: Vec<String>,
}

fn table(args: &AddHostArgs) -> HostTable {
    let address = &args.address;
    let mut lines = vec![line("address", address.host.as_str())];
    lines.extend(args.port.or(address.port).map(|port| format!("port = {port}")));
    lines.extend(address.user.as_deref().map(|user| line("user", user)));
    lines.extend(args.identity.as_deref().map(|file| line("identity_file", file)));
    if !args.tag.is_empty() {
        lines.push(line("tags", args.tag.clone()));
    }
    HostTable {
        name: args.name.clone(),
        lines,
    }
}

/// A key and its value.
pub(super) fn line(key: &str, value: impl Into<toml::Value>) -> String {
    format!("{key} = {}", value.into())
}

/// Appends tables of hosts to the configuration file, which is replaced as a whole.
pub(super) fn append(file: &Path, tables: &[HostTable]) -> Result<(), Error> {
    let before = match read_text(file) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
        Err(error) => return Err(trouble("read", file, &error)),
    };
    let known = parse_config(file, &before)
        .map_err(|error| Error::invalid(error.to_string(), "correct the file first"))?;
    if let Some(table) = tables.iter().find(|table| known.hosts.contains_key(&table.name)) {
        let message = format!("{} has a host {:?} already", file.display(), table.name);
        return Err(Error::invalid(
            message,
            "edit the file, or choose another name",
        ));
    }

    let mut text = before;
    for table in tables {
        if !text.is_empty() {
            if !text.ends_with('\n') {
                text.push('\n');
            }
            text.push('\n');
        }
        text.push_str(&format!(
            "[hosts.{}]\n{}\n",
            quoted(&table.name),
            table.lines.join("\n")
        ));
    }
    // Never write a file that the next start would refuse.
    parse_config(file, &text)
        .map_err(|error| Error::invalid(error.to_string(), "use other values"))?;
    replace(file, &text).map_err(|error| trouble("write", file, &error))
}

/// Writes a file as a whole: another process sees the old text or the new one.
pub(crate) fn replace(file: &Path, text: &str) -> io::Result<()> {
    // A link to the file stays a link.
    let file = file.canonicalize().unwrap_or_else(|_| file.to_owned());
    let directory = file.parent().unwrap_or(Path::new("."));
    std::fs::create_dir_all(directory)?;
    let mut written = NamedTempFile::new_in(directory)?;
    written.write_all(text.as_bytes())?;
    if let Ok(before) = std::fs::metadata(&file) {
        std::fs::set_permissions(written.path(), before.permissions())?;
    }
    written.as_file().sync_all()?;
    written.persist(&file)?;
    Ok(())
}

pub(crate) fn trouble(action: &str, file: &Path, error: &io::Error) -> Error {
    let message = format!("can't {action} {}: {error}", file.display());
    Error::new(
        Code::Io,
        message,
        "check the path, and that you may write there",
    )
}

pub(super) fn no_directory() -> Error {
    let hint = "set HOME, or name a file with --config";
    Error::invalid("there is no directory for the configuration", hint)
}
