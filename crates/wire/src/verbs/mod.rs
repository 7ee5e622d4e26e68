//! One file for each verb: its request, its reply, and the method that performs it. Verbs with several files have a
//! folder.

mod approvals;
mod at_replica;
mod audit;
mod command;
mod displayed;
mod elsewhere;
mod events;
mod fetch;
mod files;
mod forget;
mod forward;
mod gpu_entry;
mod hosts;
mod jobs;
mod look;
mod notifications;
mod paste;
mod read;
mod requests;
mod run;
mod screen;
mod search;
mod signal;
mod span;
mod spawn;
mod table;
mod tail;
mod wait;
mod write;

pub use approvals::{
    ApprovalEntry, ApprovalsReply, ApprovalsRequest, ApproverAnswer, CallChange, Comparison,
    VoteEntry, VoteRequest,
};
pub use audit::{AuditLine, AuditReply};
pub use command::CommandRequest;
#[doc(hidden)]
pub use command::parse_become;
pub use events::{EventKind, JobEvent};
pub use fetch::{FetchReply, FetchRequest};
pub use files::CopiedTree;
#[doc(hidden)]
pub use files::parse_mode;
pub use files::{
    EditArg, FileEntry, FileUnit, GetReply, GetRequest, PutGroup, PutReply, PutRequest,
};
pub use forget::{ForgetReply, ForgetRequest, ForgetWhat};
pub use forward::{ForwardAction, ForwardEntry, ForwardReply, ForwardRequest};
pub use gpu_entry::GpuEntry;
pub use hosts::{HostEntry, HostsReply, HostsRequest, SettingEntry, TemplateEntry};
pub(crate) use jobs::explain_queue;
pub use jobs::{
    DetailArg, ERROR_WORDS, EndReason, FetchedEntry, FirstError, JobCounts, JobEntry, JobKind,
    JobsReply, JobsRequest, ProcessEntry, ProcessList, QueueAction, QueueEnd, QueueEntry,
    QueuePlaceArg, QueueReply, QueueRequest, QueuedJobEntry, RecipeReply, RecipeRequest,
    ResultsEntry, TerminalEntry, TreeEntry,
};
pub use look::LookRequest;
pub use notifications::{NotificationEntry, NotificationsReply};
pub use read::{Encoding, ReadReply, ReadRequest, UnitArg};
pub use run::{RunOptions, RunReply, RunRequest};
pub use screen::{ChangedRow, CursorAt, Screen, ScreenPart, Size, StyledRow};
pub use search::{MatchEntry, SearchReply, SearchRequest};
pub use signal::{DeliveryRoute, SignalReply, SignalRequest};
pub use span::StyledSpan;
pub use spawn::{SpawnReply, SpawnRequest};
pub use table::Repeat;
pub use tail::TailRequest;
pub use tail::{Because, JobTail, LineRecord, Partial, StreamName, TailReply};
pub use wait::{LastLinesOf, WaitMode, WaitReply, WaitRequest};
pub use write::{WriteReply, WriteRequest, WriteUnit};
