//! The output of ripgrep and grep, as it arrives: matches of files whose names may have any bytes.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde::Deserialize;

use super::search::MatchEntry;
use sshjobs_core::jobs::{clean, shown};

/// Most characters of a line that are returned.
const MOST_CHARACTERS: usize = 2000;

/// Longest record that is read: a path, a number and a line.
const LONGEST_RECORD: usize = 4 << 20;

/// How a program prints matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::verbs) enum MatchFormat {
    /// `rg --json`: an object a line.
    Json,
    /// `grep -nHZ`: `PATH NUL NUMBER:TEXT`, where a path may have several lines.
    NulAfterPath,
}

/// Reads the output of a search piece by piece.
pub(in crate::verbs) struct SearchOutput {
    format: MatchFormat,
    /// The start of the next match.
    rest: Vec<u8>,
    /// Bytes of it that have no end of a record.
    looked_at: usize,
    /// Whether the rest of a match that is too long is passed over.
    is_skipping: bool,
    has_skipped: bool,
}

/// A line of `rg --json` with a match. Other lines have no line number and are not read.
#[derive(Deserialize)]
struct RipgrepLine {
    data: RipgrepData,
}

#[derive(Deserialize)]
struct RipgrepData {
    path: RipgrepText,
    lines: RipgrepText,
    line_number: u64,
}

/// Text, or what is not UTF-8 in base64.
#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum RipgrepText {
    Text(String),
    Bytes(String),
}

impl RipgrepText {
    fn into_bytes(self) -> Option<Vec<u8>> {
        match self {
            Self::Text(text) => Some(text.into_bytes()),
            Self::Bytes(base64) => BASE64_STANDARD.decode(base64).ok(),
        }
    }
}

impl SearchOutput {
    pub(in crate::verbs) fn new(format: MatchFormat) -> Self {
        Self {
            format,
            rest: Vec::new(),
            looked_at: 0,
            is_skipping: false,
            has_skipped: false,
        }
    }

    /// The matches that are complete with these bytes.
    pub(in crate::verbs) fn take(&mut self, bytes: &[u8]) -> Vec<MatchEntry> {
        let mut bytes = bytes;
        if self.is_skipping {
            let Some(end) = memchr(b'\n', bytes) else { return Vec::new() };
            self.is_skipping = false;
            bytes = &bytes[end + 1..];
        }
        self.rest.extend_from_slice(bytes);
        let mut matches = Vec::new();
        let mut start = 0;
        while let Some(length) = self.record_length(start) {
            let record = &self.rest[start..start + length];
            matches.extend(match self.format {
                MatchFormat::Json => of_ripgrep(record),
                MatchFormat::NulAfterPath => of_grep(record),
            });
            start += length;
            self.looked_at = start;
        }
        self.rest.drain(..start);
        self.looked_at = self.rest.len();
        if self.rest.len() > LONGEST_RECORD {
            self.rest.clear();
            self.looked_at = 0;
            self.is_skipping = true;
            self.has_skipped = true;
        }
        matches
    }

    /// Whether matches were left out because their lines were too long.
    pub(in crate::verbs) fn has_skipped_lines(&self) -> bool {
        self.has_skipped
    }

    /// Length of the record at a position, with its line end.
    fn record_length(&self, start: usize) -> Option<usize> {
        let from = match self.format {
            MatchFormat::Json => self.looked_at.max(start),
            // A line end before it belongs to the path.
            MatchFormat::NulAfterPath => {
                let path_end = start + memchr(0, &self.rest[start..])?;
                path_end.max(self.looked_at.min(self.rest.len()))
            }
        };
        let end = from + memchr(b'\n', &self.rest[from..])?;
        Some(end + 1 - start)
    }
}

fn memchr(byte: u8, bytes: &[u8]) -> Option<usize> {
    bytes.iter().position(|one| *one == byte)
}

fn of_ripgrep(line: &[u8]) -> Option<MatchEntry> {
    let RipgrepLine { data } = serde_json::from_slice(line).ok()?;
    Some(entry(
        &data.path.into_bytes()?,
        data.line_number,
        &data.lines.into_bytes()?,
    ))
}

fn of_grep(record: &[u8]) -> Option<MatchEntry> {
    let path_end = memchr(0, record)?;
    let (path, rest) = (&record[..path_end], &record[path_end + 1..]);
    let number_end = memchr(b':', rest)?;
    let number = str::from_utf8(&rest[..number_end]).ok()?.parse().ok()?;
    Some(entry(path, number, &rest[number_end + 1..]))
}

fn entry(path: &[u8], line_no: u64, line: &[u8]) -> MatchEntry {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    let text = clean(line);
    let mut short: String = text.chars().take(MOST_CHARACTERS).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    MatchEntry {
        line_no,
        stream: None,
        path: Some(shown(path)),
        text: short,
        before: Vec::new(),
        after: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(format: MatchFormat, output: &[u8]) -> Vec<(String, u64, String)> {
        // A byte at a time, as a slow host sends it.
        let mut search = SearchOutput::new(format);
        let matches = output.iter().flat_map(|byte| search.take(&[*byte]));
        let matches: Vec<_> =
            matches.map(|one| (one.path.unwrap(), one.line_no, one.text)).collect();
        assert_eq!(search.rest.len(), 0);
        matches
    }

    fn is(path: &str, line_no: u64, text: &str) -> (String, u64, String) {
        (path.to_owned(), line_no, text.to_owned())
    }

    #[test]
    fn paths_may_have_line_ends_colons_and_bytes_that_are_not_utf_8() {
        assert_eq!(
            found(
                MatchFormat::NulAfterPath,
                b"a\n3:x\n/b\x002:one: two\ncaf\xe9\x0017:\n"
            ),
            [is(r"a\n3:x\n/b", 2, "one: two"), is(r"caf\xe9", 17, "")]
        );
    }

    #[test]
    fn matches_of_ripgrep_are_told_from_its_other_lines() {
        let path = BASE64_STANDARD.encode(b"caf\xe9\n");
        let output = format!(
            "{}\n{}\n{}\n",
            r#"{"type":"begin","data":{"path":{"text":"a"}}}"#,
            format_args!(
                r#"{{"type":"match","data":{{"path":{{"bytes":"{path}"}},"lines":{{"text":"x\ty\n"}},"line_number":3,"absolute_offset":9,"submatches":[]}}}}"#
            ),
            r#"{"type":"end","data":{"path":{"text":"a"},"binary_offset":null,"stats":{}}}"#
        );
        assert_eq!(
            found(MatchFormat::Json, output.as_bytes()),
            [is(r"caf\xe9\n", 3, "x\ty")]
        );
    }

    #[test]
    fn a_record_that_is_too_long_is_passed_over() {
        let mut search = SearchOutput::new(MatchFormat::NulAfterPath);
        let long = [b"a\x001:", vec![b'x'; LONGEST_RECORD].as_slice()].concat();
        assert!(search.take(&long).is_empty());
        assert!(search.take(b"more of it").is_empty() && search.has_skipped_lines());
        let found = search.take(b" and its end\nb\x002:short\n");
        assert_eq!((found.len(), found[0].line_no), (1, 2));
    }

    #[test]
    fn a_long_line_is_cut_visibly() {
        let output = [b"a\x001:", "ä".repeat(5000).as_bytes(), b"\n"].concat();
        let matches = found(MatchFormat::NulAfterPath, &output);
        assert_eq!(matches[0].2.chars().count(), MOST_CHARACTERS + 1);
        assert!(matches[0].2.ends_with("ä…"));
    }
}
