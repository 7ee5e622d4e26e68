//! Skips stored output in which a pattern can't match.

use std::io;
use std::sync::Arc;

use memchr::memchr_iter;

use super::filter::{PiecePlace, SegmentFilters};
use super::frame::Body;
use super::mark::ReplayMark;
use super::replay::Replay;
use super::stored_log::StoredLog;
use sshjobs_base::lock::lock;
use sshjobs_job::{LineRange, LineSieve, Skimmed};
use sshjobs_output::{Checkpoint, LineNo, Measure, Selection, Stream, is_verbatim};

/// Lines that are matched together: the first one that may match, and those behind it.
const NEAR: u64 = 32;

/// Reads a stored log from checkpoint to checkpoint without dividing it into lines.
pub(super) struct Skim {
    replay: Replay,
    /// The checkpoint at which the next piece starts.
    next: PieceStart,
    stdout: Vec<u8>,
    stderr: Vec<u8>,
}

/// The output between two checkpoints.
pub(super) struct Piece<'a> {
    pub(super) place: PiecePlace,
    start: PieceStart,
    stdout: &'a [u8],
    stderr: &'a [u8],
}

/// The checkpoint before a piece.
struct PieceStart {
    /// Its segment and position.
    place: (u64, u64),
    checkpoint: Checkpoint,
    line_bytes: usize,
}

/// Rules out pieces, by their filters or their text.
struct Sifting<'a> {
    log: &'a StoredLog,
    selection: Selection,
    sieve: &'a mut dyn LineSieve,
    filters: Option<KnownFilters>,
    /// For all pieces, because most start where the last one ended.
    skim: Option<Skim>,
}

/// The filters of a segment, if it has any.
struct KnownFilters {
    segment: u64,
    filters: Option<SegmentFilters>,
}

impl StoredLog {
    /// See [`Archive::skim`](sshjobs_job::Archive::skim).
    pub(super) fn skim_through(
        &self,
        lines: LineRange,
        selection: Selection,
        sieve: &mut dyn LineSieve,
    ) -> io::Result<Option<Skimmed>> {
        let mut sifting = Sifting {
            log: self,
            selection,
            sieve,
            filters: None,
            skim: None,
        };
        let mut skimmed = None;
        let mut to = lines.after;
        // A last piece that reaches beyond the range is left to the search line by line.
        while let Some((begin, end)) = self.piece_behind(to, selection)
            && end.origin.newest <= lines.last
        {
            if let Some(may_match) = sifting.lines_that_may_match(begin, end, to)? {
                let passed = may_match.after.since(begin.origin.newest);
                return Ok(Some(Skimmed {
                    to: may_match.after.max(to),
                    lines: begin.origin.extent(selection, Measure::Lines) + passed,
                    match_until: Some(may_match.last),
                }));
            }
            to = end.origin.newest;
            skimmed = Some(Skimmed {
                to,
                lines: end.origin.extent(selection, Measure::Lines),
                match_until: None,
            });
        }
        Ok(skimmed)
    }

    /// The marks around the line after `place`. `None` if output between them is missing.
    fn piece_behind(
        &self,
        place: LineNo,
        selection: Selection,
    ) -> Option<(ReplayMark, ReplayMark)> {
        let state = lock(&self.state);
        let next = state.marks.partition_point(|mark| mark.origin.newest <= place);
        let begin = *state.marks.get(next.checked_sub(1)?)?;
        let end = *state.marks.get(next)?;
        // A piece with deleted lines is searched line by line, which leaves them out.
        let is_whole = end.gap().is_none()
            && Stream::ALL
                .into_iter()
                .filter(|&stream| selection.contains(stream))
                .all(|stream| state.forgotten.position(stream).last_line <= begin.origin.newest);
        is_whole.then_some((begin, end))
    }

    /// Starts at a checkpoint, which is given by its segment and position.
    pub(super) fn skim_from(&self, (segment, offset): (u64, u64)) -> io::Result<Skim> {
        let mut replay = Replay::new(Arc::clone(&self.media), self.job.clone(), segment, offset);
        Ok(Skim {
            next: PieceStart::read(&mut replay)?,
            replay,
            stdout: Vec::new(),
            stderr: Vec::new(),
        })
    }
}

impl Sifting<'_> {
    /// Lines of the piece between two marks of which one may match; lines up to `after` don't matter. `None`
    /// if none may match.
    fn lines_that_may_match(
        &mut self,
        begin: ReplayMark,
        end: ReplayMark,
        after: LineNo,
    ) -> io::Result<Option<LineRange>> {
        let all_lines = LineRange {
            after: begin.origin.newest,
            last: end.origin.newest,
        };
        if self.is_ruled_out(begin, end) {
            return Ok(None);
        }
        let place = (begin.segment, begin.offset);
        let skim = match &mut self.skim {
            Some(skim) => skim,
            skim @ None => skim.insert(self.log.skim_from(place)?),
        };
        if skim.place() != place {
            skim.go_to(place)?;
        }
        let Some(piece) = skim.next_piece()? else { return Ok(Some(all_lines)) };
        for stream in Stream::ALL.into_iter().filter(|&stream| self.selection.contains(stream)) {
            let text = piece.text(stream);
            if text.is_empty() {
                continue;
            }
            if !piece.is_verbatim(stream) {
                return Ok(Some(all_lines));
            }
            // Lines of one stream have consecutive numbers.
            let passed = if piece.has_only(stream) {
                after.since(begin.origin.newest)
            } else {
                0
            };
            let start = end_of_lines(text, passed);
            let Some(position) = self.sieve.find_match(&text[start..]) else { continue };
            if !piece.has_only(stream) {
                return Ok(Some(all_lines));
            }
            let lines_before = passed + count_lines(&text[start..start + position]);
            let before = LineNo::new(begin.origin.newest.value() + lines_before);
            // Of a piece with several matches the rest is read line by line: each skim reads all of it.
            let last = if passed == 0 {
                end.origin.newest.min(LineNo::new(before.value() + NEAR))
            } else {
                end.origin.newest
            };
            // A failed write may have left more lines than the marks count.
            let is_in_piece = before < last;
            return Ok(Some(if is_in_piece {
                LineRange {
                    after: before,
                    last,
                }
            } else {
                all_lines
            }));
        }
        // A checkpoint without a known mark may lie before `end`. Then the rest was not read.
        Ok((skim.place() != (end.segment, end.offset)).then_some(all_lines))
    }

    /// Whether a filter rules out a match in the piece between two marks.
    fn is_ruled_out(&mut self, begin: ReplayMark, end: ReplayMark) -> bool {
        let segment = begin.segment;
        if self.filters.as_ref().is_none_or(|known| known.segment != segment) {
            let filters = self.log.filters_of(segment);
            self.filters = Some(KnownFilters { segment, filters });
        }
        let filters = self.filters.as_mut().and_then(|known| known.filters.as_mut());
        let Some(filters) = filters else { return false };
        let Some(place) = piece_place((begin.segment, begin.offset), (end.segment, end.offset))
        else {
            return false;
        };
        !self.sieve.can_match(&mut |text| filters.may_contain(place, text))
    }
}

impl PieceStart {
    /// Reads the checkpoint at which a replay stands.
    fn read(replay: &mut Replay) -> io::Result<Self> {
        let start = replay.step(|frame, place| Self::of(frame.body, place))?.flatten();
        start.ok_or(io::ErrorKind::InvalidData.into())
    }

    fn of(body: Body<'_>, place: (u64, u64)) -> Option<Self> {
        match body {
            Body::Checkpoint {
                line_bytes,
                checkpoint,
            } => {
                let line_bytes = usize::try_from(line_bytes).unwrap_or(usize::MAX);
                Some(Self {
                    place,
                    checkpoint: *checkpoint,
                    line_bytes,
                })
            }
            Body::Data(..) | Body::FinishStreams | Body::End(_) => None,
        }
    }
}

impl Skim {
    /// Segment and position of the checkpoint before the next piece.
    pub(super) fn place(&self) -> (u64, u64) {
        self.next.place
    }

    /// Continues at another checkpoint, which is given by its segment and position.
    fn go_to(&mut self, (segment, offset): (u64, u64)) -> io::Result<()> {
        self.replay.go_to(segment, offset);
        self.next = PieceStart::read(&mut self.replay)?;
        Ok(())
    }

    /// Reads up to the next checkpoint. `None` if there is none yet.
    pub(super) fn next_piece(&mut self) -> io::Result<Option<Piece<'_>>> {
        let Self {
            replay,
            next,
            stdout,
            stderr,
        } = self;
        for (text, unfinished) in [
            (&mut *stdout, &next.checkpoint.stdout),
            (&mut *stderr, &next.checkpoint.stderr),
        ] {
            text.clear();
            // The first line of the piece may have started before it.
            text.extend_from_slice(&unfinished.bytes);
        }
        loop {
            let stepped = replay.step(|frame, place| {
                match frame.body {
                    // Without members: `Job::skim` does not skip in the log of a fleet.
                    Body::Data(source, bytes) => match source.stream {
                        Stream::Stdout => stdout.extend_from_slice(bytes),
                        Stream::Stderr => stderr.extend_from_slice(bytes),
                    },
                    Body::Checkpoint { .. } | Body::FinishStreams | Body::End(_) => {}
                }
                PieceStart::of(frame.body, place)
            })?;
            match stepped {
                None => return Ok(None),
                Some(None) => {}
                Some(Some(following)) => {
                    let start = std::mem::replace(next, following);
                    let place = piece_place(start.place, next.place);
                    return Ok(Some(Piece {
                        place: place.ok_or(io::ErrorKind::InvalidData)?,
                        start,
                        stdout,
                        stderr,
                    }));
                }
            }
        }
    }
}

impl Piece<'_> {
    /// The bytes of a stream, from the start of its first line on.
    pub(super) fn text(&self, stream: Stream) -> &[u8] {
        match stream {
            Stream::Stdout => self.stdout,
            Stream::Stderr => self.stderr,
        }
    }

    /// Whether the other stream has no output in it.
    fn has_only(&self, stream: Stream) -> bool {
        Stream::ALL
            .into_iter()
            .all(|other| other == stream || self.text(other).is_empty())
    }

    /// Whether the lines of a stream are shown exactly as they are stored.
    pub(super) fn is_verbatim(&self, stream: Stream) -> bool {
        let before = match stream {
            Stream::Stdout => &self.start.checkpoint.stdout,
            Stream::Stderr => &self.start.checkpoint.stderr,
        };
        // The rest of a cut line may start inside an escape sequence.
        before.cut.is_none() && is_verbatim(self.text(stream), self.start.line_bytes)
    }
}

/// The place of the piece between two checkpoints. `None` if there is more than a piece between them.
fn piece_place(begin: (u64, u64), end: (u64, u64)) -> Option<PiecePlace> {
    let end = if end.0 == begin.0 {
        Some(end.1)
    } else if end == (begin.0 + 1, 0) {
        None
    } else {
        return None;
    };
    Some(PiecePlace {
        begin: begin.1,
        end,
    })
}

/// Position after this many lines.
fn end_of_lines(text: &[u8], lines: u64) -> usize {
    let Some(last) = lines.checked_sub(1) else { return 0 };
    let last = usize::try_from(last).unwrap_or(usize::MAX);
    memchr_iter(b'\n', text).nth(last).map_or(text.len(), |line_feed| line_feed + 1)
}

fn count_lines(text: &[u8]) -> u64 {
    memchr_iter(b'\n', text).count() as u64
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tokio::time::Instant;

    use super::*;
    use crate::mark::ReplayMarks;
    use crate::{CompleteSegment, LogLimits, Memory, SegmentWriter, Store};
    use sshjobs_job::{Batch, LogEvent};
    use sshjobs_output::{Ring, RingLimits};

    /// Looks for a text, and counts the pieces that it was asked to look at.
    struct TextSieve {
        text: &'static str,
        pieces_read: usize,
    }

    impl LineSieve for TextSieve {
        fn find_match(&mut self, text: &[u8]) -> Option<usize> {
            self.pieces_read += 1;
            String::from_utf8_lossy(text).find(self.text)
        }

        fn can_match(&self, may_contain: &mut dyn FnMut(&[u8]) -> bool) -> bool {
            may_contain(self.text.as_bytes())
        }
    }

    const PIECES: u64 = 200;
    const LINES_OF_PIECE: u64 = 1000;

    /// A log of two hundred pieces of a thousand lines each. The first line of piece 70 is special, and the
    /// first one of piece 80 has an escape sequence. All but the last pieces are in complete segments.
    fn log_with(special: &str) -> (Arc<StoredLog>, Vec<CompleteSegment>) {
        let log = Memory::default().log(&"web1-aaaaaaaa".into());
        let limits = LogLimits {
            // Segments of a megabyte.
            bytes: 16 << 20,
            line_bytes: 1 << 16,
            interval: 1,
        };
        let mut writer = SegmentWriter::new(Arc::clone(&log), limits);
        let mut ring = Ring::new(RingLimits::default());
        let mut complete = Vec::new();
        for piece in 0..PIECES {
            let first = match piece {
                70 => format!("{special}\n"),
                80 => "\x1b[31mred\n".to_owned(),
                _ => "usual\n".to_owned(),
            };
            let lines = (1..LINES_OF_PIECE).map(|line| format!("line {line} of piece {piece}\n"));
            let text: String = std::iter::once(first).chain(lines).collect();
            let append = LogEvent::Append(Stream::Stdout.into(), text.clone().into());
            let batch = Batch::new(vec![(append, 0, Instant::now())], Some(ring.checkpoint()));
            writer.append(&batch).unwrap();
            complete.extend(writer.take_complete());
            ring.append(Stream::Stdout, text.as_bytes(), 0);
            writer.note_newest(ring.newest());
        }
        (log, complete)
    }

    /// The first line that may contain a text, as far as a skim can tell, and the number of pieces that
    /// were read for that.
    fn skim_for(log: &StoredLog, text: &'static str, after: u64) -> (u64, usize) {
        let mut sieve = TextSieve {
            text,
            pieces_read: 0,
        };
        let lines = LineRange {
            after: LineNo::new(after),
            last: LineNo::new(PIECES * LINES_OF_PIECE),
        };
        let skimmed = log.skim_through(lines, Selection::Both, &mut sieve).unwrap().unwrap();
        (skimmed.to.value() + 1, sieve.pieces_read)
    }

    #[test]
    fn a_search_reads_only_pieces_that_may_match_and_finds_the_same() {
        let (log, complete) = log_with("out of memory");
        assert!(complete.len() >= 3, "{}", complete.len());
        let without_filters = skim_for(&log, "out of memory", 0);
        assert_eq!(without_filters, (70_001, 71));

        complete.iter().for_each(|segment| segment.write_filters().unwrap());

        let (line, pieces_read) = skim_for(&log, "out of memory", 0);
        assert_eq!(line, 70_001);
        assert!(pieces_read < 5, "{pieces_read} pieces read");
        // Piece 80 may match, because its first line is shown without the escape sequence.
        let (line, pieces_read) = skim_for(&log, "out of memory", 71_000);
        assert_eq!(line, 80_001);
        assert!(pieces_read < 3, "{pieces_read} pieces read");
    }

    #[test]
    fn a_piece_is_not_ruled_out_by_the_filter_of_a_part_of_it() {
        let (log, complete) = log_with("out of memory");
        complete.iter().for_each(|segment| segment.write_filters().unwrap());
        let mut marks = log.marks();
        // An index that was cut may lack a mark.
        marks.retain(|mark| mark.origin.newest.value() != 70 * LINES_OF_PIECE);
        lock(&log.state).marks = ReplayMarks::new(marks);

        let mut sieve = TextSieve {
            text: "out of memory",
            pieces_read: 0,
        };
        let lines = LineRange {
            after: LineNo::START,
            last: LineNo::new(PIECES * LINES_OF_PIECE),
        };
        let skimmed = log.skim_through(lines, Selection::Both, &mut sieve).unwrap().unwrap();

        let special = LineNo::new(70 * LINES_OF_PIECE + 1);
        assert!(
            skimmed.to < special && skimmed.match_until >= Some(special),
            "{skimmed:?}"
        );
    }

    /// A log with these pieces, and a ring with the same lines.
    fn log_of(pieces: &[Vec<(Stream, String)>]) -> (Arc<StoredLog>, Ring) {
        let log = Memory::default().log(&"web1-aaaaaaaa".into());
        let limits = LogLimits {
            bytes: 32 << 20,
            line_bytes: 1 << 16,
            interval: 1,
        };
        let mut writer = SegmentWriter::new(Arc::clone(&log), limits);
        let mut ring = Ring::new(RingLimits::default());
        for piece in pieces {
            let appends = piece.iter().map(|(stream, text)| {
                let append = LogEvent::Append((*stream).into(), text.clone().into());
                (append, 0, Instant::now())
            });
            let batch = Batch::new(appends.collect(), Some(ring.checkpoint()));
            writer.append(&batch).unwrap();
            for (stream, text) in piece {
                ring.append(*stream, text.as_bytes(), 0);
            }
            writer.note_newest(ring.newest());
        }
        (log, ring)
    }

    proptest! {
        /// Step by step, as a search does it: each step begins where the last one ended.
        #[test]
        fn no_line_that_matches_is_passed_over(
            pieces in prop::collection::vec(
                prop::collection::vec((prop::bool::weighted(0.8), "[ab\n]{0,60}"), 1..4),
                1..8,
            ),
            only_stdout: bool,
        ) {
            let stream = |is_stdout| if is_stdout { Stream::Stdout } else { Stream::Stderr };
            let pieces: Vec<Vec<_>> = pieces
                .into_iter()
                .map(|piece| piece.into_iter().map(|(out, text)| (stream(out), text)).collect())
                .collect();
            let (log, ring) = log_of(&pieces);
            let selection =
                if only_stdout { Selection::Only(Stream::Stdout) } else { Selection::Both };
            let matching: Vec<LineNo> = ring
                .lines_after(LineNo::START, selection)
                .filter(|line| line.text.windows(3).any(|text| text == b"aba"))
                .map(|line| line.line_no)
                .collect();
            let mut sieve = TextSieve { text: "aba", pieces_read: 0 };
            let mut cursor = LineNo::START;
            let last = ring.newest();
            while let Some(skimmed) = log
                .skim_through(LineRange { after: cursor, last }, selection, &mut sieve)
                .unwrap()
            {
                let passed_over = matching.iter().find(|&&line| line > cursor && line <= skimmed.to);
                prop_assert_eq!(passed_over, None);
                let next = skimmed.match_until.unwrap_or(skimmed.to);
                prop_assert!(next > cursor, "each step moves the cursor");
                cursor = next;
            }
        }
    }
}
