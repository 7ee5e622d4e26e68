//! The verb queue: who waits in which order, and changes of that order.

use std::collections::HashMap;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use super::jobs::JobEntry;
use crate::Service;
use crate::error::{Code, Error};
use crate::leave_out::is_false;
use sshjobs_core::jobs::{
    Filter, Freshness, JobId, QueueChange, QueueError, QueuePlace, QueueStatus, Verb,
};

/// Jobs that are looked through for those in queues.
const MOST_LISTED: usize = 100_000;

/// List queues, or change the order of the jobs that wait in them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct QueueRequest {
    /// What to do. Default: list.
    #[serde(default)]
    pub action: QueueAction,
    /// Name of a queue: to list only this one, or to hold or release it as a whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Job to hold, release or move.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job_id: Option<String>,
    /// New place of the job among those that wait: "first", "last", or a number; 1 starts next.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "place_schema")]
    pub place: Option<QueuePlaceArg>,
}

/// What to do with queues.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum QueueAction {
    /// List them.
    #[default]
    List,
    /// A job, or all jobs of a queue, do not start until they are released. The jobs behind a held job pass.
    Hold,
    /// End a hold.
    Release,
    /// Move a job to a place.
    Move,
}

/// An enum without tags would leave out `null`, which stands for an absent place, too.
fn place_schema(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "anyOf": [{"type": ["integer", "null"], "minimum": 1}, {"type": "string", "enum": ["first", "last"]}]
    })
}

/// A place among the jobs that wait in a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum QueuePlaceArg {
    /// A number; 1 starts next.
    Number(u64),
    /// An end of the queue.
    End(QueueEnd),
}

/// An end of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum QueueEnd {
    /// The job starts next.
    First,
    /// All others start before it.
    Last,
}

/// The queues, after the change.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct QueueReply {
    /// The queues that have jobs or are held, by name.
    pub queues: Vec<QueueEntry>,
}

/// A queue.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct QueueEntry {
    /// Its name.
    pub name: String,
    /// Whether none of its jobs starts until it is released.
    #[serde(default, skip_serializing_if = "is_false")]
    pub held: bool,
    /// Number of jobs that it runs at a time.
    pub parallel: usize,
    /// Whether that is the number for each host.
    #[serde(default, skip_serializing_if = "is_false")]
    pub per_host: bool,
    /// Its jobs that the caller sees, in the order in which they start.
    pub jobs: Vec<QueuedJobEntry>,
    /// Number of jobs of other callers.
    pub others: usize,
}

/// A job in a queue.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct QueuedJobEntry {
    /// Its place among the jobs that wait and are not held; 1 starts next.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<usize>,
    /// The job. Its `held` is true only if the job itself is held, not if only its queue is.
    #[serde(flatten)]
    pub job: JobEntry,
}

impl Service {
    /// Lists queues, or changes the order in them.
    pub async fn queue(&self, request: QueueRequest) -> Result<QueueReply, Error> {
        if request.place == Some(QueuePlaceArg::Number(0)) {
            return Err(no_place());
        }
        let is_held = request.action == QueueAction::Hold;
        match (request.action, &request.job_id, &request.name) {
            (QueueAction::List, None, _) => {}
            (QueueAction::Hold | QueueAction::Release, None, Some(name)) => {
                self.library().hold_queue(name, is_held).await?;
            }
            (QueueAction::Hold, Some(job), None) => self.change(job, QueueChange::Hold).await?,
            (QueueAction::Release, Some(job), None) => {
                self.change(job, QueueChange::Release).await?;
            }
            (QueueAction::Move, Some(job), None) => {
                let place = place(request.place)?;
                self.change(job, QueueChange::Move(place)).await?;
            }
            _ => {
                return Err(Error::invalid(
                    "the arguments don't go together",
                    "hold and release take job_id or name, move takes job_id and place, list takes name or nothing",
                ));
            }
        }
        let queues = self.library().queues().await?;
        // By their records: looking a queued job up could launch it here.
        let filter = Filter {
            limit: MOST_LISTED,
            ..Filter::default()
        };
        let (listed, _) = self.library().list(filter, Freshness::Recorded).await?;
        let own = self.library().caller();
        let mut visible: HashMap<JobId, JobEntry> = listed
            .into_iter()
            .map(|summary| (summary.id.clone(), JobEntry::of_summary(summary, own)))
            .collect();
        let is_wanted = |queue: &QueueStatus| {
            let is_named = request.name.as_ref().is_none_or(|name| *name == queue.name);
            let has_job = |id: &String| queue.jobs.iter().any(|job| job.id.as_str() == id);
            is_named && request.job_id.as_ref().is_none_or(has_job)
        };
        let queues = queues.into_iter().filter(is_wanted);
        Ok(QueueReply {
            queues: queues.map(|queue| QueueEntry::of(queue, &mut visible)).collect(),
        })
    }

    async fn change(&self, job_id: &str, change: QueueChange) -> Result<(), Error> {
        let job = self.job(Verb::Signal, job_id).await?;
        Ok(self.library().change_queued(&job, change).await?)
    }
}

impl QueueEntry {
    /// A queue with those of its jobs that the caller sees.
    fn of(queue: QueueStatus, visible: &mut HashMap<JobId, JobEntry>) -> Self {
        let mut jobs = Vec::new();
        let mut others = 0;
        let mut waiting = 0;
        for queued in queue.jobs {
            let waits = !queued.has_turn && !queued.is_held;
            waiting += usize::from(waits);
            // Otherwise a job of another caller, or one whose record was deleted meanwhile.
            match visible.remove(&queued.id) {
                // It leaves the queue when the next job looks.
                Some(job) if job.standing.state.is_final() => {}
                Some(job) => jobs.push(QueuedJobEntry {
                    place: waits.then_some(waiting),
                    job: JobEntry {
                        held: queued.is_held,
                        ..job
                    },
                }),
                None => others += 1,
            }
        }
        Self {
            name: queue.name,
            held: queue.is_held,
            parallel: queue.rule.parallel,
            per_host: queue.rule.per_host,
            jobs,
            others,
        }
    }
}

fn place(asked: Option<QueuePlaceArg>) -> Result<QueuePlace, Error> {
    match asked {
        None => Err(no_place()),
        Some(QueuePlaceArg::End(QueueEnd::Last)) => Ok(QueuePlace::Last),
        Some(QueuePlaceArg::End(QueueEnd::First) | QueuePlaceArg::Number(1)) => {
            Ok(QueuePlace::First)
        }
        Some(QueuePlaceArg::Number(number)) => Ok(QueuePlace::Number(
            usize::try_from(number).unwrap_or(usize::MAX),
        )),
    }
}

fn no_place() -> Error {
    Error::invalid(
        "move needs a place",
        "use \"first\", \"last\", or a number; 1 starts next",
    )
}

/// Explains why a queue was not changed.
pub(crate) fn explain_queue(error: &QueueError) -> Error {
    let message = error.to_string();
    match error {
        QueueError::NotQueued(_) => Error::new(
            Code::InvalidArgument,
            message,
            "only a job that has not started can be held, released or moved; `sshjobs queue` lists them",
        ),
        QueueError::Overtakes(_) => Error::new(
            Code::PolicyDenied,
            message,
            "move it to a place behind those, or ask an admin",
        ),
        QueueError::Unusable(_) => Error::new(
            Code::Io,
            message,
            "check the state directory, or the cluster's NATS; a damaged queues.json stops all queues",
        ),
    }
}
