//! Skips stored output in which a pattern can't match.

use std::io;
use std::sync::Arc;

use super::frame::Body;
use super::mark::ReplayMark;
use super::replay::Replay;
use super::stored_log::StoredLog;
use sshjobs_base::lock::lock;
use sshjobs_job::{LineRange, Skimmed};
use sshjobs_output::{Checkpoint, LineNo, Measure, Selection, Stream, is_verbatim};

/// Reads a stored log from mark to mark without dividing it into lines.
struct Skim {
    replay: Replay,
    start: SkimStart,
    stdout: Vec<u8>,
    stderr: Vec<u8>,
}

/// Start of a piece.
struct SkimStart {
    /// Segment and position of the checkpoint.
    at: (u64, u64),
    checkpoint: Checkpoint,
    line_bytes: usize,
}

impl StoredLog {
    /// See [`Archive::skim`](sshjobs_job::Archive::skim).
    pub(super) fn skim_through(
        &self,
        lines: LineRange,
        selection: Selection,
        has_no_match: &mut dyn FnMut(&[u8]) -> bool,
    ) -> io::Result<Option<Skimmed>> {
        let mut skim = None;
        let mut skimmed = None;
        let mut to = lines.after;
        // A last piece that reaches beyond the range is left to the search line by line.
        while let Some((begin, end)) = self.piece_behind(to, selection)
            && end.origin.newest <= lines.last
        {
            let skim = match &mut skim {
                Some(skim) => skim,
                // One replay for all pieces, because each starts where the last one ended.
                skim @ None => skim.insert(self.skim_from(begin)?),
            };
            if !skim.has_no_match(begin, end, selection, has_no_match)? {
                return Ok(Some(Skimmed {
                    to,
                    lines: begin.origin.extent(selection, Measure::Lines),
                    match_until: Some(end.origin.newest),
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

    fn skim_from(&self, mark: ReplayMark) -> io::Result<Skim> {
        let mut replay = Replay::new(
            Arc::clone(&self.media),
            self.job.clone(),
            mark.segment,
            mark.offset,
        );
        let start = replay.step(|frame, at| SkimStart::of(frame.body, at))?.flatten();
        let start = start.ok_or(io::ErrorKind::InvalidData)?;
        Ok(Skim {
            replay,
            start,
            stdout: Vec::new(),
            stderr: Vec::new(),
        })
    }
}

impl SkimStart {
    fn of(body: Body<'_>, at: (u64, u64)) -> Option<Self> {
        match body {
            Body::Checkpoint {
                line_bytes,
                checkpoint,
            } => {
                let line_bytes = usize::try_from(line_bytes).unwrap_or(usize::MAX);
                Some(Self {
                    at,
                    checkpoint: *checkpoint,
                    line_bytes,
                })
            }
            Body::Data(..) | Body::FinishStreams | Body::End(_) => None,
        }
    }
}

impl Skim {
    /// Reads the piece between two marks. Returns whether it is complete and has no match. The next
    /// call reads the next piece.
    fn has_no_match(
        &mut self,
        begin: ReplayMark,
        end: ReplayMark,
        selection: Selection,
        has_no_match: &mut dyn FnMut(&[u8]) -> bool,
    ) -> io::Result<bool> {
        // Marks without a new line between them are passed over, so `begin` may be further on.
        if self.start.at != (begin.segment, begin.offset) {
            return Ok(false);
        }
        let Some(next) = self.read_piece()? else { return Ok(false) };
        let SkimStart {
            checkpoint,
            line_bytes,
            ..
        } = std::mem::replace(&mut self.start, next);
        let texts = [
            (Stream::Stdout, &checkpoint.stdout, &self.stdout),
            (Stream::Stderr, &checkpoint.stderr, &self.stderr),
        ];
        let is_whole = self.start.at == (end.segment, end.offset);
        let mut selected = texts.into_iter().filter(|(stream, ..)| selection.contains(*stream));
        Ok(is_whole
            && selected.all(|(_, before, text)| {
                // The rest of a cut line may start inside an escape sequence.
                before.cut.is_none() && is_verbatim(text, line_bytes) && has_no_match(text)
            }))
    }

    /// Reads up to the next checkpoint. `None` if there is none yet.
    fn read_piece(&mut self) -> io::Result<Option<SkimStart>> {
        let Self {
            replay,
            start,
            stdout,
            stderr,
        } = self;
        for (text, unfinished) in [
            (&mut *stdout, &start.checkpoint.stdout),
            (&mut *stderr, &start.checkpoint.stderr),
        ] {
            text.clear();
            // The first line of the piece may have started before it.
            text.extend_from_slice(&unfinished.bytes);
        }
        loop {
            let stepped = replay.step(|frame, at| {
                match frame.body {
                    // Without members: `Job::skim` does not skip in the log of a fleet.
                    Body::Data(source, bytes) => match source.stream {
                        Stream::Stdout => stdout.extend_from_slice(bytes),
                        Stream::Stderr => stderr.extend_from_slice(bytes),
                    },
                    Body::Checkpoint { .. } | Body::FinishStreams | Body::End(_) => {}
                }
                SkimStart::of(frame.body, at)
            })?;
            match stepped {
                None => return Ok(None),
                Some(None) => {}
                Some(next) => return Ok(next),
            }
        }
    }
}
