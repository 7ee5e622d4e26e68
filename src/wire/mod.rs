//! Floor 5: the contract in JSON, which agents and scripts read.
//!
//! [`Service`] has one method a verb, with its [`Request`], its reply and one [`Error`] type with stable [`Code`]s. It stands on
//! [`jobs`](crate::jobs) and adds defaults, ranges (what was out of range is told in `clamped`) and hints. Doc comments of requests
//! and replies are product text: models read them as tool schemas.

mod choices;
mod clamp;
mod code;
mod command;
mod error;
mod explain;
mod fleet;
mod forget;
mod hint;
mod hosts;
mod jobs;
mod leave_out;
mod reached_at;
mod read;
mod request;
mod run;
mod schema;
mod search;
mod secret;
mod service;
mod session;
mod signal;
mod spawn;
mod state;
mod tail;
mod tail_reply;
mod wait;
mod write;

pub use choices::{Format, KeepArg, RenderArg, StreamArg};
pub use clamp::Clamped;
pub use code::Code;
pub use command::CommandRequest;
pub use error::Error;
pub use fleet::{Group, Members};
pub use forget::{ForgetReply, ForgetRequest, ForgetWhat};
pub use hint::Hint;
pub use hosts::{HostEntry, HostsReply, HostsRequest, SettingEntry};
pub use jobs::{JobEntry, JobsReply, JobsRequest};
pub use reached_at::ReachedAt;
pub use read::{Encoding, ReadReply, ReadRequest, UnitArg};
pub use request::Request;
pub use run::{RunOptions, RunReply, RunRequest};
pub use schema::{document_schema, reply_schema};
pub use search::{MatchEntry, SearchReply, SearchRequest};
pub use service::Service;
pub use session::{SessionChannel, SessionEvent};
pub use signal::{DeliveredVia, SignalReply, SignalRequest};
pub use spawn::{SpawnReply, SpawnRequest};
pub use state::{JobState, Standing};
pub use tail::TailRequest;
pub use tail_reply::{Because, Partial, Record, StreamName, TailReply};
pub use wait::{LastLinesOf, WaitMode, WaitReply, WaitRequest};
pub use write::{WriteReply, WriteRequest};
