//! `sshjobs tail`: lines after a cursor, and with `-f` until the job ends.

use std::io;
use std::time::{Duration, UNIX_EPOCH};

use super::finish::warn_if_unreachable;
use crate::cli::args::{Since, TailArgs};
use crate::cli::exit::print;
use crate::cli::json::json;
use crate::cli::terminal::{RED, are_wanted, paint};
use crate::cli::{Exit, note, report};
use crate::jobs::printable;
use crate::remote::Api;
use crate::wire::{Because, Error, Format, KeepArg, Record, StreamName, TailReply, TailRequest};

/// Length of one wait, before the next.
const WAIT_MS: i64 = 50_000;
const MOST_LINES: i64 = 10_000;
const MOST_BYTES: i64 = 262_144;

/// Shows a job's lines, and follows them if requested.
pub async fn tail(api: &Api, args: TailArgs) -> Exit {
    let exit = show(api, &args).await.unwrap_or_else(|error| {
        report(&error);
        Exit::of_error(&error)
    });
    api.shutdown().await;
    exit
}

async fn show(api: &Api, args: &TailArgs) -> Result<Exit, Error> {
    let since = match args.since {
        None => 0,
        Some(Since::Line(line)) => line,
        Some(Since::Time(time)) => last_line_before(api, &args.job, time).await?,
    };
    let mut request = TailRequest {
        max_lines: Some(MOST_LINES),
        max_bytes: Some(MOST_BYTES),
        format: Format::Records,
        stream: args.stream.into(),
        until: args.until.clone(),
        ..TailRequest::new(&args.job, since, 0)
    };
    if args.since.is_none() && args.until.is_none() {
        (request.keep, request.max_lines) = (KeepArg::Last, Some(i64::from(args.lines.max(1))));
    }
    let mut is_first = true;
    loop {
        let reply = api.tail(request.clone()).await?;
        if is_first && since > reply.total_lines {
            note(&format!(
                "line {since} does not exist yet: {} has {} lines",
                args.job, reply.total_lines
            ));
        }
        // The wire has no limit of 0 lines, so `-n 0` requests one and does not print it.
        if !(is_first && args.lines == 0 && args.since.is_none()) {
            match show_page(&reply, args) {
                Exit::SUCCESS => {}
                exit => return Ok(exit),
            }
        }
        let is_over = !reply.still_running || reply.returned_because == Because::Matched;
        if is_over || (!args.follow && !reply.has_more) {
            say_end(&reply, args);
            warn_if_unreachable(api, &args.job).await;
            return Ok(Exit::SUCCESS);
        }
        if is_first && reply.standing.disconnected_ms.is_some() {
            warn_if_unreachable(api, &args.job).await;
        }
        is_first = false;
        request.since_line_no = Some(i64::try_from(reply.last_line_no).unwrap_or(i64::MAX));
        request.wait_ms = if args.follow { WAIT_MS } else { 0 };
        // Only the first page is cut to the last lines; later pages must not skip any.
        (request.keep, request.max_lines) = (KeepArg::First, Some(MOST_LINES));
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

fn show_page(reply: &TailReply, args: &TailArgs) -> Exit {
    if reply.dropped_lines > 0 {
        note(&format!("{} lines are gone", reply.dropped_lines));
    }
    let records = reply.records.iter().flatten();
    let lines: Vec<String> = records.map(|record| line(record, args)).collect();
    if lines.is_empty() {
        Exit::SUCCESS
    } else {
        print(&lines.join("\n"))
    }
}

fn line(record: &Record, args: &TailArgs) -> String {
    if args.json {
        return json(record);
    }
    let is_red = record.stream == StreamName::Stderr && are_wanted(&io::stdout());
    let time = humantime::format_rfc3339_millis(UNIX_EPOCH + Duration::from_millis(record.ts));
    let stamp = if args.timestamps {
        format!("{time} ")
    } else {
        String::new()
    };
    let member = record
        .member
        .as_ref()
        .map_or_else(String::new, |member| format!("{}: ", printable(member)));
    format!(
        "{stamp}{member}{}",
        paint(&printable(&record.text), RED, is_red)
    )
}

/// Reports the end to a person who follows the job.
fn say_end(reply: &TailReply, args: &TailArgs) {
    if args.json {
        return;
    }
    if let Some(partial) = &reply.partial {
        let texts = [&partial.stdout, &partial.stderr].into_iter().flatten();
        texts.for_each(|text| note(&format!("unfinished: {text}")));
    }
    if args.follow && !reply.still_running {
        note(&format!("{}: {}", args.job, reply.standing));
    }
}
