//! Layout of a fleet's lines: labelled by host, live or as one block per host.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::time::{Duration, UNIX_EPOCH};

use unicode_width::UnicodeWidthStr;

use crate::terminal::{HOST_COLOURS, RED, colours_are_wanted, padded, paint};
use sshjobs_core::jobs::printable;
use sshjobs_wire::{LineRecord, StreamName};

/// Formats the lines of many hosts: each after its host's name, with the names in a column.
pub(super) struct FleetView {
    is_coloured: bool,
    timestamps: bool,
    /// Width of the longest name so far.
    width: usize,
    colours: HashMap<String, u8>,
    /// With output in blocks: lines of hosts that have not ended.
    held: Option<BTreeMap<String, Vec<String>>>,
}

/// Maximum width of the column of names. Longer names stick out.
const WIDEST: usize = 40;

impl FleetView {
    /// `names` are the expected hosts.
    pub(super) fn new(names: &[String], timestamps: bool, group: bool) -> Self {
        let width = names.iter().map(|name| name.width()).max().unwrap_or(0).min(WIDEST);
        let is_coloured = colours_are_wanted(&io::stdout());
        let held = group.then(BTreeMap::new);
        Self {
            is_coloured,
            timestamps,
            width,
            colours: HashMap::new(),
            held,
        }
    }

    /// Whether output is held until its host has ended.
    pub(super) fn is_grouped(&self) -> bool {
        self.held.is_some()
    }

    /// The lines to print for these records.
    pub(super) fn lines(&mut self, records: &[LineRecord]) -> Vec<String> {
        let mut shown = Vec::new();
        for record in records {
            let name = record.member.clone().unwrap_or_default();
            let line = self.line(&name, record);
            match &mut self.held {
                Some(held) => held.entry(name).or_default().push(line),
                None => shown.push(line),
            }
        }
        shown
    }

    /// Number of a host's lines that are held.
    pub(super) fn held_lines(&self, name: &str) -> u64 {
        let lines = self.held.as_ref().and_then(|held| held.get(name));
        lines.map_or(0, |lines| lines.len() as u64)
    }

    /// The held lines of a host that has ended.
    pub(super) fn ended(&mut self, name: &str) -> Vec<String> {
        self.held.as_mut().and_then(|held| held.remove(name)).unwrap_or_default()
    }

    /// The held lines of all other hosts.
    pub(super) fn rest(&mut self) -> Vec<String> {
        let held = self.held.as_mut().map(std::mem::take).unwrap_or_default();
        held.into_values().flatten().collect()
    }

    fn line(&mut self, name: &str, record: &LineRecord) -> String {
        // The name of a host that a pattern selected is known only from its first line.
        self.width = self.width.max(name.width().min(WIDEST));
        let next = HOST_COLOURS
            .get(self.colours.len() % HOST_COLOURS.len())
            .copied()
            .unwrap_or_default();
        let colour = *self.colours.entry(name.to_owned()).or_insert(next);
        let prefix = paint(
            &format!("{} |", padded(&printable(name), self.width)),
            colour,
            self.is_coloured,
        );
        let text = printable(&record.text);
        let is_error = record.stream == StreamName::Stderr;
        let text = paint(&text, RED, self.is_coloured && is_error);
        let stamp = if self.timestamps {
            let time =
                humantime::format_rfc3339_millis(UNIX_EPOCH + Duration::from_millis(record.ts));
            format!("{time} ")
        } else {
            String::new()
        };
        let space = if text.is_empty() { "" } else { " " };
        format!("{stamp}{prefix}{space}{text}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(member: &str, text: &str) -> LineRecord {
        let line_no = 1;
        let ts = 0;
        let stream = StreamName::Stdout;
        LineRecord {
            line_no,
            member: Some(member.to_owned()),
            stream,
            ts,
            time: String::new(),
            text: text.to_owned(),
            spans: Vec::new(),
            continuation: false,
        }
    }

    fn view(names: &[&str], group: bool) -> FleetView {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        FleetView {
            is_coloured: false,
            ..FleetView::new(&names, false, group)
        }
    }

    #[test]
    fn names_stand_in_a_column_whatever_they_are_written_in() {
        let mut view = view(&["web1", "東京", "database"], false);
        let shown = view.lines(&[
            record("web1", "a"),
            record("東京", "b"),
            record("database", ""),
        ]);
        assert_eq!(shown, ["web1     | a", "東京     | b", "database |"]);
    }

    #[test]
    fn a_host_is_shown_in_one_piece_when_it_has_ended() {
        let mut view = view(&["a", "b"], true);
        assert!(view.lines(&[record("a", "1"), record("b", "2"), record("a", "3")]).is_empty());
        assert_eq!((view.held_lines("a"), view.held_lines("c")), (2, 0));
        assert_eq!(view.ended("a"), ["a | 1", "a | 3"]);
        assert_eq!(view.rest(), ["b | 2"]);
        assert!(view.ended("a").is_empty() && view.rest().is_empty());
    }

    #[test]
    fn no_byte_of_a_host_reaches_a_terminal_unescaped() {
        let shown = view(&["a"], false).lines(&[record("a", "\x1b]0;title\x07\u{202e}")]);
        assert!(
            !shown[0].contains(['\x1b', '\x07', '\u{202e}']),
            "{shown:?}"
        );
    }
}
