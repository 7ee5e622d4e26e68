//! Floor 0: what a job printed, as lines that have numbers.
//!
//! Pure: no task, clock, lock or I/O lives here. A [`Ring`] takes the bytes of both streams as they come, numbers
//! their lines 1, 2, 3 … in one sequence, keeps the newest within fixed bounds and counts exactly what it gave up.
//! [`Page`] is a read from a cursor, [`Reading`] one from a position, [`Search`] one by pattern; [`clean`] and [`TerminalFilter`] make remote bytes safe to show.

mod budget;
mod checkpoint;
mod excerpt;
mod line;
mod line_no;
mod origin;
mod overlong;
mod page;
mod printable;
mod prompt_shape;
mod read;
mod render;
mod ring;
mod search;
mod shortfall;
mod stream;
mod terminal_filter;
mod track;
mod unit;

pub use checkpoint::{Checkpoint, Unfinished};
pub use excerpt::Excerpt;
pub use line::{Bytes, Line, Timestamp};
pub use line_no::LineNo;
pub use origin::{Origin, Position};
pub use overlong::is_verbatim;
pub use page::{Fetched, Keep, Looked, Page, PageLine, PageQuery, Scan};
pub use printable::printable;
pub use prompt_shape::looks_like_prompt;
pub use read::{Content, ReadQuery, Reading};
pub use render::{Escape, Render, clean, render};
pub use ring::{Ring, RingLimits};
pub use search::{Match, Search, SearchQuery};
pub use stream::{Selection, Stream};
pub use terminal_filter::TerminalFilter;
pub use unit::Unit;

use budget::Budget;
