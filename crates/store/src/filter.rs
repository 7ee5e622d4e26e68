//! Filters of complete segments: which stored pieces can't contain a text, so that a search need not
//! read them. A piece is the output between two checkpoints.
//!
//! The file of a segment: magic, length of the segment in bytes (8), CRC-32 of both (4). Then for each
//! piece, in order: the position of its checkpoint (8), its filter, CRC-32 of both (4). Integers are in
//! little-endian order. Without a file, or with a damaged one, a search reads the pieces.

use std::io;
use std::sync::Arc;

use super::frame::Fields;
use super::log_writer::CompleteSegment;
use super::media::{Blob, OpenMode, SegmentPart, read_into};
use super::stored_log::StoredLog;
use sshjobs_output::Stream;

/// The filters of a segment's pieces, read a few at a time.
pub(super) struct SegmentFilters {
    file: Arc<dyn Blob>,
    /// Number of entries in the file.
    count: u64,
    /// Some entries, as they are in the file.
    window: Vec<u8>,
    /// Index of the first entry in the window.
    first: u64,
    /// Index after the entry that was last asked for.
    next: u64,
}

/// A Bloom filter with one hash: the groups of [`GROUP`] consecutive bytes that a piece contains, without
/// distinction of case.
#[derive(Debug, PartialEq, Eq)]
struct PieceFilter([u8; BYTES]);

/// The groups that were seen in a piece: a byte for each bit of the filter, which is faster to set.
struct SeenGroups(Box<[u8; BITS]>);

const MAGIC: [u8; 8] = *b"sshjobs1";
/// Bytes of a group. Longer ones are rarer, but a shorter text has none.
const GROUP: usize = 5;
/// Bits of a filter. A piece of 64 KiB of usual log lines sets about a fourth of them.
const BITS: usize = 1 << BITS_LOG2;
const BITS_LOG2: u32 = 14;
/// Bytes of a filter: 3 % of a usual piece.
const BYTES: usize = BITS / 8;
/// Bytes before the first entry, and of an entry.
const HEADER: usize = MAGIC.len() + 8 + 4;
const ENTRY: usize = 8 + BYTES + 4;
/// Entries that are read at once.
const WINDOW: usize = 32;

impl CompleteSegment {
    /// Writes its filters. Blocking.
    ///
    /// # Errors
    /// If the segment can't be read, or the filters can't be written.
    pub fn write_filters(&self) -> io::Result<()> {
        let Self { log, segment } = self;
        let open = |part, mode| log.media.open(&log.job, part, mode);
        let length = open(SegmentPart::Frames(*segment), OpenMode::Read)?.length()?;
        let mut bytes = header(length);
        let mut skim = log.skim_from((*segment, 0))?;
        while skim.place().0 == *segment
            && let Some(piece) = skim.next_piece()?
        {
            let mut seen = SeenGroups::default();
            if Stream::ALL.into_iter().all(|stream| piece.is_verbatim(stream)) {
                Stream::ALL.into_iter().for_each(|stream| seen.add(piece.text(stream)));
            } else {
                // Its lines are shown in another way than they are stored, so any may match.
                seen.fill();
            }
            bytes.extend(entry(piece.offset, &seen.filter()));
        }

        let file = open(SegmentPart::Filters(*segment), OpenMode::Write)?;
        // A process that was killed may have left a part of one.
        file.truncate(0)?;
        file.append(&bytes)
    }
}

/// The start of the file of a segment of this length.
fn header(segment_length: u64) -> Vec<u8> {
    let mut bytes = Vec::from(MAGIC);
    bytes.extend(segment_length.to_le_bytes());
    bytes.extend(crc32fast::hash(&bytes).to_le_bytes());
    bytes
}

/// The entry of the piece after the checkpoint at a position.
fn entry(offset: u64, filter: &PieceFilter) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(ENTRY);
    bytes.extend(offset.to_le_bytes());
    bytes.extend(filter.0);
    bytes.extend(crc32fast::hash(&bytes).to_le_bytes());
    bytes
}

impl StoredLog {
    /// The filters of a segment. `None` if they are missing, damaged, or made for another length.
    pub(super) fn filters_of(&self, segment: u64) -> Option<SegmentFilters> {
        let open = |part| self.media.open(&self.job, part, OpenMode::Read);
        let file = open(SegmentPart::Filters(segment)).ok()?;
        let length = open(SegmentPart::Frames(segment)).and_then(|frames| frames.length()).ok()?;
        SegmentFilters::open(file, length).ok().flatten()
    }
}

impl SegmentFilters {
    fn open(file: Arc<dyn Blob>, segment_length: u64) -> io::Result<Option<Self>> {
        let mut found = [0; HEADER];
        read_into(&mut found, &*file, 0)?;
        let count = file.length()?.saturating_sub(HEADER as u64) / ENTRY as u64;
        Ok((found[..] == header(segment_length)).then_some(Self {
            file,
            count,
            window: Vec::new(),
            first: 0,
            next: 0,
        }))
    }

    /// Whether the piece after the checkpoint at a position may contain a text. True if its filter can't
    /// be read.
    pub(super) fn may_contain(&mut self, offset: u64, text: &[u8]) -> bool {
        self.filter_at(offset)
            .ok()
            .flatten()
            .is_none_or(|filter| filter.may_contain(text))
    }

    /// The filter of the piece after the checkpoint at a position.
    fn filter_at(&mut self, offset: u64) -> io::Result<Option<PieceFilter>> {
        // Pieces are asked for in order.
        let index = if self.offset_of(self.next)? == Some(offset) {
            self.next
        } else {
            self.index_of(offset)?
        };
        self.next = index + 1;
        if self.in_window(index).is_none() {
            self.window.resize(WINDOW * ENTRY, 0);
            self.first = index;
            let length = read_into(&mut self.window, &*self.file, position(index))?;
            self.window.truncate(length);
        }
        Ok(self.in_window(index).and_then(|entry| read_entry(entry, offset)))
    }

    /// The index of the first entry of a piece at this position or after it.
    fn index_of(&self, offset: u64) -> io::Result<u64> {
        let (mut before, mut behind) = (0, self.count);
        while before < behind {
            let middle = before + (behind - before) / 2;
            if self.offset_of(middle)?.is_some_and(|found| found < offset) {
                before = middle + 1;
            } else {
                behind = middle;
            }
        }
        Ok(before)
    }

    /// The position of an entry's piece. `None` if there is no such entry.
    fn offset_of(&self, index: u64) -> io::Result<Option<u64>> {
        if let Some(entry) = self.in_window(index) {
            return Ok(Fields(entry).u64());
        }
        let mut offset = [0; size_of::<u64>()];
        let length = read_into(&mut offset, &*self.file, position(index))?;
        Ok((length == offset.len()).then(|| u64::from_le_bytes(offset)))
    }

    fn in_window(&self, index: u64) -> Option<&[u8]> {
        let start = usize::try_from(index.checked_sub(self.first)?).ok()?.checked_mul(ENTRY)?;
        self.window.get(start..start + ENTRY)
    }
}

/// Position of an entry in its file.
fn position(index: u64) -> u64 {
    HEADER as u64 + index * ENTRY as u64
}

/// The filter in an entry. `None` if it is damaged, or belongs to another piece.
fn read_entry(entry: &[u8], offset: u64) -> Option<PieceFilter> {
    let (body, sum) = entry.split_last_chunk()?;
    let mut fields = Fields(body);
    let is_whole = u32::from_le_bytes(*sum) == crc32fast::hash(body);
    (is_whole && fields.u64()? == offset).then_some(PieceFilter(fields.array()?))
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
        SegmentFilters::open(open(OpenMode::Read), 100).unwrap()
    }

    #[test]
    fn a_piece_is_found_among_many_in_any_order() {
        let mut bytes = header(100);
        for offset in 0..100 {
            bytes.extend(entry(
                10 * offset,
                &filter_of(format!("piece {offset}.").as_bytes()),
            ));
        }
        let mut filters = filters_in(&bytes).unwrap();
        for piece in [0, 1, 99, 31, 32, 33, 5] {
            let name = format!("piece {piece}.");
            assert!(filters.may_contain(10 * piece, name.as_bytes()), "{name}");
            assert!(!filters.may_contain(10 * piece, b"piece 100."), "{name}");
        }
        assert!(filters.may_contain(15, b"piece 100."), "it has no filter");
        assert!(filters.may_contain(1000, b"piece 100."), "it has no filter");
    }

    #[test]
    fn damaged_filters_and_those_of_another_length_are_ignored() {
        let mut bytes = header(100);
        bytes.extend(entry(17, &filter_of(b"some text")));
        let denies = |bytes: &[u8]| {
            filters_in(bytes).is_some_and(|mut filters| !filters.may_contain(17, b"other text"))
        };
        assert!(denies(&bytes));
        assert!(!denies(&[]) && !denies(&bytes[..bytes.len() - 1]));
        assert!(!denies(&[&header(101), &bytes[HEADER..]].concat()));
        bytes[HEADER + 40] ^= 1;
        assert!(!denies(&bytes));
    }
}
