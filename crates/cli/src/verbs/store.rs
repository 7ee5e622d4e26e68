//! `sshjobs store check`, `repair`, `backup` and `restore`.

use std::fs::File;
use std::io::{self, BufWriter, Read};
use std::path::Path;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use tempfile::NamedTempFile;

use crate::args::{StoreBackupArgs, StoreCheckArgs, StoreRepairArgs, StoreRestoreArgs};
use crate::exit::print;
use crate::json::json;
use crate::{ProgramExit, note};
use sshjobs_core::jobs::{self, StateCheck, back_up, check_state, repair_state, restore};
use sshjobs_wire::{Code, Error};

/// Reports damage in a state directory.
///
/// # Errors
/// If it can't be read.
pub fn store_check(state_dir: &Path, args: &StoreCheckArgs) -> Result<ProgramExit, Error> {
    require(state_dir)?;
    // Drawn on terminals only.
    let bar = ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::stderr());
    let style = ProgressStyle::with_template("{bar:24} {pos}/{len} jobs  {eta} left");
    bar.set_style(style.expect("the template is constant"));
    let check = check_state(state_dir, &|done, total| {
        bar.set_length(total as u64);
        bar.set_position(done as u64);
    });
    bar.finish_and_clear();
    let check = check.map_err(explained)?;
    let printed = if args.json {
        print(&json(&check))
    } else {
        print(&check_lines(&check).join("\n"))
    };
    if !check.is_complete() {
        note("end the servers of this state directory, and run `sshjobs store repair`");
    }
    if printed != ProgramExit::SUCCESS || check.is_whole() {
        Ok(printed)
    } else {
        Ok(ProgramExit::DECLINED)
    }
}

fn check_lines(check: &StateCheck) -> Vec<String> {
    let mut lines = vec![format!(
        "{} jobs, {} bytes of output read",
        check.jobs, check.bytes
    )];
    if let Some(why) = &check.database {
        lines.push(format!("jobs.db is damaged: {why}"));
    }
    for id in &check.unreadable_records {
        lines.push(format!("{id}: its record can't be read"));
    }
    for id in &check.without_record {
        lines.push(format!("{id}: it has output and no record"));
    }
    for output in &check.damaged_output {
        lines.push(format!(
            "{}: {} bytes of its stored output are damaged, {} files are missing; their lines count as dropped",
            output.job_id, output.bytes, output.missing_files
        ));
        lines.extend(output.error.as_ref().map(|why| format!("{}: {why}", output.job_id)));
    }
    if check.is_whole() {
        lines.push("nothing is damaged".to_owned());
    }
    lines
}

/// Makes damaged and missing records again.
///
/// # Errors
/// If the state directory is in use, or can't be read or written.
pub fn store_repair(state_dir: &Path, args: &StoreRepairArgs) -> Result<ProgramExit, Error> {
    require(state_dir)?;
    let report = repair_state(state_dir).map_err(explained)?;
    if args.json {
        return Ok(print(&json(&report)));
    }
    let mut lines = Vec::new();
    if let Some(aside) = &report.set_aside {
        lines.push(format!(
            "jobs.db was damaged, and is kept as {}; {} records of it could be read",
            aside.display(),
            report.salvaged
        ));
    }
    if !report.rebuilt.is_empty() {
        lines.push(format!(
            "{} records were made again from the copies beside their output",
            report.rebuilt.len()
        ));
    }
    for id in &report.without_command {
        lines.push(format!("{id}: only its output is left, not its command"));
    }
    if lines.is_empty() {
        lines.push("every job has its record; there is nothing to repair".to_owned());
    }
    Ok(print(&lines.join("\n")))
}

/// Copies a state directory to a file.
///
/// # Errors
/// If the file exists or can't be written, or the state directory can't be read.
pub fn store_backup(state_dir: &Path, args: &StoreBackupArgs) -> Result<ProgramExit, Error> {
    require(state_dir)?;
    if args.file == Path::new(STANDARD) {
        back_up(state_dir, BufWriter::new(io::stdout().lock())).map_err(explained)?;
        return Ok(ProgramExit::SUCCESS);
    }
    if args.file.exists() {
        return Err(Error::invalid(
            format!("{} exists", args.file.display()),
            "remove it, or choose another name",
        ));
    }
    let directory = args.file.parent().filter(|parent| !parent.as_os_str().is_empty());
    let directory = directory.unwrap_or(Path::new("."));
    let is_inside = match (directory.canonicalize(), state_dir.canonicalize()) {
        (Ok(directory), Ok(state_dir)) => directory.starts_with(state_dir),
        _ => false,
    };
    if is_inside {
        let message = format!("{} is in the state directory", args.file.display());
        return Err(Error::invalid(
            message,
            "choose another directory, or another disk",
        ));
    }
    let unwritable = |error: io::Error| {
        let message = format!("{} can't be written: {error}", args.file.display());
        Error::new(Code::Io, message, "check the directory, and its disk")
    };
    // Under another name until it is complete: a copy that is cut must not be taken for one.
    let file = NamedTempFile::with_prefix_in(".sshjobs-backup-", directory).map_err(unwritable)?;
    let report = back_up(state_dir, BufWriter::new(file.as_file())).map_err(explained)?;
    file.as_file().sync_all().map_err(unwritable)?;
    file.persist_noclobber(&args.file).map_err(|failed| unwritable(failed.error))?;
    Ok(print(&format!(
        "copied {} files with {} bytes to {}",
        report.files,
        report.bytes,
        args.file.display()
    )))
}

/// Makes a state directory from a copy.
///
/// # Errors
/// If the state directory is not empty or can't be written, or the file is not a copy.
pub fn store_restore(state_dir: &Path, args: &StoreRestoreArgs) -> Result<ProgramExit, Error> {
    let archive: Box<dyn Read> = if args.file == Path::new(STANDARD) {
        Box::new(io::stdin().lock())
    } else {
        Box::new(File::open(&args.file).map_err(|error| {
            let message = format!("{}: {error}", args.file.display());
            Error::invalid(message, "name a file that `sshjobs store backup` wrote")
        })?)
    };
    let report = restore(state_dir, archive).map_err(explained)?;
    Ok(print(&format!(
        "restored {} files with {} bytes to {}",
        report.files,
        report.bytes,
        state_dir.display()
    )))
}

/// Name of stdin and stdout.
const STANDARD: &str = "-";

fn explained(error: sshjobs_core::jobs::StoreError) -> Error {
    Error::from(jobs::Error::Store(error))
}

fn require(state_dir: &Path) -> Result<(), Error> {
    if state_dir.is_dir() {
        return Ok(());
    }
    let message = format!("there is no state directory {}", state_dir.display());
    Err(Error::invalid(message, "name one with --state-dir"))
}
