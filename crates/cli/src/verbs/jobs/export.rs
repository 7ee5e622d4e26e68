//! `sshjobs export`: the stored output as a file for other programs.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::finish::finish;
use super::pick;
use crate::args::ExportArgs;
use crate::exit::write_out;
use crate::{ProgramExit, note};
use sshjobs_wire::remote::Api;
use sshjobs_wire::{Code, Error};

/// Writes a job's output to stdout or to a file.
pub async fn export(api: &Api, mut args: ExportArgs) -> ProgramExit {
    finish(api, async {
        args.job = pick::resolve(api, &args.job).await?;
        match args.output.as_deref().filter(|file| *file != Path::new("-")) {
            Some(file) => to_file(api, &args, file).await,
            None => to_stdout(api, &args).await,
        }
    })
    .await
}

async fn to_stdout(api: &Api, args: &ExportArgs) -> Result<ProgramExit, Error> {
    let mut exit = ProgramExit::SUCCESS;
    api.export(&args.job, args.format, |page| {
        exit = write_out(&page);
        exit == ProgramExit::SUCCESS
    })
    .await?;
    Ok(exit)
}

/// Writes a file.
async fn to_file(api: &Api, args: &ExportArgs, file: &Path) -> Result<ProgramExit, Error> {
    // A device or a pipe, such as /dev/stdout, is written as it is.
    if fs::metadata(file).is_ok_and(|found| !found.is_file()) {
        return to_special_file(api, args, file).await;
    }
    // A link stays, and the file that it leads to is replaced.
    let existing = fs::canonicalize(file).unwrap_or_else(|_| file.to_owned());
    to_regular_file(api, args, &existing).await
}

async fn to_special_file(api: &Api, args: &ExportArgs, file: &Path) -> Result<ProgramExit, Error> {
    let opened = fs::OpenOptions::new().write(true).open(file);
    let mut opened = opened.map_err(|error| unwritable(file, &error))?;
    let mut written = Ok(());
    api.export(&args.job, args.format, |page| {
        written = opened.write_all(&page);
        written.is_ok()
    })
    .await?;
    written.map_err(|error| unwritable(file, &error))?;
    Ok(ProgramExit::SUCCESS)
}

/// Writes a file at once: an export that fails leaves no half of one.
async fn to_regular_file(api: &Api, args: &ExportArgs, file: &Path) -> Result<ProgramExit, Error> {
    let directory = match file.parent() {
        Some(directory) if directory != Path::new("") => directory.to_owned(),
        Some(_) | None => PathBuf::from("."),
    };
    let mut new = tempfile::Builder::new()
        .prefix(".sshjobs-export")
        // Less the umask, as for any new file.
        .permissions(fs::Permissions::from_mode(0o666))
        .tempfile_in(directory)
        .map_err(|error| unwritable(file, &error))?;
    let mut written = Ok(());
    api.export(&args.job, args.format, |page| {
        written = new.write_all(&page);
        written.is_ok()
    })
    .await?;
    written.map_err(|error| unwritable(file, &error))?;
    if let Ok(old) = fs::metadata(file) {
        let kept = new.as_file().set_permissions(old.permissions());
        kept.map_err(|error| unwritable(file, &error))?;
    }
    let new: File = new.persist(file).map_err(|error| unwritable(file, &error.error))?;
    let length = new.metadata().map_err(|error| unwritable(file, &error))?.len();
    note(&format!("{}: {length} bytes", file.display()));
    Ok(ProgramExit::SUCCESS)
}

fn unwritable(file: &Path, error: &io::Error) -> Error {
    let message = format!("can't write {}: {error}", file.display());
    Error::new(Code::Io, message, "check the directory and its free space")
}
