//! Makes records again that are damaged or missing.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::Serialize;

use super::check::{failed, survey};
use crate::job::{Caller, JobId, LostWhy, Outcome, wall_now};
use crate::output::RingLimits;
use crate::store::owners::Owners;
use crate::store::sqlite::Records;
use crate::store::state_dir::{OWNERS, RECORDS, check, make_directory};
use crate::store::{Record, StateDir, Store, StoreError, StoredLog};

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

/// Sets the database aside, and makes another one with the records that can be read.
fn replace_database(path: &Path, report: &mut RepairReport) -> Result<(), StoreError> {
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let aside = path.join(format!("{RECORDS}.damaged-{}", since_1970.as_secs()));
    for ending in ["", "-wal", "-shm"] {
        let from = path.join(format!("{RECORDS}{ending}"));
        let to = PathBuf::from(format!("{}{ending}", aside.display()));
        if from.exists() {
            fs::rename(from, to).map_err(failed(path))?;
        }
    }
    let old = Records::open_damaged(&aside)?;
    let (whole, _) = old.salvage();
    let known_secret = old.known_secret();
    let state = StateDir::open_with(path, "sshjobs store repair", known_secret)?;
    for record in whole {
        state.records().add(&record)?;
        report.salvaged += 1;
    }
    report.set_aside = Some(aside);
    Ok(())
}

/// Makes a record of each job that has output and no record that can be read.
pub(super) fn add_missing(path: &Path, report: &mut RepairReport) -> Result<(), StoreError> {
    make_directory(path).map_err(failed(path))?;
    let state = StateDir::open_with(path, "sshjobs store repair", None)?;
    let found = survey(path)?.check;
    let unreadable = found.unreadable_records.iter().map(|id| JobId::from(id.as_str()));
    for id in found.without_record.into_iter().chain(unreadable) {
        let kept = state.files().kept_record(&id).map_err(failed(path))?;
        let kept = kept.and_then(|text| serde_json::from_slice::<Record>(&text).ok());
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
    Record {
        outcome: Some(Outcome::Lost(LostWhy::ServerRestarted, None)),
        ended_at: Some(wall_now()),
        ..Record::of_output(id.clone(), Caller::local(), host, UNKNOWN_COMMAND)
    }
}

/// Adds what the stored output tells: its end, and its size.
fn complete(record: &mut Record, log: &Arc<StoredLog>) -> std::io::Result<()> {
    let end = log.open(RingLimits::default())?;
    record.total_lines = end.ring.newest().value();
    record.total_bytes = end.ring.total();
    record.last_output_at = end.last_output_at.or(record.last_output_at);
    if let Some((outcome, at)) = end.outcome {
        record.outcome = Some(outcome);
        record.ended_at = Some(at);
    }
    Ok(())
}
