//! Checkpoints: signed lines.

use super::key::{AuditKey, PublicKey};
use super::line::{LineHash, LogHead};

/// Number of lines after which a checkpoint is written.
pub(super) const LINES: u64 = 256;

/// The text that is signed: the number of the checkpoint's own line, and the hash of the line before it.
/// As every line has the hash of the one before, the signature is one of all lines before.
fn text(seq: u64, prev: LineHash) -> String {
    format!("sshjobs-audit-1\n{seq}\n{prev}\n")
}

/// The signature for a checkpoint in the line after a head.
pub(super) fn sign(key: &AuditKey, head: LogHead) -> String {
    key.sign(&text(head.seq + 1, head.hash))
}

/// The text that is signed of a statement about deleted lines, the last of which is `last`.
fn pruning_text(last: LogHead) -> String {
    format!("sshjobs-audit-pruned-1\n{}\n{}\n", last.seq, last.hash)
}

/// The signature of a statement about deleted lines.
pub(super) fn sign_pruning(key: &AuditKey, last: LogHead) -> String {
    key.sign(&pruning_text(last))
}

/// Whether the signature of a statement about deleted lines is that of a key.
pub(super) fn is_pruning_signed(key: &PublicKey, last: LogHead, signature: &str) -> bool {
    key.has_signed(&pruning_text(last), signature)
}

/// Whether a checkpoint's signature is that of a key.
pub(super) fn is_signed(key: &PublicKey, seq: u64, prev: LineHash, signature: &str) -> bool {
    key.has_signed(&text(seq, prev), signature)
}
