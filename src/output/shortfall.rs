use std::collections::VecDeque;

use super::Render;

/// By how much the characters of a stream fall short of its bytes, line by line.
///
/// A line of plain ASCII has as many of both, so where nothing else comes this stays empty and counting costs nothing.
#[derive(Debug, Default)]
pub(super) struct Shortfalls {
    /// One for each kept line that falls short, in order.
    kept: VecDeque<Shortfall>,
    /// The last one that is gone.
    gone: Shortfall,
}

/// The shortfall from the stream's beginning up to the end of a line.
#[derive(Clone, Copy, Debug, Default)]
struct Shortfall {
    /// Position behind the line.
    end: u64,
    /// In the text as it came.
    raw: u64,
    /// In its clean view.
    clean: u64,
}

impl Shortfalls {
    /// Those of a stream of which everything before `end` is gone.
    pub(super) fn resumed(end: u64, raw: u64, clean: u64) -> Self {
        Self { gone: Shortfall { end, raw, clean }, ..Self::default() }
    }

    /// Notes the line that ends at `end`, the newest, by how much it falls short itself.
    pub(super) fn push(&mut self, end: u64, raw: u64, clean: u64) {
        if raw.max(clean) > 0 {
            let before = self.kept.back().copied().unwrap_or(self.gone);
            self.kept.push_back(Shortfall { end, raw: before.raw + raw, clean: before.clean + clean });
        }
    }

    /// Characters up to `end`, the end of a line. A binary search.
    pub(super) fn chars_until(&self, end: u64, render: Render) -> u64 {
        let count = self.kept.partition_point(|shortfall| shortfall.end <= end);
        let last = count.checked_sub(1).map_or(self.gone, |index| self.kept[index]);
        match render {
            Render::Raw => end - last.raw,
            Render::Clean => end - last.clean,
        }
    }

    /// Lets those go whose lines lie before `start`.
    pub(super) fn evict(&mut self, start: u64) {
        while let Some(shortfall) = self.kept.front().filter(|shortfall| shortfall.end <= start) {
            self.gone = *shortfall;
            self.kept.pop_front();
        }
    }

    pub(super) fn footprint(&self) -> usize {
        self.kept.capacity() * size_of::<Shortfall>()
    }

    pub(super) fn shrink(&mut self) {
        self.kept.shrink_to_fit();
    }
}
