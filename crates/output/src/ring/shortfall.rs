//! Differences between bytes and characters, from which a stream's characters are counted.

use std::collections::VecDeque;

use crate::Render;

/// Difference between the bytes and the characters of a stream, line by line.
///
/// For a line of plain ASCII it is 0, so with plain output this stays empty and counting costs
/// nothing.
#[derive(Debug, Default)]
pub(crate) struct Shortfalls {
    /// One entry per kept line with a difference, in order.
    kept: VecDeque<Shortfall>,
    /// The entry of the last evicted line with a difference.
    gone: Shortfall,
}

/// The difference from the start of the stream to the end of a line.
#[derive(Clone, Copy, Debug, Default)]
struct Shortfall {
    /// Position after the line.
    end: u64,
    /// In the unchanged text.
    raw: u64,
    /// In the clean view.
    clean: u64,
}

impl Shortfalls {
    /// Differences of a stream of which everything before `end` was evicted.
    pub(crate) fn resumed(end: u64, raw: u64, clean: u64) -> Self {
        Self {
            gone: Shortfall { end, raw, clean },
            ..Self::default()
        }
    }

    /// Adds the newest line, which ends at `end`, with its own differences.
    pub(crate) fn push(&mut self, end: u64, raw: u64, clean: u64) {
        if raw.max(clean) > 0 {
            let before = self.kept.back().copied().unwrap_or(self.gone);
            self.kept.push_back(Shortfall {
                end,
                raw: before.raw + raw,
                clean: before.clean + clean,
            });
        }
    }

    /// Number of characters up to `end`, the end of a line. A binary search.
    pub(crate) fn chars_until(&self, end: u64, render: Render) -> u64 {
        let count = self.kept.partition_point(|shortfall| shortfall.end <= end);
        let last = count.checked_sub(1).map_or(self.gone, |index| self.kept[index]);
        match render {
            Render::Raw => end - last.raw,
            Render::Clean => end - last.clean,
        }
    }

    /// Drops entries of lines before `start`.
    pub(crate) fn evict(&mut self, start: u64) {
        while let Some(shortfall) = self.kept.front().filter(|shortfall| shortfall.end <= start) {
            self.gone = *shortfall;
            self.kept.pop_front();
        }
    }

    pub(crate) fn footprint(&self) -> usize {
        self.kept.capacity() * size_of::<Shortfall>()
    }

    pub(crate) fn shrink(&mut self) {
        self.kept.shrink_to_fit();
    }
}
