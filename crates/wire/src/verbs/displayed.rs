//! Lines of a job as readers see them.

use sshjobs_core::jobs::{Job, Line};

/// Lines as text: in a fleet, each after the name of its host.
pub(super) fn displayed(job: &Job, lines: Vec<Line>) -> Vec<String> {
    lines.into_iter().map(|line| job.display(line)).collect()
}
