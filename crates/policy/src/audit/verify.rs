//! Finds what is wrong with a log.

use std::path::{Path, PathBuf};

use super::checkpoint::{LINES, is_pruning_signed, is_signed};
use super::error::AuditError;
use super::event::Event;
use super::files::{RawLine, for_each_line};
use super::key::PublicKey;
use super::known_heads::{Compared, KnownHeads};
use super::line::{LineHash, LogHead, StoredLine};

/// What a log shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// The newest line. `None` for a log without lines.
    pub head: Option<LogHead>,
    /// Sequence number of the first line. More than 1 if the oldest files were removed.
    pub first: u64,
    /// The last line that was deleted, by the newest statement in the log about that. With a key, only a signed one counts.
    pub pruned_to: Option<u64>,
    /// Sequence number of the last checkpoint that is signed with the given key. Everything before it
    /// is as it was written. What follows it is not signed yet.
    pub signed_to: Option<u64>,
    /// Whether a key was given, so that signatures were checked.
    pub has_checked_signatures: bool,
    /// Number of known heads with which lines were compared.
    pub compared: usize,
    /// What is wrong: the first 20 faults.
    pub faults: Vec<Fault>,
}

/// Something that is wrong with a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The file.
    pub file: PathBuf,
    /// Number of the line in the file, from 1.
    pub line: u64,
    /// What is wrong.
    pub message: String,
}

/// Faults after which no further ones are looked for.
const MOST_FAULTS: usize = 20;
/// Lines that may follow a checkpoint without another one: the due one comes after the events that
/// were appended together.
const MOST_UNSIGNED: u64 = 2 * LINES;

/// Reads a log with all of its files, and compares it with heads that were known before, and with the
/// key that has signed its checkpoints.
///
/// # Errors
/// If a file can't be read.
pub fn verify(
    log: &Path,
    key: Option<PublicKey>,
    known: &KnownHeads,
) -> Result<Report, AuditError> {
    let mut check = Check::new(key, known);
    for_each_line(log, |line| check.read(line))?;
    Ok(check.finish(log))
}

/// The state of a check, after some lines.
struct Check<'a> {
    key: Option<PublicKey>,
    known: &'a KnownHeads,
    head: Option<LogHead>,
    first: u64,
    /// The hash of the line before the first one, as the first one has it.
    before_first: Option<LineHash>,
    /// The last deleted line, by the newest statement in the log about that. With a key, only if the statement is signed.
    pruned: Option<LogHead>,
    signed_to: Option<u64>,
    unsigned: u64,
    compared: usize,
    faults: Vec<Fault>,
    /// Whether there were too many faults to read on.
    has_stopped: bool,
}

impl<'a> Check<'a> {
    fn new(key: Option<PublicKey>, known: &'a KnownHeads) -> Self {
        Self {
            key,
            known,
            head: None,
            first: 0,
            before_first: None,
            pruned: None,
            signed_to: None,
            unsigned: 0,
            compared: 0,
            faults: Vec::new(),
            has_stopped: false,
        }
    }

    /// Checks the next line. Returns false once [`MOST_FAULTS`] faults were found.
    fn read(&mut self, line: RawLine) -> bool {
        let checked = if line.is_complete {
            self.check(&line.bytes)
        } else {
            Err("the line is cut off".to_owned())
        };
        if let Err(message) = checked {
            self.faults.push(Fault {
                file: line.file,
                line: line.number,
                message,
            });
        }
        self.has_stopped = self.faults.len() >= MOST_FAULTS;
        !self.has_stopped
    }

    /// Checks a line. The next one is compared with it also if it is wrong, so that each fault shows
    /// once.
    fn check(&mut self, line: &[u8]) -> Result<(), String> {
        let hash = LineHash::of(line);
        let before = self.head;
        let stored: StoredLine = match serde_json::from_slice(line) {
            Ok(stored) => stored,
            Err(error) => {
                let seq = before.map_or(1, |head| head.seq + 1);
                self.head = Some(LogHead { seq, hash });
                return Err(format!("it is no line of an audit log: {error}"));
            }
        };
        let head = LogHead {
            seq: stored.seq,
            hash,
        };
        self.head = Some(head);
        if let Event::Pruned {
            through,
            hash,
            signature,
            ..
        } = &stored.event
        {
            let last = format!("{through}:{hash}").parse::<LogHead>().ok();
            let is_signed = |last: &LogHead| {
                self.key.is_none_or(|key| is_pruning_signed(&key, *last, signature))
            };
            self.pruned = last.filter(is_signed).or(self.pruned);
        }
        let Some(before) = before else {
            self.first = stored.seq;
            self.before_first = Some(stored.prev);
            // The line before it may be known, although its file was removed.
            if let Some(seq) = stored.seq.checked_sub(1) {
                self.check_known(LogHead {
                    seq,
                    hash: stored.prev,
                })?;
            }
            return self.check_known(head).and_then(|()| self.check_signature(&stored));
        };
        if stored.seq != before.seq + 1 {
            return Err(format!(
                "line {} follows line {}: lines are missing, moved or inserted",
                stored.seq, before.seq
            ));
        }
        if stored.prev != before.hash {
            return Err(format!(
                "the line before, {}, was changed after it was written, or this one was",
                before.seq
            ));
        }
        self.check_known(head)?;
        self.check_signature(&stored)
    }

    fn check_known(&mut self, head: LogHead) -> Result<(), String> {
        match self.known.compare(head) {
            Compared::Unknown => Ok(()),
            Compared::Same => {
                self.compared += 1;
                Ok(())
            }
            Compared::Different(hash) => {
                self.compared += 1;
                Err(format!(
                    "line {} is not the one that was there before: its hash was {hash}",
                    head.seq
                ))
            }
        }
    }

    fn check_signature(&mut self, stored: &StoredLine) -> Result<(), String> {
        let Some(key) = self.key else { return Ok(()) };
        let Event::Checkpoint { signature } = &stored.event else {
            self.unsigned += 1;
            if self.unsigned == MOST_UNSIGNED {
                return Err(format!(
                    "there is no checkpoint in the {MOST_UNSIGNED} lines up to here"
                ));
            }
            return Ok(());
        };
        if !is_signed(&key, stored.seq, stored.prev, signature) {
            return Err(format!("the checkpoint is not signed with the key {key}"));
        }
        self.unsigned = 0;
        self.signed_to = Some(stored.seq);
        Ok(())
    }

    /// Lines that were there before and are not now, in a log whose newest line is `newest`.
    fn missing_lines(&self, newest: u64) -> Option<String> {
        if let Some(last) = self.known.last().filter(|last| *last > newest) {
            return Some(format!(
                "line {last} was there before, and the log ends with line {newest}: its tail was cut off"
            ));
        }
        let pruned_to = self.pruned.map_or(0, |last| last.seq);
        let is_missing = |first: &u64| *first < self.first && *first > pruned_to;
        if let Some(first) = self.known.first_required().filter(is_missing) {
            return Some(format!(
                "line {first} was there before, and the log begins with line {}",
                self.first
            ));
        }
        let is_unrelated = self.compared == 0 && !self.known.is_empty();
        is_unrelated.then(|| {
            format!(
                "the log begins with line {}, after all lines that are known: it may have been replaced",
                self.first
            )
        })
    }

    /// What contradicts the log's own statement about lines that were deleted.
    fn wrongly_pruned(&self) -> Option<String> {
        let last = self.pruned?;
        if self.first > last.seq + 1 {
            return Some(format!(
                "the log says that the lines up to {} were deleted, and begins with line {}",
                last.seq, self.first
            ));
        }
        let is_other = self.first == last.seq + 1
            && self.before_first.is_some_and(|before| before != last.hash);
        is_other.then(|| {
            format!(
                "line {} does not follow the lines that were deleted",
                self.first
            )
        })
    }

    fn finish(mut self, log: &Path) -> Report {
        let newest = self.head.map_or(0, |head| head.seq);
        if self.key.is_some() && self.signed_to.is_none() && newest > 0 && !self.has_stopped {
            self.faults.push(Fault {
                file: log.to_owned(),
                line: 0,
                message: "no line is signed with the key, so anyone may have written the log"
                    .to_owned(),
            });
        }
        if !self.has_stopped {
            let faults = [self.missing_lines(newest), self.wrongly_pruned()];
            self.faults.extend(faults.into_iter().flatten().map(|message| Fault {
                file: log.to_owned(),
                line: 0,
                message,
            }));
        }
        Report {
            head: self.head,
            first: self.first,
            pruned_to: self.pruned.map(|last| last.seq),
            signed_to: self.signed_to,
            has_checked_signatures: self.key.is_some(),
            compared: self.compared,
            faults: self.faults,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;

    /// A thousand lines, and the heads after each.
    fn chain() -> Vec<(String, LogHead)> {
        let mut head = LogHead::START;
        let lines = (0..1000).map(|number| {
            let event = Event::Started {
                decision: number,
                job: format!("web1-{number}"),
            };
            let (line, next) = head.append(&event, SystemTime::UNIX_EPOCH);
            head = next;
            (line, next)
        });
        lines.collect()
    }

    /// Whether a check that has come to `before` finds anything in the next lines.
    fn finds(before: Option<LogHead>, lines: &[&[u8]], newest: LogHead) -> bool {
        let mut known = KnownHeads::default();
        known.must_contain(newest);
        let mut check = Check::new(None, &known);
        check.head = before;
        lines.iter().any(|line| check.check(line).is_err())
    }

    #[test]
    fn each_byte_of_a_thousand_lines_is_guarded() {
        let lines = chain();
        let newest = lines[999].1;
        for (place, (line, _)) in lines.iter().enumerate() {
            let before = place.checked_sub(1).map(|before| lines[before].1);
            // The hash of the last line is known from elsewhere.
            let next = lines.get(place + 1).map(|(next, _)| next.as_bytes());
            let whole: Vec<&[u8]> = std::iter::once(line.as_bytes()).chain(next).collect();
            assert!(!finds(before, &whole, newest));
            for byte in 0..line.len() {
                let mut changed = line.clone().into_bytes();
                changed[byte] ^= 1;
                let shown: Vec<&[u8]> = std::iter::once(changed.as_slice()).chain(next).collect();
                assert!(finds(before, &shown, newest), "line {place}, byte {byte}");
            }
        }
    }

    /// The faults of a log that begins with line `first` of the chain, if the cluster knows line 500.
    fn faults_from(first: usize, lines: &[(String, LogHead)]) -> Vec<String> {
        let directory = tempfile::tempdir().unwrap();
        let log = directory.path().join("audit.jsonl");
        let text: String = lines
            .iter()
            .skip(first - 1)
            .flat_map(|(line, _)| [line.as_str(), "\n"])
            .collect();
        std::fs::write(&log, text).unwrap();
        let mut known = KnownHeads::default();
        known.must_not_contradict(chain()[499].1);
        let report = verify(&log, None, &known).unwrap();
        report.faults.into_iter().map(|fault| fault.message).collect()
    }

    #[test]
    fn a_log_may_lack_old_files_but_must_meet_a_known_line() {
        let lines = chain();
        assert_eq!(faults_from(400, &lines), [""; 0]);
        assert_eq!(
            faults_from(501, &lines),
            [""; 0],
            "the hash before it is known"
        );
        let anew = faults_from(502, &lines);
        assert!(anew.concat().contains("may have been replaced"), "{anew:?}");

        let mut other = lines.clone();
        other[500].0 = other[500]
            .0
            .replace(&lines[499].1.hash.to_string(), &lines[1].1.hash.to_string());
        let forged = faults_from(501, &other);
        assert!(
            forged.concat().contains("line 500 is not the one"),
            "{forged:?}"
        );
    }
}
