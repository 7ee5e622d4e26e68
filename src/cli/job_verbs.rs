use std::io::{IsTerminal, Read};

use base64::Engine;
use serde::Serialize;
use tokio::time::Instant;

use super::exit::{exit_of, print, write_out};
use super::{
    Exit, ForgetArgs, ReadArgs, SearchArgs, SignalArgs, StreamChoice, UnitChoice, WaitArgs, WriteArgs, note,
    report,
};
use crate::jobs::printable;
use crate::remote::Api;
use crate::wire::{
    Code, Encoding, Error, ForgetRequest, ForgetWhat, MatchEntry, ReadRequest, RenderArg, SearchRequest,
    SignalRequest, StreamArg, UnitArg, WaitMode, WaitRequest, WriteRequest,
};

/// Length of one wait; another follows.
const WAIT_MS: i64 = 50_000;
const MOST_BYTES: i64 = 262_144;
/// Bytes that one write takes at most.
const WRITE_BYTES: usize = 1 << 20;

/// Shows a part of a job's output.
pub async fn read(api: &Api, args: ReadArgs) -> Exit {
    finish(api, async {
        if args.raw {
            return read_raw(api, &args).await;
        }
        let (is_json, reply_of) = (args.json, args.job.clone());
        let reply = api
            .read(ReadRequest {
                unit: args.unit.into(),
                offset: args.offset,
                length: args.length,
                max_bytes: Some(MOST_BYTES),
                stream: args.stream.into(),
                render: RenderArg::Clean,
                ..ReadRequest::new(args.job)
            })
            .await?;
        is_out_of_reach(api, &reply_of).await;
        if is_json {
            return Ok(print(&json(&reply)));
        }
        let end = reply.offset + reply.returned;
        if end < reply.total {
            let unit = args.unit.name();
            note(&format!("{} of {} {unit}; --offset {end} goes on", reply.returned, reply.total));
        }
        let lines = reply.lines.as_ref().map(|lines| lines.join("\n"));
        let text = lines.or(reply.content.clone()).unwrap_or_default();
        let shown: Vec<String> = text.split('\n').map(printable).collect();
        Ok(if text.is_empty() { Exit::SUCCESS } else { print(shown.join("\n").trim_end_matches('\n')) })
    })
    .await
}

/// Writes the bytes of a stream as they came, piece by piece.
async fn read_raw(api: &Api, args: &ReadArgs) -> Result<Exit, Error> {
    let stream = args.stream.into();
    if stream == StreamArg::Both {
        return Err(Error::invalid(
            "exact bytes are those of one stream",
            "add --stream stdout or --stream stderr",
        ));
    }
    let (mut offset, mut left) = (args.offset, args.length.unwrap_or(i64::MAX));
    while left > 0 {
        let request = ReadRequest {
            unit: UnitArg::Bytes,
            encoding: Encoding::Base64,
            offset,
            length: Some(left.min(MOST_BYTES)),
            stream,
            ..ReadRequest::new(&args.job)
        };
        let reply = api.read(request).await?;
        let gone = i64::try_from(reply.offset).unwrap_or(i64::MAX).saturating_sub(offset);
        if gone > 0 && offset >= 0 {
            note(&format!("{gone} bytes are gone"));
        }
        let bytes = base64::prelude::BASE64_STANDARD.decode(reply.content.unwrap_or_default());
        match write_out(&bytes.expect("it was encoded here")) {
            Exit::SUCCESS => {}
            exit => return Ok(exit),
        }
        left = left.saturating_sub_unsigned(reply.returned);
        offset = i64::try_from(reply.offset + reply.returned).unwrap_or(i64::MAX);
        if reply.returned == 0 {
            break;
        }
    }
    Ok(Exit::SUCCESS)
}

/// Looks for a pattern.
pub async fn search(api: &Api, args: SearchArgs) -> Exit {
    finish(api, async {
        let (mut since, mut left, mut is_first) = (0, i64::from(args.max_matches), true);
        while left > 0 {
            let reply = api
                .search(SearchRequest {
                    job_id: args.job.clone(),
                    pattern: args.pattern.clone(),
                    stream: args.stream.into(),
                    since_line_no: since,
                    context: Some(i64::from(args.context)),
                    max_matches: Some(left.min(1000)),
                    max_bytes: Some(MOST_BYTES),
                })
                .await?;
            if reply.dropped_lines > 0 {
                note(&format!("{} lines are gone, and were not looked at", reply.dropped_lines));
            }
            for found in &reply.matches {
                let is_apart = args.context > 0 && !is_first;
                let text = if args.json { json(found) } else { shown(found, is_apart, args.stream) };
                is_first = false;
                match print(&text) {
                    Exit::SUCCESS => {}
                    exit => return Ok(exit),
                }
            }
            left -= i64::try_from(reply.matches.len()).unwrap_or(left);
            let next = i64::try_from(reply.last_line_no).unwrap_or(i64::MAX);
            if !reply.has_more || next <= since {
                break;
            }
            if left == 0 {
                note(&format!("stopped after {} matches; -m takes a larger number", args.max_matches));
            }
            since = next;
        }
        let is_behind = is_out_of_reach(api, &args.job).await;
        Ok(match (is_first, is_behind) {
            (false, _) => Exit::SUCCESS,
            (true, false) => Exit::DECLINED,
            (true, true) => Exit::CONNECTION,
        })
    })
    .await
}

/// A match as grep -n shows it.
fn shown(found: &MatchEntry, is_apart: bool, stream: StreamChoice) -> String {
    let first = found.line_no.saturating_sub(found.before.len() as u64);
    // With one stream selected, lines of the other may lie between a match and its context: only the match's number is known.
    let around = |(no, text): (u64, &String)| match stream {
        StreamChoice::Both => format!("{no}-{}", printable(text)),
        StreamChoice::Stdout | StreamChoice::Stderr => format!("-{}", printable(text)),
    };
    let mut lines: Vec<String> = Vec::new();
    if is_apart {
        lines.push("--".to_owned());
    }
    lines.extend((first..).zip(&found.before).map(around));
    lines.push(format!("{}:{}", found.line_no, printable(&found.text)));
    lines.extend((found.line_no + 1..).zip(&found.after).map(around));
    lines.join("\n")
}

/// Writes to a job's stdin.
pub async fn write(api: &Api, args: WriteArgs) -> Exit {
    finish(api, async {
        if args.text.is_none() && std::io::stdin().is_terminal() && !args.close {
            return Err(Error::invalid(
                "there is nothing to write",
                "give the text, or redirect stdin from it",
            ));
        }
        let from_stdin = args.text.is_none() && !std::io::stdin().is_terminal();
        let mut written = 0;
        if let Some(text) = &args.text {
            let end = if args.no_newline { "" } else { "\n" };
            let data = format!("{text}{end}");
            api.write_bytes(&args.job, data.as_bytes(), args.patience).await?;
            written = data.len();
        }
        if from_stdin {
            written = write_stdin(api, &args).await?;
        }
        let mut reply = None;
        if args.close {
            let request = WriteRequest { close_after: true, ..WriteRequest::new(&args.job) };
            reply = Some(api.write(request).await?);
        }
        if !args.json {
            return Ok(Exit::SUCCESS);
        }
        let closed = reply.is_some();
        Ok(print(&serde_json::json!({"bytes_written": written, "stdin_closed": closed}).to_string()))
    })
    .await
}

async fn write_stdin(api: &Api, args: &WriteArgs) -> Result<usize, Error> {
    let mut written = 0;
    loop {
        let reading = tokio::task::spawn_blocking(|| {
            let mut data = Vec::new();
            std::io::stdin().lock().take(WRITE_BYTES as u64).read_to_end(&mut data).map(|_| data)
        });
        let failed = |message: String| Error::new(Code::Io, message, "check where stdin comes from");
        let data = reading.await.map_err(|error| failed(error.to_string()))?;
        let data = data.map_err(|error| failed(format!("stdin can't be read: {error}")))?;
        if data.is_empty() {
            return Ok(written);
        }
        api.write_bytes(&args.job, &data, args.patience).await?;
        written += data.len();
    }
}

/// Signals a job.
pub async fn signal(api: &Api, args: SignalArgs) -> Exit {
    finish(api, async {
        let grace_ms = args.grace.map(|grace| i64::try_from(grace.as_millis()).unwrap_or(i64::MAX));
        let request = SignalRequest { signal: Some(args.signal), grace_ms, ..SignalRequest::new(args.job) };
        let reply = api.signal(request).await?;
        if args.json {
            return Ok(print(&json(&reply)));
        }
        match (&reply.unverified, reply.confirmed_dead) {
            (Some(why), _) => note(why),
            (None, true) => note("no process of the job is left"),
            (None, false) => note("the signal was sent; the job still runs"),
        }
        Ok(Exit::SUCCESS)
    })
    .await
}

/// Waits for the end of jobs; the exit code is theirs.
pub async fn wait(api: &Api, args: WaitArgs) -> Exit {
    finish(api, async {
        let deadline = args.timeout.map(|limit| Instant::now() + limit);
        loop {
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            let left_ms = left.map_or(WAIT_MS, |left| i64::try_from(left.as_millis()).unwrap_or(WAIT_MS));
            let reply = api
                .wait(WaitRequest {
                    job_ids: args.jobs.clone(),
                    mode: if args.any { WaitMode::Any } else { WaitMode::All },
                    wait_ms: Some(left_ms.min(WAIT_MS)),
                    last_lines: 0,
                    last_lines_of: crate::wire::LastLinesOf::Failed,
                })
                .await?;
            let is_late = left.is_some_and(|left| left.is_zero());
            if reply.timed_out && !is_late {
                continue;
            }
            if args.json {
                let lines: Vec<String> = reply.jobs.iter().map(json).collect();
                print(&lines.join("\n"));
            }
            if reply.timed_out {
                note("the time is over; the jobs go on");
                for id in &args.jobs {
                    is_out_of_reach(api, id).await;
                }
                return Ok(Exit::TIMED_OUT);
            }
            let ended = reply.jobs.iter().filter(|entry| entry.standing.state.is_final());
            for entry in ended.clone().filter(|entry| !args.json && exit_of(entry) == Exit::CONNECTION) {
                note(&format!("{}: {}", entry.job_id, entry.standing));
            }
            let mut exits = ended.map(exit_of).filter(|exit| *exit != Exit::SUCCESS);
            return Ok(exits.next().unwrap_or(Exit::SUCCESS));
        }
    })
    .await
}

/// Removes jobs.
pub async fn forget(api: &Api, args: ForgetArgs) -> Exit {
    finish(api, async {
        let mut exit = Exit::SUCCESS;
        for job in &args.jobs {
            let what = if args.output { ForgetWhat::Output } else { ForgetWhat::Job };
            match api.forget(ForgetRequest { what, force: args.force, ..ForgetRequest::new(job) }).await {
                Ok(reply) if args.json => exit = print(&json(&reply)),
                Ok(_) => {}
                Err(error) => {
                    report(&error);
                    exit = Exit::of_error(&error);
                }
            }
        }
        Ok(exit)
    })
    .await
}

async fn finish(api: &Api, verb: impl Future<Output = Result<Exit, Error>>) -> Exit {
    let exit = verb.await.unwrap_or_else(|error| {
        report(&error);
        Exit::of_error(&error)
    });
    api.shutdown().await;
    exit
}

/// Notes on stderr that a job's host can't be reached, and so that newer output may be missing. Returns whether it is so.
pub(super) async fn is_out_of_reach(api: &Api, id: &str) -> bool {
    let Ok(entry) = api.entry(id).await else { return false };
    let is_out = entry.standing.disconnected_ms.is_some();
    if is_out {
        note(&format!("{} is out of reach: {id} may have printed more", printable(&entry.host)));
    }
    is_out
}

fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("a reply is plain data")
}

impl From<StreamChoice> for StreamArg {
    fn from(choice: StreamChoice) -> Self {
        match choice {
            StreamChoice::Both => Self::Both,
            StreamChoice::Stdout => Self::Stdout,
            StreamChoice::Stderr => Self::Stderr,
        }
    }
}

impl From<UnitChoice> for UnitArg {
    fn from(choice: UnitChoice) -> Self {
        match choice {
            UnitChoice::Lines => Self::Lines,
            UnitChoice::Chars => Self::Chars,
            UnitChoice::Bytes => Self::Bytes,
        }
    }
}
