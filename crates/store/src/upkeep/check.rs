//! Reads all of a state directory, and tells what is damaged.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;
use std::sync::Arc;

use serde::Serialize;

use crate::files::Files;
use crate::media::Media;
use crate::replay::Replay;
use crate::sqlite::RecordTable;
use crate::state_dir::{OUTPUT, RECORDS};
use crate::{Body, Frame, StoreError};
use sshjobs_job::JobId;

/// The result of a check.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct StateCheck {
    /// Number of jobs whose records are whole.
    pub jobs: usize,
    /// Bytes of output that were read.
    pub bytes: u64,
    /// What is wrong with `jobs.db`, in SQLite's words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub database: Option<String>,
    /// Jobs whose records can't be understood.
    pub unreadable_records: Vec<String>,
    /// Jobs that have output and no record.
    pub without_record: Vec<JobId>,
    /// Jobs of whose output a part is damaged.
    pub damaged_output: Vec<DamagedOutput>,
}

/// Damage in the output of a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DamagedOutput {
    /// The job.
    pub job_id: JobId,
    /// Stored bytes that can't be read. The lines in them count as dropped.
    pub bytes: u64,
    /// Number of files that are missing between others.
    pub missing_files: u64,
    /// Why the rest could not be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl StateCheck {
    /// Whether nothing is damaged.
    pub fn is_whole(&self) -> bool {
        self.is_complete() && self.damaged_output.is_empty()
    }

    /// Whether every job has a record that can be read: there is nothing to repair.
    pub fn is_complete(&self) -> bool {
        self.database.is_none()
            && self.unreadable_records.is_empty()
            && self.without_record.is_empty()
    }
}

/// Checks a state directory, and changes nothing in it. Servers may use it meanwhile. Calls `tell` with the number of jobs done
/// and of all jobs. Blocking.
///
/// # Errors
/// If the directory can't be read.
pub fn check_state(path: &Path, tell: &dyn Fn(usize, usize)) -> Result<StateCheck, StoreError> {
    let Survey {
        mut check,
        jobs,
        ended,
    } = survey(path)?;
    let files = files_of(path);
    let with_output = ended.iter().filter(|(_, bytes)| **bytes > 0).map(|(job, _)| job);
    let jobs: BTreeSet<&JobId> = jobs.iter().chain(with_output).collect();
    for (done, job) in jobs.iter().enumerate() {
        tell(done, jobs.len());
        let (bytes, damaged) = read_all_of(&files, job, ended.get(job).copied());
        check.bytes += bytes;
        check.damaged_output.extend(damaged);
    }
    tell(jobs.len(), jobs.len());
    Ok(check)
}

/// What the records and the names of files tell, before any output is read.
pub(super) struct Survey {
    pub(super) check: StateCheck,
    /// Jobs of which there are files.
    jobs: BTreeSet<JobId>,
    /// Jobs that have ended, by their records, with the bytes of output that must be there.
    ended: BTreeMap<JobId, u64>,
}

pub(super) fn survey(path: &Path) -> Result<Survey, StoreError> {
    let mut check = StateCheck::default();
    let mut known = BTreeSet::new();
    let mut ended = BTreeMap::new();
    let files = files_of(path);
    // Before the records: of a job that is admitted meanwhile, there is a record and perhaps a file.
    let jobs = files.jobs().map_err(failed(path))?;
    let records = path.join(RECORDS);
    if records.exists() {
        let records = RecordTable::open_unchecked(&records)?;
        check.database = records.damage()?;
        let (whole, unreadable) = records.salvage();
        check.jobs = whole.len();
        for record in whole {
            if record.ended_at.is_some() {
                // Output may have been deleted, or could not be stored. Lines that were still in memory then
                // do not count as dropped, but the store has fewer bytes than the job has printed.
                let is_all_stored =
                    record.stored_bytes >= record.total_bytes && record.dropped_lines == 0;
                let bytes = if is_all_stored { record.total_bytes } else { 0 };
                ended.insert(record.id.clone(), bytes);
            }
            known.insert(record.id);
        }
        known.extend(unreadable.iter().map(|id| JobId::from(id.as_str())));
        check.unreadable_records = unreadable;
    }
    // Not of jobs that were forgotten meanwhile.
    let is_left = |job: &&JobId| files.has(job).unwrap_or(false);
    check.without_record = jobs.difference(&known).filter(is_left).cloned().collect();
    Ok(Survey { check, jobs, ended })
}

pub(super) fn files_of(path: &Path) -> Files {
    Files {
        directory: path.join(OUTPUT),
    }
}

/// Reads all output of a job. Returns its bytes, and what is damaged. `expected` are the bytes that a job that has ended must
/// have at least.
fn read_all_of(files: &Files, job: &JobId, expected: Option<u64>) -> (u64, Option<DamagedOutput>) {
    let mut bytes = 0;
    let mut damaged = DamagedOutput {
        job_id: job.clone(),
        bytes: 0,
        missing_files: 0,
        error: None,
    };
    let mut read = || -> io::Result<()> {
        let segments = files.segments(job)?;
        let mut before = None;
        for (index, &segment) in segments.iter().enumerate() {
            let is_next = before == segment.checked_sub(1);
            if index > 0 && is_next {
                before = Some(segment);
                continue;
            }
            // The oldest files may have been evicted, but none between others.
            damaged.missing_files += before.map_or(0, |before| segment - before - 1);
            before = Some(segment);
            let mut replay = Replay::new(Arc::new(files.clone()), job.clone(), segment, 0);
            while let Some(read) = replay.step(data_bytes)? {
                bytes += read;
            }
            damaged.bytes += replay.skipped();
            // The last frame of a job that runs may be unfinished.
            if expected.is_some() {
                damaged.bytes += replay.unread()?;
            }
        }
        Ok(())
    };
    damaged.error = read().err().map(|error| error.to_string());
    // Of whole files that are gone or were cut, nothing else tells.
    let missing = expected.unwrap_or(0).saturating_sub(bytes);
    damaged.bytes = damaged.bytes.max(missing);
    let is_damaged = damaged.bytes > 0 || damaged.missing_files > 0 || damaged.error.is_some();
    (bytes, is_damaged.then_some(damaged))
}

fn data_bytes(frame: Frame<'_>, _position: (u64, u64)) -> u64 {
    match frame.body {
        Body::Data(_, bytes) => bytes.len() as u64,
        Body::Checkpoint { .. } | Body::FinishStreams | Body::End(_) => 0,
    }
}

pub(super) fn failed(path: &Path) -> impl Fn(io::Error) -> StoreError {
    let path = path.display().to_string();
    move |source| StoreError::Io {
        path: path.clone(),
        source: Arc::new(source),
    }
}
