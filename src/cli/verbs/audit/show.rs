//! `sshjobs audit verify`, `show` and `key`.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::path::Path;
use std::time::SystemTime;

use serde_json::json;

use crate::audit::{
    AuditError, AuditFiles, AuditKey, Decided, Ended, Event, Fault, PublicKey, Report, StoredLine,
    Voted, for_each_line, verify, visible_text,
};
use crate::cli::args::{AuditArgs, AuditKeyArgs, AuditShowArgs, AuditSubcommand, AuditVerifyArgs};
use crate::cli::exit::print;
use crate::cli::json::json as json_line;
use crate::cli::{Exit, note};
use crate::jobs::Jobs;
use crate::wire::Error;

/// Performs `sshjobs audit`.
///
/// # Errors
/// If no log is named, or it can't be read.
pub async fn audit(jobs: &Jobs, args: AuditArgs) -> Result<Exit, Error> {
    match args.verb {
        AuditSubcommand::Verify(args) => check(jobs, args).await,
        AuditSubcommand::Show(args) => show(jobs, args).await,
        AuditSubcommand::Key(args) => key(jobs, args).await,
    }
}

async fn check(jobs: &Jobs, args: AuditVerifyArgs) -> Result<Exit, Error> {
    let configured = files(jobs).await;
    let key = match (args.public_key, &configured) {
        (Some(key), _) => Some(key),
        (None, Ok(files)) => own_key(&files.key)?,
        (None, Err(_)) => None,
    };
    let log = match args.file {
        Some(log) => log,
        None => configured?.log,
    };
    if key.is_none() {
        note("checkpoints are not checked: name the key that signs them with --public-key");
    }
    let read = tokio::task::spawn_blocking(move || verify(&log, key, &args.heads)).await;
    let report = read.expect("a check does not panic").map_err(|error| unreadable(&error))?;
    let printed = if args.json {
        print(&json_line(&report_as_json(&report)))
    } else {
        print(&report_in_words(&report, key).join("\n"))
    };
    Ok(if printed == Exit::SUCCESS && !report.faults.is_empty() {
        Exit::DECLINED
    } else {
        printed
    })
}

/// The public part of the configured key. `None` if there is none on this machine.
fn own_key(file: &Path) -> Result<Option<PublicKey>, Error> {
    match AuditKey::read(file) {
        Ok(key) => Ok(Some(key.public())),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(source) => Err(unreadable_key(file, &source)),
    }
}

fn report_in_words(report: &Report, key: Option<PublicKey>) -> Vec<String> {
    let mut lines = Vec::new();
    match report.head {
        None => lines.push("the log has no lines".to_owned()),
        Some(head) => {
            lines.push(format!("lines {} to {}", report.first, head.seq));
            if report.first > 1 {
                lines.push(format!("the lines before {} are not here", report.first));
            }
            if let (Some(signed), Some(key)) = (report.signed_to, key) {
                lines.push(format!("signed up to line {signed} with the key {key}"));
                if signed < head.seq {
                    lines.push(format!(
                        "lines {} to {} are not signed",
                        signed + 1,
                        head.seq
                    ));
                }
            }
            lines.push(format!("head {head}"));
        }
    }
    let told = |fault: &Fault| match fault.line {
        0 => format!("{}: {}", fault.file.display(), fault.message),
        number => format!("{}:{number}: {}", fault.file.display(), fault.message),
    };
    lines.extend(report.faults.iter().map(told));
    lines.push(match report.faults.len() {
        0 => "nothing is wrong".to_owned(),
        1 => "1 fault".to_owned(),
        count => format!("{count} faults"),
    });
    lines.iter().map(|line| visible_text(line)).collect()
}

fn report_as_json(report: &Report) -> serde_json::Value {
    let faults = report
        .faults
        .iter()
        .map(|fault| json!({"file": fault.file, "line": fault.line, "message": fault.message}));
    json!({
        "first": report.first,
        "head": report.head.map(|head| head.to_string()),
        "signed_to": report.signed_to,
        "signatures_checked": report.has_checked_signatures,
        "faults": faults.collect::<Vec<_>>(),
    })
}

async fn show(jobs: &Jobs, args: AuditShowArgs) -> Result<Exit, Error> {
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

async fn key(jobs: &Jobs, args: AuditKeyArgs) -> Result<Exit, Error> {
    let file = match args.file {
        Some(file) => file,
        None => files(jobs).await?.key,
    };
    let key = AuditKey::read(&file).map_err(|source| unreadable_key(&file, &source))?;
    Ok(print(&key.public().to_string()))
}

/// The files of the log that the policy names.
async fn files(jobs: &Jobs) -> Result<AuditFiles, Error> {
    let hint = "name one as `file` in the table [audit] of the policy file, or give FILE";
    let missing = || Error::invalid("no audit log is named", hint);
    let named = jobs.audit_files().await.ok_or_else(missing)?;
    named.map_err(|error| Error::invalid(error, hint))
}

fn unreadable_key(file: &Path, error: &std::io::Error) -> Error {
    Error::invalid(
        format!(
            "the key of the audit log, {}, can't be used: {error}",
            file.display()
        ),
        "it is made with the first call that is recorded; to check without it, use --public-key",
    )
}

fn unreadable(error: &AuditError) -> Error {
    Error::invalid(error.to_string(), "check the name and its permissions")
}
