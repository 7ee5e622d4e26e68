use std::fmt;

use crate::output::{LineNo, Origin, Render, Ring, Selection, Stream, Unit};

/// The stored part of a job's output, from which readers are served what its ring has lost.
pub trait Archive: Send + Sync + fmt::Debug {
    /// A part of the output from a little before `place` on, as a ring that answers as the job's own would; none when nothing that
    /// lies behind the place is stored. It reads on until there is enough, or some megabytes.
    ///
    /// Blocking: it reads files.
    fn window(&self, place: Place, selection: Selection, enough: &dyn Fn(&Ring) -> bool) -> Option<Ring>;

    /// Skips stored pieces in which no line is wanted: from behind the first line, at most up to the second. `has_no_match` is asked
    /// about the text of each piece that is stored exactly as it is shown (printable ASCII, no overlong line). None when no whole
    /// piece lies between the lines. Blocking: it reads files.
    fn skim(
        &self,
        lines: (LineNo, LineNo),
        selection: Selection,
        has_no_match: &mut dyn FnMut(&[u8]) -> bool,
    ) -> Option<Skimmed>;

    /// What is stored.
    fn coverage(&self) -> Coverage;

    /// Forgets the lines of the selected streams up to `last`. Blocking.
    fn forget(&self, selection: Selection, last: LineNo);
}

/// A place in a job's output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Behind a line.
    Behind(LineNo),
    /// Where so much of the selected streams has come.
    At(u64, (Unit, Render)),
}

impl Place {
    /// Whether a ring has something of the selection behind this place.
    pub fn is_followed_in(self, ring: &Ring, selection: Selection) -> bool {
        match self {
            Self::Behind(line_no) => ring.lines_after(line_no, selection).next().is_some(),
            Self::At(position, (Unit::Bytes, _)) => {
                let end = match selection {
                    Selection::Both => ring.extent(ring.newest(), selection, (Unit::Bytes, Render::Raw)),
                    Selection::Only(stream) => ring.total_bytes(stream),
                };
                end > position
            }
            Self::At(position, unit) => ring.extent(ring.newest(), selection, unit) > position,
        }
    }

    /// Whether a ring still holds everything of the selection behind this place.
    pub fn is_held_by(self, ring: &Ring, selection: Selection) -> bool {
        match self {
            Self::Behind(line_no) => ring.dropped_after(line_no, selection).0 == 0,
            Self::At(position, unit) => ring.extent(ring.last_gone(selection), selection, unit) <= position,
        }
    }
}

/// How far [`Archive::skim`] has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Skimmed {
    /// The last line that was skipped, or the line it began behind.
    pub to: LineNo,
    /// Number of selected lines up to there; when nothing was skipped, up to the beginning of its piece.
    pub lines: u64,
    /// The last line of the next piece, when that may hold a match and has to be searched line by line.
    pub look_until: Option<LineNo>,
}

/// What of a job's output is stored.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Coverage {
    /// Where it begins: the last line before it, and for each stream the position behind what is evicted or forgotten.
    pub begin: Origin,
    /// The last line stored.
    pub last: LineNo,
    /// Lines between them that are not stored: the last line before each gap, and the last line in it.
    pub gaps: Vec<(LineNo, LineNo)>,
    /// Lines behind the beginning that were forgotten because of their stream.
    pub forgotten: u64,
}

impl Coverage {
    fn missing(&self, newest: LineNo) -> impl Iterator<Item = (LineNo, LineNo)> {
        let head = (LineNo::START, self.begin.newest);
        [head].into_iter().chain(self.gaps.iter().copied()).chain([(self.last, newest)])
    }

    /// Lines that neither the store nor the ring has, between two: behind the first, up to the second.
    pub fn missing_between(&self, ring: &Ring, (from, to): (LineNo, LineNo)) -> u64 {
        let to = to.min(ring.before_first());
        self.missing(ring.newest()).map(|(before, last)| last.min(to).since(before.max(from))).sum()
    }

    /// Lines that neither the store nor the ring has.
    pub fn dropped_lines(&self, ring: &Ring) -> u64 {
        self.missing_between(ring, (LineNo::START, ring.newest())) + self.forgotten
    }

    /// The oldest line that the store or the ring has, or the next to come.
    pub fn first_available(&self, ring: &Ring) -> LineNo {
        if self.last > self.begin.newest {
            self.begin.newest.next().min(ring.first_available())
        } else {
            ring.first_available()
        }
    }

    /// Where what the store or the ring has of a stream begins.
    pub fn available_from(&self, ring: &Ring, stream: Stream, unit: (Unit, Render)) -> u64 {
        let selection = Selection::Only(stream);
        let in_ring = ring.extent(ring.last_gone(selection), selection, unit);
        if self.last > self.begin.newest {
            self.begin.position(stream).extent(unit).min(in_ring)
        } else {
            in_ring
        }
    }
}
