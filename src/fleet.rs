//! The handle of a fleet, and its lines with their hosts.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_util::stream::{Stream, StreamExt};
use sshjobs_core::jobs as core_jobs;
use sshjobs_core::jobs::{FleetSummary, Lagged, Line, LineNo, Lines, Outcome};

use crate::error::Error;
use crate::job::Job;

/// A command that runs on many hosts, as one job. A cheap handle; dropping it ends nothing.
#[derive(Clone)]
pub struct Fleet {
    core: core_jobs::Job,
}

/// A host of a [`Fleet`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Member {
    /// Its name.
    pub host: String,
    /// The id of its job, once it was started.
    pub job: Option<String>,
    /// How it ended, or why it did not start.
    pub outcome: Option<Outcome>,
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
    fleet: core_jobs::Job,
}

impl Fleet {
    pub(crate) fn new(core: core_jobs::Job) -> Self {
        Self { core }
    }

    /// The fleet's id, which begins with `fleet-`.
    pub fn id(&self) -> &str {
        self.core.id()
    }

    /// The fleet as a job: signals and input go to all running members.
    pub fn job(&self) -> Job {
        Job::new(self.core.clone())
    }

    /// The members and their current states, in the requested order.
    pub fn members(&self) -> Vec<Member> {
        let members = self.core.members().into_iter();
        members
            .map(|member| Member {
                outcome: member.result().map(|result| result.outcome.clone()),
                job: member.job.map(|id| id.as_str().to_owned()),
                host: member.name,
            })
            .collect()
    }

    /// The lines of all members as they arrive, until the fleet ends. They are numbered together.
    ///
    /// # Errors
    /// [`Refused`](crate::ErrorKind::Refused) by the policy.
    pub async fn lines(&self) -> Result<FleetLines, Error> {
        self.lines_after(LineNo::START).await
    }

    /// The lines after a cursor, as they arrive, until the fleet ends.
    ///
    /// # Errors
    /// As [`lines`](Self::lines).
    pub async fn lines_after(&self, cursor: LineNo) -> Result<FleetLines, Error> {
        Ok(FleetLines {
            lines: self.core.lines_after(cursor).await?,
            fleet: self.core.clone(),
        })
    }

    /// Waits for the end of all members and returns their outcomes, grouped. The groups have lines of
    /// output if the policy lets the caller read them. Cancel safe: the fleet continues.
    pub async fn wait(&self) -> FleetSummary {
        self.core.wait().await;
        let readable = self.core.readable_if_allowed().await;
        let with_lines = readable.and_then(|job| job.fleet_summary());
        with_lines.unwrap_or_else(|| FleetSummary::of(&self.core.members()))
    }
}

impl fmt::Debug for Fleet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Fleet").field(&self.id()).finish()
    }
}

impl fmt::Debug for FleetLines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("FleetLines").field(&self.fleet.id()).finish()
    }
}

impl FleetLines {
    /// The next line. `None` when the fleet has ended and all of its lines were read. Cancel safe.
    pub async fn next(&mut self) -> Option<Result<FleetLine, Lagged>> {
        let next = self.lines.next().await?;
        Some(next.map(|line| FleetLine::of(&self.fleet, line)))
    }
}

impl Stream for FleetLines {
    type Item = Result<FleetLine, Lagged>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let next = self.lines.poll_next_unpin(context);
        next.map(|item| item.map(|line| line.map(|line| FleetLine::of(&self.fleet, line))))
    }
}

impl FleetLine {
    fn of(fleet: &core_jobs::Job, line: Line) -> Self {
        Self {
            host: fleet.host_of(&line).map(str::to_owned),
            line,
        }
    }
}
