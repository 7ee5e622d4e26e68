//! The ring: the newest output of both streams, with exact counts of evicted lines.

mod checkpoint;
mod line_end;
mod marks;
mod origin;
mod overlong;
mod ring;
mod shortfall;
mod track;

pub use checkpoint::{Checkpoint, Unfinished};
pub use origin::{Position, RingOrigin};
pub use overlong::is_verbatim;
pub use ring::{Ring, RingLimits};
