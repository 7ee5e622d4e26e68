//! A job's output, as numbered lines.
//!
//! Pure: no task, clock, lock or I/O. A [`Ring`] receives the bytes of both streams as they arrive,
//! numbers their lines 1, 2, 3 … in one sequence, keeps the newest within fixed limits and counts
//! exactly what it evicts. [`Page`] reads from a cursor, [`Reading`] from a position, [`Search`] by
//! pattern. [`clean`] and [`TerminalFilter`] make remote bytes safe to show.

mod budget;
mod excerpt;
mod line;
mod line_no;
mod page;
mod printable;
mod prompt_shape;
mod read;
mod render;
mod ring;
mod screen;
pub mod scrub;
mod search;
mod source;
mod stream;
mod styled;
mod terminal_filter;
mod terminal_modes;
mod terminal_size;
mod unit;

pub use excerpt::{Excerpt, ExcerptBudget};
pub use line::{Bytes, RingLine, Timestamp, time_of, timestamp_of};
pub use line_no::LineNo;
pub use page::{Fetched, Keep, Line, LineMatch, Page, PageQuery, Scan};
pub use printable::printable;
pub use prompt_shape::looks_like_prompt;
pub use read::{Content, ReadQuery, Reading};
pub use render::{OpenEscape, Render, clean, render};
pub use ring::{Checkpoint, Position, Ring, RingLimits, RingOrigin, Unfinished, is_verbatim};
pub use screen::{Cursor, ScreenRow, ScreenSpan, ScreenView, TerminalScreen};
pub use search::{Match, Search, SearchQuery};
pub use source::{MemberNo, OutputSource};
pub use stream::{Selection, Stream};
pub use styled::{Colour, StyledText, TextStyle, styled};
pub use terminal_filter::{TerminalFilter, coloured};
pub use terminal_modes::{ModeTracker, TerminalModes};
pub use terminal_size::{Resize, TerminalSize};
pub use unit::{Measure, Unit};

use budget::Budget;
use render::is_harmless;
