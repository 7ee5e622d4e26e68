//! Makes records again that are damaged or missing.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use rand::RngExt;
use serde::Serialize;

use super::check::{failed, files_of, survey};
use crate::owners::Owners;
use crate::sqlite::RecordTable;
use crate::state_dir::{OWNERS, RECORDS, check, make_private};
use crate::{Record, StateDir, Store, StoreError, StoredLog};
use sshjobs_job::{Caller, JobFacts, JobId, LostWhy, Outcome, wall_now};
use sshjobs_output::RingLimits;

/// The result of a repair.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RepairReport {
    /// Where the damaged database is now. `None` if the database was whole.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub set_aside: Option<PathBuf>,
    /// Number of records that were read from the damaged database.
    pub salvaged: usize,
    /// Jobs whose records were made from the copies beside their output.
    pub rebuilt: Vec<JobId>,
    /// Jobs of which only the output is left: their commands are not known.
    pub without_command: Vec<JobId>,
}

/// Why a job that waited is not started.
const WAS_WAITING: &str =
    "its record was lost while it waited, and it may have been cancelled since";
/// The command of a job whose record is lost.
const UNKNOWN_COMMAND: &str = "# the record of this job was lost";

/// Repairs the records of a state directory: sets a damaged database aside, and makes the record of each job that has output and
/// no record that can be read. Output stays as it is. Blocking.
///
/// # Errors
/// [`StoreError::InUse`] if a process uses the directory; others if it can't be read or written.
pub fn repair_state(path: &Path) -> Result<RepairReport, StoreError> {
    check(path).map_err(failed(path))?;
    let running = Owners::running(&path.join(OWNERS)).map_err(failed(path))?;
    if !running.is_empty() {
        return Err(StoreError::InUse {
            path: path.display().to_string(),
            processes: running.join(", "),
        });
    }
    let mut report = RepairReport::default();
    if survey(path)?.check.database.is_some() {
        replace_database(path, &mut report)?;
    }
    add_missing(path, &mut report)?;
    Ok(report)
}

/// Keeps the damaged database under another name, and puts one in its place that has all that can be read of it.
fn replace_database(path: &Path, report: &mut RepairReport) -> Result<(), StoreError> {
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let aside = path.join(format!("{RECORDS}.damaged-{}", since_1970.as_secs()));
    for ending in [MAIN, WAL, SHM] {
        let from = beside(&path.join(RECORDS), ending);
        if from.exists() {
            // Copied, so that whatever happens next, the damaged one is still in its place.
            fs::copy(from, beside(&aside, ending)).map_err(failed(path))?;
        }
    }
    let fresh = path.join(format!("{RECORDS}.new"));
    for ending in [MAIN, WAL, SHM] {
        // Of a repair that was interrupted.
        remove(&beside(&fresh, ending)).map_err(failed(path))?;
    }
    make_private(&fresh).map_err(failed(path))?;
    {
        let old = RecordTable::open_unchecked(&aside)?;
        let mut new = RecordTable::open(&fresh)?;
        new.shared_secret(old.known_secret().unwrap_or_else(|| rand::rng().random()))?;
        let mut salvaged = BTreeSet::new();
        for record in old.salvage().0 {
            new.add(&record)?;
            salvaged.insert(record.id);
        }
        // Behind the first damaged page.
        let jobs = files_of(path).jobs().map_err(failed(path))?;
        for id in jobs.difference(&salvaged) {
            if let Ok(Some(record)) = old.get(id) {
                new.add(&record)?;
                report.salvaged += 1;
            }
        }
        report.salvaged += salvaged.len();
        new.add_cursors_of(&old)?;
    }
    // Closing it has removed the files beside it. Those of the old one would be taken for its own.
    for ending in [WAL, SHM] {
        remove(&beside(&path.join(RECORDS), ending)).map_err(failed(path))?;
    }
    fs::rename(fresh, path.join(RECORDS)).map_err(failed(path))?;
    report.set_aside = Some(aside);
    Ok(())
}

/// Endings of the files of a database (SQLite).
const MAIN: &str = "";
const WAL: &str = "-wal";
const SHM: &str = "-shm";

fn beside(database: &Path, ending: &str) -> PathBuf {
    let mut name = database.as_os_str().to_owned();
    name.push(ending);
    name.into()
}

fn remove(file: &Path) -> io::Result<()> {
    match fs::remove_file(file) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

/// Makes a record of each job that has output and no record that can be read.
pub(super) fn add_missing(path: &Path, report: &mut RepairReport) -> Result<(), StoreError> {
    let state = StateDir::open_unwarned(path, "sshjobs store repair")?;
    let found = survey(path)?.check;
    let unreadable = found.unreadable_records.iter().map(|id| JobId::from(id.as_str()));
    // Without files, and with a name that no job has: only its name is left.
    let is_left = |id: &JobId| state.files().has(id).unwrap_or(false);
    for id in found.without_record.into_iter().chain(unreadable.filter(is_left)) {
        let kept = state.files().kept_record(&id).map_err(failed(path))?;
        let kept = kept
            .and_then(|text| serde_json::from_slice::<Record>(&text).ok())
            .filter(|record| record.id == id);
        let list = match kept {
            Some(_) => &mut report.rebuilt,
            None => &mut report.without_command,
        };
        list.push(id.clone());
        let mut record = kept.unwrap_or_else(|| of_output(&id));
        let log = state.log(&id);
        complete(&mut record, &log).map_err(failed(path))?;
        record.stored_bytes = state.files().size(&id).map_err(failed(path))?;
        state.records().add(&record)?;
    }
    Ok(())
}

/// A record of a job of which only the output is left. It belongs to the person of this machine.
fn of_output(id: &JobId) -> Record {
    let host = id.as_str().rsplit_once('-').map_or(id.as_str(), |(host, _)| host);
    let facts = JobFacts {
        host: host.to_owned(),
        command: UNKNOWN_COMMAND.to_owned(),
        ..JobFacts::default()
    };
    Record {
        outcome: Some(Outcome::Lost(LostWhy::ServerRestarted, None)),
        ended_at: Some(wall_now()),
        ..Record::of_output(id.clone(), Caller::local(), facts)
    }
}

/// Adds what the stored output tells: its end, and its size.
fn complete(record: &mut Record, log: &Arc<StoredLog>) -> io::Result<()> {
    let end = log.open(RingLimits::default())?;
    record.total_lines = end.ring.newest().value();
    record.total_bytes = end.ring.total();
    record.last_output_at = end.last_output_at.or(record.last_output_at);
    // The copy was made before the job was sent to its host. Unless it waited in a queue, it has been since.
    let has_begun = record.total_bytes > 0 || end.outcome.is_some();
    record.is_admitted |= has_begun || !record.may_wait();
    record.is_running |= has_begun;
    if let Some((outcome, at)) = end.outcome {
        record.outcome = Some(outcome);
        record.ended_at = Some(at);
    } else if !record.is_admitted {
        // It may have been cancelled, and what was cancelled must not run.
        record.outcome = Some(Outcome::NotStarted(WAS_WAITING.to_owned()));
        record.ended_at = Some(wall_now());
    }
    Ok(())
}
