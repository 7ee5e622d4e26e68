//! Lines of a log for people.

use super::event::{Decided, EndedJob, Event, Voted};
use super::line::StoredLine;

impl StoredLine {
    /// Its event in words. May have control characters if the line is an older or a foreign one.
    pub fn event_in_words(&self) -> String {
        match &self.event {
            Event::Opened {
                process, machine, ..
            } => format!("opened by {process} on {machine}"),
            Event::Policy { file, sha256 } => format!("policy {file} {sha256}"),
            Event::Decision(decided) => decision_in_words(decided),
            Event::Repeated(repeated) => format!(
                "repeated {} {} {}: {} more since {}",
                repeated.caller,
                repeated.verb,
                repeated.job.as_ref().or(repeated.host.as_ref()).map_or("", String::as_str),
                repeated.calls,
                repeated.since
            ),
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
            Event::Pruned { through, files, .. } => {
                format!("the lines up to {through} are deleted, in {files} files")
            }
            Event::Missed { lines } => format!("{lines} lines could not be recorded"),
        }
    }
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

fn end_in_words(ended: &EndedJob) -> String {
    let EndedJob {
        job,
        outcome,
        bytes,
        lines,
        duration_ms,
        ..
    } = ended;
    format!("ended {job}: it {outcome} after {duration_ms} ms, {lines} lines, {bytes} bytes")
}
