//! Copies the jobs of a state directory to the cluster, and compares the copies.
//!
//! A job's record is written last, so that a job with a record is complete. The next copy deletes the
//! output of a job without a record.

use std::io;
use std::sync::{Arc, Mutex};

use super::connection::{NatsConnection, failed};
use super::cursors::CursorBucket;
use super::entries;
use super::events::EventQueue;
use super::job_output::JobOutput;
use super::options::SECRET;
use super::output_streams::OutputStreams;
use super::race::lost_race;
use super::records::RecordBucket;
use sshjobs_base::lock::lock;
use sshjobs_output::RingLimits;
use sshjobs_store::ReplayMark;
use sshjobs_store::{CopyReport, Filter, JobLeft, Record, StateDir, Store, StoreError};
use sshjobs_store::{Media, OpenMode, SegmentPart, read_all, read_into};

/// Copies jobs.
pub(super) struct Import<'a> {
    source: &'a StateDir,
    connection: &'a Arc<NatsConnection>,
    records: RecordBucket,
    cursors: CursorBucket,
    streams: Arc<OutputStreams>,
}

/// Number of jobs that are copied at the same time.
const AT_ONCE: usize = 4;
/// Largest piece of output in a message.
const PIECE: u64 = 128 << 10;
/// Marks that are written at once: one message.
const MARKS: usize = 8;
/// Fencing token of a copy: older than that of any replica.
const TOKEN: u64 = 0;

/// The result of copying one job.
enum ImportedJob {
    /// It is in the cluster now, with this many bytes of output.
    Done(u64),
    /// It was there already.
    AlreadyThere,
    /// It was not copied, for this reason.
    Skipped(String),
}

impl<'a> Import<'a> {
    pub(super) async fn open(
        source: &'a StateDir,
        connection: &'a Arc<NatsConnection>,
    ) -> Result<Self, StoreError> {
        let settings = connection.settings().await?;
        let secret = source.secret().to_vec();
        match settings.create(SECRET, secret.clone().into()).await {
            Ok(_) => {}
            Err(error) if lost_race(&error) => {
                let known = entries::exact(&settings, SECRET).await?;
                if known.is_none_or(|known| known.value != secret) {
                    tracing::warn!(
                        "the cluster has a secret of its own, so a retry of an old request with \
                         its idempotency key is refused as a different request"
                    );
                }
            }
            Err(error) => return Err(failed(error)),
        }
        Ok(Self {
            source,
            connection,
            records: RecordBucket::open(connection, EventQueue::default()).await?,
            cursors: CursorBucket::open(connection).await?,
            streams: Arc::new(OutputStreams::open(Arc::clone(connection)).await?),
        })
    }

    /// Copies all jobs. Calls `tell` with the number of jobs done and of all jobs. Blocks the thread.
    pub(super) fn run(
        &self,
        tell: &(dyn Fn(usize, usize) + Sync),
    ) -> Result<CopyReport, StoreError> {
        let all = Filter {
            members: true,
            limit: u32::MAX as usize,
            ..Filter::default()
        };
        let (records, total) = self.source.list(&all)?;
        // The oldest first, so that an interrupted copy has a fleet's members after their fleet.
        let waiting = Mutex::new(records.into_iter().rev());
        let report = Mutex::new(CopyReport::default());
        let work = || -> Result<(), StoreError> {
            while let Some(record) = next(&waiting) {
                let id = record.id.clone();
                let copied = self.copy(&record)?;
                let mut report = lock(&report);
                match copied {
                    ImportedJob::Done(bytes) => {
                        report.copied += 1;
                        report.bytes += bytes;
                    }
                    ImportedJob::AlreadyThere => report.known += 1,
                    ImportedJob::Skipped(why) => report.left.push(JobLeft { id, why }),
                }
                tell(report.copied + report.known + report.left.len(), total);
            }
            Ok(())
        };
        std::thread::scope(|scope| {
            let workers: Vec<_> = (0..AT_ONCE).map(|_| scope.spawn(work)).collect();
            let mut results = workers.into_iter().map(|worker| worker.join());
            results.try_for_each(|result| result.expect("a copy does not panic"))
        })?;
        Ok(std::mem::take(&mut *lock(&report)))
    }

    fn copy(&self, record: &Record) -> Result<ImportedJob, StoreError> {
        if record.outcome.is_none()
            && let Some(process) = self.source.owner(&record.owner)
        {
            return Ok(ImportedJob::Skipped(format!(
                "it belongs to a process that runs: {process}"
            )));
        }
        if self.connection.wait(self.records.get_exactly(&record.id))?.is_some() {
            return Ok(ImportedJob::AlreadyThere);
        }
        if self.connection.wait(self.records.tombstone(&record.id))?.is_some() {
            return Ok(ImportedJob::Skipped(
                "it was forgotten in the cluster".to_owned(),
            ));
        }
        self.streams.note_token(&record.id, TOKEN);
        let target = self.target(record);
        target.remove_all(&record.id).map_err(failed)?;
        let copied = self.copy_output(record, &target);
        self.streams.forget_token(&record.id);
        let bytes = match copied {
            Ok(bytes) => bytes,
            Err(error) => return Ok(ImportedJob::Skipped(error.to_string())),
        };
        self.connection.wait(async {
            for (name, line) in self.source.cursors(&record.id)? {
                self.cursors.put(&record.id, &name, line).await?;
            }
            Ok::<_, StoreError>(())
        })?;
        if let Some(earlier) = self.connection.wait(self.records.admit(record))? {
            target.remove_all(&record.id).map_err(failed)?;
            self.connection.wait(self.cursors.remove(&record.id))?;
            return Ok(ImportedJob::Skipped(format!(
                "its idempotency key belongs to {} in the cluster",
                earlier.id
            )));
        }
        let stored = self.connection.wait(self.records.get_exactly(&record.id))?;
        // A replica may have claimed a durable job by now.
        let owner = record.owner.clone();
        if stored.map(|stored| Record { owner, ..stored }).as_ref() != Some(record) {
            return Ok(ImportedJob::Skipped(
                "its record is not as it was written".to_owned(),
            ));
        }
        Ok(ImportedJob::Done(bytes))
    }

    fn target(&self, record: &Record) -> JobOutput {
        JobOutput::new(Arc::clone(&self.streams), record.id.clone())
    }

    /// Copies a job's output and reads it back. Returns the number of bytes.
    fn copy_output(&self, record: &Record, target: &JobOutput) -> io::Result<u64> {
        let id = &record.id;
        let log = self.source.log(id);
        // Also finds the end of the last complete frame: a process that was killed may have left a
        // part of one.
        let end = log.open(RingLimits::default())?;
        let (last_segment, last_length) = end.position();
        let marks: Vec<ReplayMark> = log.marks();
        let source = log.media();
        let mut total = 0;
        let segments = source.segments(id)?;
        for &segment in segments.iter().filter(|segment| **segment <= last_segment) {
            let frames = source.open(id, SegmentPart::Frames(segment), OpenMode::Read)?;
            let length = if segment == last_segment {
                last_length
            } else {
                frames.length()?
            };
            // A process that was killed has left it before its first frame.
            if length == 0 {
                continue;
            }
            let own: Vec<ReplayMark> =
                marks.iter().filter(|mark| mark.segment == segment).copied().collect();
            let copy = target.open(id, SegmentPart::Frames(segment), OpenMode::Write)?;
            for (from, to) in pieces(length, own.iter().map(|mark| mark.offset)) {
                let mut bytes = vec![0; usize::try_from(to - from).map_err(io::Error::other)?];
                read_into(&mut bytes, &*frames, from)?;
                copy.append(&bytes)?;
            }
            let index = target.open(id, SegmentPart::Index(segment), OpenMode::Write)?;
            for marks in own.chunks_exact(MARKS) {
                let bytes: Vec<u8> = marks.iter().flat_map(|mark| mark.to_bytes()).collect();
                index.append(&bytes)?;
            }
            total += length;
            self.compare(record, segment, length)?;
        }
        match source.open(id, SegmentPart::Forgotten, OpenMode::Read) {
            Ok(forgotten) => {
                let bytes = read_all(&*forgotten)?;
                target.open(id, SegmentPart::Forgotten, OpenMode::Write)?.append(&bytes)?;
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        Ok(total)
    }

    /// Compares a segment with its copy, which is read without a cache.
    fn compare(&self, record: &Record, segment: u64, length: u64) -> io::Result<()> {
        let id = &record.id;
        let source = self.source.log(id);
        let source = source.media().open(id, SegmentPart::Frames(segment), OpenMode::Read)?;
        let copy = self.target(record);
        copy.catch_up()?;
        let copy = copy.open(id, SegmentPart::Frames(segment), OpenMode::Read)?;
        let differs = || {
            io::Error::other(format!(
                "the copy of the output of {id} differs in segment {segment}"
            ))
        };
        if copy.length()? != length {
            return Err(differs());
        }
        for (from, to) in pieces(length, std::iter::empty()) {
            let mut both = [Vec::new(), Vec::new()];
            for (bytes, blob) in both.iter_mut().zip([&source, &copy]) {
                bytes.resize(usize::try_from(to - from).map_err(io::Error::other)?, 0);
                read_into(bytes, &**blob, from)?;
            }
            if both[0] != both[1] {
                return Err(differs());
            }
        }
        Ok(())
    }
}

fn next<T>(waiting: &Mutex<impl Iterator<Item = T>>) -> Option<T> {
    lock(waiting).next()
}

/// Divides a segment into pieces of at most [`PIECE`] bytes. A piece starts at each mark, so that a
/// reader who starts there needs one message.
fn pieces(length: u64, marks: impl Iterator<Item = u64>) -> Vec<(u64, u64)> {
    let mut starts: Vec<u64> = marks.filter(|mark| *mark < length).collect();
    starts.push(0);
    starts.push(length);
    starts.sort_unstable();
    starts.dedup();
    let mut pieces = Vec::new();
    for pair in starts.windows(2) {
        let mut from = pair[0];
        while from < pair[1] {
            let to = pair[1].min(from + PIECE);
            pieces.push((from, to));
            from = to;
        }
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_start_at_marks_and_are_not_too_large() {
        assert_eq!(pieces(0, std::iter::empty()), []);
        let end = 2 * PIECE;
        assert_eq!(
            pieces(end, [0, 100, end].into_iter()),
            [(0, 100), (100, 100 + PIECE), (100 + PIECE, end)]
        );
    }
}
