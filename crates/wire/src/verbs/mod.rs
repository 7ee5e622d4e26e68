//! One file for each verb: its request, its reply, and the method that performs it.

mod approvals;
mod at_replica;
mod audit;
mod command;
mod copy;
mod end_reason;
mod events;
mod forget;
mod forward;
mod get;
mod hints;
mod hosts;
mod jobs;
mod look;
mod notifications;
mod one_job;
mod paste;
mod processes;
mod put;
mod read;
mod requests;
mod run;
mod screen;
mod search;
mod search_files;
mod search_output;
mod signal;
mod span;
mod spawn;
mod table;
mod tail;
mod wait;
mod write;

pub use approvals::{
    ApprovalEntry, ApprovalsReply, ApprovalsRequest, ApproverAnswer, VoteEntry, VoteRequest,
};
pub use audit::{AuditLine, AuditReply};
pub use command::CommandRequest;
#[doc(hidden)]
pub use command::parse_become;
pub use copy::CopiedTree;
pub use end_reason::EndReason;
pub use events::{EventKind, JobEvent};
pub use forget::{ForgetReply, ForgetRequest, ForgetWhat};
pub use forward::{ForwardAction, ForwardEntry, ForwardReply, ForwardRequest};
pub use get::{FileEntry, FileUnit, GetReply, GetRequest};
pub use hints::FirstError;
pub use hosts::{HostEntry, HostsReply, HostsRequest, SettingEntry, TemplateEntry};
pub use jobs::{JobEntry, JobsReply, JobsRequest};
pub use look::LookRequest;
pub use notifications::{NotificationEntry, NotificationsReply};
pub use processes::{DetailArg, ProcessEntry, ProcessList, TerminalEntry};
pub use put::parse_mode;
pub use put::{EditArg, PutGroup, PutReply, PutRequest};
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
