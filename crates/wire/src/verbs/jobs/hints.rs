//! Likely next steps of a caller, for replies that call for one.

use regex::Regex;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::sync::LazyLock;

use crate::verbs::displayed::displayed;
use crate::{JobState, Standing};
use sshjobs_core::jobs::{LineNo, ReadableJob, SearchQuery, Selection, Stream};

/// The first line of a failed job that looks like an error.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct FirstError {
    /// Its number.
    pub line_no: u64,
    /// The line, with up to two lines before and after it.
    pub lines: Vec<String>,
}

/// Words of lines that look like an error, as a pattern. The page has the same.
pub const ERROR_WORDS: &str = r"\b(error|fatal|failed|panic|panicked|traceback|undefined)\b";

static ERROR: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(&format!("(?i){ERROR_WORDS}")).expect("it is a pattern"));

/// Messages of shells about an unbalanced quote.
const QUOTING: [&str; 5] = [
    "unexpected EOF while looking for matching",
    "Unterminated quoted string",
    "unterminated quoted string",
    "Unmatched '",
    "unmatched \"",
];
/// Silence after which output is probably held in the program's buffer.
const BUFFERED_MS: u64 = 20_000;

/// The first line that looks like an error, of stderr if it has one. `None` unless the job has failed.
pub(in crate::verbs) async fn first_error(job: &ReadableJob) -> Option<FirstError> {
    let standing = Standing::of(&job.status());
    if !standing.has_failed() || job.is_fleet() {
        return None;
    }
    for selection in [
        Selection::Only(Stream::Stderr),
        Selection::Only(Stream::Stdout),
    ] {
        let query = SearchQuery {
            cursor: LineNo::new(0),
            last: None,
            selection,
            context: 2,
            max_matches: 1,
            max_bytes: 2000,
        };
        // A search that takes too long has found nothing.
        let Ok(found) = job.search(query, ERROR.clone()).await else { continue };
        if let Some(found) = found.matches.into_iter().next() {
            let line_no = found.line.line_no.value();
            let lines = [found.before, vec![found.line], found.after].concat();
            return Some(FirstError {
                line_no,
                lines: displayed(job, lines),
            });
        }
    }
    None
}

/// Facts of a job from which a hint is chosen.
#[derive(Clone, Copy, Debug)]
pub(in crate::verbs) struct HintFacts<'a> {
    pub(in crate::verbs) job_id: &'a str,
    pub(in crate::verbs) standing: &'a Standing,
    pub(in crate::verbs) has_terminal: bool,
    pub(in crate::verbs) total_lines: u64,
    pub(in crate::verbs) silent_ms: u64,
    /// The lines of the reply.
    pub(in crate::verbs) lines: &'a [String],
    /// Whether the reply leaves lines out.
    pub(in crate::verbs) omits_lines: bool,
}

/// The likely next step after a reply about a job.
pub(in crate::verbs) fn hint(facts: HintFacts<'_>) -> Option<String> {
    let HintFacts {
        job_id,
        standing,
        lines,
        ..
    } = facts;
    let was_killed =
        standing.exit_status == Some(137) || standing.exit_signal.as_deref() == Some("KILL");
    if was_killed {
        return Some(format!(
            "killed: ssh_jobs(job_id=\"{job_id}\", detail=\"processes\") says why, for example that memory ran out"
        ));
    }
    let is_quoting = |line: &String| QUOTING.iter().any(|words| line.contains(words));
    if standing.state.is_final() && lines.iter().any(is_quoting) {
        return Some(
            "a quoting mistake: pass the words as argv, or the program as script with interpreter; neither needs quotes"
                .to_owned(),
        );
    }
    if facts.omits_lines && standing.has_failed() {
        return Some(format!(
            "ssh_search(job_id=\"{job_id}\", pattern=\"(?i)error|fail\") finds the lines that say why"
        ));
    }
    let may_be_buffered = standing.state == JobState::Running
        && !facts.has_terminal
        && facts.total_lines == 0
        && facts.silent_ms >= BUFFERED_MS;
    may_be_buffered.then(|| {
        "no output yet: it may be buffered; start with pty=true, or with stdbuf -oL, to see lines as they come"
            .to_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use sshjobs_core::jobs::{Exit, Outcome, Phase};

    fn hint_for(phase: Phase, lines: &[&str], silent_ms: u64) -> Option<String> {
        let lines: Vec<String> = lines.iter().map(|line| (*line).to_owned()).collect();
        hint(HintFacts {
            job_id: "web1-7f3k9q2m",
            standing: &Standing::of_phase(&phase),
            has_terminal: false,
            total_lines: lines.len() as u64,
            silent_ms,
            lines: &lines,
            omits_lines: false,
        })
    }

    fn exited(status: u32) -> Phase {
        Phase::Ended(Outcome::Ended(Exit::Status(status)))
    }

    #[test]
    fn a_reply_names_the_likely_next_step() {
        let quoting = "sh: 1: Syntax error: Unterminated quoted string";
        for (phase, lines, silent_ms, said) in [
            (exited(137), vec!["x"], 0, "detail=\"processes\""),
            (exited(2), vec![quoting], 0, "argv"),
            (Phase::Running, vec![], 30_000, "buffered"),
        ] {
            let hint = hint_for(phase, &lines, silent_ms).unwrap_or_default();
            assert!(hint.contains(said), "{said}: {hint}");
        }
        for (phase, lines, silent_ms) in [
            (exited(0), vec![], 0),
            (exited(1), vec!["x"], 0),
            (Phase::Running, vec![quoting], 0),
            (Phase::Running, vec!["x"], 90_000),
        ] {
            assert_eq!(hint_for(phase, &lines, silent_ms), None);
        }
    }
}
