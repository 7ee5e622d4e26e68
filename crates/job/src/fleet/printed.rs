//! Summary of a member's output: counts, last lines, and a digest that is equal for equal output.

use std::collections::VecDeque;

use sha2::{Digest, Sha256};

use sshjobs_output::Stream;

/// Summary of a member's output.
#[derive(Clone, Debug, Default)]
pub struct PrintedSummary {
    lines: u64,
    bytes: u64,
    last: VecDeque<String>,
    stdout: Sha256,
    stderr: Sha256,
}

/// Number of last lines that are kept, and characters of each.
const LAST_LINES: usize = 5;
const LAST_CHARS: usize = 400;

impl PrintedSummary {
    /// Adds a line.
    pub fn note(&mut self, stream: Stream, text: &str) {
        let printed = if stream == Stream::Stdout {
            &mut self.stdout
        } else {
            &mut self.stderr
        };
        printed.update(text.as_bytes());
        // Keeps the lines "a" and "b" apart from the line "ab".
        printed.update(b"\n");
        self.lines += 1;
        self.bytes += text.len() as u64 + 1;
        if self.last.len() == LAST_LINES {
            self.last.pop_front();
        }
        self.last.push_back(text.chars().take(LAST_CHARS).collect());
    }

    /// Number of lines so far.
    pub fn lines(&self) -> u64 {
        self.lines
    }

    /// Number of bytes so far, in the clean view.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Equal for members with the same lines on each stream, whatever the order of the streams.
    pub fn digest(&self) -> String {
        let [stdout, stderr] = [&self.stdout, &self.stderr].map(|stream| stream.clone().finalize());
        let both = Sha256::new().chain_update(stdout).chain_update(stderr).finalize();
        both.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    pub(super) fn into_last(self) -> Vec<String> {
        self.last.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_of_the_streams_makes_no_difference_but_what_is_on_which_does() {
        let of = |lines: &[(Stream, &str)]| {
            let mut printed = PrintedSummary::default();
            lines.iter().for_each(|(stream, line)| printed.note(*stream, line));
            printed.digest()
        };
        let out = (Stream::Stdout, "a");
        let err = (Stream::Stderr, "b");
        assert_eq!(of(&[out, err]), of(&[err, out]));
        assert_ne!(of(&[out]), of(&[(Stream::Stderr, "a")]));
        assert_ne!(
            of(&[(Stream::Stdout, "a"), (Stream::Stdout, "b")]),
            of(&[(Stream::Stdout, "ab")])
        );
    }
}
