//! `sshjobs jobs --notify`: notifications, and whether they have arrived.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::exit::print;
use crate::json::json;
use crate::terminal::in_columns;
use crate::{ProgramExit, note};
use sshjobs_core::jobs::printable;
use sshjobs_wire::remote::Api;
use sshjobs_wire::{Error, NotificationEntry};

/// Lists notifications, oldest first.
pub(super) async fn notifications(api: &Api, as_json: bool) -> Result<ProgramExit, Error> {
    let entries = api.notifications().await?.notifications;
    if as_json {
        let lines: Vec<String> = entries.iter().map(json).collect();
        return Ok(if lines.is_empty() {
            ProgramExit::SUCCESS
        } else {
            print(&lines.join("\n"))
        });
    }
    if entries.is_empty() {
        note("there are no notifications; `sshjobs help spawn` explains --notify");
        return Ok(ProgramExit::SUCCESS);
    }
    let head = ["JOB", "EVENT", "TARGET", "STATE", "TRIES", "LAST ERROR"].map(str::to_owned);
    let rows: Vec<[String; 6]> = std::iter::once(head).chain(entries.iter().map(row)).collect();
    Ok(print(&in_columns(&rows).join("\n")))
}

fn row(entry: &NotificationEntry) -> [String; 6] {
    [
        printable(&entry.job_id),
        printable(&entry.event),
        printable(&entry.target),
        state(entry),
        entry.attempts.to_string(),
        entry.last_error.as_deref().map(printable).unwrap_or_default(),
    ]
}

/// The state, and for one that is due when it is sent.
fn state(entry: &NotificationEntry) -> String {
    let at = UNIX_EPOCH + Duration::from_millis(entry.at);
    match (entry.state.as_str(), at.duration_since(SystemTime::now())) {
        ("due", Ok(wait)) => format!("due in {} s", wait.as_secs() + 1),
        ("due", Err(_)) => "due now".to_owned(),
        ("claimed", _) => "being sent".to_owned(),
        ("given_up", _) => "given up".to_owned(),
        (state, _) => printable(state),
    }
}
