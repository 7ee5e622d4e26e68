//! Replies as text. Tests check that text and structured content say the same.

use std::fmt::Write;

use serde::Serialize;

use super::for_model::for_model;

use sshjobs_wire::{
    FetchReply, ForgetReply, ForwardReply, GetReply, HostsReply, JobTail, JobsReply, PutReply,
    QueueReply, ReadReply, RecipeReply, RunReply, Screen, SearchReply, SignalReply, SpawnReply,
    TailReply, WaitReply, WriteReply,
};

/// A reply as text, for clients that pass only text to models. It has the same information as the
/// structured content.
pub(crate) trait Text {
    fn text(&self) -> String;

    /// The job whose log is more than this reply shows, for a link to it.
    fn linked_job(&self) -> Option<&str> {
        None
    }
}

/// The scalar fields on the first line, then the output's lines.
impl Text for TailReply {
    fn text(&self) -> String {
        let omitted = ["lines", "records", "partial", "jobs", "screen"];
        let mut head = TextHead::of(self, &omitted);
        if let Some(screen) = &self.screen {
            return head.with_screen(screen);
        }
        if !self.jobs.is_empty() {
            let jobs: Vec<String> = self.jobs.iter().map(JobTail::text).collect();
            return head.with_body(jobs.iter().map(String::as_str));
        }
        if let Some(partial) = &self.partial {
            head.json("partial", partial);
        }
        match (&self.lines, &self.records) {
            (Some(lines), _) => head.with_body(lines.iter().map(String::as_str)),
            (None, Some(records)) => {
                let records: Vec<String> = records.iter().map(json).collect();
                head.with_body(records.iter().map(String::as_str))
            }
            (None, None) => head.0,
        }
    }
}

/// The scalar fields of the job on a line, then its lines.
impl Text for JobTail {
    fn text(&self) -> String {
        let mut head = TextHead(format!("[{}]", self.job_id));
        let fields = TextHead::of(self, &["job_id", "lines", "partial"]);
        head.0.push(' ');
        head.0.push_str(&fields.0);
        if let Some(partial) = &self.partial {
            head.json("partial", partial);
        }
        head.with_body(self.lines.iter().map(String::as_str))
    }
}

impl Text for RunReply {
    fn linked_job(&self) -> Option<&str> {
        (self.omitted_lines > 0).then_some(self.job_id.as_str())
    }

    fn text(&self) -> String {
        let omitted = [
            "head",
            "stderr_tail",
            "tail",
            "read_omitted",
            "first_error",
            "hint",
            "next",
            "page",
        ];
        let head = TextHead::of(self, &omitted);
        let errors = (!self.stderr_tail.is_empty())
            .then(|| "[the last lines of stderr in the middle:]".to_owned());
        let start = errors.as_ref().map(|_| "[the output:]".to_owned());
        let gap = (self.omitted_lines > 0).then(|| match &self.read_omitted {
            Some(call) => format!("[{} lines left out: {call}]", self.omitted_lines),
            None => format!("[{} lines left out]", self.omitted_lines),
        });
        let page = self.page.as_ref().map(|page| page.text());
        let first_error = self.first_error.iter().flat_map(|error| {
            let head = format!("[the first error, at line {}:]", error.line_no);
            std::iter::once(head).chain(error.lines.iter().cloned())
        });
        let first_error: Vec<String> = first_error.collect();
        let hint = self.hint.as_ref().map(|hint| format!("[{hint}]"));
        let follow = self.next.as_ref().map(|call| format!("[the job continues: {call}]"));
        let errors = errors.iter().chain(&self.stderr_tail).chain(&start);
        let head_lines = if groups_have_all(self) {
            &[][..]
        } else {
            &self.head
        };
        let output = head_lines.iter().chain(&gap).chain(&self.tail);
        let lines = errors
            .chain(output)
            .chain(&first_error)
            .chain(&page)
            .chain(&hint)
            .chain(&follow);
        head.with_body(lines.map(String::as_str))
    }
}

/// Whether the groups of a fleet have each line of its output, once for all members that printed it.
fn groups_have_all(reply: &RunReply) -> bool {
    let is_in_group = |line: &String| {
        line.split_once(": ").is_some_and(|(_, text)| {
            reply
                .groups
                .iter()
                .any(|group| group.last_lines.iter().any(|last| last == text))
        })
    };
    reply.omitted_lines == 0 && !reply.groups.is_empty() && reply.head.iter().all(is_in_group)
}

/// The scalar fields, then the lines or the content.
impl Text for ReadReply {
    fn text(&self) -> String {
        let head = TextHead::of(self, &["lines", "content", "screen"]);
        if let Some(screen) = &self.screen {
            return head.with_screen(screen);
        }
        head.with_body(self.lines.iter().flatten().chain(&self.content).map(String::as_str))
    }
}

/// The attributes, then the content, or one entry per line.
impl Text for GetReply {
    fn text(&self) -> String {
        let head = TextHead::of(self, &["content", "entries"]);
        let entries: Vec<String> = self.entries.iter().map(json).collect();
        head.with_body(entries.iter().chain(&self.content).map(String::as_str))
    }
}

/// The fields, then the difference, or one group of hosts per line.
impl Text for PutReply {
    fn text(&self) -> String {
        let head = TextHead::of(self, &["diff", "groups"]);
        let groups: Vec<String> = self.groups.iter().map(json).collect();
        head.with_body(groups.iter().chain(&self.diff).map(String::as_str))
    }
}

/// One forward per line.
impl Text for ForwardReply {
    fn text(&self) -> String {
        let forwards: Vec<String> = self.forwards.iter().map(json).collect();
        TextHead::of(self, &["forwards"]).with_body(forwards.iter().map(String::as_str))
    }
}

/// The scalar fields, then one match per line.
impl Text for SearchReply {
    fn text(&self) -> String {
        let matches: Vec<String> = self.matches.iter().map(json).collect();
        TextHead::of(self, &["matches"]).with_body(matches.iter().map(String::as_str))
    }
}

/// The fields of the write, then the tail as in ssh_tail.
impl Text for WriteReply {
    fn text(&self) -> String {
        let head = TextHead::of(self, &["tail", "screen"]);
        if let Some(screen) = &self.screen {
            return head.with_screen(screen);
        }
        let tail = self.tail.as_ref().map(|tail| tail.text());
        head.with_body(tail.iter().map(String::as_str))
    }
}

impl Text for SpawnReply {
    fn text(&self) -> String {
        TextHead::of(self, &[]).0
    }

    fn linked_job(&self) -> Option<&str> {
        Some(&self.job_id)
    }
}

macro_rules! json_text {
    ($($reply:ty),*) => { $(impl Text for $reply { fn text(&self) -> String { json(self) } })* };
}

// `fetch`, `queue` and `recipe` are in the table of verbs, but no tools: they are for people.
json_text!(
    FetchReply,
    JobsReply,
    SignalReply,
    HostsReply,
    ForgetReply,
    QueueReply,
    RecipeReply,
    WaitReply
);

fn json(value: &impl Serialize) -> String {
    let mut value = serde_json::to_value(value).expect("a reply is plain data");
    for_model(&mut value);
    value.to_string()
}

/// `name=value` for most fields of a reply.
struct TextHead(String);

impl TextHead {
    fn of(reply: &impl Serialize, without: &[&str]) -> Self {
        let mut head = Self(String::new());
        let mut value = serde_json::to_value(reply).expect("a reply is plain data");
        for_model(&mut value);
        if let serde_json::Value::Object(fields) = value {
            for (name, value) in fields.iter().filter(|(name, _)| !without.contains(&name.as_str()))
            {
                let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                head.field(name, &text);
            }
        }
        head
    }

    fn json(&mut self, name: &str, value: &impl Serialize) {
        self.field(name, &json(value));
    }

    fn field(&mut self, name: &str, value: &str) {
        let space = if self.0.is_empty() { "" } else { " " };
        write!(self.0, "{space}{name}={value}").expect("a string takes all");
    }

    /// The fields of the screen, then its rows. A changed row begins with its number.
    fn with_screen(mut self, screen: &Screen) -> String {
        let fields = Self::of(screen, &["rows", "changed_rows"]);
        self.0.push(' ');
        self.0.push_str(&fields.0);
        let changed = screen.changed_rows.iter().flatten();
        let changed: Vec<String> =
            changed.map(|row| format!("{}: {}", row.row, row.text)).collect();
        let rows = screen.rows.iter().flatten().chain(&changed);
        self.with_body(rows.map(String::as_str))
    }

    fn with_body<'a>(self, lines: impl Iterator<Item = &'a str>) -> String {
        lines.fold(self.0, |mut text, line| {
            text.push('\n');
            text.push_str(line);
            text
        })
    }
}
