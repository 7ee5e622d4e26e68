//! The JSON contract for agents and scripts.
//!
//! [`Service`] has one method per verb, with its [`WireRequest`], its reply and one [`Error`] type with
//! stable [`Code`]s. It wraps [`jobs`](sshjobs_core::jobs) and adds defaults, ranges (changed values are
//! reported in `clamped`) and hints. Doc comments of requests and replies are product text: models
//! read them as tool schemas.

mod age;
mod choices;
mod clamp;
mod config_file;
mod error;
mod explain;
mod export;
mod file_lines;
mod fleet;
mod host_path;
mod leave_out;
mod pass_on;
mod reached_at;
pub mod remote;
mod request;
mod schema;
mod secret;
mod service;
mod session;
mod state;
mod texts;
pub mod tokens;
mod transfer_roots;
mod verbs;

pub use age::in_largest_unit;
pub use choices::{Format, KeepArg, RenderArg, StreamArg};
pub use clamp::Clamped;
pub use config_file::{ConfigFileError, load_config, parse_config};
pub use error::{Code, Error, Hint};
pub use export::ExportFormat;
pub use fleet::{Group, Members};
pub use host_path::{PathOnHosts, shown_at};
pub use pass_on::{PassOn, PassedCall, not_passed_on};
pub use reached_at::ReachedAt;
pub use request::WireRequest;
pub use schema::{document_schema, reply_schema};
pub use service::Service;
pub use session::{SessionChannel, SessionEvent, SessionRequest};
pub use state::{JobState, Standing};
pub use texts::{note_texts, read_texts};
pub use verbs::CopiedTree;
#[doc(hidden)]
pub use verbs::parse_become;
pub use verbs::parse_mode;
pub use verbs::{
    ApprovalEntry, ApprovalsReply, ApprovalsRequest, ApproverAnswer, AuditLine, AuditReply,
    Because, CallChange, ChangedRow, CommandRequest, Comparison, CursorAt, DeliveryRoute,
    DetailArg, ERROR_WORDS, EditArg, Encoding, EndReason, EventKind, FetchReply, FetchRequest,
    FetchedEntry, FileEntry, FileUnit, FirstError, ForgetReply, ForgetRequest, ForgetWhat,
    ForwardAction, ForwardEntry, ForwardReply, ForwardRequest, GetReply, GetRequest, GpuEntry,
    HostEntry, HostsReply, HostsRequest, JobCounts, JobEntry, JobEvent, JobKind, JobTail,
    JobsReply, JobsRequest, LastLinesOf, LineRecord, LookRequest, MatchEntry, Partial,
    ProcessEntry, ProcessList, PutGroup, PutReply, PutRequest, QueueAction, QueueEnd, QueueEntry,
    QueuePlaceArg, QueueReply, QueueRequest, QueuedJobEntry, ReadReply, ReadRequest, RecipeReply,
    RecipeRequest, Repeat, ResultsEntry, RunOptions, RunReply, RunRequest, Screen, ScreenPart,
    SearchReply, SearchRequest, SettingEntry, SignalReply, SignalRequest, Size, SpawnReply,
    SpawnRequest, StreamName, StyledRow, StyledSpan, TailReply, TailRequest, TemplateEntry,
    TerminalEntry, TreeEntry, UnitArg, VoteEntry, VoteRequest, WaitMode, WaitReply, WaitRequest,
    WriteReply, WriteRequest, WriteUnit,
};
pub use verbs::{NotificationEntry, NotificationsReply};
