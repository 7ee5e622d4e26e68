//! Joblogs in the format of GNU parallel: written after a run, read by `--resume`.

use std::fmt::Write;
use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::path::Path;

use super::HostResult;
use sshjobs_base::bounded_file::read_text;
use sshjobs_core::jobs::printable;
use sshjobs_wire::{Error, JobEntry, JobState};

const HEADER: &str = "Seq\tHost\tStarttime\tJobRuntime\tSend\tReceive\tExitval\tSignal\tCommand";

/// The hosts in a joblog, and whether the command succeeded there. The last line of a host applies.
pub(super) fn read(file: &Path) -> Result<Vec<(String, bool)>, Error> {
    let text = match read_text(file) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(unusable(file, &error)),
    };
    let mut hosts: Vec<(String, bool)> = Vec::new();
    for line in text.lines().filter(|line| *line != HEADER) {
        let columns: Vec<&str> = line.split('\t').collect();
        let [_, host, _, _, _, _, exit, signal, ..] = columns[..] else {
            let message = format!("{} is not a joblog: {line:?}", file.display());
            return Err(Error::invalid(
                message,
                "name a file that --joblog has written",
            ));
        };
        // A resumed run appends, so a host may have several lines.
        hosts.retain(|(known, _)| known != host);
        hosts.push((host.to_owned(), exit == "0" && signal == "0"));
    }
    Ok(hosts)
}

/// Writes a line for each member whose start was attempted. Appends to the file if `is_kept`.
pub(super) fn write(file: &Path, members: &[JobEntry], is_kept: bool) -> Result<(), Error> {
    let rows: Vec<JoblogRow<'_>> = members
        .iter()
        .filter(|member| member.started_at > 0)
        .map(JoblogRow::of_member)
        .collect();
    write_rows(file, &rows, is_kept)
}

/// Refuses a file for CI that can't be written, before anything runs. Creates it if it is missing.
pub(crate) fn check_writable(file: &Path) -> Result<(), Error> {
    if file == "-" {
        return Err(Error::invalid(
            "a joblog or report can't go to stdout, which has the lines of the hosts",
            "name a file; ./- is one of this name",
        ));
    }
    let opened = OpenOptions::new().create(true).append(true).open(file);
    opened.map(drop).map_err(|error| unusable(file, &error))
}

/// Writes a line for each host to which files were copied.
pub(crate) fn write_joblog(file: &Path, results: &[HostResult]) -> Result<(), Error> {
    let rows: Vec<JoblogRow<'_>> = results.iter().map(JoblogRow::of_copy).collect();
    write_rows(file, &rows, false)
}

/// A line of a joblog. Times in milliseconds.
struct JoblogRow<'a> {
    host: &'a str,
    started_at: u64,
    took: u64,
    sent: u64,
    received: u64,
    exit: i64,
    signal: u8,
    command: &'a str,
}

impl<'a> JoblogRow<'a> {
    fn of_member(member: &'a JobEntry) -> Self {
        let end = member.ended_at.unwrap_or(member.started_at);
        let (exit, signal) = exit(member);
        Self {
            host: &member.host,
            started_at: member.started_at,
            took: end.saturating_sub(member.started_at),
            sent: 0,
            received: member.total_bytes,
            exit,
            signal,
            command: &member.command,
        }
    }

    fn of_copy(result: &'a HostResult) -> Self {
        Self {
            host: &result.host,
            started_at: result.started_at,
            took: u64::try_from(result.took.as_millis()).unwrap_or(u64::MAX),
            sent: result.bytes,
            received: 0,
            exit: result.failure.is_some().into(),
            signal: 0,
            command: &result.command,
        }
    }
}

fn write_rows(file: &Path, rows: &[JoblogRow<'_>], is_kept: bool) -> Result<(), Error> {
    let mut text = String::new();
    let has_some = is_kept && file.metadata().is_ok_and(|known| known.len() > 0);
    if !has_some {
        text = format!("{HEADER}\n");
    }
    for (number, row) in (1..).zip(rows) {
        writeln!(
            text,
            "{number}\t{}\t{:.3}\t{:10.3}\t{}\t{}\t{}\t{}\t{}",
            printable(row.host),
            seconds(row.started_at),
            seconds(row.took),
            row.sent,
            row.received,
            row.exit,
            row.signal,
            printable(&row.command.replace(['\t', '\n'], " ")),
        )
        .expect("a String takes all");
    }
    let mut options = OpenOptions::new();
    let opened = options.create(true).write(true).append(is_kept).truncate(!is_kept).open(file);
    opened
        .and_then(|mut file| file.write_all(text.as_bytes()))
        .map_err(|error| unusable(file, &error))
}

/// Exit status and signal as in GNU parallel: -1 if the command never ran.
fn exit(member: &JobEntry) -> (i64, u8) {
    match (
        member.standing.state,
        member.standing.exit_status,
        &member.standing.exit_signal,
    ) {
        // First, because a command that timed out may also have a status or a signal.
        (JobState::TimedOut, ..) => (-1, 15),
        // A status of 0 does not make a lost job a success.
        (JobState::Lost, ..) => (-1, 0),
        (_, Some(status), _) => (status.into(), 0),
        (_, None, Some(signal)) => match crate::exit::signal_number(signal) {
            // Signal 0 with status 0 would be a success.
            0 => (-1, 0),
            number => (0, number),
        },
        (..) => (-1, 0),
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "milliseconds of this epoch are exact in an f64"
)]
fn seconds(millis: u64) -> f64 {
    millis as f64 / 1000.0
}

fn unusable(file: &Path, error: &io::Error) -> Error {
    let message = format!("the file {} can't be used: {error}", file.display());
    Error::invalid(message, "name a file that you may read and write")
}
