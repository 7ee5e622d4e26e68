//! `sshjobs audit show`: decisions and their results.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::SystemTime;

use super::configured::{files, unreadable};
use crate::audit::{
    AuditError, Decided, Ended, Event, StoredLine, Voted, for_each_line, visible_text,
};
use crate::cli::args::AuditShowArgs;
use crate::cli::exit::print;
use crate::cli::{Exit, note};
use crate::jobs::Jobs;
use crate::wire::Error;

pub(super) async fn show(jobs: &Jobs, args: AuditShowArgs) -> Result<Exit, Error> {
    let log = match &args.file {
        Some(log) => log.clone(),
        None => files(jobs).await?.log,
    };
    let shown = tokio::task::spawn_blocking(move || shown_lines(&log, &args)).await;
    let lines = shown.expect("a search does not panic").map_err(|error| unreadable(&error))?;
    if lines.is_empty() {
        note("no line matches");
        return Ok(Exit::SUCCESS);
    }
    Ok(print(&lines.join("\n")))
}

/// The lines of a log that match.
fn shown_lines(log: &Path, args: &AuditShowArgs) -> Result<Vec<String>, AuditError> {
    let starts = match &args.job {
        Some(job) => decisions_that_started(log, job)?,
        None => BTreeSet::new(),
    };
    let mut shown = Vec::new();
    for_each_line(log, |line| {
        let text = String::from_utf8_lossy(&line.bytes);
        match serde_json::from_slice::<StoredLine>(&line.bytes) {
            Ok(stored) if is_selected(&stored, args, &starts) => {
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

fn decisions_that_started(log: &Path, job: &str) -> Result<BTreeSet<u64>, AuditError> {
    let mut decisions = BTreeSet::new();
    for_each_line(log, |line| {
        if let Ok(stored) = serde_json::from_slice::<StoredLine>(&line.bytes)
            && let Event::Started {
                decision,
                job: started,
            } = stored.event
            && started == job
        {
            decisions.insert(decision);
        }
        true
    })?;
    Ok(decisions)
}

fn is_selected(stored: &StoredLine, args: &AuditShowArgs, starts: &BTreeSet<u64>) -> bool {
    let time = humantime::parse_rfc3339(&stored.time).unwrap_or(SystemTime::UNIX_EPOCH);
    if args.since.is_some_and(|since| time < since) || args.until.is_some_and(|until| time >= until)
    {
        return false;
    }
    let matches = |wanted: &Option<String>, values: &[&str]| {
        wanted.as_ref().is_none_or(|wanted| values.contains(&wanted.as_str()))
    };
    let has_filter = args.caller.is_some() || args.host.is_some() || args.job.is_some();
    match &stored.event {
        Event::Decision(decided) => {
            let mut hosts: Vec<&str> = decided.machine.iter().map(String::as_str).collect();
            hosts.extend(decided.host.as_deref());
            let jobs: Vec<&str> = decided.job.as_deref().into_iter().collect();
            let is_about_job = starts.contains(&stored.seq) || matches(&args.job, &jobs);
            matches(&args.caller, &[&decided.caller])
                && matches(&args.host, &hosts)
                && is_about_job
                && !(args.denied && decided.allowed)
        }
        Event::Ended(ended) => {
            matches(&args.caller, &[&ended.caller])
                && matches(&args.host, &[&ended.host])
                && matches(&args.job, &[&ended.job])
                && !args.denied
        }
        Event::Voted(voted) => {
            let is_for_caller = matches(&args.caller, &[&voted.asker, &voted.by]);
            is_for_caller
                && args.host.is_none()
                && args.job.is_none()
                && !(args.denied && voted.agrees)
        }
        Event::Started { job, .. } => {
            let has_other_filter = args.caller.is_some() || args.host.is_some();
            matches(&args.job, &[job]) && !has_other_filter && !args.denied
        }
        Event::Opened { .. }
        | Event::Policy { .. }
        | Event::Closed { .. }
        | Event::Failed { .. }
        | Event::Checkpoint { .. }
        | Event::Repaired { .. }
        | Event::Missed { .. } => !has_filter && !args.denied,
    }
}

/// A line for a person.
fn in_words(stored: &StoredLine) -> String {
    let what = match &stored.event {
        Event::Opened {
            process, machine, ..
        } => format!("opened by {process} on {machine}"),
        Event::Policy { file, sha256 } => format!("policy {file} {sha256}"),
        Event::Decision(decided) => decision_in_words(decided),
        Event::Voted(voted) => voted_in_words(voted),
        Event::Started { decision, job } => format!("started {job} (line {decision})"),
        Event::Ended(ended) => end_in_words(ended),
        Event::Checkpoint { .. } => "checkpoint".to_owned(),
        Event::Repaired { bytes } => format!("half a line of {bytes} bytes was cut off"),
        Event::Failed { decision, why } => format!("failed (line {decision}): {why}"),
        Event::Closed { continued_in } => match continued_in {
            Some(log) => format!("closed: calls are recorded in {log} from here on"),
            None => "CLOSED: calls are not recorded from here on".to_owned(),
        },
        Event::Missed { lines } => format!("{lines} lines could not be recorded"),
    };
    format!("{} {:>6} {what}", stored.time, stored.seq)
}

fn voted_in_words(voted: &Voted) -> String {
    let answer = if voted.agrees { "approved" } else { "refused" };
    let reason = voted.reason.as_ref().map_or_else(String::new, |reason| format!(": {reason}"));
    format!(
        "{} {answer} {} of {}{reason}",
        voted.by, voted.approval, voted.asker
    )
}

fn decision_in_words(decided: &Decided) -> String {
    let mut words = vec![
        if decided.allowed { "allowed" } else { "DENIED" }.to_owned(),
        decided.caller.clone(),
        decided.verb.clone(),
    ];
    words.extend(decided.job.clone().or_else(|| decided.host.clone()));
    words.extend(decided.path.clone());
    words.extend(decided.target.as_ref().map(|target| format!("to {target}")));
    if let Some(template) = &decided.template {
        let params = decided.params.iter().map(|(name, value)| format!(" {name}={value:?}"));
        words.push(format!("template {template}{}", params.collect::<String>()));
    }
    words.extend(decided.command.as_ref().map(|command| format!("{command:?}")));
    words.extend(decided.secrets.iter().map(|secret| format!("with the secret {secret}")));
    if let Some(why) = &decided.why {
        words.push(format!("({why})"));
    } else if !decided.rules.is_empty() {
        words.push(format!("({})", decided.rules.join(", ")));
    }
    words.join(" ")
}

fn end_in_words(ended: &Ended) -> String {
    let Ended {
        job,
        outcome,
        bytes,
        lines,
        duration_ms,
        ..
    } = ended;
    format!("ended {job}: it {outcome} after {duration_ms} ms, {lines} lines, {bytes} bytes")
}
