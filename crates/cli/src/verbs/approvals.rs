//! `sshjobs approvals`, `approve` and `deny`; and calls that wait for an approval.

use std::time::{Duration, UNIX_EPOCH};

use serde_json::Value;
use tokio::time::sleep;

use crate::args::{ApprovalsArgs, ApproveArgs, DenyArgs};
use crate::exit::print;
use crate::json::json;
use crate::{ProgramExit, note, report};
use sshjobs_core::jobs::{ApprovalState, visible_text};
use sshjobs_wire::remote::Api;
use sshjobs_wire::{
    ApprovalEntry, ApprovalsRequest, ApproverAnswer, Code, Comparison, Error, VoteRequest,
};

/// Pause before a call that waits for an approval is made again.
const CALL_AGAIN: Duration = Duration::from_secs(1);

/// Lists approvals.
pub async fn approvals(api: &Api, args: ApprovalsArgs) -> ProgramExit {
    if let Api::Here(service) = api
        && service.library().policy_state().await.is_none()
    {
        return failed(&Error::invalid(
            "no policy is named, so it is not known who approves",
            "name the server's policy with --policy FILE, or the server with --server URL",
        ));
    }
    let listed = api.approvals(ApprovalsRequest { all: args.all }).await;
    let entries = match listed {
        Ok(reply) => reply.approvals,
        Err(error) => return failed(&error),
    };
    if args.json {
        let lines: Vec<String> = entries.iter().map(json).collect();
        return print_lines(&lines);
    }
    if entries.is_empty() {
        note(if args.all {
            "no approvals are kept"
        } else {
            "no approval waits; --all shows those that are over, too"
        });
    }
    let lines: Vec<String> = entries.iter().flat_map(approval_in_words).collect();
    print_lines(&lines)
}

/// Agrees to a call.
pub async fn approve(api: &Api, args: ApproveArgs) -> ProgramExit {
    let request = VoteRequest {
        decision: ApproverAnswer::Approve,
        reason: args.reason,
    };
    vote(api, &args.id, request, args.json).await
}

/// Refuses a call.
pub async fn deny(api: &Api, args: DenyArgs) -> ProgramExit {
    let request = VoteRequest {
        decision: ApproverAnswer::Deny,
        reason: args.reason,
    };
    vote(api, &args.id, request, args.json).await
}

async fn vote(api: &Api, id: &str, request: VoteRequest, as_json: bool) -> ProgramExit {
    match api.vote(id, request).await {
        Ok(entry) if as_json => print(&json(&entry)),
        Ok(entry) => print_lines(&approval_in_words(&entry)),
        Err(error) => failed(&error),
    }
}

/// Makes a call, and makes it again while it waits for an approval.
///
/// # Errors
/// Those of the call, except that it waits.
pub(crate) async fn once_approved<T>(
    mut call: impl AsyncFnMut() -> Result<T, Error>,
) -> Result<T, Error> {
    let mut told = None;
    loop {
        match call().await {
            Err(error) if error.code == Code::ApprovalPending => {
                // Another id means that something has changed, and it is asked for again.
                if told != error.approval_id {
                    note(&error.message);
                    note("waiting; an approver decides with `sshjobs approve ID` or `deny ID`");
                }
                told = error.approval_id;
                sleep(CALL_AGAIN).await;
            }
            done => return done,
        }
    }
}

/// An approval for a person: the exact call, with all characters visible.
pub(crate) fn approval_in_words(entry: &ApprovalEntry) -> Vec<String> {
    let time = UNIX_EPOCH + Duration::from_millis(entry.expires_at);
    let until = match entry.state {
        ApprovalState::Pending | ApprovalState::Approved => {
            format!(", until {}", humantime::format_rfc3339_seconds(time))
        }
        ApprovalState::Denied | ApprovalState::Expired | ApprovalState::Used => String::new(),
    };
    let mut lines = vec![
        format!("{}  {}{until}", entry.id, entry.state.as_str()),
        format!(
            "  {:<16} {} (rule {:?})",
            "asked by", entry.asker, entry.rule
        ),
    ];
    lines.extend(entry.reason.iter().map(|reason| format!("  {:<16} {reason}", "reason")));
    // The caller is there already. The hash of the policy is for programs.
    let of_call = entry.call.iter().filter(|(name, _)| *name != "caller" && *name != "policy");
    lines.extend(of_call.map(|(name, value)| format!("  {name:<16} {}", value_in_words(value))));
    lines.extend(entry.compared.iter().flat_map(comparison_in_words));
    lines.push(format!("  {:<16} {}", "sha256", entry.sha256));
    for vote in &entry.votes {
        let decision = match vote.decision {
            ApproverAnswer::Approve => "approved by",
            ApproverAnswer::Deny => "denied by",
        };
        let reason = vote.reason.as_ref().map_or_else(String::new, |reason| format!(": {reason}"));
        lines.push(format!("  {decision:<16} {}{reason}", vote.by));
    }
    if entry.needed > 1 {
        lines.push(format!("  {:<16} {} approvers", "needs", entry.needed));
    }
    lines.extend(entry.job_id.iter().map(|job| format!("  {:<16} {job}", "job")));
    // A backslash of the caller's must not look like the escape of a character.
    lines.iter().map(|line| visible_text(&line.replace('\\', r"\\"))).collect()
}

/// What differs from the last approved call: two lines for each field.
fn comparison_in_words(comparison: &Comparison) -> Vec<String> {
    let earlier = &comparison.id;
    if comparison.changes.is_empty() {
        return vec![format!(
            "  {:<16} the same call as {earlier}, which was approved",
            "compared"
        )];
    }
    let mut lines = vec![format!(
        "  {:<16} with {earlier}, which was approved:",
        "compared"
    )];
    for change in &comparison.changes {
        // Their values are hashes.
        let hashed = match change.field.as_str() {
            "policy" => Some("the policy has changed"),
            "settings" => Some("only values differ that are not shown, such as those of variables"),
            _ => None,
        };
        if let Some(told) = hashed {
            lines.push(format!("    {told}"));
            continue;
        }
        let before = change
            .before
            .iter()
            .map(|value| format!("-   {}: {}", change.field, value_in_words(value)));
        let now = change
            .now
            .iter()
            .map(|value| format!("+   {}: {}", change.field, value_in_words(value)));
        lines.extend(before.chain(now));
    }
    lines
}

fn value_in_words(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(values) => {
            let texts = values
                .iter()
                .map(|value| value.as_str().map_or_else(|| value.to_string(), str::to_owned));
            texts.collect::<Vec<_>>().join(", ")
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => value.to_string(),
    }
}

fn print_lines(lines: &[String]) -> ProgramExit {
    if lines.is_empty() {
        return ProgramExit::SUCCESS;
    }
    print(&lines.join("\n"))
}

fn failed(error: &Error) -> ProgramExit {
    report(error);
    ProgramExit::of_error(error)
}
