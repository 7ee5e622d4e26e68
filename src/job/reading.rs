//! Reads of a job's output, from its ring or from what is stored of it: a reader can't tell, except by speed.

use std::sync::Arc;

use super::{Archive, Job, Log, Matching, Place, Skimmed, Status, TooSlow};
use crate::output::{
    Excerpt, Keep, LineNo, Page, PageQuery, ReadQuery, Reading, Render, Ring, Search, SearchQuery, Selection,
    Stream, Unit,
};

/// Bytes of a stored piece that are enough where the reader comes back for more.
const PIECE: usize = 1 << 20;
/// The most bytes of a stream that are given out at a time.
const CHUNK_BYTES: usize = 256 << 10;

/// What a search has found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The matches, oldest first.
    pub matches: Vec<crate::output::Match>,
    /// How far it has looked: the cursor for the next one.
    pub last: LineNo,
    /// Whether the output goes on behind that.
    pub has_more: bool,
    /// Lines that were gone before they could be looked at.
    pub dropped_lines: u64,
}

impl Job {
    /// Hands `look` a ring that holds what lies behind `place`: the job's own, or, where that has lost it, a part of what is stored.
    pub(super) async fn look_behind<T>(
        &self,
        place: (Place, Selection),
        enough: impl Fn(&Ring) -> bool + Send + 'static,
        look: impl FnOnce(&Ring) -> T,
    ) -> T {
        self.look_on((&mut None, place), enough, look).await
    }

    /// The same for somebody who goes on from place to place: what was read from the store is kept for the next look.
    pub(super) async fn look_on<T>(
        &self,
        (window, (place, selection)): (&mut Option<Ring>, (Place, Selection)),
        enough: impl Fn(&Ring) -> bool + Send + 'static,
        look: impl FnOnce(&Ring) -> T,
    ) -> T {
        let is_good =
            |ring: &&Ring| place.is_held_by(ring, selection) && place.is_followed_in(ring, selection);
        if let Some(ring) = window.as_ref().filter(is_good) {
            return look(ring);
        }
        let lost = |archive: &Arc<dyn Archive>| {
            let end = |log: &Log| (log.ring().newest(), log.ring().total());
            let shown = self.read_log(|log| (!place.is_held_by(log.ring(), selection)).then(|| end(log)))?;
            Some((Arc::clone(archive), shown))
        };
        if let Some((archive, (newest, total))) = self.archive().and_then(lost) {
            let reading = tokio::task::spawn_blocking(move || {
                let enough = |ring: &Ring| {
                    let has_all = ring.newest() >= newest && ring.total() >= total;
                    has_all || (place.is_followed_in(ring, selection) && enough(ring))
                };
                archive.window(place, selection, &enough)
            });
            // A runtime that ends has no threads any more.
            *window = reading.await.ok().flatten();
            let is_older = |window: &Ring| {
                self.read_log(|log| window.first_available() < log.ring().first_available())
                    && place.is_followed_in(window, selection)
            };
            if let Some(ring) = window.as_ref().filter(|ring| is_older(ring)) {
                return look(ring);
            }
        }
        self.read_log(|log| look(log.ring()))
    }

    /// The page that a query asks for, when the ring has lost what is behind its cursor.
    pub(super) async fn stored_page(&self, query: &PageQuery) -> Page {
        let (place, selection, most) = (Place::Behind(query.cursor), query.selection, *query);
        let enough = move |ring: &Ring| {
            let behind = |unit| {
                let extent = |line_no| ring.extent(line_no, selection, (unit, Render::Raw));
                extent(ring.newest()).saturating_sub(extent(most.cursor))
            };
            behind(Unit::Lines) > most.max_lines as u64 || behind(Unit::Bytes) > most.max_bytes as u64
        };
        self.look_behind((place, selection), enough, |ring| {
            let mut page = Page::read(ring, &PageQuery { keep: Keep::First, ..*query });
            let seen = ring.extent(page.last_line_no, selection, (Unit::Lines, query.render));
            let total = self.read_log(|log| {
                log.ring().extent(log.ring().newest(), selection, (Unit::Lines, query.render))
            });
            page.has_more = total > seen;
            page
        })
        .await
    }

    /// Reads a part of its output by its position. Past the end there is nothing, and that is no error.
    pub async fn read(&self, query: &ReadQuery) -> (Reading, Status) {
        let unit = (query.unit, query.render);
        let (offset, total) = self.read_log(|log| Reading::place(log.ring(), query));
        let query = ReadQuery { offset: i64::try_from(offset).unwrap_or(i64::MAX), ..*query };
        let enough = move |ring: &Ring| {
            let end = Reading::place(ring, &query).1;
            end >= offset.saturating_add(query.length as u64)
                || (query.unit == Unit::Lines && ring.byte_count() > query.max_bytes.saturating_add(PIECE))
        };
        let place = (Place::At(offset, unit), query.selection);
        let mut reading = self.look_behind(place, enough, |ring| Reading::of(ring, &query)).await;
        let returned = reading.returned();
        reading.total = if returned > 0 { total.max(reading.offset + returned) } else { total };
        if let Some(coverage) = self.coverage() {
            let wanted = Stream::ALL.into_iter().filter(|&stream| query.selection.contains(stream));
            reading.available_from = self
                .read_log(|log| wanted.map(|stream| coverage.available_from(log.ring(), stream, unit)).sum());
        }
        (reading, self.status())
    }

    /// The beginning and the end of the output within `max_bytes`, and the status at that moment.
    pub async fn excerpt(&self, max_bytes: usize) -> (Excerpt, Status) {
        let place = (Place::Behind(LineNo::START), Selection::Both);
        let enough = move |ring: &Ring| ring.byte_count() > max_bytes.saturating_add(PIECE);
        let (excerpt, status) = self
            .look_behind(place, enough, |first| {
                self.read_log(|log| (Excerpt::of(first, log.ring(), max_bytes), log.status(None)))
            })
            .await;
        let Status { dropped_lines, first_available, .. } = self.status();
        (excerpt, self.with_troubles(Status { dropped_lines, first_available, ..status }))
    }

    /// The newest lines in their clean view, at most `max_lines` and `max_bytes` of them.
    pub fn last_page(&self, max_lines: usize, max_bytes: usize) -> Page {
        let query = PageQuery { max_lines, max_bytes, keep: Keep::Last, ..PageQuery::after(LineNo::START) };
        self.read_log(|log| Page::read(log.ring(), &query))
    }

    /// Looks through the output in its clean view, a piece at a time: nobody who appends has to wait. Patterns that take too long end
    /// it with what was found so far, and `has_more`; with an error when nothing could be looked at.
    pub async fn search(&self, query: SearchQuery, mut matching: Matching<1>) -> Result<Found, TooSlow> {
        let (selection, cursor) = (query.selection, query.cursor);
        let until = self.read_log(|log| log.ring().newest());
        let lines = (Unit::Lines, Render::Raw);
        let place = (Place::Behind(cursor), selection);
        let before = self.look_behind(place, |_| true, |ring| ring.extent(cursor, selection, lines)).await;
        let context =
            |before: u64| (Place::At(before.saturating_sub(query.context as u64), lines), selection);
        let (place, mut window) = (context(before), None);
        let enough = |ring: &Ring| ring.byte_count() > PIECE;
        let new = |ring: &Ring| Search::new(query.clone(), (ring, until));
        let has_context = move |ring: &Ring| ring.newest() >= cursor;
        let mut search = self.look_on((&mut window, place), has_context, new).await;
        let mut look_until = cursor;
        loop {
            if search.cursor() >= look_until
                && let Some(skimmed) = self.skim(&search, selection, &mut matching).await?
            {
                look_until = skimmed.look_until.unwrap_or(skimmed.to);
                let has_piece = move |ring: &Ring| ring.newest() >= look_until && ring.newest() > skimmed.to;
                let skip = |ring: &Ring| search.skip(skimmed.to, ring);
                window = window.filter(|ring| ring.newest() >= skimmed.to);
                self.look_on((&mut window, context(skimmed.lines)), has_piece, skip).await;
            }
            let place = (Place::Behind(search.cursor()), selection);
            let looking = self.look_on((&mut window, place), enough, |ring| search.fetch(ring));
            let Some(lines) = looking.await else { break };
            let fetched = lines.len();
            let texts = lines.iter().map(|fetched| fetched.line.text.clone()).collect();
            let found = matching.look(texts).await?;
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
        let has_more = self.look_behind(place, enough, |ring| place.0.is_followed_in(ring, selection)).await;
        Ok(Found { matches, last, has_more, dropped_lines })
    }

    /// Looks for stored output without a match behind where a search has come to.
    async fn skim(
        &self,
        search: &Search,
        selection: Selection,
        matching: &mut Matching<1>,
    ) -> Result<Option<Skimmed>, TooSlow> {
        let is_lost = |cursor| !self.read_log(|log| Place::Behind(cursor).is_held_by(log.ring(), selection));
        let ahead = search.ahead().filter(|(cursor, _)| is_lost(*cursor));
        let (Some(ahead), Some(archive)) = (ahead, self.archive().cloned()) else { return Ok(None) };
        matching.sift(move |is_dull| archive.skim(ahead, selection, is_dull)).await
    }

    /// The bytes of a stream from `position` on, which moves behind them; what is gone is counted.
    pub(super) async fn bytes_at(&self, stream: Stream, position: &mut u64, gone: &mut u64) -> Vec<u8> {
        let (from, selection) = (*position, Selection::Only(stream));
        let unit = (Unit::Bytes, Render::Raw);
        let enough = move |ring: &Ring| ring.total_bytes(stream) >= from + CHUNK_BYTES as u64;
        let place = (Place::At(from, unit), selection);
        let read = |ring: &Ring| {
            let (from, bytes) = ring.bytes_from(stream, from, CHUNK_BYTES);
            (from, bytes.into_owned())
        };
        let (from, bytes) = self.look_behind(place, enough, read).await;
        *gone += from - *position;
        *position = from + bytes.len() as u64;
        bytes
    }
}
