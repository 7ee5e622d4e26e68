//! Reads all of a state directory, and tells what is damaged.

use std::collections::BTreeSet;
use std::io;
use std::path::Path;
use std::sync::Arc;

use serde::Serialize;

use crate::job::JobId;
use crate::store::files::Files;
use crate::store::media::Media;
use crate::store::replay::Replay;
use crate::store::sqlite::Records;
use crate::store::state_dir::{OUTPUT, RECORDS};
use crate::store::{Body, Frame, StoreError};

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
    for (done, job) in jobs.iter().enumerate() {
        tell(done, jobs.len());
        let read = read_all_of(&files, job, ended.contains(job)).map_err(failed(path))?;
        check.bytes += read.bytes;
        if read.damaged > 0 {
            check.damaged_output.push(DamagedOutput {
                job_id: job.clone(),
                bytes: read.damaged,
            });
        }
    }
    tell(jobs.len(), jobs.len());
    Ok(check)
}

/// What the records and the names of files tell, before any output is read.
pub(super) struct Survey {
    pub(super) check: StateCheck,
    /// Jobs of which there are files.
    jobs: BTreeSet<JobId>,
    /// Jobs that have ended, by their records.
    ended: BTreeSet<JobId>,
}

pub(super) fn survey(path: &Path) -> Result<Survey, StoreError> {
    let mut check = StateCheck::default();
    let mut known = BTreeSet::new();
    let mut ended = BTreeSet::new();
    let file = path.join(RECORDS);
    if file.exists() {
        let records = Records::open_damaged(&file)?;
        check.database = records.damage();
        let (whole, unreadable) = records.salvage();
        check.jobs = whole.len();
        for record in whole {
            if record.ended_at.is_some() {
                ended.insert(record.id.clone());
            }
            known.insert(record.id);
        }
        known.extend(unreadable.iter().map(|id| JobId::from(id.as_str())));
        check.unreadable_records = unreadable;
    }
    let jobs = files_of(path).jobs().map_err(failed(path))?;
    check.without_record = jobs.difference(&known).cloned().collect();
    Ok(Survey { check, jobs, ended })
}

fn files_of(path: &Path) -> Files {
    Files {
        directory: path.join(OUTPUT),
    }
}

/// What reading all output of a job has found.
struct OutputRead {
    bytes: u64,
    damaged: u64,
}

fn read_all_of(files: &Files, job: &JobId, has_ended: bool) -> io::Result<OutputRead> {
    let mut read = OutputRead {
        bytes: 0,
        damaged: 0,
    };
    let Some(first) = files.segments(job)?.first().copied() else {
        return Ok(read);
    };
    let mut replay = Replay::new(Arc::new(files.clone()), job.clone(), first, 0);
    let data_bytes = |frame: Frame<'_>, _| match frame.body {
        Body::Data(_, bytes) => bytes.len() as u64,
        Body::Checkpoint { .. } | Body::FinishStreams | Body::End(_) => 0,
    };
    while let Some(bytes) = replay.step(data_bytes)? {
        read.bytes += bytes;
    }
    read.damaged = replay.skipped();
    // The last frame of a job that runs may be unfinished.
    if has_ended {
        read.damaged += replay.unread()?;
    }
    Ok(read)
}

pub(super) fn failed(path: &Path) -> impl Fn(io::Error) -> StoreError {
    let path = path.display().to_string();
    move |source| StoreError::Io {
        path: path.clone(),
        source: Arc::new(source),
    }
}
