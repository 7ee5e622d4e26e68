//! Events of jobs on the wire: those for which wait returns, watch prints and a channel wakes.

use std::collections::BTreeMap;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::tail::optional_regex;
use crate::Standing;
use crate::error::Error;
use crate::leave_out::is_zero;
use sshjobs_core::jobs::{AwaitedEvents, EventCursor, Occasion, Status};

/// A kind of event.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum EventKind {
    /// The job ends.
    End,
    /// It waits for input.
    Prompt,
    /// It prints nothing for quiet_ms.
    Silence,
    /// A line matches until.
    Match,
}

/// An event of a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct JobEvent {
    /// end, prompt, silence or match.
    pub event: EventKind,
    /// The job.
    pub job_id: String,
    /// The position behind the event: pass it in cursors to get later ones only.
    pub cursor: String,
    /// State, exit_status and exit_signal.
    #[serde(flatten)]
    pub standing: Standing,
    /// Number of the line that matched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line_no: Option<u64>,
    /// The line that matched, or the question.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// Milliseconds without output.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub silent_ms: u64,
}

/// Silence that is reported by default: a minute.
const QUIET_MS: i64 = 60_000;
/// Longest silence: a day.
const LONGEST_QUIET_MS: i64 = 24 * 3600 * 1000;

impl EventKind {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::End => "end",
            Self::Prompt => "prompt",
            Self::Silence => "silence",
            Self::Match => "match",
        }
    }
}

impl JobEvent {
    pub(crate) fn new(
        job_id: &str,
        occasion: Occasion,
        cursor: EventCursor,
        status: &Status,
    ) -> Self {
        let mut event = Self {
            event: EventKind::End,
            job_id: job_id.to_owned(),
            cursor: cursor.to_string(),
            standing: Standing::of(status),
            line_no: None,
            text: None,
            silent_ms: 0,
        };
        match occasion {
            // Waits and watches do not look for the others.
            Occasion::Ended | Occasion::GpuIdle { .. } | Occasion::Abandoned { .. } => {}
            Occasion::Prompt { text } => {
                event.event = EventKind::Prompt;
                event.text = Some(text);
            }
            Occasion::Silent { .. } => {
                event.event = EventKind::Silence;
                event.silent_ms = u64::try_from(status.silent.as_millis()).unwrap_or(u64::MAX);
            }
            Occasion::Matched { line_no, text } => {
                event.event = EventKind::Match;
                event.line_no = Some(line_no);
                event.text = Some(text);
            }
        }
        event
    }
}

/// The events that a request names.
pub(super) fn awaited(
    kinds: &[EventKind],
    until: Option<&str>,
    quiet_ms: Option<i64>,
) -> Result<AwaitedEvents, Error> {
    let has = |kind| kinds.contains(&kind);
    if has(EventKind::Match) != until.is_some() {
        return Err(Error::invalid(
            "on=[\"match\"] and until need each other",
            "until is the pattern for lines that match waits for",
        ));
    }
    if quiet_ms.is_some() && !has(EventKind::Silence) {
        return Err(Error::invalid(
            "quiet_ms is for on=[\"silence\"]",
            "add silence to on, or omit quiet_ms",
        ));
    }
    let quiet = quiet_ms.unwrap_or(QUIET_MS);
    if !(1..=LONGEST_QUIET_MS).contains(&quiet) {
        return Err(Error::invalid(
            format!("quiet_ms is out of range: {quiet}"),
            "use 1 to 86400000 milliseconds (a day)",
        ));
    }
    Ok(AwaitedEvents {
        end: has(EventKind::End),
        prompt: has(EventKind::Prompt),
        silence: has(EventKind::Silence).then(|| Duration::from_millis(quiet.unsigned_abs())),
        pattern: optional_regex("until", until)?,
    })
}

/// The position in a job that a request gives, or its start.
pub(super) fn position(
    cursors: &BTreeMap<String, String>,
    job_id: &str,
) -> Result<EventCursor, Error> {
    let Some(text) = cursors.get(job_id) else { return Ok(EventCursor::default()) };
    text.parse().map_err(|why| {
        Error::invalid(
            format!("cursors has {text:?} for {job_id}: {why}"),
            "pass cursors as the previous reply had them",
        )
    })
}
