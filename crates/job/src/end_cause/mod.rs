//! Why a job ended, as far as its host and sshjobs know.

mod cause;
mod evidence;
mod post_mortem;

pub use cause::{EndCause, EndFacts, MemoryEvidence};
pub use evidence::{
    EndEvidence, MemoryKills, ResourceUse, SentSignal, SignalNote, end_by_host_clock,
};
pub use post_mortem::{KilledProcess, PostMortem};
