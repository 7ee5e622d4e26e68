//! The final summary of a fleet for a person.

use crate::terminal::{GREEN, RED, YELLOW, paint};
use sshjobs_core::jobs::printable;
use sshjobs_wire::{Group, Members};

/// Formats the end of a fleet: hosts with the same result together, failed ones last, then the
/// number of hosts of each kind.
pub(super) fn summary(groups: &[Group], members: &Members, is_coloured: bool) -> String {
    let mut lines = Vec::new();
    for group in groups {
        let is_ok = group.exit_status == Some(0);
        let colour = if is_ok { GREEN } else { RED };
        let count = if group.count > 1 {
            format!(" ({})", group.count)
        } else {
            String::new()
        };
        let head = paint(
            &format!(
                "{}{count}: {}",
                printable(&group.members),
                printable(&group.end)
            ),
            colour,
            is_coloured,
        );
        match (&group.last_lines[..], is_ok) {
            ([], _) => lines.push(head),
            ([line], true) => lines.push(format!("{head}, 1 line: {}", printable(line))),
            (_, true) => lines.push(format!("{head}, {} lines", group.lines)),
            (last, false) => {
                lines.push(format!("{head}, {}", counted(group.lines)));
                lines.extend(last.iter().map(|line| format!("    {}", printable(line))));
            }
        }
    }
    lines.push(total(members, is_coloured));
    lines.join("\n")
}

fn counted(lines: u64) -> String {
    if lines == 1 {
        "1 line".to_owned()
    } else {
        format!("{lines} lines")
    }
}

fn total(members: &Members, is_coloured: bool) -> String {
    let Members {
        ok,
        failed,
        unreachable,
        running,
        not_started,
    } = *members;
    let all = ok + failed + unreachable + running + not_started;
    let kinds = [
        (ok, "ok", GREEN),
        (failed, "failed", RED),
        (unreachable, "could not be started", RED),
        (running, "still running", YELLOW),
        (not_started, "not started", YELLOW),
    ];
    let told = kinds.iter().filter(|(count, ..)| *count > 0);
    let told: Vec<_> = told
        .map(|(count, kind, colour)| paint(&format!("{count} {kind}"), *colour, is_coloured))
        .collect();
    let hosts = if all == 1 { "host" } else { "hosts" };
    format!("{all} {hosts}: {}", told.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use sshjobs_wire::JobState;

    #[test]
    fn failures_are_visible_in_the_summary() {
        let group = |members: &str, count, end: &str, last: &[&str]| Group {
            members: members.to_owned(),
            count,
            state: JobState::Exited,
            exit_status: end.strip_prefix("exited with status ").and_then(|s| s.parse().ok()),
            end: end.to_owned(),
            lines: last.len() as u64,
            last_lines: last.iter().map(|line| (*line).to_owned()).collect(),
        };
        let groups = [
            group("web[1-47]", 47, "exited with status 0", &["nginx/1.26"]),
            group(
                "web48",
                1,
                "exited with status 2",
                &["reading config", "no such file"],
            ),
            group("db1", 1, "db1 does not answer", &[]),
        ];
        let members = Members {
            ok: 47,
            failed: 1,
            unreachable: 1,
            running: 0,
            not_started: 1,
        };
        assert_eq!(
            summary(&groups, &members, false),
            "web[1-47] (47): exited with status 0, 1 line: nginx/1.26\n\
             web48: exited with status 2, 2 lines\n    reading config\n    no such file\n\
             db1: db1 does not answer\n\
             50 hosts: 47 ok, 1 failed, 1 could not be started, 1 not started"
        );
    }
}
