//! `sshjobs audit show`: decisions and their results.

use std::path::Path;
use std::time::SystemTime;

use super::configured::{files, unreadable};
use crate::args::AuditShowArgs;
use crate::exit::print;
use crate::{ProgramExit, note};
use sshjobs_core::jobs::Jobs;
use sshjobs_policy::audit::{AboutJob, AuditError, Event, StoredLine, for_each_line, visible_text};
use sshjobs_wire::Error;

pub(super) async fn show(jobs: &Jobs, args: AuditShowArgs) -> Result<ProgramExit, Error> {
    let log = match &args.file {
        Some(log) => log.clone(),
        None => files(jobs).await?.log,
    };
    let shown = tokio::task::spawn_blocking(move || shown_lines(&log, &args)).await;
    let lines = shown.expect("a search does not panic").map_err(|error| unreadable(&error))?;
    if lines.is_empty() {
        note("no line matches");
        return Ok(ProgramExit::SUCCESS);
    }
    Ok(print(&lines.join("\n")))
}

/// The lines of a log that match.
fn shown_lines(log: &Path, args: &AuditShowArgs) -> Result<Vec<String>, AuditError> {
    let about_job = match &args.job {
        Some(job) => Some(AboutJob::find(log, job)?),
        None => None,
    };
    let mut shown = Vec::new();
    for_each_line(log, |line| {
        let text = String::from_utf8_lossy(&line.bytes);
        match serde_json::from_slice::<StoredLine>(&line.bytes) {
            Ok(stored) if is_selected(&stored, args, about_job.as_ref()) => {
                // An older or foreign line may have control characters.
                let words = if args.json {
                    visible_text(&text)
                } else {
                    visible_text(&in_words(&stored))
                };
                shown.push(words);
            }
            Ok(_) => {}
            Err(error) => note(&format!(
                "{}:{}: it is no line of an audit log: {error}",
                line.file.display(),
                line.number
            )),
        }
        true
    })?;
    Ok(shown)
}

fn is_selected(stored: &StoredLine, args: &AuditShowArgs, about_job: Option<&AboutJob>) -> bool {
    let time = humantime::parse_rfc3339(&stored.time).unwrap_or(SystemTime::UNIX_EPOCH);
    if args.since.is_some_and(|since| time < since) || args.until.is_some_and(|until| time >= until)
    {
        return false;
    }
    if about_job.is_some_and(|about| !about.covers(stored)) {
        return false;
    }
    let has_filter = args.caller.is_some() || args.host.is_some() || args.job.is_some();
    match &stored.event {
        Event::Decision(decided) => {
            let mut hosts: Vec<&str> = decided.machine.iter().map(String::as_str).collect();
            hosts.extend(decided.host.as_deref());
            matches(args.caller.as_deref(), &[&decided.caller])
                && matches(args.host.as_deref(), &hosts)
                && !(args.denied && decided.allowed)
        }
        Event::Ended(ended) => {
            matches(args.caller.as_deref(), &[&ended.caller])
                && matches(args.host.as_deref(), &[&ended.host])
                && !args.denied
        }
        Event::Repeated(repeated) => {
            let mut hosts: Vec<&str> = repeated.machine.iter().map(String::as_str).collect();
            hosts.extend(repeated.host.as_deref());
            matches(args.caller.as_deref(), &[&repeated.caller])
                && matches(args.host.as_deref(), &hosts)
                && !args.denied
        }
        Event::Voted(voted) => {
            let is_for_caller = matches(args.caller.as_deref(), &[&voted.asker, &voted.by]);
            is_for_caller && args.host.is_none() && !(args.denied && voted.agrees)
        }
        Event::Started { .. } => {
            let has_other_filter = args.caller.is_some() || args.host.is_some();
            !has_other_filter && !args.denied
        }
        Event::Opened { .. }
        | Event::Policy { .. }
        | Event::Closed { .. }
        | Event::Failed { .. }
        | Event::Checkpoint { .. }
        | Event::Repaired { .. }
        | Event::Pruned { .. }
        | Event::Missed { .. } => !has_filter && !args.denied,
    }
}

/// Whether one of the values is the wanted one, if one is wanted.
fn matches(wanted: Option<&str>, values: &[&str]) -> bool {
    wanted.is_none_or(|wanted| values.contains(&wanted))
}

/// A line for a person.
fn in_words(stored: &StoredLine) -> String {
    format!(
        "{} {:>6} {}",
        stored.time,
        stored.seq,
        stored.event_in_words()
    )
}
