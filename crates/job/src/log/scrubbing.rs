//! Hides the secrets that a job uses in its output, before the output is stored or shown.

use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use super::recorder::LogChange;
use sshjobs_output::Stream;
use sshjobs_output::scrub::{HiddenSecret, Scrubber};

/// Time after which bytes that may be the start of a secret are shown.
const PATIENCE: Duration = Duration::from_secs(1);

/// Hides secrets in the output of one job.
#[derive(Debug, Default)]
pub(crate) struct Scrubbing {
    stdout: StreamScrubbing,
    stderr: StreamScrubbing,
}

/// One stream of the output.
#[derive(Debug, Default)]
struct StreamScrubbing {
    scrubber: Scrubber,
    /// When the last bytes came.
    last_taken: Option<Instant>,
    /// Scrubbed bytes that the log already has. The host sends them again, and they are dropped.
    bytes_to_skip: u64,
    /// Whether all output is dropped.
    is_withheld: bool,
    /// Bytes that were received, minus those that were returned or are held back.
    bytes_removed: i64,
}

/// Changes of a log without secrets.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Scrubbed {
    pub(crate) changes: Vec<LogChange>,
    /// Received bytes that will never be in the log, minus bytes in the log that were never received.
    /// Bytes that are held back count as removed until they are returned.
    pub(crate) bytes_removed: i64,
}

impl Scrubbed {
    /// Changes of a job without secrets.
    pub(crate) fn untouched(changes: Vec<LogChange>) -> Self {
        Self {
            changes,
            bytes_removed: 0,
        }
    }
}

impl Scrubbing {
    /// Hides a secret in output that arrives later.
    pub(crate) fn hide(&mut self, secret: &HiddenSecret) {
        self.stdout.scrubber.hide(secret.clone());
        self.stderr.scrubber.hide(secret.clone());
    }

    /// Drops this many scrubbed bytes, which the log already has: the host sends the output again from its
    /// start.
    pub(crate) fn skip_logged(&mut self, stdout: u64, stderr: u64) {
        self.stdout.bytes_to_skip = stdout;
        self.stderr.bytes_to_skip = stderr;
    }

    /// Drops all later output.
    pub(crate) fn withhold(&mut self) {
        self.stdout.is_withheld = true;
        self.stderr.is_withheld = true;
    }

    /// Hides secrets in changes of a log.
    pub(crate) fn scrub(&mut self, changes: Vec<LogChange>, now: Instant) -> Scrubbed {
        let mut scrubbed = Vec::with_capacity(changes.len());
        for change in changes {
            match change {
                LogChange::Append(source, bytes) => {
                    let bytes = self.stream_mut(source.stream).take(&bytes, now);
                    // A chunk that is held back is not output yet.
                    if !bytes.is_empty() {
                        scrubbed.push(LogChange::Append(source, bytes));
                    }
                }
                LogChange::FinishStreams => {
                    self.finish_streams(&mut scrubbed);
                    scrubbed.push(LogChange::FinishStreams);
                }
                other @ (LogChange::Started
                | LogChange::ProcessGroup(_)
                | LogChange::Evidence(_)) => {
                    scrubbed.push(other);
                }
            }
        }
        self.counted(scrubbed)
    }

    /// Returns bytes that have been held back for [`PATIENCE`]: they may be a prompt.
    pub(crate) fn release(&mut self, now: Instant) -> Scrubbed {
        let mut changes = Vec::new();
        for stream in Stream::ALL {
            let bytes = self.stream_mut(stream).release(now);
            if !bytes.is_empty() {
                changes.push(LogChange::Append(stream.into(), bytes));
            }
        }
        self.counted(changes)
    }

    /// Returns the bytes that were held back, at the end of the output.
    pub(crate) fn finish(&mut self) -> Scrubbed {
        let mut changes = Vec::new();
        self.finish_streams(&mut changes);
        self.counted(changes)
    }

    fn finish_streams(&mut self, changes: &mut Vec<LogChange>) {
        for stream in Stream::ALL {
            let bytes = self.stream_mut(stream).finish();
            if !bytes.is_empty() {
                changes.push(LogChange::Append(stream.into(), bytes));
            }
        }
    }

    fn counted(&mut self, changes: Vec<LogChange>) -> Scrubbed {
        let of_stdout = std::mem::take(&mut self.stdout.bytes_removed);
        let of_stderr = std::mem::take(&mut self.stderr.bytes_removed);
        Scrubbed {
            changes,
            bytes_removed: of_stdout + of_stderr,
        }
    }

    fn stream_mut(&mut self, stream: Stream) -> &mut StreamScrubbing {
        match stream {
            Stream::Stdout => &mut self.stdout,
            Stream::Stderr => &mut self.stderr,
        }
    }
}

impl StreamScrubbing {
    fn release(&mut self, now: Instant) -> Bytes {
        let is_due = self.last_taken.is_some_and(|at| now >= at + PATIENCE);
        if !is_due || !self.scrubber.holds_bytes() {
            return Bytes::new();
        }
        let released = self.scrubber.release();
        self.skip(released)
    }

    fn take(&mut self, bytes: &[u8], now: Instant) -> Bytes {
        self.last_taken = Some(now);
        self.bytes_removed += length(bytes);
        if self.is_withheld {
            return Bytes::new();
        }
        let scrubbed = self.scrubber.take(bytes);
        self.skip(scrubbed)
    }

    fn finish(&mut self) -> Bytes {
        let scrubbed = self.scrubber.finish();
        self.skip(scrubbed)
    }

    /// Drops the bytes that the log already has.
    fn skip(&mut self, scrubbed: Vec<u8>) -> Bytes {
        let mut scrubbed = Bytes::from(scrubbed);
        let skipped = usize::try_from(self.bytes_to_skip).unwrap_or(usize::MAX).min(scrubbed.len());
        self.bytes_to_skip -= skipped as u64;
        let new = scrubbed.split_off(skipped);
        self.bytes_removed -= length(&new);
        new
    }
}

fn length(bytes: &[u8]) -> i64 {
    i64::try_from(bytes.len()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn append(stream: Stream, text: &'static str) -> LogChange {
        LogChange::Append(stream.into(), text.into())
    }

    fn text_of(changes: &[LogChange]) -> String {
        let pieces = changes.iter().filter_map(|change| match change {
            LogChange::Append(_, bytes) => Some(String::from_utf8_lossy(bytes).into_owned()),
            LogChange::Started
            | LogChange::ProcessGroup(_)
            | LogChange::Evidence(_)
            | LogChange::FinishStreams => None,
        });
        pieces.collect()
    }

    fn scrubbing() -> Scrubbing {
        let mut scrubbing = Scrubbing::default();
        scrubbing.hide(&HiddenSecret::new("db", "hunter2".into()));
        scrubbing
    }

    #[test]
    fn each_stream_is_scrubbed_alone_and_its_held_bytes_come_at_the_end() {
        let mut scrubbing = scrubbing();
        let pieces = vec![
            append(Stream::Stdout, "a hunt"),
            append(Stream::Stderr, "er2 b hunter2\n"),
            append(Stream::Stdout, "er2 c hun"),
            LogChange::FinishStreams,
        ];

        let Scrubbed {
            changes,
            bytes_removed,
        } = scrubbing.scrub(pieces, Instant::now());

        assert_eq!(text_of(&changes), "a er2 b [secret db]\n[secret db] c hun");
        assert_eq!(changes.last(), Some(&LogChange::FinishStreams));
        assert_eq!(bytes_removed, 29 - 37);
    }

    #[test]
    fn replayed_output_continues_where_the_log_ends() {
        let whole = "one hunter2\ntwo hunter2\nthree";
        let scrubbed = "one [secret db]\ntwo [secret db]\nthree";
        for in_log in 0..=scrubbed.len() {
            let mut scrubbing = scrubbing();
            scrubbing.skip_logged(in_log as u64, 0);

            let new = scrubbing.scrub(vec![append(Stream::Stdout, whole)], Instant::now());

            assert_eq!(Some(text_of(&new.changes).as_str()), scrubbed.get(in_log..));
            // The log has all that the host has sent.
            let received = length(whole.as_bytes());
            let shown = length(scrubbed.as_bytes()) - in_log as i64 + new.bytes_removed;
            assert_eq!(shown, received);
        }
    }

    #[test]
    fn withheld_output_is_dropped_and_counted() {
        let mut scrubbing = Scrubbing::default();
        scrubbing.withhold();

        let scrubbed = scrubbing.scrub(
            vec![append(Stream::Stdout, "x"), LogChange::Started],
            Instant::now(),
        );

        let expected = Scrubbed {
            changes: vec![LogChange::Started],
            bytes_removed: 1,
        };
        assert_eq!(scrubbed, expected);
    }

    #[test]
    fn held_bytes_are_released_after_a_second_and_a_replay_continues_behind_them() {
        let start = Instant::now();
        let mut first = scrubbing();
        let held = first.scrub(vec![append(Stream::Stdout, "a hunt")], start);
        assert_eq!(
            (text_of(&held.changes).as_str(), held.bytes_removed),
            ("a ", 4)
        );
        let early = first.release(start + PATIENCE - Duration::from_millis(1));
        assert_eq!(text_of(&early.changes), "");
        let released = first.release(start + PATIENCE);
        assert_eq!(
            (text_of(&released.changes).as_str(), released.bytes_removed),
            ("hun", -3)
        );
        assert_eq!(first.release(start + 2 * PATIENCE).changes, []);

        let mut other = scrubbing();
        other.skip_logged("a hun".len() as u64, 0);
        let rest = other.scrub(vec![append(Stream::Stdout, "a hunter2!\n")], start);
        assert_eq!(text_of(&rest.changes), "cret db]!\n");
    }
}
