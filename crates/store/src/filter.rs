//! Filters of complete segments: which stored pieces can't contain a text, so that a search need not
//! read them. A piece is the output between two checkpoints.
//!
//! The file of a segment: magic, length of the segment in bytes (8), checksum of both (4). Then for each
//! piece, in order: the positions of the checkpoints before and behind it (8 each), its filter, checksum of
//! these (4). Checksums are CRC-32, sealed as those of [frames](super::frame); integers are in
//! little-endian order. Without a file, or with a damaged one or that of another segment, a search reads
//! the pieces.

use std::io;
use std::sync::Arc;

use super::frame::{Fields, Seal};
use super::log_writer::CompleteSegment;
use super::media::{Blob, OpenMode, SegmentPart, read_into};
use super::stored_log::StoredLog;
use sshjobs_output::Stream;

/// The filters of a segment's pieces, read a few at a time.
pub(super) struct SegmentFilters {
    file: Arc<dyn Blob>,
    seal: Seal,
    /// Number of entries in the file.
    count: u64,
    /// Some entries, as they are in the file.
    window: Vec<u8>,
    /// Index of the first entry in the window.
    first: u64,
    /// Index of the entry that will probably be asked for next.
    expected: u64,
}

/// Where a piece is in its segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PiecePlace {
    /// Position of the checkpoint before it.
    pub(super) begin: u64,
    /// Position of the checkpoint behind it. `None` if that begins the next segment.
    pub(super) end: Option<u64>,
}

/// A Bloom filter with one hash: the groups of [`GROUP`] consecutive bytes that a piece contains, without
/// distinction of case.
#[derive(Debug, PartialEq, Eq)]
struct PieceFilter([u8; BYTES]);

/// The groups that were seen in a piece: a byte for each bit of the filter, which is faster to set.
struct SeenGroups(Box<[u8; BITS]>);

const MAGIC: [u8; 8] = *b"sshjobs1";
/// Bytes of a group. Longer groups are rarer, but a text shorter than a group can't be ruled out.
const GROUP: usize = 5;
/// Bits of a filter. A piece of 64 KiB of usual log lines sets about a fourth of them.
const BITS: usize = 1 << BITS_LOG2;
const BITS_LOG2: u32 = 14;
/// Bytes of a filter: 3 % of a usual piece.
const BYTES: usize = BITS / 8;
/// Bytes before the first entry, and of an entry.
const HEADER: usize = MAGIC.len() + 8 + 4;
const ENTRY: usize = 2 * 8 + BYTES + 4;
/// The position behind a piece whose end begins the next segment.
const NEXT_SEGMENT: u64 = u64::MAX;
/// Entries that are read at once.
const WINDOW: usize = 32;

impl CompleteSegment {
    /// Writes its filters. Blocking.
    ///
    /// If the segment grows all the same, because another process continues it after a crash, they don't
    /// count. If two processes write them at once, entries may be damaged, which a search notices.
    ///
    /// # Errors
    /// If the segment can't be read, or the filters can't be written.
    pub fn write_filters(&self) -> io::Result<()> {
        let Self { log, segment } = self;
        let open = |part, mode| log.media.open(&log.job, part, mode);
        let length = open(SegmentPart::Frames(*segment), OpenMode::Read)?.length()?;
        let seal = Seal::new(&log.job, *segment);
        let mut bytes = header(seal, length);
        let mut skim = log.skim_from((*segment, 0))?;
        while skim.place().0 == *segment
            && let Some(piece) = skim.next_piece()?
        {
            let place = piece.place;
            let mut seen = SeenGroups::default();
            if Stream::ALL.into_iter().all(|stream| piece.is_verbatim(stream)) {
                Stream::ALL.into_iter().for_each(|stream| seen.add(piece.text(stream)));
            } else {
                // Its lines are shown in another way than they are stored, so any may match.
                seen.fill();
            }
            bytes.extend(entry(seal, place, &seen.filter()));
        }

        let file = open(SegmentPart::Filters(*segment), OpenMode::Write)?;
        // A process that was killed may have left a part of one.
        file.truncate(0)?;
        file.append(&bytes)?;
        // If the segment was deleted meanwhile, its filters are deleted here.
        if open(SegmentPart::Frames(*segment), OpenMode::Read).is_err() {
            log.media.remove(&log.job, *segment)?;
        }
        Ok(())
    }
}

/// The start of the file of a segment of this length.
fn header(seal: Seal, segment_length: u64) -> Vec<u8> {
    let mut bytes = Vec::from(MAGIC);
    bytes.extend(segment_length.to_le_bytes());
    bytes.extend(seal.sum(&bytes).to_le_bytes());
    bytes
}

/// The entry of a piece.
fn entry(seal: Seal, place: PiecePlace, filter: &PieceFilter) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(ENTRY);
    bytes.extend(place.begin.to_le_bytes());
    bytes.extend(place.end.unwrap_or(NEXT_SEGMENT).to_le_bytes());
    bytes.extend(filter.0);
    bytes.extend(seal.sum(&bytes).to_le_bytes());
    bytes
}

impl StoredLog {
    /// The filters of a segment. `None` if they are missing, damaged, or made for another length.
    pub(super) fn filters_of(&self, segment: u64) -> Option<SegmentFilters> {
        let open = |part| self.media.open(&self.job, part, OpenMode::Read);
        let file = open(SegmentPart::Filters(segment)).ok()?;
        let length = open(SegmentPart::Frames(segment)).and_then(|frames| frames.length()).ok()?;
        SegmentFilters::open(file, Seal::new(&self.job, segment), length).ok().flatten()
    }
}

impl SegmentFilters {
    fn open(file: Arc<dyn Blob>, seal: Seal, segment_length: u64) -> io::Result<Option<Self>> {
        let mut stored_header = [0; HEADER];
        read_into(&mut stored_header, &*file, 0)?;
        let count = file.length()?.saturating_sub(HEADER as u64) / ENTRY as u64;
        Ok(
            (stored_header[..] == header(seal, segment_length)).then_some(Self {
                file,
                seal,
                count,
                window: Vec::new(),
                first: 0,
                expected: 0,
            }),
        )
    }

    /// Whether a piece may contain a text. True if it has no filter that can be read.
    pub(super) fn may_contain(&mut self, place: PiecePlace, text: &[u8]) -> bool {
        self.filter_of(place)
            .ok()
            .flatten()
            .is_none_or(|filter| filter.may_contain(text))
    }

    fn filter_of(&mut self, place: PiecePlace) -> io::Result<Option<PieceFilter>> {
        // Pieces are asked for in order.
        let index = if self.begin_of(self.expected)? == Some(place.begin) {
            self.expected
        } else {
            self.index_of(place.begin)?
        };
        self.expected = index + 1;
        if self.entry_in_window(index).is_none() {
            self.window.resize(WINDOW * ENTRY, 0);
            self.first = index;
            let length = read_into(&mut self.window, &*self.file, entry_position(index))?;
            self.window.truncate(length);
        }
        Ok(self
            .entry_in_window(index)
            .and_then(|entry| read_entry(self.seal, entry, place)))
    }

    /// The index of the first entry of a piece that begins at this position or after it.
    fn index_of(&self, begin: u64) -> io::Result<u64> {
        let (mut low, mut high) = (0, self.count);
        while low < high {
            let middle = low + (high - low) / 2;
            if self.begin_of(middle)?.is_some_and(|found| found < begin) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        Ok(low)
    }

    /// Where an entry's piece begins. `None` if there is no such entry.
    fn begin_of(&self, index: u64) -> io::Result<Option<u64>> {
        if let Some(entry) = self.entry_in_window(index) {
            return Ok(Fields(entry).u64());
        }
        let mut begin = [0; size_of::<u64>()];
        let length = read_into(&mut begin, &*self.file, entry_position(index))?;
        Ok((length == begin.len()).then(|| u64::from_le_bytes(begin)))
    }

    fn entry_in_window(&self, index: u64) -> Option<&[u8]> {
        let start = usize::try_from(index.checked_sub(self.first)?).ok()?.checked_mul(ENTRY)?;
        self.window.get(start..start + ENTRY)
    }
}

/// Position of an entry in its file.
fn entry_position(index: u64) -> u64 {
    HEADER as u64 + index * ENTRY as u64
}

/// The filter in an entry. `None` if it is damaged, or belongs to another piece.
fn read_entry(seal: Seal, entry: &[u8], place: PiecePlace) -> Option<PieceFilter> {
    let (body, sum) = entry.split_last_chunk()?;
    let mut fields = Fields(body);
    let is_whole = u32::from_le_bytes(*sum) == seal.sum(body);
    let is_of_piece =
        fields.u64()? == place.begin && fields.u64()? == place.end.unwrap_or(NEXT_SEGMENT);
    (is_whole && is_of_piece).then_some(PieceFilter(fields.array()?))
}

impl PieceFilter {
    fn may_contain(&self, text: &[u8]) -> bool {
        bits_of_groups(text).all(|bit| self.0[bit / 8] & (1 << (bit % 8)) != 0)
    }
}

impl SeenGroups {
    fn add(&mut self, text: &[u8]) {
        bits_of_groups(text).for_each(|bit| self.0[bit] = 1);
    }

    fn fill(&mut self) {
        self.0.fill(1);
    }

    fn filter(&self) -> PieceFilter {
        let mut filter = PieceFilter([0; BYTES]);
        for (byte, seen) in filter.0.iter_mut().zip(self.0.chunks_exact(8)) {
            *byte = seen.iter().rev().fold(0, |byte, seen| byte << 1 | seen);
        }
        filter
    }
}

impl Default for SeenGroups {
    fn default() -> Self {
        Self(Box::new([0; BITS]))
    }
}

/// For each group of a text, its bit in a filter.
fn bits_of_groups(text: &[u8]) -> impl Iterator<Item = usize> {
    /// Knuth's multiplicative hash: 2^64 divided by the golden ratio.
    const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;
    /// Sets the bit by which upper and lower case of ASCII letters differ.
    const LOWER_CASE: u64 = 0x20_2020_2020;
    text.windows(GROUP).map(|group| {
        let group = u64::from_le_bytes([group[0], group[1], group[2], group[3], group[4], 0, 0, 0]);
        let hash = (group | LOWER_CASE).wrapping_mul(MULTIPLIER) >> (u64::BITS - BITS_LOG2);
        usize::try_from(hash).expect("a few bits")
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{Memory, Store};

    fn seal() -> Seal {
        Seal::new(&"web1-aaaaaaaa".into(), 1)
    }

    fn filter_of(text: &[u8]) -> PieceFilter {
        let mut seen = SeenGroups::default();
        seen.add(text);
        seen.filter()
    }

    proptest! {
        #[test]
        fn a_filter_never_denies_a_text_that_its_piece_contains(
            before in "[ -~\n]{0,40}",
            text in "[ -~]{0,20}",
            after in "[ -~\n]{0,40}",
        ) {
            let filter = filter_of(format!("{before}{text}{after}").as_bytes());
            prop_assert!(filter.may_contain(text.as_bytes()));
            prop_assert!(filter.may_contain(text.to_uppercase().as_bytes()));
        }
    }

    #[test]
    fn a_filter_denies_most_texts_that_its_piece_does_not_contain() {
        let lines: String = (0..1500)
            .map(|number| format!("line {number} of a long log that continues\n"))
            .collect();
        let filter = filter_of(lines.as_bytes());
        let denied = |text: &str| !filter.may_contain(text.as_bytes());
        assert!(denied("out of memory") && denied("99999 "));
        assert!(!denied("999 ") && !denied("oom"), "too short to be denied");
    }

    /// The filters in a file with these bytes, for a segment of 100 bytes.
    fn filters_in(bytes: &[u8]) -> Option<SegmentFilters> {
        let log = Memory::default().log(&"web1-aaaaaaaa".into());
        let open = |mode| log.media.open(&log.job, SegmentPart::Filters(1), mode).unwrap();
        open(OpenMode::Write).append(bytes).unwrap();
        SegmentFilters::open(open(OpenMode::Read), seal(), 100).unwrap()
    }

    #[test]
    fn a_piece_is_found_among_many_in_any_order() {
        let place = |piece: u64| PiecePlace {
            begin: 10 * piece,
            end: (piece < 99).then_some(10 * piece + 10),
        };
        let mut bytes = header(seal(), 100);
        for piece in 0..100 {
            let text = format!("piece {piece}.");
            bytes.extend(entry(seal(), place(piece), &filter_of(text.as_bytes())));
        }
        let mut filters = filters_in(&bytes).unwrap();
        for piece in [0, 1, 99, 31, 32, 33, 5] {
            let text = format!("piece {piece}.");
            assert!(filters.may_contain(place(piece), text.as_bytes()), "{text}");
            assert!(!filters.may_contain(place(piece), b"piece 100."), "{text}");
        }
        assert!(
            filters.may_contain(place(100), b"piece 100."),
            "it has no filter"
        );
    }

    #[test]
    fn a_filter_says_nothing_of_a_longer_piece() {
        let mut bytes = header(seal(), 100);
        let place = PiecePlace {
            begin: 0,
            end: Some(50),
        };
        bytes.extend(entry(seal(), place, &filter_of(b"some text")));
        let mut filters = filters_in(&bytes).unwrap();
        assert!(!filters.may_contain(place, b"other text"));
        for end in [Some(80), None] {
            assert!(filters.may_contain(PiecePlace { end, ..place }, b"other text"));
        }
    }

    #[test]
    fn damaged_filters_and_those_of_another_length_are_ignored() {
        let place = PiecePlace {
            begin: 17,
            end: None,
        };
        let mut bytes = header(seal(), 100);
        bytes.extend(entry(seal(), place, &filter_of(b"some text")));
        let denies = |bytes: &[u8]| {
            filters_in(bytes).is_some_and(|mut filters| !filters.may_contain(place, b"other text"))
        };
        assert!(denies(&bytes));
        assert!(!denies(&[]) && !denies(&bytes[..bytes.len() - 1]));
        assert!(!denies(&[&header(seal(), 101), &bytes[HEADER..]].concat()));
        let of_another_job = Seal::new(&"web1-bbbbbbbb".into(), 1);
        assert!(!denies(
            &[&header(of_another_job, 100), &bytes[HEADER..]].concat()
        ));
        bytes[HEADER + 40] ^= 1;
        assert!(!denies(&bytes));
    }
}
