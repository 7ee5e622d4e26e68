//! Segments as files.

use std::collections::BTreeSet;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::OFlags;

use super::media::{Blob, Media, OpenMode, SegmentPart};
use sshjobs_job::JobId;

/// Segments as files: `DIR/9z/JOB.000001.log` and `.idx`, in a folder named after the end of the
/// job's id, beside a copy of its first record (`JOB.record`) and the files that were copied back
/// (`JOB.results`). Folders are 0700, files 0600.
#[derive(Clone)]
pub(super) struct Files {
    pub(super) directory: PathBuf,
}

impl Files {
    fn folder(&self, job: &JobId) -> io::Result<PathBuf> {
        let name = job.as_str();
        let is_name =
            name.len() > 2 && name.chars().all(|c| c.is_ascii_alphanumeric() || ".-".contains(c));
        // An id may come from a caller. It must not lead out of the directory.
        match name
            .get(name.len().saturating_sub(2)..)
            .filter(|end| is_name && !end.contains('.'))
        {
            Some(end) => Ok(self.directory.join(end)),
            None => Err(io::Error::new(
                ErrorKind::InvalidInput,
                "no job has such a name",
            )),
        }
    }

    /// Keeps a copy of a job's record, from which a damaged database is rebuilt.
    pub(super) fn keep_record(&self, job: &JobId, record: &[u8]) -> io::Result<()> {
        let path = self.record_path(job)?;
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(0o600);
        self.open_in_folder(job, &path, &options)?.write_all(record)
    }

    /// The copy of a job's record. `None` if there is none.
    pub(super) fn kept_record(&self, job: &JobId) -> io::Result<Option<Vec<u8>>> {
        match fs::read(self.record_path(job)?) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            read => read.map(Some),
        }
    }

    /// Whether there is something of a job.
    pub(super) fn has(&self, job: &JobId) -> io::Result<bool> {
        Ok(!self.parts(job)?.is_empty() || self.record_path(job)?.exists())
    }

    /// Bytes of a job's stored output.
    pub(super) fn size(&self, job: &JobId) -> io::Result<u64> {
        let mut bytes = 0;
        for part in self.parts(job)? {
            bytes += fs::metadata(self.path(job, part)?)?.len();
        }
        Ok(bytes)
    }

    /// All jobs of which there is something, by their ids. Files with other names are passed over.
    pub(super) fn jobs(&self) -> io::Result<BTreeSet<JobId>> {
        let mut jobs = BTreeSet::new();
        let folders = match fs::read_dir(&self.directory) {
            // It is made with the first start of a process.
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(jobs),
            folders => folders?,
        };
        for folder in folders {
            let folder = folder?;
            if !folder.file_type()?.is_dir() {
                continue;
            }
            for entry in fs::read_dir(folder.path())? {
                let name = entry?.file_name();
                let Some(name) = name.to_str() else { continue };
                let job = job_of(name).map(JobId::from);
                let is_here = |job: &JobId| self.folder(job).is_ok_and(|own| own == folder.path());
                jobs.extend(job.filter(is_here));
            }
        }
        Ok(jobs)
    }

    /// The directory for files that were copied back from the job's host.
    pub(super) fn results(&self, job: &JobId) -> io::Result<PathBuf> {
        Ok(self.folder(job)?.join(format!("{job}.results")))
    }

    fn record_path(&self, job: &JobId) -> io::Result<PathBuf> {
        Ok(self.folder(job)?.join(format!("{job}{RECORD}")))
    }

    fn open_in_folder(&self, job: &JobId, path: &Path, options: &OpenOptions) -> io::Result<File> {
        match options.open(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                // Not recursive: if the state directory was removed, it must not be created again,
                // because no process would find it.
                match DirBuilder::new().mode(0o700).create(self.folder(job)?) {
                    Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(error),
                    // The folder exists now: this call, or one for another job, has created it.
                    Ok(()) | Err(_) => options.open(path),
                }
            }
            opened => opened,
        }
    }

    fn path(&self, job: &JobId, part: SegmentPart) -> io::Result<PathBuf> {
        let name = match part {
            SegmentPart::Frames(segment) => format!("{job}.{segment:06}.log"),
            SegmentPart::Index(segment) => format!("{job}.{segment:06}.idx"),
            SegmentPart::Filters(segment) => format!("{job}.{segment:06}.filters"),
            SegmentPart::Forgotten => format!("{job}.forgotten"),
        };
        Ok(self.folder(job)?.join(name))
    }

    /// The parts of a job that exist.
    fn parts(&self, job: &JobId) -> io::Result<Vec<SegmentPart>> {
        let entries = match fs::read_dir(self.folder(job)?) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries?,
        };
        let mut parts = Vec::new();
        for entry in entries {
            let name = entry?.file_name();
            // The folder also has the parts of other jobs whose ids end in the same way.
            let rest = name
                .to_str()
                .and_then(|name| name.strip_prefix(job.as_str())?.strip_prefix('.'));
            parts.extend(rest.and_then(part));
        }
        Ok(parts)
    }
}

/// Ending of the copy of a job's record.
const RECORD: &str = ".record";

/// The id of the job that a file belongs to. It may have dots itself, as its host's name.
fn job_of(name: &str) -> Option<&str> {
    if let Some(job) = name.strip_suffix(RECORD).or_else(|| name.strip_suffix(".forgotten")) {
        return Some(job);
    }
    let (before, _) = name
        .strip_suffix(".log")
        .or_else(|| name.strip_suffix(".idx"))
        .or_else(|| name.strip_suffix(".filters"))?
        .rsplit_once('.')?;
    Some(before)
}

/// Parses the name of a part, without the job's id.
fn part(name: &str) -> Option<SegmentPart> {
    match name.split_once('.') {
        Some((segment, "log")) => Some(SegmentPart::Frames(segment.parse().ok()?)),
        Some((segment, "idx")) => Some(SegmentPart::Index(segment.parse().ok()?)),
        Some((segment, "filters")) => Some(SegmentPart::Filters(segment.parse().ok()?)),
        _ => (name == "forgotten").then_some(SegmentPart::Forgotten),
    }
}

impl Media for Files {
    fn segments(&self, job: &JobId) -> io::Result<Vec<u64>> {
        let mut segments: Vec<u64> = self
            .parts(job)?
            .iter()
            .filter_map(|part: &SegmentPart| {
                if let SegmentPart::Frames(number) = part {
                    Some(*number)
                } else {
                    None
                }
            })
            .collect();
        // A directory lists its entries in any order.
        segments.sort_unstable();
        Ok(segments)
    }

    fn open(&self, job: &JobId, part: SegmentPart, access: OpenMode) -> io::Result<Arc<dyn Blob>> {
        let path = self.path(job, part)?;
        let mut options = OpenOptions::new();
        // Opening a FIFO would wait for its other end.
        options.read(true).custom_flags(OFlags::NONBLOCK.bits().cast_signed());
        if access == OpenMode::Write {
            options.append(true).create(true).mode(0o600);
        }
        let file = match access {
            OpenMode::Read => options.open(&path)?,
            OpenMode::Write => self.open_in_folder(job, &path, &options)?,
        };
        Ok(Arc::new(file))
    }

    fn remove(&self, job: &JobId, segment: u64) -> io::Result<()> {
        for part in SegmentPart::of_segment(segment) {
            missing_is_fine(fs::remove_file(self.path(job, part)?))?;
        }
        // Again, because they may have been written at this moment.
        missing_is_fine(fs::remove_file(
            self.path(job, SegmentPart::Filters(segment))?,
        ))
    }

    fn remove_all(&self, job: &JobId) -> io::Result<()> {
        // Again, because filters may be written at this moment. Once no frames are left, no process adds a part.
        for _ in 0..2 {
            for part in self.parts(job)? {
                missing_is_fine(fs::remove_file(self.path(job, part)?))?;
            }
        }
        missing_is_fine(fs::remove_dir_all(self.results(job)?))?;
        missing_is_fine(fs::remove_file(self.record_path(job)?))
    }
}

fn missing_is_fine(removed: io::Result<()>) -> io::Result<()> {
    match removed {
        // Every process sweeps, so another one may have deleted the file first.
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

impl Blob for File {
    fn append(&self, bytes: &[u8]) -> io::Result<()> {
        let mut file = self;
        file.write_all(bytes)
    }

    fn truncate(&self, length: u64) -> io::Result<()> {
        self.set_len(length)
    }

    fn length(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        loop {
            match FileExt::read_at(self, buffer, position) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                read => return read,
            }
        }
    }

    fn sync(&self) -> io::Result<()> {
        // fdatasync(2) also writes the new length, which is needed to read the bytes.
        self.sync_data()
    }
}
