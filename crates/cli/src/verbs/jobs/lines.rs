//! Prints lines of a job as they come; the common part of `tail` and `log`.

use std::time::{Duration, UNIX_EPOCH};

use super::finish::warn_if_unreachable;
use crate::args::Since;
use crate::exit::print;
use crate::json::json;
use crate::terminal::{RED, paint};
use crate::{ProgramExit, note};
use sshjobs_core::jobs::{coloured, printable};
use sshjobs_wire::remote::Api;
use sshjobs_wire::{
    Because, Error, Format, KeepArg, LineRecord, RenderArg, StreamArg, StreamName, TailReply,
    TailRequest,
};

/// Length of one wait, before the next.
const WAIT_MS: i64 = 50_000;
const MOST_LINES: i64 = 10_000;
const MOST_BYTES: i64 = 262_144;
/// Starts a sequence that colours text (ECMA-48).
const ESCAPE: char = '\x1b';

/// Which lines of a job are printed.
pub(super) struct LinePrinter {
    pub(super) job: String,
    pub(super) start: PrintStart,
    pub(super) stream: StreamArg,
    /// Only lines that match this regex.
    pub(super) filter: Option<String>,
    /// Stop after the first line that matches this regex.
    pub(super) until: Option<String>,
    /// Continue until the job ends.
    pub(super) follow: bool,
    pub(super) style: LineStyle,
}

/// Where printing starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PrintStart {
    /// The first one that is kept.
    Beginning,
    /// This many lines before the end.
    Last(u32),
    After(Since),
}

/// How a line is printed.
#[derive(Clone, Copy, Debug)]
pub(super) struct LineStyle {
    pub(super) json: bool,
    pub(super) timestamps: bool,
    /// With the colours of the program, and stderr red.
    pub(super) is_coloured: bool,
}

impl LinePrinter {
    /// Prints the lines, and follows the job if requested.
    pub(super) async fn show(&self, api: &Api) -> Result<ProgramExit, Error> {
        let since = match self.start {
            PrintStart::Beginning | PrintStart::Last(_) => 0,
            PrintStart::After(Since::Line(line)) => line,
            PrintStart::After(Since::Time(time)) => last_line_before(api, &self.job, time).await?,
        };
        let mut request = TailRequest {
            max_lines: Some(MOST_LINES),
            max_bytes: Some(MOST_BYTES),
            format: Format::Records,
            stream: self.stream,
            until: self.until.clone(),
            filter: self.filter.clone(),
            render: if self.style.is_coloured {
                RenderArg::Raw
            } else {
                RenderArg::Clean
            },
            ..TailRequest::new(&self.job, since, 0)
        };
        if let PrintStart::Last(lines) = self.start {
            request.keep = KeepArg::Last;
            request.max_lines = Some(i64::from(lines.max(1)));
        }
        let mut is_first = true;
        loop {
            let reply = api.tail(request.clone()).await?;
            if is_first && since > reply.total_lines {
                note(&format!(
                    "line {since} does not exist yet: {} has {} lines",
                    self.job, reply.total_lines
                ));
            }
            if let PrintStart::Last(lines) = self.start
                && is_first
                && let Some(before) = self.before_last(&reply, lines)
            {
                request.since_line_no = Some(before);
                request.keep = KeepArg::First;
                request.max_lines = Some(MOST_LINES);
                is_first = false;
                continue;
            }
            // The wire has no limit of 0 lines, so 0 requests one and does not print it.
            if !(is_first && self.start == PrintStart::Last(0)) {
                match self.print_page(&reply) {
                    ProgramExit::SUCCESS => {}
                    exit => return Ok(exit),
                }
            }
            let is_over = !reply.still_running || reply.returned_because == Because::Matched;
            if is_over || (!self.follow && !reply.has_more) {
                self.print_end(&reply);
                warn_if_unreachable(api, &self.job).await;
                return Ok(ProgramExit::SUCCESS);
            }
            if is_first && reply.standing.disconnected_ms.is_some() {
                warn_if_unreachable(api, &self.job).await;
            }
            is_first = false;
            request.since_line_no = Some(i64::try_from(reply.last_line_no).unwrap_or(i64::MAX));
            request.wait_ms = if self.follow { WAIT_MS } else { 0 };
            // Only the first page is cut to the last lines; later pages must not skip any.
            request.keep = KeepArg::First;
            request.max_lines = Some(MOST_LINES);
        }
    }

    /// The line after which the last `lines` begin, if the first reply had no room for them all: it is
    /// limited in bytes. Then they are read from there.
    fn before_last(&self, reply: &TailReply, lines: u32) -> Option<i64> {
        // The reply has the last lines that match, and there may be fewer of them.
        if self.filter.is_some() {
            return None;
        }
        let returned = reply.records.iter().flatten().count() as u64;
        let wanted = u64::from(lines).min(reply.total_lines);
        if returned >= wanted {
            return None;
        }
        if self.stream == StreamArg::Both {
            return i64::try_from(reply.total_lines - wanted).ok();
        }
        // Of one stream, the number of the line before them is not known.
        if returned > 0 && reply.skipped_lines > 0 {
            note(&format!(
                "these are the last {returned} of {lines} lines: more don't fit into one reply; --since LINE shows earlier ones"
            ));
        }
        None
    }

    fn print_page(&self, reply: &TailReply) -> ProgramExit {
        if reply.dropped_lines > 0 {
            note(&format!("{} lines were evicted", reply.dropped_lines));
        }
        let records = reply.records.iter().flatten();
        let lines: Vec<String> = records.map(|record| self.style.line(record)).collect();
        if lines.is_empty() {
            ProgramExit::SUCCESS
        } else {
            print(&lines.join("\n"))
        }
    }

    /// Reports the end to a person who follows the job.
    fn print_end(&self, reply: &TailReply) {
        if self.style.json {
            return;
        }
        if let Some(partial) = &reply.partial {
            let texts = [&partial.stdout, &partial.stderr].into_iter().flatten();
            texts.for_each(|text| note(&format!("unfinished: {text}")));
        }
        if self.follow && !reply.still_running {
            note(&format!("{}: {}", self.job, reply.standing));
        }
    }
}

impl LineStyle {
    fn line(self, record: &LineRecord) -> String {
        if self.json {
            return json(record);
        }
        let time = humantime::format_rfc3339_millis(UNIX_EPOCH + Duration::from_millis(record.ts));
        let stamp = if self.timestamps {
            format!("{time} ")
        } else {
            String::new()
        };
        let member = record
            .member
            .as_ref()
            .map_or_else(String::new, |member| format!("{}: ", printable(member)));
        format!("{stamp}{member}{}", self.text(record))
    }

    fn text(self, record: &LineRecord) -> String {
        if !self.is_coloured {
            return printable(&record.text);
        }
        let text = coloured(record.text.as_bytes());
        let is_red = record.stream == StreamName::Stderr && !text.contains(ESCAPE);
        paint(&text, RED, is_red)
    }
}

/// The last line before a time, in milliseconds since the epoch; 0 if there is none.
async fn last_line_before(api: &Api, job: &str, time: u64) -> Result<u64, Error> {
    let mut least = 0;
    let mut most = line_after(api, job, 0).await?.total_lines;
    // Lines are numbered as they arrive, so a binary search by time works.
    while least < most {
        let middle = least.midpoint(most);
        match line_after(api, job, middle).await?.records.iter().flatten().next() {
            Some(record) if record.ts < time => least = record.line_no,
            Some(_) | None => most = middle,
        }
    }
    Ok(least)
}

async fn line_after(api: &Api, job: &str, line: u64) -> Result<TailReply, Error> {
    let request = TailRequest {
        max_lines: Some(1),
        format: Format::Records,
        ..TailRequest::new(job, line, 0)
    };
    api.tail(request).await
}
