//! Copies on several hosts at the same time, and their results for CI.

use std::time::{Duration, SystemTime};

use futures_util::{StreamExt, stream};
use tokio::time::Instant;

use super::result::CopyResult;
use crate::args::EachHostArgs;
use crate::exit::print;
use crate::fleet::{HostResult, check_writable, write_joblog, write_junit};
use crate::json::json;
use crate::{ProgramExit, note, report};
use sshjobs_core::jobs::{FleetSpec, fold, timestamp_of};
use sshjobs_wire::remote::Api;
use sshjobs_wire::{Code, Error};

/// Most hosts that an exit code counts.
const MOST_COUNTED: u32 = 101;

/// Exit code and results of the copies on all hosts.
pub(super) struct Copies {
    pub(super) exit: ProgramExit,
    pub(super) results: Vec<HostResult>,
}

/// Copies for each host, at most `-j` at a time, and prints the results. `copy` adds the
/// files that it has copied to a list, and returns the first error.
pub(super) async fn on_each<'a>(
    hosts: &'a [String],
    args: &EachHostArgs,
    command: &str,
    copy: impl AsyncFn(&'a str, &mut Vec<CopyResult>) -> Result<(), Error>,
) -> Copies {
    let copies = hosts.iter().map(|host| {
        let copy = &copy;
        async move {
            let started = SystemTime::now();
            let began = Instant::now();
            let mut copied = Vec::new();
            let done = copy(host, &mut copied).await;
            Done {
                host,
                started,
                took: began.elapsed(),
                copied,
                error: done.err(),
            }
        }
    });
    let mut copies = stream::iter(copies).buffer_unordered(args.max_parallel.max(1));
    let mut all = Vec::new();
    // A closed pipe ends the output, not the copies.
    let mut printed = ProgramExit::SUCCESS;
    while let Some(done) = copies.next().await {
        for copied in &done.copied {
            printed = printed.or(copied.print(args.json));
        }
        if let Some(error) = &done.error {
            if hosts.len() > 1 {
                note(&format!("{}:", done.host));
            }
            report(error);
            if args.json {
                let host = done.host;
                let failed = serde_json::json!({"host": host, "change": "failed", "code": error.code, "error": error.message});
                printed = printed.or(print(&json(&failed)));
            }
        }
        all.push(done);
    }
    Copies {
        exit: print_counts(&all, printed),
        results: all.iter().map(|done| done.result(command)).collect(),
    }
}

/// Refuses files for CI that can't be written, before anything is copied.
pub(super) fn check_ci_files(args: &EachHostArgs) -> Result<(), Error> {
    let mut files = [&args.joblog, &args.junit].into_iter().flatten();
    files.try_for_each(|file| check_writable(file))
}

/// Writes the files for CI. `command` is the name of the test suite.
pub(super) fn write_ci_files(
    args: &EachHostArgs,
    command: &str,
    results: &[HostResult],
) -> Result<(), Error> {
    if let Some(file) = &args.joblog {
        write_joblog(file, results)?;
    }
    if let Some(file) = &args.junit {
        write_junit(file, command, results)?;
    }
    Ok(())
}

/// Prints how many hosts succeeded and failed. Returns the exit code; `printed` is the one of printing the
/// results.
fn print_counts(all: &[Done<'_>], printed: ProgramExit) -> ProgramExit {
    let failed: Vec<&Done<'_>> = all.iter().filter(|done| done.has_failed()).collect();
    if all.len() > 1 {
        let names = fold(failed.iter().map(|done| done.host));
        let ok = all.len() - failed.len();
        let rest = if failed.is_empty() {
            String::new()
        } else {
            format!(", {} failed: {names}", failed.len())
        };
        note(&format!("{} hosts: {ok} ok{rest}", all.len()));
        if !failed.is_empty() {
            let count = u32::try_from(failed.len()).unwrap_or(u32::MAX);
            return ProgramExit::of_status(count.min(MOST_COUNTED));
        }
        return printed;
    }
    match failed.first() {
        Some(Done {
            error: Some(error), ..
        }) => exit_of(error),
        Some(_) => ProgramExit::DECLINED,
        None => printed,
    }
}

/// The exit code of a copy that failed. The command line was valid, and an error of a file is none
/// of the connection.
fn exit_of(error: &Error) -> ProgramExit {
    if matches!(error.code, Code::InvalidArgument | Code::Io) {
        return ProgramExit::DECLINED;
    }
    ProgramExit::of_error(error)
}

/// The copies on one host.
struct Done<'a> {
    host: &'a str,
    started: SystemTime,
    took: Duration,
    copied: Vec<CopyResult>,
    error: Option<Error>,
}

impl Done<'_> {
    fn has_failed(&self) -> bool {
        self.error.is_some() || self.copied.iter().any(|copied| copied.failed > 0)
    }

    fn result(&self, command: &str) -> HostResult {
        let failed: usize = self.copied.iter().map(|copied| copied.failed).sum();
        let failure = match &self.error {
            Some(error) => Some(error.to_string()),
            None if failed > 0 => Some(format!("{failed} entries failed")),
            None => None,
        };
        HostResult {
            host: self.host.to_owned(),
            command: command.to_owned(),
            started_at: timestamp_of(self.started),
            took: self.took,
            bytes: self.copied.iter().map(|copied| copied.bytes).sum(),
            failure,
        }
    }
}

/// The hosts that a word stands for.
pub(super) async fn hosts_of(api: &Api, word: &str) -> Result<Vec<String>, Error> {
    if !crate::fleet::is_meant(word) {
        return Ok(vec![word.to_owned()]);
    }
    let words = crate::fleet::split(word)?;
    let hosts = crate::fleet::named(api, &words).await?;
    if hosts.is_empty() {
        return Err(Error::invalid(
            format!("{word:?} matches no host"),
            "`sshjobs hosts` lists the hosts",
        ));
    }
    FleetSpec::unfolded(&hosts)?;
    Ok(hosts)
}
