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
use sshjobs_wire::remote::Api;
use sshjobs_wire::{Code, Error, FetchReply, ResultsEntry};

/// Copies the files of a job to a directory of this machine.
pub async fn fetch(api: &Api, args: FetchArgs) -> ProgramExit {
    finish(api, async {
        let job = resolve(api, &args.job).await?;
        let mut signals = Signals::catch()?;
        let reply = tokio::select! {
            reply = fetch_into(api, &job, &args.directory) => reply?,
            signal = signals.next() => return Ok(interrupted(signal, true)),
        };
        let results = &reply.results;
        let told = if args.json {
            print(&json(&reply))
        } else {
            print(&lines(results))
        };
        let failed = report_failed(results);
        Ok(failed.or(told))
    })
    .await
}

/// Copies the files of a job, with a bar of progress.
async fn fetch_into(api: &Api, job: &str, directory: &Path) -> Result<FetchReply, Error> {
    let progress = Arc::new(TransferProgress::default());
    shown(&progress, api.fetch_into(job, directory, &progress)).await
}

/// Copies the files of a job that has ended to the current directory, and says how many on stderr.
pub(crate) async fn fetch_here(
    api: &Api,
    job: &str,
    signals: &mut Signals,
) -> Result<(ResultsEntry, ProgramExit), Error> {
    let reply = tokio::select! {
        reply = fetch_into(api, job, Path::new(".")) => reply?,
        signal = signals.next() => {
            let exit = interrupted(signal, true);
            return Ok((ResultsEntry::default(), exit));
        }
    };
    let files = reply.results.fetched.as_deref().unwrap_or_default();
    let bytes: u64 = files.iter().map(|file| file.bytes).sum();
    note(&format!(
        "fetched {}, {}",
        count(files.len()),
        HumanBytes(bytes)
    ));
    let exit = report_failed(&reply.results);
    Ok((reply.results, exit))
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

/// Reports what was not copied.
fn report_failed(results: &ResultsEntry) -> ProgramExit {
    let Some((first, others)) = results.fetch_failed.split_first() else {
        return ProgramExit::SUCCESS;
    };
    for why in others {
        note(&printable(why));
    }
    let error = Error::new(
        Code::Io,
        format!("not fetched: {}", printable(first)),
        "mend the cause, and fetch again: `sshjobs fetch JOB`",
    );
    report(&error);
    ProgramExit::DECLINED
}
