//! Hides the secrets that a job uses in its output, before the output is stored or shown.

use bytes::Bytes;

use super::recorder::Change;
use crate::output::Stream;
use crate::scrub::{HiddenSecret, Scrubber};

/// Hides secrets in the output of one job.
#[derive(Debug, Default)]
pub(in crate::job) struct Scrubbing {
    stdout: StreamScrubbing,
    stderr: StreamScrubbing,
    /// A line that the next output is replaced by.
    notice: Option<String>,
}

/// One stream of the output.
#[derive(Debug, Default)]
struct StreamScrubbing {
    scrubber: Scrubber,
    /// Number of scrubbed bytes that are known already. They come once more.
    known: u64,
    /// Whether all output is withheld.
    is_withheld: bool,
}

/// Bytes of output, before and after.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::job) struct ByteCounts {
    pub(in crate::job) received: u64,
    /// With those that were known already.
    pub(in crate::job) returned: u64,
}

impl Scrubbing {
    /// Hides a secret from here on.
    pub(in crate::job) fn hide(&mut self, secret: &HiddenSecret) {
        self.stdout.scrubber.hide(secret.clone());
        self.stderr.scrubber.hide(secret.clone());
    }

    /// Expects the output from its start, of which this many scrubbed bytes are known.
    pub(in crate::job) fn skip_known(&mut self, stdout: u64, stderr: u64) {
        self.stdout.known = stdout;
        self.stderr.known = stderr;
    }

    /// Returns no output from here on, but once a line that says so.
    pub(in crate::job) fn withhold(&mut self, why: &str) {
        self.notice = Some(format!("[sshjobs withholds output: {why}]\n"));
        self.stdout.is_withheld = true;
        self.stderr.is_withheld = true;
    }

    /// Scrubs the changes of a log, and counts their bytes.
    pub(in crate::job) fn scrub(&mut self, changes: Vec<Change>) -> (Vec<Change>, ByteCounts) {
        let mut counts = ByteCounts::default();
        let mut scrubbed = Vec::with_capacity(changes.len());
        for change in changes {
            match change {
                Change::Append(source, bytes) => {
                    let notice = self.notice.take().map(Bytes::from);
                    scrubbed.extend(notice.map(|notice| Change::Append(source, notice)));
                    let bytes = self.of(source.stream).take(&bytes, &mut counts);
                    // A chunk that is held back is not output yet.
                    if !bytes.is_empty() {
                        scrubbed.push(Change::Append(source, bytes));
                    }
                }
                Change::FinishStreams => {
                    scrubbed.extend(self.finish(&mut counts));
                    scrubbed.push(Change::FinishStreams);
                }
                other @ (Change::Started | Change::ProcessGroup(_)) => scrubbed.push(other),
            }
        }
        (scrubbed, counts)
    }

    /// Returns the bytes that were held back, at the end of the output.
    pub(in crate::job) fn finish(&mut self, counts: &mut ByteCounts) -> Vec<Change> {
        let mut changes = Vec::new();
        for stream in Stream::ALL {
            let bytes = self.of(stream).finish(counts);
            if !bytes.is_empty() {
                changes.push(Change::Append(stream.into(), bytes));
            }
        }
        changes
    }

    fn of(&mut self, stream: Stream) -> &mut StreamScrubbing {
        match stream {
            Stream::Stdout => &mut self.stdout,
            Stream::Stderr => &mut self.stderr,
        }
    }
}

impl StreamScrubbing {
    fn take(&mut self, bytes: &[u8], counts: &mut ByteCounts) -> Bytes {
        counts.received += bytes.len() as u64;
        if self.is_withheld {
            return Bytes::new();
        }
        let scrubbed = self.scrubber.take(bytes);
        self.without_known(scrubbed, counts)
    }

    fn finish(&mut self, counts: &mut ByteCounts) -> Bytes {
        let scrubbed = self.scrubber.finish();
        self.without_known(scrubbed, counts)
    }

    fn without_known(&mut self, scrubbed: Vec<u8>, counts: &mut ByteCounts) -> Bytes {
        counts.returned += scrubbed.len() as u64;
        let mut scrubbed = Bytes::from(scrubbed);
        let known = usize::try_from(self.known).unwrap_or(usize::MAX).min(scrubbed.len());
        self.known -= known as u64;
        scrubbed.split_off(known)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn append(stream: Stream, text: &'static str) -> Change {
        Change::Append(stream.into(), text.into())
    }

    fn text_of(changes: &[Change]) -> String {
        let pieces = changes.iter().filter_map(|change| match change {
            Change::Append(_, bytes) => Some(String::from_utf8_lossy(bytes).into_owned()),
            Change::Started | Change::ProcessGroup(_) | Change::FinishStreams => None,
        });
        pieces.collect()
    }

    fn scrubbing() -> Scrubbing {
        let mut scrubbing = Scrubbing::default();
        scrubbing.hide(&HiddenSecret::new("db", "hunter2".into()));
        scrubbing
    }

    #[test]
    fn each_stream_is_scrubbed_for_itself_and_the_rest_comes_at_its_end() {
        let mut scrubbing = scrubbing();
        let pieces = vec![
            append(Stream::Stdout, "a hunt"),
            append(Stream::Stderr, "er2 b hunter2\n"),
            append(Stream::Stdout, "er2 c hun"),
            Change::FinishStreams,
        ];
        let (changes, counts) = scrubbing.scrub(pieces);
        assert_eq!(text_of(&changes), "a er2 b [secret db]\n[secret db] c hun");
        assert_eq!(changes.last(), Some(&Change::FinishStreams));
        assert_eq!((counts.received, counts.returned), (29, 37));
    }

    #[test]
    fn output_that_comes_once_more_is_continued_where_it_was() {
        let whole = "one hunter2\ntwo hunter2\nthree";
        let scrubbed = "one [secret db]\ntwo [secret db]\nthree";
        for known in 0..=scrubbed.len() {
            let mut scrubbing = scrubbing();
            scrubbing.skip_known(known as u64, 0);
            let (changes, counts) = scrubbing.scrub(vec![append(Stream::Stdout, whole)]);
            assert_eq!(Some(text_of(&changes).as_str()), scrubbed.get(known..));
            assert_eq!(counts.returned, scrubbed.len() as u64);
        }
    }

    #[test]
    fn withheld_output_is_replaced_by_one_line() {
        let mut scrubbing = Scrubbing::default();
        scrubbing.withhold("the secret db has changed");
        let output = || append(Stream::Stdout, "x");
        let (changes, counts) = scrubbing.scrub(vec![output(), output(), Change::Started]);
        let notice = "[sshjobs withholds output: the secret db has changed]\n";
        assert_eq!(changes, [append(Stream::Stdout, notice), Change::Started]);
        assert_eq!((counts.received, counts.returned), (2, 0));
    }
}
