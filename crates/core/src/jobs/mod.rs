//! Jobs of one caller, for the faces: the library, MCP, HTTP and the command line.
//!
//! [`Jobs`] starts a [`Command`] as a [`Job`]. The job's output can be read as [`Lines`], a stream, or
//! as raw bytes through [`Follow`]; its end is an [`Outcome`]:
//!
//! ```
//! # use sshjobs_core::jobs::{Command, Demo, Error, Stdin};
//! use std::time::Duration;
//!
//! # #[tokio::main]
//! # async fn main() -> Result<(), Error> {
//! # let demo = Demo::start().await?;
//! # let (jobs, host) = (&demo.jobs, Demo::HOST);
//! let command = Command::shell("read name; echo \"hello $name\"").stdin(Stdin::Open);
//! let job = jobs.spawn(host, command.timeout(Duration::from_secs(10))).await?;
//! job.write(b"world\n", Duration::from_secs(1)).await?;
//! let first = job.lines().await?.next().await.expect("it prints a line").expect("which is kept");
//! assert_eq!(first.text, "hello world");
//! assert!(job.wait().await.is_success());
//! # jobs.shutdown().await;
//! # Ok(())
//! # }
//! ```
//!
//! Any number of readers follow a job, each at its own pace. [`Job::tail`] reads a page after a
//! cursor and waits for a line, a pattern or silence; [`Job::read`] reads a range by position, and
//! [`Job::search`] finds the lines that match a pattern. Dropping a future never stops a job that
//! has started; [`Jobs::shutdown`] ends every caller's jobs and closes all connections.
//!
//! Every verb needs a permit of [`admission`](crate::admission), which refuses hosts that may not be used
//! and verbs that the caller's [`Rights`] do not allow. A job is found only if the [`Caller`] may see it.

mod abandonment;
mod any_host;
mod attention;
mod builder;
#[cfg(feature = "cluster")]
mod cluster;
mod cluster_config;
mod command;
mod config;
mod demo;
mod door;
mod error;
mod events;
#[cfg(feature = "files")]
mod files;
mod fleet;
mod forwards;
mod health;
mod hosts;
mod job;
#[cfg(feature = "files")]
mod job_results;
mod jobs;
#[cfg(feature = "files")]
mod jobs_to_fetch;
mod last_errors;
mod look;
mod notify;
mod observer;
mod oidc;
mod queues;
mod reading;
#[cfg(feature = "files")]
mod results;
mod secret_use;
mod secrets;
mod start;
#[cfg(feature = "files")]
mod tree;
mod trust;
mod watches;

pub use any_host::HostChoice;
pub use builder::JobsBuilder;
#[cfg(feature = "cluster")]
pub use cluster::Cluster;
pub use cluster_config::ClusterConfig;
pub use command::Command;
pub use config::Config;
pub use demo::Demo;
pub use error::{Error, ErrorKind};
pub use events::{AwaitedEvents, BadEventCursor, EventCursor, EventLook};
#[cfg(feature = "files")]
pub use files::HostPath;
pub use fleet::FleetSpec;
pub use hosts::HostInfo;
pub use job::{Job, Recipe};
#[cfg(feature = "files")]
pub use job_results::JobResults;
pub use jobs::{Freshness, Jobs};
pub use look::Look;
pub use notify::{
    Carrier, Notifier, NotifyConfig, NotifyFormat, NotifyOn, NotifyRule, NotifyTarget,
};
pub use reading::{Follow, FollowedBytes, Lagged, Lines, ReadableJob, ScreenWait};
pub use secrets::SecretRefusal;
pub use start::StartTarget;
#[cfg(feature = "files")]
pub use tree::{TreeToSend, directory_in_tree};
pub use trust::HostKey;

pub use crate::admission::{
    CallContext, CaseResult, Explanation, HostPatterns, NewVote, PolicyFileError, PolicyLimit,
    PolicyRefusal, PolicyState, PolicyWhy, Refusal, Rights, VoteError,
};
#[cfg(feature = "files")]
pub use crate::files::{
    BadPath, Digest, DirectoryEntry, Edit, EditError, ExpectedContent, FetchedFile, FileChange,
    FileKind, FileSource, FilesError, GetOptions, Got, HostFiles, LinkInPlace, LocalFile, Matched,
    Put, PutOptions, RemotePath, SyncOptions, SyncReport, TransferProgress, TreeOptions,
    TreeReport, Verified,
};
pub use crate::forward::{
    BadForward, ForwardError, ForwardId, ForwardOptions, ForwardSpec, ForwardState, ForwardStatus,
};
pub use crate::hosts::{Access, BecomeError, HostError};
pub use crate::runner::{
    Limits, MissingGpus, QueueChange, QueueError, QueuePlace, QueueRule, QueueStatus,
    QueuedJobStatus, SignalError, SignalReport, SpawnError, Summary, WaitsFor, WriteError,
};
pub use sshjobs_job::notify::{Delivery, DeliveryAttempt, DeliveryState, Occasion, Receiver};
pub use sshjobs_job::unquote_words;
pub use sshjobs_job::{
    Awaited, AwaitedFile, BadBecome, BadFetchPattern, BadGpuRequest, BadRestart, Become,
    BecomeMethod, BecomeRefusal, CommandShell, Draft, EarlyWarning, EndCause, EndEvidence, Exit,
    FetchPattern, FleetCounts, FleetSummary, Gpu, GpuRequest, GpuUsage, JobFacts, JobTree,
    KilledProcess, LostWhy, Member, MemberGroup, MemberProgress, MemberResult, MemoryEvidence,
    MemoryKills, Outcome, Phase, Process, Processes, ResourceUse, Restart, SCRIPT, SecretUses,
    Signal, SpecError, Status, Stdin, StopAfter, Tail, TemplateCall, Terminal, Termios,
    Transferred, Turn, UsageSample, Wait,
};
pub use sshjobs_output::{
    Cursor, Line, LineNo, MemberNo, PageQuery, ReadQuery, Reading, Render, ScreenRow, ScreenSpan,
    ScreenView, SearchQuery, Selection, Stream, TerminalSize,
};
pub use sshjobs_policy::approval::{Approval, ApprovalState, CantVote, Vote};
pub use sshjobs_policy::audit::{StoredLine, visible_text};
pub use sshjobs_policy::look::NotReadOnly;
pub use sshjobs_ssh::{
    Answer, BadEndpoint, DialError, Endpoint, HostSettings, Prompter, Question, SecretSource,
};
pub use sshjobs_store::Filter;
pub use sshjobs_store::{SharedValue, SharedValueError};
#[cfg(feature = "files")]
pub use sshjobs_tree::{BadExclusion, Exclusions};

pub use config::{Defaults, PolicyConfig, TagConfig};
pub use job::SecretInput;
pub use oidc::{IssuerConfig, LoginConfig, OidcConfig, RoleOfClaims};
pub use secrets::SecretConfig;

pub use self::health::Health;
#[cfg(feature = "files")]
pub use crate::files::{
    Attributes, FileOwner, Hasher, SftpError, SftpStatus, Times, apply, shown, unified_diff,
};
pub use crate::hosts::{HostUsage, Prompters};
pub use crate::runner::{DeliveredVia, Stats, Tombstone, Unverified, chain};
pub use sshjobs_base::{host_pattern::glob_matches, nearest::nearest};
pub use sshjobs_job::{
    Caller, FarEndError, FleetPlan, JobId, LoginShell, MemberEnd, Pace, PlanError, RangeError,
    RecordedPiece, RecordingPlace, ReturnedBecause, SearchResult, SilenceFrom, StoredPieces,
    StreamPiece, TooManyCursors, TooSlow, UnknownSignal, fold, holds_address, key_bytes, shown_end,
    unfold, words,
};
pub use sshjobs_output::{
    Colour, Content, Excerpt, ExcerptBudget, Keep, Match, Resize, StyledText, TerminalFilter,
    TerminalModes, TextStyle, Timestamp, Unit, clean, coloured, printable, render, styled,
    timestamp_of,
};
pub use sshjobs_policy::{
    ApprovalFrom, Claims, ExpectedDecision, PolicyCaller, PolicyCase, Role, Template, Verb,
    WeekMinute, minute_of_week,
};
pub use sshjobs_ssh::{
    Askpass, CertificateFault, ChannelError, ConfigError, ConnectError, HostKeyError, Negotiated,
    Setting, SettingSource, TrustError,
};
#[cfg(feature = "sqlite")]
pub use sshjobs_store::{
    ArchiveReport, DamagedOutput, RepairReport, StateCheck, back_up, check_state, repair_state,
    restore,
};
pub use sshjobs_store::{
    ClusterStatus, CopyReport, HostPlace, HostStatus, JobLeft, KeptHead, NatsStatus, OwnStatus,
    PeerStream, Peers, ReplicaState, ReplicaStatus, SharedText, StoreError, StreamStatus,
    Versioned,
};
