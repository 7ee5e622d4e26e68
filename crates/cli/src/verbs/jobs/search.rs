//! `sshjobs search`: matches with context, like grep.

use super::finish::{finish, warn_if_unreachable};
use super::pick;
use crate::args::{SearchArgs, StreamChoice};
use crate::exit::print;
use crate::json::json;
use crate::{ProgramExit, note};
use sshjobs_core::jobs::printable;
use sshjobs_wire::remote::Api;
use sshjobs_wire::{MatchEntry, SearchRequest};

/// Maximum bytes of one reply.
const MOST_BYTES: i64 = 262_144;

/// Searches for a pattern.
pub async fn search(api: &Api, mut args: SearchArgs) -> ProgramExit {
    finish(api, async {
        args.job = pick::resolve(api, &args.job).await?;
        let mut since = 0;
        let mut left = i64::from(args.max_matches);
        let mut is_first = true;
        while left > 0 {
            let reply = api
                .search(SearchRequest {
                    job_id: args.job.clone(),
                    pattern: args.pattern.clone(),
                    stream: args.stream.into(),
                    since_line_no: since,
                    until_line_no: None,
                    context: Some(i64::from(args.context)),
                    max_matches: Some(left.min(1000)),
                    max_bytes: Some(MOST_BYTES),
                    ..SearchRequest::default()
                })
                .await?;
            if reply.dropped_lines > 0 {
                note(&format!(
                    "{} lines were evicted before they could be searched",
                    reply.dropped_lines
                ));
            }
            for found in &reply.matches {
                let is_apart = args.context > 0 && !is_first;
                let text = if args.json {
                    json(found)
                } else {
                    shown(found, is_apart, args.stream)
                };
                is_first = false;
                match print(&text) {
                    ProgramExit::SUCCESS => {}
                    exit => return Ok(exit),
                }
            }
            left -= i64::try_from(reply.matches.len()).unwrap_or(left);
            let next = i64::try_from(reply.last_line_no).unwrap_or(i64::MAX);
            // A reply that does not advance must not repeat for ever.
            if !reply.has_more || next <= since {
                break;
            }
            if left == 0 {
                note(&format!(
                    "stopped after {} matches; -m takes a larger number",
                    args.max_matches
                ));
            }
            since = next;
        }
        let is_behind = warn_if_unreachable(api, &args.job).await;
        Ok(match (is_first, is_behind) {
            (false, _) => ProgramExit::SUCCESS,
            (true, false) => ProgramExit::DECLINED,
            (true, true) => ProgramExit::CONNECTION,
        })
    })
    .await
}

/// Formats a match like grep -n.
fn shown(found: &MatchEntry, is_apart: bool, stream: StreamChoice) -> String {
    let first = found.line_no.saturating_sub(found.before.len() as u64);
    // If one stream is selected, lines of the other may be between a match and its context, so only
    // the match's number is known.
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
