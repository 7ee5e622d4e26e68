//! Reads from a cursor: a page of lines within a budget.
//!
//! [`Page::read`] is the usual read. A [`Scan`] makes the same page in bounded pieces, so that
//! lines can be matched without blocking the writer.

mod line;
mod page;
mod query;
mod read;
mod scan;
mod walk;

pub use line::Line;
pub use page::Page;
pub use query::{Keep, PageQuery};
pub use scan::{LineMatch, Scan};
pub use walk::Fetched;

pub(super) use walk::Walk;
