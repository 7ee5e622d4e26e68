//! Lists of jobs: the verbs jobs, queue and recipe, and the parts of an entry.

mod end_reason;
mod hints;
mod job_filter;
mod job_kind;
mod jobs;
mod one_job;
mod processes;
mod queue;
mod recipe;
mod results_entry;
mod tree_entry;

pub use end_reason::EndReason;
pub use hints::{ERROR_WORDS, FirstError};
pub(super) use hints::{HintFacts, first_error, hint};
pub use job_kind::{JobCounts, JobKind};
pub(super) use jobs::shortened;
pub use jobs::{JobEntry, JobsReply, JobsRequest};
pub use processes::{DetailArg, ProcessEntry, ProcessList, TerminalEntry};
pub(crate) use queue::explain_queue;
pub use queue::{
    QueueAction, QueueEnd, QueueEntry, QueuePlaceArg, QueueReply, QueueRequest, QueuedJobEntry,
};
pub use recipe::{RecipeReply, RecipeRequest};
pub use results_entry::{FetchedEntry, ResultsEntry};
pub use tree_entry::TreeEntry;
