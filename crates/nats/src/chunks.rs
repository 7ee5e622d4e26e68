//! Where the chunks of a job's output are in a stream of NATS.

use std::collections::BTreeMap;

/// A position in a job's output: a segment and a byte in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct ChunkPosition {
    pub(super) segment: u64,
    pub(super) offset: u64,
}

/// A chunk of output: one message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Chunk {
    /// Position of its first byte.
    pub(super) start: ChunkPosition,
    /// Its bytes.
    pub(super) length: u64,
    /// The message's sequence number in the stream.
    pub(super) sequence: u64,
}

impl Chunk {
    /// The position after its last byte.
    pub(super) fn end(&self) -> ChunkPosition {
        ChunkPosition {
            segment: self.start.segment,
            offset: self.start.offset + self.length,
        }
    }

    /// Whether it has the byte at a position.
    pub(super) fn contains(&self, place: ChunkPosition) -> bool {
        self.start <= place && place < self.end()
    }
}

/// The known chunks of a job. All others are found by bisection: positions and sequence numbers
/// grow together.
#[derive(Default)]
pub(super) struct Chunks(BTreeMap<ChunkPosition, Chunk>);

/// Maximum chunks remembered.
const MOST: usize = 1 << 16;

/// Bounds of the search for a position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ChunkBounds {
    /// The last known chunk that starts at or before the position.
    pub(super) before: Option<Chunk>,
    /// The first known chunk that starts after it.
    pub(super) after: Option<Chunk>,
}

impl ChunkBounds {
    /// Whether the position directly follows a known chunk, so that the next message has it if any
    /// message does.
    pub(super) fn is_next(&self, place: ChunkPosition) -> bool {
        self.before.is_some_and(|chunk| {
            let next_segment = ChunkPosition {
                segment: chunk.start.segment + 1,
                offset: 0,
            };
            chunk.end() == place || next_segment == place
        })
    }
}

impl Chunks {
    pub(super) fn note(&mut self, chunk: Chunk) {
        // A chunk without bytes only marks a take-over, and starts where the next one does.
        if chunk.length == 0 {
            return;
        }
        if self.0.len() >= MOST {
            self.thin_out();
        }
        self.0.insert(chunk.start, chunk);
    }

    /// Forgets every second chunk. They are found again when they are needed.
    fn thin_out(&mut self) {
        let mut is_kept = false;
        self.0.retain(|_, _| {
            is_kept = !is_kept;
            is_kept
        });
    }

    pub(super) fn around(&self, place: ChunkPosition) -> ChunkBounds {
        let after = ChunkPosition {
            offset: place.offset.saturating_add(1),
            ..place
        };
        ChunkBounds {
            before: self.0.range(..=place).next_back().map(|(_, chunk)| *chunk),
            after: self.0.range(after..).next().map(|(_, chunk)| *chunk),
        }
    }

    /// The known chunk that starts at a position.
    pub(super) fn starting_at(&self, place: ChunkPosition) -> Option<Chunk> {
        self.0.get(&place).copied()
    }

    /// Forgets chunks that were deleted: those of segments before this one.
    pub(super) fn forget_before(&mut self, segment: u64) {
        self.0.retain(|place, _| place.segment >= segment);
    }

    /// Forgets chunks that were deleted: those that end after a position.
    pub(super) fn forget_after(&mut self, place: ChunkPosition) {
        self.0.retain(|_, chunk| chunk.end() <= place);
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(segment: u64, offset: u64) -> ChunkPosition {
        ChunkPosition { segment, offset }
    }

    fn chunk(segment: u64, offset: u64, length: u64, sequence: u64) -> Chunk {
        Chunk {
            start: place(segment, offset),
            length,
            sequence,
        }
    }

    #[test]
    fn a_position_lies_between_the_known_chunks_around_it() {
        let mut chunks = Chunks::default();
        let [first, second, third] = [chunk(1, 0, 10, 3), chunk(1, 30, 10, 9), chunk(2, 0, 5, 12)];
        for chunk in [third, first, second] {
            chunks.note(chunk);
        }

        let around = chunks.around(place(1, 20));
        assert_eq!((around.before, around.after), (Some(first), Some(second)));
        assert!(!around.is_next(place(1, 20)));
        assert!(chunks.around(place(1, 10)).is_next(place(1, 10)));
        assert!(chunks.around(place(1, 39)).before.unwrap().contains(place(1, 39)));
        assert!(chunks.around(place(3, 0)).is_next(place(3, 0)));
    }

    #[test]
    fn too_many_chunks_are_thinned_out_and_not_forgotten_altogether() {
        let mut chunks = Chunks::default();
        for number in 0..MOST as u64 + 10 {
            chunks.note(chunk(1, number, 1, number + 1));
        }

        assert!(chunks.0.len() <= MOST);
        assert!(chunks.around(place(1, 100)).before.is_some());
    }
}
