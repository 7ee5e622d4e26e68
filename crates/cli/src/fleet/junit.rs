use std::path::Path;
use std::time::Duration;

use quick_junit::{NonSuccessKind, Report, TestCase, TestCaseStatus, TestSuite};

use super::HostResult;
use sshjobs_wire::{Error, JobEntry, JobState};

/// Writes a test case for each member.
pub(super) fn write(file: &Path, command: &str, members: &[JobEntry]) -> Result<(), Error> {
    let mut suite = TestSuite::new(command);
    for member in members {
        let took = member.ended_at.map_or(0, |end| end.saturating_sub(member.started_at));
        let mut case = TestCase::new(member.host.as_str(), status(member));
        case.set_classname("sshjobs").set_time(Duration::from_millis(took));
        if !member.last_lines.is_empty() {
            case.set_system_out(member.last_lines.join("\n"));
        }
        suite.add_test_case(case);
    }
    write_suite(file, suite)
}

/// Writes a test case for each host to which files were copied.
pub(crate) fn write_junit(file: &Path, command: &str, results: &[HostResult]) -> Result<(), Error> {
    let mut suite = TestSuite::new(command);
    for result in results {
        let status = match &result.failure {
            None => TestCaseStatus::success(),
            Some(failure) => {
                let mut status = TestCaseStatus::non_success(NonSuccessKind::Failure);
                status.set_message(failure.as_str());
                status
            }
        };
        let mut case = TestCase::new(result.host.as_str(), status);
        case.set_classname("sshjobs").set_time(result.took);
        suite.add_test_case(case);
    }
    write_suite(file, suite)
}

fn write_suite(file: &Path, suite: TestSuite) -> Result<(), Error> {
    let mut report = Report::new("sshjobs");
    report.add_test_suite(suite);
    let text = report.to_string().map_err(|error| {
        Error::invalid(
            format!("no JUnit report can be made: {error}"),
            "omit --junit",
        )
    })?;
    std::fs::write(file, text).map_err(|error| {
        let message = format!("can't write {}: {error}", file.display());
        Error::invalid(message, "name a file that you may write")
    })
}

fn status(member: &JobEntry) -> TestCaseStatus {
    let standing = &member.standing;
    if standing.exit_status == Some(0) && standing.state == JobState::Exited {
        return TestCaseStatus::success();
    }
    if !standing.state.is_final() {
        let mut skipped = TestCaseStatus::skipped();
        let has_started = standing.state == JobState::Running;
        skipped.set_message(match &standing.reason {
            _ if has_started => "still running".to_owned(),
            Some(reason) => format!("not started: {reason}"),
            None => "not started".to_owned(),
        });
        return skipped;
    }
    // `Refused` includes members that could not be started.
    let has_run = standing.state != JobState::Refused;
    let kind = if has_run {
        NonSuccessKind::Failure
    } else {
        NonSuccessKind::Error
    };
    let mut status = TestCaseStatus::non_success(kind);
    status
        .set_message(standing.to_string())
        .set_description(member.last_lines.join("\n"));
    status
}
