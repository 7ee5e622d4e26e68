//! Heads of a log that were recorded elsewhere, with which its lines are compared.

use std::collections::BTreeMap;

use super::line::{LineHash, LogHead};

/// Heads that were recorded earlier: by anchors, checks or a cluster.
#[derive(Clone, Debug, Default)]
pub struct KnownHeads {
    hashes: BTreeMap<u64, Vec<KnownHash>>,
}

#[derive(Clone, Copy, Debug)]
struct KnownHash {
    hash: LineHash,
    /// Whether the log must still have the line.
    is_required: bool,
}

impl KnownHeads {
    /// Adds a head whose line the log must have.
    pub fn must_contain(&mut self, head: LogHead) {
        self.add(head, true);
    }

    /// Adds a head whose line must be as it was, if the log reaches back to it: the oldest files of a
    /// log may be removed. A tail may not.
    pub fn must_not_contradict(&mut self, head: LogHead) {
        self.add(head, false);
    }

    fn add(&mut self, head: LogHead, is_required: bool) {
        self.hashes.entry(head.seq).or_default().push(KnownHash {
            hash: head.hash,
            is_required,
        });
    }

    pub(super) fn is_empty(&self) -> bool {
        self.hashes.is_empty()
    }

    /// Sequence number of the last known line.
    pub(super) fn last(&self) -> Option<u64> {
        self.hashes.last_key_value().map(|(seq, _)| *seq)
    }

    /// Sequence number of the first line that must be there.
    pub(super) fn first_required(&self) -> Option<u64> {
        let mut lines = self.hashes.iter();
        lines
            .find(|(_, hashes)| hashes.iter().any(|known| known.is_required))
            .map(|(seq, _)| *seq)
    }

    /// Compares a line with the hashes that it is known to have had.
    pub(super) fn compare(&self, head: LogHead) -> Compared {
        let Some(hashes) = self.hashes.get(&head.seq) else { return Compared::Unknown };
        let mut hashes = hashes.iter().map(|known| known.hash);
        match hashes.find(|hash| *hash != head.hash) {
            Some(hash) => Compared::Different(hash),
            None => Compared::Same,
        }
    }
}

/// A line compared with known heads.
pub(super) enum Compared {
    /// No hash of the line is known.
    Unknown,
    /// It is as it was.
    Same,
    /// It had this hash.
    Different(LineHash),
}
