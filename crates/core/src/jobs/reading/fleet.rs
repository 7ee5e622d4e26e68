//! The handle of a fleet, and its lines with their hosts.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_util::stream::{Stream, StreamExt};

use super::lines::{Lagged, Lines};
use crate::jobs::{Error, FleetCounts, FleetSummary, Job, Line, LineNo, Member};

/// A command that runs on many hosts, as one job. A cheap handle; dropping it ends nothing.
#[derive(Clone)]
pub struct Fleet {
    job: Job,
}

impl Fleet {
    pub(crate) fn new(job: Job) -> Self {
        Self { job }
    }

    /// The fleet's id, which begins with `fleet-`.
    pub fn id(&self) -> &str {
        self.job.id()
    }

    /// The fleet as a job: signals and input go to all running members.
    pub fn job(&self) -> &Job {
        &self.job
    }

    /// The members and their current states, in the requested order, without lines of their output.
    pub fn members(&self) -> Vec<Member> {
        self.job.members()
    }

    /// Member counts by state.
    pub fn counts(&self) -> FleetCounts {
        FleetCounts::of(&self.members())
    }

    /// The lines of all members as they arrive, until the fleet ends. They are numbered together.
    ///
    /// # Errors
    /// [`Error::Refused`] if the policy does not let the caller read them.
    pub async fn lines(&self) -> Result<FleetLines, Error> {
        self.lines_after(LineNo::START).await
    }

    /// The lines after `cursor`, as they arrive, until the fleet ends.
    ///
    /// # Errors
    /// [`Error::Refused`] if the policy does not let the caller read them.
    pub async fn lines_after(&self, cursor: LineNo) -> Result<FleetLines, Error> {
        Ok(FleetLines {
            lines: self.job.lines_after(cursor).await?,
            job: self.job.clone(),
        })
    }

    /// Waits for the end of all members and returns their outcomes, grouped. The groups have lines of
    /// output if the policy lets the caller read them. Cancel safe: the fleet continues.
    pub async fn wait(&self) -> FleetSummary {
        self.job.wait().await;
        let readable = self.job.readable_if_allowed().await;
        let with_lines = readable.and_then(|job| job.fleet_summary());
        with_lines.unwrap_or_else(|| FleetSummary::of(&self.members()))
    }
}

impl fmt::Debug for Fleet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Fleet").field(&self.id()).finish()
    }
}

/// A line of a fleet's member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FleetLine {
    /// The member's host. `None` in a log of an earlier version, whose lines begin with the host.
    pub host: Option<String>,
    /// The line, without the host's name. Its number is the fleet's.
    pub line: Line,
}

/// A fleet's lines as they arrive; see [`Fleet::lines`]. Dropping it ends nothing.
pub struct FleetLines {
    lines: Lines,
    job: Job,
}

impl FleetLines {
    /// The next line. `None` when the fleet has ended and all of its lines were read. Cancel safe.
    pub async fn next(&mut self) -> Option<Result<FleetLine, Lagged>> {
        let next = self.lines.next().await?;
        Some(next.map(|line| FleetLine::of(&self.job, line)))
    }
}

impl Stream for FleetLines {
    type Item = Result<FleetLine, Lagged>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let next = self.lines.poll_next_unpin(context);
        next.map(|item| item.map(|line| line.map(|line| FleetLine::of(&self.job, line))))
    }
}

impl FleetLine {
    fn of(fleet: &Job, line: Line) -> Self {
        Self {
            host: fleet.host_of(&line).map(str::to_owned),
            line,
        }
    }
}
