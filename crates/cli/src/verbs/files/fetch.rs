//! `sshjobs fetch`: the files that a job was asked to give back.

use std::path::Path;
use std::sync::Arc;

use indicatif::HumanBytes;

use super::progress::shown;
use super::put::interrupted;
use crate::args::FetchArgs;
use crate::exit::print;
use crate::json::json;
use crate::terminal::Signals;
use crate::verbs::jobs::{finish, resolve};
use crate::{ProgramExit, note, report};
use sshjobs_core::jobs::{TransferProgress, printable};
use sshjobs_wire::remote::{Api, FilesOfJob};
use sshjobs_wire::{Code, Error, FetchReply, JobEntry, ResultsEntry};

/// Copies the files of a job to a directory of this machine.
pub async fn fetch(api: &Api, args: FetchArgs) -> ProgramExit {
    finish(api, async {
        let job = resolve(api, &args.job).await?;
        let entry = api.entry(&job).await?;
        let files = files_of(&entry, &entry.fetch);
        let mut signals = Signals::catch()?;
        let reply = tokio::select! {
            reply = fetch_into(api, files, &args.directory) => reply?,
            signal = signals.next() => return Ok(interrupted(signal, true)),
        };
        let results = &reply.results;
        let told = if args.json {
            print(&json(&reply))
        } else if results.fetched.as_deref().is_some_and(<[_]>::is_empty) {
            ProgramExit::SUCCESS
        } else {
            print(&lines(results))
        };
        let failed = report_failed(&job, results);
        Ok(failed.or(told))
    })
    .await
}

/// Copies the files of a job, with a bar of progress.
async fn fetch_into(
    api: &Api,
    files: FilesOfJob<'_>,
    directory: &Path,
) -> Result<FetchReply, Error> {
    let progress = Arc::new(TransferProgress::default());
    shown(&progress, api.fetch_into(files, directory, &progress)).await
}

fn files_of<'a>(job: &'a JobEntry, patterns: &'a [String]) -> FilesOfJob<'a> {
    FilesOfJob {
        job_id: &job.job_id,
        patterns,
        is_fleet: job.members.is_some(),
    }
}

/// Copies the files of an ended job that match `patterns` to the current directory, and says how many on stderr.
pub(crate) async fn fetch_here(
    api: &Api,
    job: &JobEntry,
    patterns: &[String],
    signals: &mut Signals,
) -> (ResultsEntry, ProgramExit) {
    let reply = tokio::select! {
        reply = fetch_into(api, files_of(job, patterns), Path::new(".")) => reply,
        signal = signals.next() => {
            report(&Error::new(
                Code::ShuttingDown,
                "interrupted while files were copied back",
                format!("run `sshjobs fetch {}` to continue", job.job_id),
            ));
            return (ResultsEntry::default(), ProgramExit::signaled(signal));
        }
    };
    let reply = match reply {
        Ok(reply) => reply,
        // The command's own result matters more.
        Err(error) => {
            report(&error);
            return (ResultsEntry::default(), ProgramExit::of_error(&error));
        }
    };
    let files = reply.results.fetched.as_deref().unwrap_or_default();
    let bytes: u64 = files.iter().map(|file| file.bytes).sum();
    note(&format!(
        "fetched {}, {}",
        count(files.len()),
        HumanBytes(bytes)
    ));
    let exit = report_failed(&job.job_id, &reply.results);
    (reply.results, exit)
}

fn count(files: usize) -> String {
    match files {
        1 => "1 file".to_owned(),
        files => format!("{files} files"),
    }
}

/// A line for each file.
fn lines(results: &ResultsEntry) -> String {
    let files = results.fetched.as_deref().unwrap_or_default();
    let lines: Vec<String> = files.iter().map(|file| printable(&file.path)).collect();
    lines.join("\n")
}

/// Reports the files that were not copied.
fn report_failed(job: &str, results: &ResultsEntry) -> ProgramExit {
    let Some((first, others)) = results.fetch_failed.split_first() else {
        return ProgramExit::SUCCESS;
    };
    for why in others {
        note(&printable(why));
    }
    let error = Error::new(
        Code::Io,
        format!("not fetched: {}", printable(first)),
        format!("fix the cause, then run `sshjobs fetch {job}`"),
    );
    report(&error);
    ProgramExit::DECLINED
}
