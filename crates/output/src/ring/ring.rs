//! The ring of a job's newest output. Bounded in lines and bytes; evicted lines are counted
//! exactly.

use memchr::memchr_iter;

use super::checkpoint::Checkpoint;
use super::line_end::LineEnd;
use super::origin::RingOrigin;
use super::track::Track;
use crate::{Bytes, LineNo, Measure, OutputSource, Render, RingLine, Selection, Stream, Timestamp};

/// Limits of a [`Ring`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingLimits {
    /// Maximum lines kept.
    pub lines: usize,
    /// Maximum bytes kept, including line ends and unfinished lines. At least four times
    /// `line_bytes`.
    pub bytes: usize,
    /// Longest line in bytes; a longer one is split into numbered continuations. At least 8.
    pub line_bytes: usize,
}

impl Default for RingLimits {
    fn default() -> Self {
        Self {
            lines: 10_000,
            bytes: 8 << 20,
            line_bytes: 64 << 10,
        }
    }
}

/// The newest output of a job, within fixed limits.
///
/// One counter numbers the lines of both streams. A number never changes and is never reused. When
/// a limit is reached the oldest lines are evicted, so that the kept part is always the end of the
/// sequence, and evicted lines can be counted exactly. Bytes are kept unchanged; any division of
/// the same bytes into chunks gives the same lines.
#[derive(Debug)]
pub struct Ring {
    pub(crate) limits: RingLimits,
    stdout: Track,
    stderr: Track,
    newest: LineNo,
}

impl Ring {
    /// An empty ring. It allocates when the first bytes arrive.
    pub fn new(limits: RingLimits) -> Self {
        let line_bytes = limits.line_bytes.max(8);
        let limits = RingLimits {
            lines: limits.lines.max(1),
            // Unfinished lines can't be evicted. One may be two lines long; see `append_piece`.
            bytes: limits.bytes.max(4 * line_bytes),
            line_bytes,
        };
        Self {
            limits,
            stdout: Track::new(Stream::Stdout),
            stderr: Track::new(Stream::Stderr),
            newest: LineNo::START,
        }
    }

    /// An empty ring that continues after `checkpoint`. Earlier output counts as evicted.
    pub fn resumed(limits: RingLimits, checkpoint: &Checkpoint) -> Self {
        let Checkpoint {
            origin,
            stdout,
            stderr,
        } = checkpoint;
        Self {
            stdout: Track::resumed(Stream::Stdout, &origin.stdout, stdout),
            stderr: Track::resumed(Stream::Stderr, &origin.stderr, stderr),
            newest: origin.newest,
            ..Self::new(limits)
        }
    }

    /// Allocates room for this many bytes of each stream at once, if they are expected soon.
    pub fn reserve(&mut self, bytes: usize) {
        self.stdout.bytes.reserve_exact(bytes);
        self.stderr.bytes.reserve_exact(bytes);
    }

    /// Its limits.
    pub fn limits(&self) -> RingLimits {
        self.limits
    }

    /// State from which another ring can continue.
    pub fn checkpoint(&self) -> Checkpoint {
        Checkpoint {
            origin: self.origin(),
            stdout: self.stdout.unfinished(),
            stderr: self.stderr.unfinished(),
        }
    }

    /// Start position of a ring that continues after the last finished lines.
    pub fn origin(&self) -> RingOrigin {
        RingOrigin {
            newest: self.newest,
            stdout: self.stdout.position(),
            stderr: self.stderr.position(),
        }
    }

    /// Appends bytes that arrived from `source`. Lines that end in them get the time `at`.
    pub fn append(&mut self, source: impl Into<OutputSource>, bytes: &[u8], at: Timestamp) {
        let source = source.into();
        for piece in bytes.chunks(self.limits.line_bytes) {
            self.make_room(piece.len());
            self.append_piece(source, piece, at);
        }
    }

    /// `piece` has at most `line_bytes` bytes, so an unfinished line has at most twice as many
    /// before it is cut.
    fn append_piece(&mut self, source: OutputSource, piece: &[u8], at: Timestamp) {
        let OutputSource { stream, member } = source;
        let bound = self.limits.bytes;
        let track = self.track_mut(stream);
        // Before `extend`, which changes both.
        let begin = track.end();
        let after_cr = track.ends_with_cr();
        track.extend(member, piece, bound);
        if self.try_close_plain_lines(stream, piece, at) {
            return;
        }
        for newline in memchr_iter(b'\n', piece) {
            let cr = newline.checked_sub(1).map_or(after_cr, |before| piece[before] == b'\r');
            let end = begin + newline as u64;
            self.cut_overlong(stream, end, at);
            // If this line is empty, the CR is the last byte of the line that was cut before it.
            let ending = if cr && end > self.track(stream).open() {
                LineEnd::CrLf
            } else {
                LineEnd::Lf
            };
            self.close_line(stream, end + 1, ending, at);
        }
        // Also without a newline, so that no unfinished line exceeds the limit.
        self.cut_overlong(stream, begin + piece.len() as u64, at);
    }

    /// Ends the lines of `piece`, the newest bytes of `stream`, at once if they are usual ones: plain text,
    /// and none too long. Otherwise returns false and changes nothing. The result is that of ending them
    /// one by one; this is only faster.
    fn try_close_plain_lines(&mut self, stream: Stream, piece: &[u8], at: Timestamp) -> bool {
        let limits = self.limits;
        let track = self.track(stream);
        let unfinished = track.end() - track.open();
        if !track.is_plain_from_open() || unfinished > limits.line_bytes as u64 {
            return false;
        }
        let count = memchr_iter(b'\n', piece).count();
        if count > limits.lines {
            return false;
        }
        self.evict_lines((self.line_count() + count).saturating_sub(limits.lines));
        let first = self.newest.next();
        self.newest = LineNo::new(self.newest.value() + count as u64);
        let track = self.track_mut(stream);
        let begin = track.end() - piece.len() as u64;
        let ends = memchr_iter(b'\n', piece).map(|newline| begin + newline as u64 + 1);
        track.close_plain_lines(first, ends, at);
        true
    }

    /// Ends `stream`: its unfinished line becomes a line.
    pub fn finish(&mut self, stream: Stream, at: Timestamp) {
        let end = self.track(stream).end();
        if end > self.track(stream).open() {
            self.close_line(stream, end, LineEnd::StreamEnd, at);
        }
    }

    pub(crate) fn close_line(&mut self, stream: Stream, end: u64, ending: LineEnd, at: Timestamp) {
        if self.line_count() == self.limits.lines {
            self.evict_lines(1);
        }
        self.newest = self.newest.next();
        let line_no = self.newest;
        self.track_mut(stream).close_line(line_no, end, ending, at);
    }

    fn make_room(&mut self, bytes: usize) {
        self.evict((self.byte_count() + bytes).saturating_sub(self.limits.bytes));
    }

    /// Evicts the oldest lines until `bytes` more bytes are free, or no line is left.
    fn evict(&mut self, mut bytes: usize) {
        while bytes > 0
            && let Some((track, until)) = self.oldest_track()
        {
            let (_, freed) = track.evict(bytes, until);
            bytes = bytes.saturating_sub(freed);
        }
    }

    /// Evicts this many of the oldest lines.
    fn evict_lines(&mut self, mut count: usize) {
        while count > 0
            && let Some((track, until)) = self.oldest_track()
        {
            count -= track.evict_lines(count, until);
        }
    }

    /// The stream that has the oldest line, and the line before which its eviction must stop: the other
    /// stream's oldest line, or the next line to come.
    fn oldest_track(&mut self) -> Option<(&mut Track, LineNo)> {
        let next = self.newest.next();
        match (self.stdout.oldest(), self.stderr.oldest()) {
            (Some(out), Some(err)) if err < out => Some((&mut self.stderr, out)),
            (Some(_), Some(err)) => Some((&mut self.stdout, err)),
            (Some(_), None) => Some((&mut self.stdout, next)),
            (None, Some(_)) => Some((&mut self.stderr, next)),
            (None, None) => None,
        }
    }

    /// Evicts the oldest lines until at most `bytes` are kept, and frees their memory.
    pub fn trim(&mut self, bytes: usize) {
        self.evict(self.byte_count().saturating_sub(bytes));
        self.stdout.shrink();
        self.stderr.shrink();
    }

    /// Deletes the finished lines of the selected streams and returns the number of lines and bytes
    /// deleted. Their numbers are not reused.
    pub fn forget(&mut self, selection: Selection) -> (u64, u64) {
        let mut lines = 0;
        let mut bytes = 0;
        let next = self.newest.next();
        for stream in Stream::ALL.into_iter().filter(|&stream| selection.contains(stream)) {
            let track = self.track_mut(stream);
            let (went, freed) = track.evict(usize::MAX, next);
            lines += went as u64;
            bytes += freed as u64;
            track.shrink();
        }
        (lines, bytes)
    }

    /// Deletes the lines of `stream` up to a number. Their numbers are not reused.
    pub fn forget_until(&mut self, stream: Stream, last: LineNo) {
        self.track_mut(stream).evict(usize::MAX, last.next());
    }

    /// The kept lines of `selection` after `cursor`, by number.
    ///
    /// Finding the first one is a binary search, so a page costs the same whatever amount is kept.
    pub fn lines_after(
        &self,
        cursor: LineNo,
        selection: Selection,
    ) -> impl Iterator<Item = RingLine<'_>> {
        let from = |stream| {
            if selection.contains(stream) {
                cursor
            } else {
                // No line follows the newest, so a stream that is not selected yields nothing.
                self.newest
            }
        };
        let mut stdout = self.stdout.lines_after(from(Stream::Stdout)).peekable();
        let mut stderr = self.stderr.lines_after(from(Stream::Stderr)).peekable();
        std::iter::from_fn(move || match (stdout.peek(), stderr.peek()) {
            (Some(out), Some(err)) if err.line_no < out.line_no => stderr.next(),
            (None, Some(_)) => stderr.next(),
            _ => stdout.next(),
        })
    }

    /// Number of evicted lines between `cursor` and the first one kept, and the last of them.
    ///
    /// For one stream the count may include evicted lines of the other: the stream of an evicted
    /// line is not known. It never exceeds the number of evicted lines of the selected stream.
    pub fn dropped_after(&self, cursor: LineNo, selection: Selection) -> (u64, LineNo) {
        match selection {
            Selection::Both => (
                self.first_available().since(cursor.next()),
                self.before_first(),
            ),
            Selection::Only(stream) => {
                let (count, last) = self.track(stream).gone();
                (last.since(cursor).min(count), last)
            }
        }
    }

    /// The last evicted line of the selection: all later ones are kept.
    pub fn last_gone(&self, selection: Selection) -> LineNo {
        let wanted = Stream::ALL.into_iter().filter(|&stream| selection.contains(stream));
        wanted.map(|stream| self.track(stream).gone().1).max().unwrap_or_default()
    }

    /// The oldest line kept, or the next line to come.
    pub fn first_available(&self) -> LineNo {
        let kept = [self.stdout.oldest(), self.stderr.oldest()].into_iter().flatten().min();
        kept.unwrap_or(self.newest.next())
    }

    /// The line before the first one available.
    pub fn before_first(&self) -> LineNo {
        LineNo::new(self.first_available().value() - 1)
    }

    /// Amount of the selected output up to `line_no`, counted from the start of the job. A binary
    /// search.
    pub fn extent(&self, line_no: LineNo, selection: Selection, measure: Measure) -> u64 {
        let wanted = Stream::ALL.into_iter().filter(|&stream| selection.contains(stream));
        wanted.map(|stream| self.track(stream).extent(line_no, measure)).sum()
    }

    /// The newest line, which is also the number of lines so far.
    pub fn newest(&self) -> LineNo {
        self.newest
    }

    /// The unfinished last line of `stream`; may be empty.
    pub fn partial(&self, stream: Stream) -> Bytes<'_> {
        self.track(stream).partial()
    }

    /// The unfinished last line as text.
    pub fn partial_text(&self, stream: Stream, render: Render) -> String {
        self.track(stream).partial_text(render)
    }

    /// Bytes received on `stream` since the start of the job.
    pub fn total_bytes(&self, stream: Stream) -> u64 {
        self.track(stream).end()
    }

    /// Bytes received on both streams.
    pub fn total(&self) -> u64 {
        self.stdout.end() + self.stderr.end()
    }

    /// The bytes of `stream` from `position` on, at most `limit`, and their actual start: a later
    /// position if the requested one was evicted.
    pub fn bytes_from(&self, stream: Stream, position: u64, limit: usize) -> (u64, Bytes<'_>) {
        let track = self.track(stream);
        let from = position.clamp(track.start(), track.end());
        let to = track.end().min(from + limit as u64);
        (from, track.slice(from, to))
    }

    /// Number of bytes kept.
    pub fn byte_count(&self) -> usize {
        self.stdout.byte_count() + self.stderr.byte_count()
    }

    /// Number of lines kept.
    pub fn line_count(&self) -> usize {
        self.stdout.line_count() + self.stderr.line_count()
    }

    /// Bytes of memory that the ring uses.
    pub fn footprint(&self) -> usize {
        self.stdout.footprint() + self.stderr.footprint()
    }

    pub(crate) fn track(&self, stream: Stream) -> &Track {
        match stream {
            Stream::Stdout => &self.stdout,
            Stream::Stderr => &self.stderr,
        }
    }

    fn track_mut(&mut self, stream: Stream) -> &mut Track {
        match stream {
            Stream::Stdout => &mut self.stdout,
            Stream::Stderr => &mut self.stderr,
        }
    }
}

#[cfg(test)]
mod tests;
