//! The audit log, which shows who was allowed to do what, and any change of itself.
//!
//! # Theory of operation
//!
//! The log is a file of JSON lines. Each [`Event`] is one line with a sequence number and the SHA-256
//! of the line before (`line.rs`), so that a changed, removed, inserted or moved line breaks the chain.
//! A chain alone shows neither a tail that was cut off nor a log that was written anew. For that there
//! are *checkpoints*: lines with an Ed25519 signature over everything before (`checkpoint.rs`), made
//! with a key outside of the log's directory (`key.rs`); and *anchors*: copies of the newest hash that
//! are kept elsewhere (`anchor.rs`), or by a cluster's store ([`CopyHead`]).
//!
//! An [`AuditLog`] appends to the file. Several processes may: each locks the file and reads the newest
//! line first. A [`AuditRecorder`] has a thread for it, so that no call waits for more than its own line.
//! Only [`AuditLog::prune`] deletes old files. It first records that in a signed line.
//! [`verify()`] reads a log, of any age, and says what is wrong with it.

mod about_job;
mod anchor;
mod checkpoint;
mod error;
mod event;
mod files;
mod in_words;
mod key;
mod known_heads;
mod line;
mod log;
mod recorder;
mod settings;
mod verify;

pub use about_job::{AboutJob, lines_about};
pub use error::AuditError;
pub use event::{Decided, EndedJob, Event, Repeated, Voted};
pub use files::{RawLine, for_each_line};
pub use key::{AuditKey, PublicKey};
pub use known_heads::KnownHeads;
pub use line::{BadHead, LineHash, LogHead, StoredLine, visible_text};
pub use log::{AuditLog, PrunedFiles};
pub use recorder::{AuditRecorder, CopyHead, RecordError, WriterName};
pub use settings::{Anchor, AuditFiles, AuditSettings, OnFailure, machine_name};
pub use verify::{Fault, Report, verify};
