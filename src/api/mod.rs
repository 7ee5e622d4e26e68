//! Floor 3: the contract. One method of [`Service`] a verb, with its request, its reply and one [`Error`] type.
//!
//! The MCP tools, the command line and programs that use this crate all speak through here, so that they promise the
//! same. Doc comments of requests and replies are product text: models read them as tool schemas.

mod awaiting;
mod clamp;
mod config;
mod demo;
mod error;
mod follow;
mod forget;
mod host_book;
mod hosts;
mod jobs;
mod lean;
mod read;
mod run;
mod search;
mod service;
mod signal;
mod spawn;
mod state;
mod tail;
mod tail_reply;
mod trust;
mod wait;
mod write;

pub use clamp::Clamped;
pub use config::{Config, ConfigFileError, Defaults, HostTable, SecretTable, nearest};
pub use demo::Demo;
pub use error::{Code, Error};
pub use follow::{Follow, Output};
pub use forget::{ForgetReply, ForgetRequest, ForgetWhat};
pub use host_book::Access;
pub use hosts::{HostEntry, HostsReply, HostsRequest, SettingEntry};
pub use jobs::{JobEntry, JobsReply, JobsRequest};
pub use read::{Encoding, ReadReply, ReadRequest, UnitArg};
pub use run::{RunReply, RunRequest};
pub use search::{MatchEntry, SearchReply, SearchRequest};
pub use service::Service;
pub use signal::{DeliveredVia, SignalReply, SignalRequest};
pub use spawn::{SpawnReply, SpawnRequest};
pub use state::{Ending, JobState};
pub use tail::{Format, KeepArg, RenderArg, StreamArg, TailRequest};
pub use tail_reply::{Because, Partial, Record, StreamName, TailReply};
pub use trust::HostKey;
pub use wait::{LastLinesOf, WaitMode, WaitReply, WaitRequest};
pub use write::{WriteReply, WriteRequest};

pub use crate::output::{TerminalFilter, clean};
pub use crate::runner::Limits;
pub use crate::ssh::{Answer, Askpass, Prompter, Question};
