//! A job's stored output: opening, windows for readers, following, deleting.

use std::io::{self, ErrorKind};
use std::sync::{Arc, Mutex};

use bytes::Bytes;

use super::frame::{Body, Frame};
use super::mark::{ReplayMark, ReplayMarks};
use super::media::{Media, News, OpenMode, SegmentPart, read_all};
use super::replay::Replay;
use sshjobs_base::lock::lock;
use sshjobs_job::{
    Archive, Coverage, JobId, LineRange, LineSieve, LogEvent, Outcome, OutputSpan, RecordedPiece,
    RecordingPlace, Skimmed, SpanStart, StoredPieces,
};
use sshjobs_output::{
    Checkpoint, LineNo, Measure, Ring, RingLimits, RingOrigin, Selection, Stream, Timestamp,
};

/// A job's stored output: positions at which replays can start, and its range.
pub struct StoredLog {
    pub(super) media: Arc<dyn Media>,
    pub(super) job: JobId,
    pub(super) state: Mutex<StoredLogState>,
    /// Held while output is deleted, so that of two deletions at once none undoes the other.
    deleting: Mutex<()>,
}

#[derive(Debug, Default)]
pub(super) struct StoredLogState {
    pub(super) marks: ReplayMarks,
    /// The last line stored.
    pub(super) newest: LineNo,
    /// For each stream, the position after its deleted output.
    pub(super) forgotten: RingOrigin,
}

/// End of a stored log.
pub struct StoredEnd {
    /// A ring with its last part.
    pub ring: Ring,
    /// The job's outcome and its time, if stored.
    pub outcome: Option<(Outcome, Timestamp)>,
    /// Arrival of the last bytes.
    pub last_output_at: Option<Timestamp>,
    /// A replay positioned after the last complete frame.
    pub(super) replay: Replay,
}

/// Size of most windows in bytes: a page, and the bytes between it and the previous mark.
const PAGE: usize = 384 << 10;
/// Maximum size of a window. A reader that needs more calls again.
const WINDOW: usize = 4 << 20;
/// Bytes of one part of a recording.
const RECORDING: usize = 1 << 20;
/// Bytes at the end of a log that are read when it is opened: readers of its end need no window.
const END: u64 = 1 << 20;

impl StoredEnd {
    /// Segment and position after the last complete frame.
    pub fn position(&self) -> (u64, u64) {
        self.replay.position()
    }
}

impl StoredLog {
    /// The log of a job without stored output.
    pub fn new(media: Arc<dyn Media>, job: JobId) -> Self {
        Self {
            media,
            job,
            state: Mutex::default(),
            deleting: Mutex::default(),
        }
    }

    /// The storage of its segments.
    pub fn media(&self) -> &dyn Media {
        &*self.media
    }

    /// The positions at which a replay can start, in ascending order. Complete once the log was
    /// opened.
    pub fn marks(&self) -> Vec<ReplayMark> {
        lock(&self.state).marks.to_vec()
    }

    /// Tells when another process has appended output.
    pub fn news(&self) -> News {
        self.media.news()
    }

    /// Makes sure that later reads find all output that is stored now. Needed before a log is
    /// continued, and before a reader is told that there is no more.
    pub fn catch_up(&self) -> io::Result<()> {
        self.media.catch_up()
    }

    /// Opens a log: reads its index, and its last part into a ring within `limits`. Ignores a torn
    /// end.
    pub fn open(&self, limits: RingLimits) -> io::Result<StoredEnd> {
        let mut marks = Vec::new();
        for segment in self.media.segments(&self.job)? {
            marks.extend(self.marks_of(segment)?);
        }
        let from = self.begin_of_end(&marks);
        let position = from.map_or((1, 0), |mark| (mark.segment, mark.offset));
        let mut end = StoredEnd {
            ring: Ring::new(limits),
            outcome: None,
            last_output_at: None,
            replay: Replay::new(
                Arc::clone(&self.media),
                self.job.clone(),
                position.0,
                position.1,
            ),
        };
        // Before `follow`, which adds marks that are in no index yet.
        *lock(&self.state) = StoredLogState {
            marks: ReplayMarks::new(marks),
            newest: LineNo::START,
            forgotten: self.read_forgotten()?,
        };
        while self.follow(&mut end, limits, |_, _| ())? {}
        let forgotten = lock(&self.state).forgotten;
        for stream in Stream::ALL {
            end.ring.forget_until(stream, forgotten.position(stream).last_line);
        }
        Ok(end)
    }

    /// The index of a segment. Rebuilt if it is missing.
    fn marks_of(&self, segment: u64) -> io::Result<Vec<ReplayMark>> {
        let index = self.media.open(&self.job, SegmentPart::Index(segment), OpenMode::Read);
        let marks = match index.and_then(|index| read_all(&*index)) {
            Ok(bytes) => ReplayMark::read_all(segment, &bytes),
            Err(_) => Vec::new(),
        };
        if !marks.is_empty() {
            return Ok(marks);
        }
        let mut marks = Vec::new();
        let mut replay = Replay::new(Arc::clone(&self.media), self.job.clone(), segment, 0);
        let mut is_here = true;
        while is_here
            && replay
                .step(|frame, position| {
                    // The replay does not stop at the end of the segment.
                    is_here = position.0 == segment;
                    if is_here && let Body::Checkpoint { checkpoint, .. } = frame.body {
                        let origin = checkpoint.origin;
                        marks.push(ReplayMark {
                            segment,
                            offset: position.1,
                            at: frame.at,
                            // Lines are not counted here, so gaps in this segment stay unknown.
                            before: origin.newest,
                            origin,
                        });
                    }
                })?
                .is_some()
        {}
        Ok(marks)
    }

    /// The mark at which to start reading the last part.
    fn begin_of_end(&self, marks: &[ReplayMark]) -> Option<ReplayMark> {
        let wanted = bytes_before(marks.last()?).saturating_sub(END);
        let index = marks.partition_point(|mark| bytes_before(mark) <= wanted).saturating_sub(1);
        // A ring can't hold lines from both sides of a gap, so start after the last gap.
        let gap = marks.iter().rposition(|mark| mark.gap().is_some()).unwrap_or(0);
        marks.get(index.max(gap)).copied()
    }

    /// Reads the next frame into the ring of `end`, and calls `tell` with its event. Returns false
    /// if the next frame is not stored yet.
    pub fn follow(
        &self,
        end: &mut StoredEnd,
        limits: RingLimits,
        mut tell: impl FnMut(&LogEvent, Timestamp),
    ) -> io::Result<bool> {
        let StoredEnd {
            ring,
            outcome,
            last_output_at,
            replay,
        } = end;
        let stepped = replay.step(|Frame { at, body }, position| match body {
            Body::Checkpoint {
                line_bytes,
                checkpoint,
            } => {
                // Before a gap replaces the ring: the last line before the gap.
                let before = ring.newest();
                // If nothing is missing, the replay has arrived at the same state.
                let is_gap = ring.checkpoint() != *checkpoint;
                // Cut as the log's writer has cut, so that line numbers agree.
                let line_bytes = usize::try_from(line_bytes).unwrap_or(limits.line_bytes);
                // Without a gap only the length of lines differs, and the ring has no lines yet.
                if is_gap || ring.limits().line_bytes != line_bytes {
                    *ring = Ring::resumed(
                        RingLimits {
                            line_bytes,
                            ..ring.limits()
                        },
                        &checkpoint,
                    );
                }
                if is_gap {
                    tell(&LogEvent::Gap(checkpoint.clone()), at);
                }
                self.add_mark(position, at, (before, &checkpoint));
            }
            Body::Data(source, bytes) => {
                ring.append(source, bytes, at);
                *last_output_at = Some(at);
                tell(&LogEvent::Append(source, Bytes::copy_from_slice(bytes)), at);
            }
            Body::FinishStreams => {
                finish(ring, at);
                tell(&LogEvent::FinishStreams, at);
            }
            Body::End(stored) => {
                finish(ring, at);
                let known = serde_json::from_slice(stored).unwrap_or(Outcome::Closed);
                tell(&LogEvent::End(known.clone()), at);
                outcome.get_or_insert((known, at));
            }
        })?;
        lock(&self.state).newest = ring.newest();
        Ok(stepped.is_some())
    }

    fn add_mark(
        &self,
        (segment, offset): (u64, u64),
        at: Timestamp,
        (newest, checkpoint): (LineNo, &Checkpoint),
    ) {
        let mut state = lock(&self.state);
        let place = (segment, offset);
        // When a log is opened, its last checkpoints are replayed, but their marks are known.
        if state.marks.last().is_none_or(|last| (last.segment, last.offset) < place) {
            let origin = checkpoint.origin;
            let before = if state.marks.is_empty() {
                origin.newest
            } else {
                newest.min(origin.newest)
            };
            state.marks.push(ReplayMark {
                segment,
                offset,
                at,
                before,
                origin,
            });
        }
    }

    /// The mark at which a window for a span starts: the last one before it, or a later one if
    /// nothing of the selection is in between.
    fn mark_for(&self, span: OutputSpan) -> Option<ReplayMark> {
        let state = lock(&self.state);
        let marks = &state.marks;
        let behind = marks.partition_point(|mark| match span.start {
            SpanStart::After(line_no) => mark.origin.newest <= line_no,
            SpanStart::At(position, measure) => {
                mark.origin.extent(span.selection, measure) <= position
            }
        });
        let first = behind.saturating_sub(1);
        let lines = marks.get(first)?.origin.extent(span.selection, Measure::Lines);
        // Number of marks with no selected line between them, `first` included.
        let same = marks[first..]
            .partition_point(|mark| mark.origin.extent(span.selection, Measure::Lines) <= lines);
        match span.start {
            SpanStart::After(_) => marks.get(first + same.saturating_sub(1)).copied(),
            // A later mark lies after the position.
            SpanStart::At(..) => marks.get(first).copied(),
        }
    }

    fn read_window(
        &self,
        span: OutputSpan,
        enough: &dyn Fn(&Ring) -> bool,
    ) -> io::Result<Option<Ring>> {
        let Some(mark) = self.mark_for(span) else { return Ok(None) };
        let mut replay = Replay::new(
            Arc::clone(&self.media),
            self.job.clone(),
            mark.segment,
            mark.offset,
        );
        let mut ring = None::<Ring>;
        let mut bytes = 0;
        let mut is_over = false;
        // Copied, so that no lock is held while files are read.
        let forgotten = lock(&self.state).forgotten;
        while !is_over {
            let stepped = replay.step(|Frame { at, body }, _| {
                match (&mut ring, body) {
                    (Some(ring), Body::Data(source, data)) => {
                        ring.append(source, data, at);
                        let forgotten = forgotten.position(source.stream);
                        // At once, so that deleted lines don't make the window look full.
                        ring.forget_until(source.stream, forgotten.last_line);
                        bytes += data.len();
                    }
                    (Some(ring), Body::FinishStreams | Body::End(_)) => finish(ring, at),
                    (Some(ring), Body::Checkpoint { checkpoint, .. })
                        if ring.checkpoint() == *checkpoint => {}
                    // Output after a gap is for the next window, if there is something before it.
                    (Some(ring), Body::Checkpoint { .. }) if span.is_followed_in(ring) => {
                        is_over = true
                    }
                    (
                        _,
                        Body::Checkpoint {
                            line_bytes,
                            checkpoint,
                        },
                    ) => {
                        let mut resumed = Ring::resumed(unbounded(line_bytes), &checkpoint);
                        resumed.reserve(PAGE);
                        ring = Some(resumed);
                    }
                    // Marks point at checkpoints, so this mark does not fit its segment.
                    (None, Body::Data(..) | Body::FinishStreams | Body::End(_)) => is_over = true,
                }
                // A window without selected lines would look like the end of the output.
                if let Some(ring) = &ring {
                    is_over |= bytes >= WINDOW && span.is_followed_in(ring);
                    is_over |= enough(ring);
                }
            })?;
            is_over |= stepped.is_none();
        }
        // Again, because the end of a stream may have turned a deleted unfinished line into a line.
        if let Some(ring) = &mut ring {
            for stream in Stream::ALL {
                ring.forget_until(stream, forgotten.position(stream).last_line);
            }
        }
        Ok(ring)
    }

    /// Stores which output is deleted, and removes segments that contain no other output.
    fn write_forgotten(&self, forgotten: RingOrigin) -> io::Result<()> {
        let origin = ReplayMark {
            segment: 0,
            offset: 0,
            at: 0,
            before: LineNo::START,
            origin: forgotten,
        };
        self.media
            .open(&self.job, SegmentPart::Forgotten, OpenMode::Write)?
            .append(&origin.to_bytes())?;
        let gone = forgotten.stdout.last_line.min(forgotten.stderr.last_line);
        let segments = self.media.segments(&self.job)?;
        // The next segment's first mark is the end of a segment. The last one is never deleted.
        for pair in segments.windows(2) {
            if lock(&self.state)
                .marks
                .iter()
                .any(|mark: &ReplayMark| mark.segment == pair[1] && mark.origin.newest <= gone)
            {
                self.media.remove(&self.job, pair[0])?;
            }
        }
        self.drop_missing_segments();
        Ok(())
    }

    /// The deleted output, as all lists in the store name it together: two machines may have
    /// written one each at the same time.
    fn read_forgotten(&self) -> io::Result<RingOrigin> {
        let opened = self.media.open(&self.job, SegmentPart::Forgotten, OpenMode::Read);
        let bytes = match opened.and_then(|blob| read_all(&*blob)) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(RingOrigin::default()),
            Err(error) => return Err(error),
        };

        let mut forgotten = RingOrigin::default();
        for list in ReplayMark::read_all(0, &bytes) {
            extend(&mut forgotten, &list.origin, Selection::Both);
        }
        Ok(forgotten)
    }

    /// Adds the output that is deleted in the store to the output that is known to be deleted here.
    fn learn_forgotten(&self) -> io::Result<RingOrigin> {
        let stored = self.read_forgotten()?;
        let mut state = lock(&self.state);
        extend(&mut state.forgotten, &stored, Selection::Both);
        Ok(state.forgotten)
    }

    /// Deletes all output of the selected streams before an origin.
    fn forget_before(&self, origin: &RingOrigin, selection: Selection) -> io::Result<()> {
        // First, so that readers of this process don't get it even if the store can't be written.
        extend(&mut lock(&self.state).forgotten, origin, selection);
        // The new list has everything that the old ones have, and replaces them.
        let forgotten = self.learn_forgotten()?;
        self.write_forgotten(forgotten)
    }
}

/// Moves the end of the deleted output to an origin, where that is later. A call that began earlier may
/// end later: what is deleted stays deleted.
fn extend(forgotten: &mut RingOrigin, origin: &RingOrigin, selection: Selection) {
    for stream in Stream::ALL.into_iter().filter(|&stream| selection.contains(stream)) {
        let known = forgotten.position_mut(stream);
        if origin.position(stream).last_line > known.last_line {
            *known = *origin.position(stream);
        }
    }
}

/// The bytes of a frame, without those that are deleted. Moves the place on.
fn recorded(
    frame: &Frame<'_>,
    place: &mut RecordingPlace,
    deleted: &RingOrigin,
) -> Option<RecordedPiece> {
    match &frame.body {
        Body::Checkpoint { checkpoint, .. } => {
            place.stdout = checkpoint.origin.stdout.bytes + checkpoint.stdout.bytes.len() as u64;
            place.stderr = checkpoint.origin.stderr.bytes + checkpoint.stderr.bytes.len() as u64;
            None
        }
        Body::Data(source, bytes) => {
            let position = match source.stream {
                Stream::Stdout => &mut place.stdout,
                Stream::Stderr => &mut place.stderr,
            };
            let start = *position;
            *position += bytes.len() as u64;
            let gone = deleted.position(source.stream).bytes.saturating_sub(start);
            let kept = bytes.get(usize::try_from(gone).ok()?..)?;
            (!kept.is_empty()).then(|| RecordedPiece {
                at: frame.at,
                source: *source,
                bytes: Bytes::copy_from_slice(kept),
                position: start + gone,
            })
        }
        Body::FinishStreams | Body::End(_) => None,
    }
}

/// Limits that a window never reaches: [`WINDOW`] ends it first.
fn unbounded(line_bytes: u64) -> RingLimits {
    let line_bytes = usize::try_from(line_bytes).unwrap_or(usize::MAX);
    RingLimits {
        lines: usize::MAX,
        bytes: usize::MAX / 2,
        line_bytes,
    }
}

fn finish(ring: &mut Ring, at: Timestamp) {
    for stream in Stream::ALL {
        ring.finish(stream, at);
    }
}

impl Archive for StoredLog {
    fn window(&self, span: OutputSpan, enough: &dyn Fn(&Ring) -> bool) -> Option<Ring> {
        // A segment of the first attempt may have been deleted meanwhile; the second leaves it out.
        for _ in 0..2 {
            match self.read_window(span, enough) {
                Ok(Some(ring)) => return Some(ring),
                Ok(None) => self.drop_missing_segments(),
                Err(error) => {
                    tracing::warn!(job = %self.job, %error, "stored output can't be read");
                    return None;
                }
            }
        }
        None
    }

    fn skim(
        &self,
        lines: LineRange,
        selection: Selection,
        sieve: &mut dyn LineSieve,
    ) -> Option<Skimmed> {
        // The search line by line meets the same error and reports it.
        self.skim_through(lines, selection, sieve).ok().flatten()
    }

    fn recording(&self, from: Option<RecordingPlace>) -> io::Result<StoredPieces> {
        let deleted = self.learn_forgotten()?;
        let mut place = match from {
            Some(place) => place,
            None => match self.media.segments(&self.job)?.first() {
                Some(&segment) => RecordingPlace {
                    segment,
                    ..RecordingPlace::default()
                },
                None => return Ok(StoredPieces::default()),
            },
        };
        let media = Arc::clone(&self.media);
        let mut replay = Replay::new(media, self.job.clone(), place.segment, place.offset);
        let mut pieces = Vec::new();
        let mut bytes = 0;
        while bytes < RECORDING {
            let stepped = replay.step(|frame, _| {
                let piece = recorded(&frame, &mut place, &deleted);
                bytes += piece.as_ref().map_or(0, |piece| piece.bytes.len());
                pieces.extend(piece);
            })?;
            if stepped.is_none() {
                return Ok(StoredPieces { pieces, next: None });
            }
        }
        (place.segment, place.offset) = replay.position();
        Ok(StoredPieces {
            pieces,
            next: Some(place),
        })
    }

    fn coverage(&self) -> Coverage {
        let state = lock(&self.state);
        let Some(first) = state.marks.first() else { return Coverage::default() };
        let mut begin = first.origin;
        let mut forgotten = 0;
        for stream in Stream::ALL {
            let known = begin.position_mut(stream);
            let gone = state.forgotten.position(stream);
            if gone.last_line > known.last_line {
                forgotten += gone.lines.saturating_sub(known.lines);
                *known = *gone;
            }
        }
        Coverage {
            begin,
            last: state.newest,
            gaps: state.marks.gaps().to_vec(),
            forgotten,
        }
    }

    fn forget(&self, selection: Selection, last: LineNo) {
        let rest = OutputSpan::after(last, Selection::Both);
        // Readers see the log only between two events, and an event is one frame,
        // so the ring ends exactly at `last`.
        let end = self.read_window(rest, &|ring| ring.newest() >= last);
        let origin = match end {
            Ok(Some(ring)) => ring.origin(),
            Ok(None) => return,
            Err(error) => {
                tracing::warn!(job = %self.job, %error, "stored output can't be forgotten");
                return;
            }
        };
        let _deleting = lock(&self.deleting);
        if let Err(error) = self.forget_before(&origin, selection) {
            tracing::warn!(job = %self.job, %error, "it can't be stored that output was forgotten");
        }
    }

    fn read_deleted(&self) -> io::Result<RingOrigin> {
        let _deleting = lock(&self.deleting);
        self.learn_forgotten()
    }
}

impl StoredLog {
    fn drop_missing_segments(&self) {
        let there = self.media.segments(&self.job).unwrap_or_default();
        lock(&self.state).marks.keep(|segment| there.contains(&segment));
    }
}

impl std::fmt::Debug for StoredLog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StoredLog").field("job", &self.job).finish_non_exhaustive()
    }
}

/// Bytes of both streams before a mark.
fn bytes_before(mark: &ReplayMark) -> u64 {
    mark.origin.stdout.bytes + mark.origin.stderr.bytes
}
