//! Reads a job's output, from its ring or from the store. A reader can't notice the difference,
//! except by speed.

use futures_util::FutureExt;

use super::matching::{Matching, TooSlow};
use super::output_reader::OutputReader;
use crate::log::Status;
use crate::{Job, LineRange, OutputSpan, Skimmed, prefixed};
use sshjobs_output::{
    Excerpt, ExcerptBudget, Keep, Line, LineNo, Measure, Page, PageQuery, ReadQuery, Reading, Ring,
    Search, SearchQuery, Selection, Stream, Unit,
};

/// Bytes to read from the store at once if the reader is likely to continue.
const PIECE: usize = 1 << 20;
/// Maximum bytes of a stream returned at once.
const CHUNK_BYTES: usize = 256 << 10;

/// Result of a search.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SearchResult {
    /// The matches, oldest first.
    pub matches: Vec<sshjobs_output::Match>,
    /// The last line searched: the cursor for the next search.
    pub last: LineNo,
    /// Whether there is output after that line.
    pub has_more: bool,
    /// Lines that were evicted before they could be searched.
    pub dropped_lines: u64,
}

/// Raw bytes of one stream.
pub(crate) struct RawBytes {
    /// Position of the first byte in its stream. Later than requested if bytes in between were
    /// evicted, earlier if the requested position is after the end of the stream.
    pub(crate) start: u64,
    pub(crate) bytes: Vec<u8>,
}

impl RawBytes {
    /// The position after the last byte.
    pub(crate) fn end(&self) -> u64 {
        self.start + self.bytes.len() as u64
    }

    /// Number of bytes between the requested position and the first byte.
    pub(crate) fn dropped_after(&self, position: u64) -> u64 {
        self.start.saturating_sub(position)
    }
}

/// Maximum lines of stderr in an excerpt.
const MOST_ERRORS: usize = 200;

impl Job {
    /// Calls `read` with a ring that has the span; see [`OutputReader::read`].
    async fn read_span<T>(
        &self,
        span: OutputSpan,
        is_enough: impl Fn(&Ring) -> bool + Send + Sync + 'static,
        read: impl FnOnce(&Ring) -> T,
    ) -> T {
        OutputReader::new(self).read(span, is_enough, read).await
    }

    /// The page for a query if the ring has evicted lines that it asks for.
    pub(crate) async fn stored_page(&self, query: &PageQuery) -> Page {
        match query.keep {
            Keep::First => self.stored_first_page(query).await,
            Keep::Last => self.stored_last_page(query).await,
        }
    }

    /// The newest lines after the cursor, read from the store.
    async fn stored_last_page(&self, query: &PageQuery) -> Page {
        let selection = query.selection;
        let (start, newest) = self.read_log(|log| {
            let ring = log.ring();
            (start_of_last(ring, query), ring.newest())
        });
        let end = start.saturating_add(query.max_lines as u64);
        let span = OutputSpan::at(start, Measure::Lines, selection);
        let mut page = self
            .read_span(
                span,
                move |ring| ring.extent(ring.newest(), selection, Measure::Lines) >= end,
                |ring| Page::read(ring, query),
            )
            .await;
        page.has_more = page.last_line_no < newest && page.has_more;
        self.count_stored_as_skipped(&mut page, query.cursor);
        page
    }

    /// Lines that a page skips are not lost if they are stored.
    fn count_stored_as_skipped(&self, page: &mut Page, cursor: LineNo) {
        let Some(coverage) = self.coverage() else { return };
        let between = LineRange {
            after: cursor,
            last: page.last_line_no,
        };
        let missing = self.read_log(|log| coverage.missing_between(log.ring(), between));
        let missing = missing.min(page.dropped_lines);
        page.skipped_lines += page.dropped_lines - missing;
        page.dropped_lines = missing;
    }

    async fn stored_first_page(&self, query: &PageQuery) -> Page {
        let selection = query.selection;
        let most = *query;
        let (mut page, seen) = self
            .read_span(
                OutputSpan::after(query.cursor, selection),
                move |ring: &Ring| {
                    amount_after(ring, &most, Measure::Lines) > most.max_lines as u64
                        || amount_after(ring, &most, Measure::Bytes) > most.max_bytes as u64
                },
                |ring: &Ring| {
                    let page = Page::read(
                        ring,
                        &PageQuery {
                            keep: Keep::First,
                            ..*query
                        },
                    );
                    let seen = ring.extent(page.last_line_no, selection, Measure::Lines);
                    (page, seen)
                },
            )
            .await;

        // The end of a window is not the end of the output. Only the job's ring has that.
        let total =
            self.read_log(|log| log.ring().extent(log.ring().newest(), selection, Measure::Lines));
        page.has_more = total > seen;
        page
    }

    /// Reads a part of the output by its position. A position after the end returns nothing,
    /// without an error.
    pub async fn read(&self, query: &ReadQuery) -> (Reading, Status) {
        let measure = query.measure();
        let (offset, total) = self.read_log(|log| Reading::place(log.ring(), query));
        // A negative offset counts from the end. Resolved once: new output must not move it.
        let query = ReadQuery {
            offset: i64::try_from(offset).unwrap_or(i64::MAX),
            ..*query
        };
        let mut reading = self
            .read_span(
                OutputSpan::at(offset, measure, query.selection),
                move |ring: &Ring| {
                    let end = Reading::place(ring, &query).1;
                    end >= offset.saturating_add(query.length as u64)
                        || (query.unit == Unit::Lines
                            && ring.byte_count() > query.max_bytes.saturating_add(PIECE))
                },
                |ring| Reading::of(ring, &query),
            )
            .await;
        let returned = reading.returned();
        // Output that arrived since may be part of the answer.
        reading.total = if returned > 0 {
            total.max(reading.offset + returned)
        } else {
            total
        };
        if let Some(coverage) = self.coverage() {
            let wanted = Stream::ALL.into_iter().filter(|&stream| query.selection.contains(stream));
            reading.available_from = self.read_log(|log| {
                wanted.map(|stream| coverage.available_from(log.ring(), stream, measure)).sum()
            });
            // Nothing is left where the query starts. The rest starts where output is left.
            if returned == 0 {
                reading.offset = reading.offset.max(reading.available_from);
            }
        }
        (reading, self.status())
    }

    /// The start and the end of the output within a budget, with the last lines of stderr, and the
    /// status at that moment.
    pub async fn excerpt(&self, budget: ExcerptBudget) -> (Excerpt, Status) {
        let all = OutputSpan::after(LineNo::START, Selection::Both);
        let mut reader = OutputReader::new(self);
        let first = reader
            .read_stored(all, move |ring: &Ring| {
                ring.byte_count() > budget.whole.saturating_add(PIECE)
            })
            .await;
        // Read before the lock below: the last errors may be in the store alone.
        let errors = PageQuery {
            selection: Selection::Only(Stream::Stderr),
            max_lines: MOST_ERRORS,
            max_bytes: budget.cut.max(1),
            line_bytes: 1,
            keep: Keep::Last,
            ..PageQuery::after(LineNo::START)
        };
        let errors = self.stored_page(&errors).boxed().await.lines;
        // Excerpt and status under one lock, so that they show the same moment.
        let (excerpt, status) = self.read_log(|log| {
            let excerpt = Excerpt::of(first.unwrap_or(log.ring()), log.ring(), errors, budget);
            (excerpt, log.status(None))
        });
        // Outside the closure above, because `status` locks the log again.
        let Status {
            dropped_lines,
            first_available,
            ..
        } = self.status();
        (
            excerpt,
            self.with_troubles(Status {
                dropped_lines,
                first_available,
                ..status
            }),
        )
    }

    /// The newest lines in their clean view, at most `max_lines` and `max_bytes` of them.
    pub fn last_page(&self, max_lines: usize, max_bytes: usize) -> Page {
        let query = PageQuery {
            max_lines,
            max_bytes,
            keep: Keep::Last,
            ..PageQuery::after(LineNo::START)
        };
        self.read_log(|log| Page::read(log.ring(), &query))
    }

    /// Searches the output in its clean view, a piece at a time, so that no writer has to wait. If
    /// patterns take too long, returns the matches so far with `has_more`, or an error if nothing
    /// could be searched.
    pub async fn search(
        &self,
        query: SearchQuery,
        mut matching: Matching<1>,
    ) -> Result<SearchResult, TooSlow> {
        let selection = query.selection;
        let cursor = query.cursor;
        let bound = query.last;
        // Fixed now, so that a job that prints fast can't prolong the search.
        let newest = self.read_log(|log| log.ring().newest());
        let until = query.last.map_or(newest, |last| last.min(newest));
        let before = self
            .read_span(
                OutputSpan::after(cursor, selection),
                |_| true,
                |ring| ring.extent(cursor, selection, Measure::Lines),
            )
            .await;
        let context = query.context as u64;
        let mut reader = OutputReader::new(self);
        let mut search = reader
            .read(
                with_context(before, context, selection),
                move |ring: &Ring| ring.newest() >= cursor,
                |ring: &Ring| Search::new(query.clone(), ring, until),
            )
            .await;
        let mut match_until = cursor;
        loop {
            if search.cursor() >= match_until
                && let Some(skimmed) = self.skim(&search, selection, &mut matching).await?
            {
                match_until = skimmed.match_until.unwrap_or(skimmed.to);
                // `read` would use an older window that has the context but ends too early.
                reader.keep_only_if(|ring| ring.newest() >= skimmed.to);
                reader
                    .read(
                        with_context(skimmed.lines, context, selection),
                        move |ring: &Ring| {
                            ring.newest() >= match_until && ring.newest() > skimmed.to
                        },
                        |ring: &Ring| search.skip(skimmed.to, ring),
                    )
                    .await;
            }
            let span = OutputSpan::after(search.cursor(), selection);
            let most = match match_until.since(search.cursor()) {
                // Nothing could be passed over.
                0 => usize::MAX,
                // The next skim may pass over the lines behind these.
                lines => usize::try_from(lines).unwrap_or(usize::MAX),
            };
            let fetching = reader.read(span, has_piece, |ring| search.fetch(ring, most));
            let Some(lines) = fetching.await else { break };
            let fetched = lines.len();
            let texts = lines.iter().map(|fetched| self.display(&fetched.line)).collect();
            let found = matching.match_texts(texts).await?;
            // Nothing was searched: the same call again would fail in the same way.
            if found.is_empty() && search.cursor() == cursor {
                return Err(matching.too_slow());
            }
            let is_spent = found.len() < fetched;
            for (fetched, [is_match]) in lines.into_iter().zip(found) {
                search.take(fetched, is_match == Some(true));
            }
            if is_spent {
                break;
            }
        }
        let dropped_lines = search.dropped_lines();
        let (matches, last) = search.finish();
        let rest = OutputSpan::after(last, selection);
        let is_at_bound = bound.is_some_and(|bound| last >= bound);
        let has_more =
            !is_at_bound && self.read_span(rest, has_piece, |ring| rest.is_followed_in(ring)).await;
        Ok(SearchResult {
            matches,
            last,
            has_more,
            dropped_lines,
        })
    }

    /// Skips stored output without a match, from the current position of a search.
    async fn skim(
        &self,
        search: &Search,
        selection: Selection,
        matching: &mut Matching<1>,
    ) -> Result<Option<Skimmed>, TooSlow> {
        // A pattern may match the names of a fleet's hosts, which are not in the stored bytes.
        if self.spec.fleet.is_some() {
            return Ok(None);
        }
        let Some((cursor, until)) = search.ahead() else { return Ok(None) };
        let span = OutputSpan::after(cursor, selection);
        // The ring has everything ahead, so no file need be read.
        if self.read_log(|log| span.is_held_by(log.ring())) {
            return Ok(None);
        }
        let ahead = LineRange {
            after: cursor,
            last: until,
        };
        let Some(archive) = self.archive().cloned() else { return Ok(None) };
        matching.sift(move |sieve| archive.skim(ahead, selection, sieve)).await
    }

    /// The host that printed a line of a fleet. `None` for a job on one host.
    pub fn host_of(&self, line: &Line) -> Option<&str> {
        self.spec.fleet.as_ref()?.host(line.member?)
    }

    /// A line as text: in a fleet, after the name of its host. Patterns match this text.
    pub fn display(&self, line: &Line) -> String {
        match self.host_of(line) {
            Some(host) => prefixed(host, &line.text),
            None => line.text.clone(),
        }
    }

    /// The bytes of a stream from `position` on, at most 256 KiB.
    pub(crate) async fn raw_bytes(&self, stream: Stream, position: u64) -> RawBytes {
        let chunk_end = position.saturating_add(CHUNK_BYTES as u64);
        self.read_span(
            OutputSpan::at(position, Measure::Bytes, Selection::Only(stream)),
            move |ring: &Ring| ring.total_bytes(stream) >= chunk_end,
            |ring: &Ring| {
                let (start, bytes) = ring.bytes_from(stream, position, CHUNK_BYTES);
                RawBytes {
                    start,
                    bytes: bytes.into_owned(),
                }
            },
        )
        .await
    }
}

/// The selected lines from some lines before a position on.
fn with_context(position: u64, context: u64, selection: Selection) -> OutputSpan {
    OutputSpan::at(position.saturating_sub(context), Measure::Lines, selection)
}

/// Whether a part of the store is large enough for a reader that will read more.
fn has_piece(ring: &Ring) -> bool {
    ring.byte_count() > PIECE
}

/// Amount of the selected output after a query's cursor.
fn amount_after(ring: &Ring, query: &PageQuery, measure: Measure) -> u64 {
    let end = ring.extent(ring.newest(), query.selection, measure);
    end.saturating_sub(ring.extent(query.cursor, query.selection, measure))
}

/// Position, in lines of the selection, before the newest lines that a query asks for.
pub(super) fn start_of_last(ring: &Ring, query: &PageQuery) -> u64 {
    let lines_before = |line_no| ring.extent(line_no, query.selection, Measure::Lines);
    let start = lines_before(ring.newest()).saturating_sub(query.max_lines as u64);
    // The ring does not know positions of lines that it has evicted.
    if query.cursor >= ring.last_gone(query.selection) {
        start.max(lines_before(query.cursor))
    } else {
        start
    }
}

#[cfg(test)]
mod tests;
