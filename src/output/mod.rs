//! Floor 0: what a job printed, as lines that have numbers.
//!
//! Pure: no task, clock, lock or I/O lives here. A [`Ring`] takes the bytes of both streams as they come, numbers
//! their lines 1, 2, 3 … in one sequence, keeps the newest within fixed bounds and counts exactly what it gave up.
//! [`Page`] is a read from a cursor, [`Reading`] one from a position, [`Search`] one by pattern; [`clean`] and [`TerminalFilter`] make remote bytes safe to show.

mod line_no;
mod page;
mod prompt;
mod read;
mod render;
mod ring;
mod scan;
mod search;
mod shortfall;
mod stream;
mod terminal;
mod track;
mod unit;

pub use line_no::LineNo;
pub use page::{Page, PageLine, PageQuery};
pub use prompt::looks_like_prompt;
pub use read::{Content, ReadQuery, Reading};
pub use render::{Render, clean, render};
pub use ring::{Ring, RingLimits};
pub use scan::{Fetched, Keep, Looked, Scan};
pub use search::{Match, Search, SearchQuery};
pub use stream::{Selection, Stream};
pub use terminal::TerminalFilter;
pub use track::{Bytes, Line, Timestamp};
pub use unit::Unit;
