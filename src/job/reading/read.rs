//! Reads a job's output, from its ring or from the store. A reader can't notice the difference,
//! except by speed.

use std::sync::Arc;

use super::matching::{Matching, TooSlow};
use crate::job::log::{Log, Status};
use crate::job::{Job, Place, Skimmed};
use crate::output::{
    Excerpt, Keep, LineNo, Measure, Page, PageQuery, ReadQuery, Reading, Ring, Search, SearchQuery,
    Selection, Stream, Unit,
};

/// Bytes of a stored piece that are read at once for a reader that will read more.
const PIECE: usize = 1 << 20;
/// Maximum bytes of a stream returned at once.
const CHUNK_BYTES: usize = 256 << 10;

/// Result of a search.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The matches, oldest first.
    pub matches: Vec<crate::output::Match>,
    /// The last line searched: the cursor for the next search.
    pub last: LineNo,
    /// Whether there is output after that line.
    pub has_more: bool,
    /// Lines that were evicted before they could be searched.
    pub dropped_lines: u64,
}

/// Where the output after a place can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Whereabouts {
    /// In the window that was read from the store.
    Window,
    /// In the job's ring, at least a moment ago.
    InRing,
    /// Nowhere completely. The job's ring has the remaining part.
    Nowhere,
}

/// Raw bytes of one stream.
pub(crate) struct RawBytes {
    /// Position of the first byte in its stream: after the requested one if bytes in between were
    /// evicted, before it if that is after the end of the stream.
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

impl Job {
    /// Calls `look` with a ring that has the output after `place`: the job's own or, if that has
    /// evicted it, a part of the store.
    pub(crate) async fn read_after<T>(
        &self,
        place: (Place, Selection),
        enough: impl Fn(&Ring) -> bool + Send + Sync + 'static,
        look: impl FnOnce(&Ring) -> T,
    ) -> T {
        self.read_after_with((&mut None, place), enough, look).await
    }

    /// Like [`read_after`](Self::read_after) for a reader that moves on: the part that was read
    /// from the store is kept in `window`.
    ///
    /// `look` may run under the lock of the log, so it must not lock the log again.
    pub(crate) async fn read_after_with<T>(
        &self,
        (window, place): (&mut Option<Ring>, (Place, Selection)),
        enough: impl Fn(&Ring) -> bool + Send + Sync + 'static,
        look: impl FnOnce(&Ring) -> T,
    ) -> T {
        let enough = Arc::new(enough);
        let mut look = look;
        loop {
            let own = Arc::clone(&enough);
            let found = self.window_for(window, place, move |ring: &Ring| own(ring)).await;
            if let (Whereabouts::Window, Some(window)) = (found, window.as_ref()) {
                return look(window);
            }
            let looked = self.read_log(|log| {
                // In the meantime the ring may have evicted the place, which is stored by now.
                let has_lost_it =
                    found == Whereabouts::InRing && !place.0.is_held_by(log.ring(), place.1);
                if has_lost_it {
                    Err(look)
                } else {
                    Ok(look(log.ring()))
                }
            });
            match looked {
                Ok(looked) => return looked,
                Err(unused) => look = unused,
            }
        }
    }

    /// Finds the output after `place`: in `window`, which is read from the store unless it has it
    /// already, or in the job's ring.
    async fn window_for(
        &self,
        window: &mut Option<Ring>,
        (place, selection): (Place, Selection),
        enough: impl Fn(&Ring) -> bool + Send + 'static,
    ) -> Whereabouts {
        if window.as_ref().is_some_and(|ring: &Ring| {
            place.is_held_by(ring, selection) && place.is_followed_in(ring, selection)
        }) {
            return Whereabouts::Window;
        }
        let Some((newest, total)) = self.read_log(|log: &Log| {
            let ring = log.ring();
            (!place.is_held_by(ring, selection)).then(|| (ring.newest(), ring.total()))
        }) else {
            return Whereabouts::InRing;
        };
        // Without a store, the ring has all there is.
        let Some(archive) = self.archive().cloned() else {
            return Whereabouts::Nowhere;
        };

        let reading = tokio::task::spawn_blocking(move || {
            let enough = |ring: &Ring| {
                let has_all = ring.newest() >= newest && ring.total() >= total;
                has_all || (place.is_followed_in(ring, selection) && enough(ring))
            };
            archive.window(place, selection, &enough)
        });
        // The task is cancelled only when the runtime shuts down.
        *window = reading.await.ok().flatten();
        if window.as_ref().is_some_and(|window: &Ring| {
            self.read_log(|log| window.first_available() < log.ring().first_available())
                && place.is_followed_in(window, selection)
        }) {
            Whereabouts::Window
        } else {
            Whereabouts::Nowhere
        }
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
        let is_enough =
            move |ring: &Ring| ring.extent(ring.newest(), selection, Measure::Lines) >= end;
        let place = (Place::At(start, Measure::Lines), selection);
        let mut page = self.read_after(place, is_enough, |ring| Page::read(ring, query)).await;
        page.has_more = page.last_line_no < newest && page.has_more;
        self.count_stored_as_skipped(&mut page, query.cursor);
        page
    }

    /// Lines that a page skips are not lost if they are stored.
    fn count_stored_as_skipped(&self, page: &mut Page, cursor: LineNo) {
        let Some(coverage) = self.coverage() else { return };
        let between = (cursor, page.last_line_no);
        let missing = self.read_log(|log| coverage.missing_between(log.ring(), between));
        let missing = missing.min(page.dropped_lines);
        page.skipped_lines += page.dropped_lines - missing;
        page.dropped_lines = missing;
    }

    async fn stored_first_page(&self, query: &PageQuery) -> Page {
        let place = Place::Behind(query.cursor);
        let selection = query.selection;
        let most = *query;
        let (mut page, seen) = self
            .read_after(
                (place, selection),
                move |ring: &Ring| {
                    let amount_after = |measure| {
                        let end = ring.extent(ring.newest(), selection, measure);
                        end.saturating_sub(ring.extent(most.cursor, selection, measure))
                    };
                    amount_after(Measure::Lines) > most.max_lines as u64
                        || amount_after(Measure::Bytes) > most.max_bytes as u64
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
        let query = ReadQuery {
            offset: i64::try_from(offset).unwrap_or(i64::MAX),
            ..*query
        };
        let place = (Place::At(offset, measure), query.selection);
        let mut reading = self
            .read_after(
                place,
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
        }
        (reading, self.status())
    }

    /// The start and the end of the output within `max_bytes`, and the status at that moment.
    pub async fn excerpt(&self, max_bytes: usize) -> (Excerpt, Status) {
        let place = (Place::Behind(LineNo::START), Selection::Both);
        let mut window = None;
        let found = self
            .window_for(&mut window, place, move |ring: &Ring| {
                ring.byte_count() > max_bytes.saturating_add(PIECE)
            })
            .await;
        let first = window.as_ref().filter(|_window| found == Whereabouts::Window);
        // Excerpt and status under one lock, so that they show the same moment.
        let (excerpt, status) = self.read_log(|log| {
            let excerpt = Excerpt::of(first.unwrap_or(log.ring()), log.ring(), max_bytes);
            (excerpt, log.status(None))
        });
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
    ) -> Result<Found, TooSlow> {
        let selection = query.selection;
        let cursor = query.cursor;
        let until = self.read_log(|log| log.ring().newest());
        let place = (Place::Behind(cursor), selection);
        let before = self
            .read_after(
                place,
                |_| true,
                |ring| ring.extent(cursor, selection, Measure::Lines),
            )
            .await;
        let context = |before: u64| {
            (
                Place::At(before.saturating_sub(query.context as u64), Measure::Lines),
                selection,
            )
        };
        let place = context(before);
        let mut window = None;
        let enough = |ring: &Ring| ring.byte_count() > PIECE;
        let mut search = self
            .read_after_with(
                (&mut window, place),
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
                window = window.filter(|ring| ring.newest() >= skimmed.to);
                self.read_after_with(
                    (&mut window, context(skimmed.lines)),
                    move |ring: &Ring| ring.newest() >= match_until && ring.newest() > skimmed.to,
                    |ring: &Ring| search.skip(skimmed.to, ring),
                )
                .await;
            }
            let place = (Place::Behind(search.cursor()), selection);
            let looking =
                self.read_after_with((&mut window, place), enough, |ring| search.fetch(ring));
            let Some(lines) = looking.await else { break };
            let fetched = lines.len();
            let texts = lines.iter().map(|fetched| fetched.line.text.clone()).collect();
            let found = matching.match_texts(texts).await?;
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
        let place = (Place::Behind(last), selection);
        let has_more = self
            .read_after(place, enough, |ring| {
                place.0.is_followed_in(ring, selection)
            })
            .await;
        Ok(Found {
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
        let is_lost =
            |cursor| !self.read_log(|log| Place::Behind(cursor).is_held_by(log.ring(), selection));
        let ahead = search.ahead().filter(|(cursor, _)| is_lost(*cursor));
        let Some(ahead) = ahead else { return Ok(None) };
        let Some(archive) = self.archive().cloned() else { return Ok(None) };
        matching
            .sift(move |has_no_match| archive.skim(ahead, selection, has_no_match))
            .await
    }

    /// The bytes of a stream from `position` on, as far as they are available.
    pub(crate) async fn raw_bytes(&self, stream: Stream, position: u64) -> RawBytes {
        let place = (Place::At(position, Measure::Bytes), Selection::Only(stream));
        let chunk_end = position.saturating_add(CHUNK_BYTES as u64);
        self.read_after(
            place,
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
