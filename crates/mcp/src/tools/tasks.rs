//! Waiting calls as tasks (SEP-2663): the client polls for the result instead of holding a request
//! open.
//!
//! A task's id contains everything that is waited for, and the jobs are in the store. So a task
//! survives a restart, and the server keeps nothing that could expire or be guessed. A client with
//! the id sees what its caller may see, and no more. Only cancellations are remembered (while the
//! server lives, or in a cluster for a day), and how far each task has looked, which only saves time. The job continues, as with every cancelled call.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Mutex;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use rmcp::model::{
    CallToolResponse, CallToolResult, CreateTaskResult, DetailedTask, ErrorData, GetTaskResult,
    JsonObject, Task, TaskPayload, TaskStatus,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::tool_call::{failure, success};
use crate::ask::unguessable;
use sshjobs_base::lock::lock;
use sshjobs_wire::{
    Because, Code, Error, EventKind, KeepArg, RunRequest, Service, StreamArg, TailReply,
    TailRequest, WaitReply, WaitRequest, WireRequest,
};

/// The tools whose calls may become tasks. A spawn never does: the model would lose the job's id.
pub(crate) const RUN: &str = "ssh_run";
pub(crate) const WAIT: &str = "ssh_wait";
pub(crate) const TAIL: &str = "ssh_tail";

/// Contents of a task's id.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct TaskId {
    /// Milliseconds since the Unix epoch.
    created: u64,
    /// End of the wait, if the caller of ssh_run has set one. The other tools' wait_ms is no limit for a
    /// task: its client wants to be woken.
    until: Option<u64>,
    waits: Waits,
}

/// The condition of the wait.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Waits {
    Run {
        job_id: String,
        max_bytes: Option<i64>,
    },
    /// An approver. The call is made again at each poll, with an idempotency key.
    Approval {
        arguments: JsonObject,
    },
    Jobs(WaitRequest),
    /// A line, or the end.
    Line(TailRequest),
}

/// Tasks as far as the server remembers them.
#[derive(Default)]
pub(crate) struct Tasks {
    /// Ids of cancelled tasks.
    cancelled: Mutex<VecDeque<String>>,
    /// Cursors up to which each task has looked for events, newest task last. Without them a poll looks
    /// from the start.
    looked: Mutex<VecDeque<(String, BTreeMap<String, String>)>>,
}

/// Arguments that may be secrets.
const SECRETS: [&str; 3] = ["env", "script", "stdin"];
/// Time for which a call is waited for before it becomes a task: most commands are quick. A call with a
/// shorter `wait_ms` is answered directly.
const AT_ONCE_MS: i64 = 1000;
/// Recommended pause between two polls of a client.
const POLL_MS: u64 = 1000;
/// Longest id. A call that needs a longer one is answered directly.
const LONGEST_ID: usize = 4096;
/// The end of the year 9999, in milliseconds since the Unix epoch: the last time in RFC 3339.
const LATEST_MS: u64 = 253_402_300_799_999;
/// Lines of a page if the caller names no other number.
const PAGE_LINES: i64 = 500;
/// Maximum tasks that are remembered.
const MOST_REMEMBERED: usize = 1000;

impl Tasks {
    /// Performs a call for a client that supports tasks: returns its result if it is quick,
    /// otherwise a task.
    pub(crate) async fn call(
        &self,
        service: &Service,
        tool: &str,
        arguments: JsonObject,
    ) -> CallToolResponse {
        let called = match tool {
            // Boxed, because without optimization the callers of futures this large overflow the stack.
            RUN => Box::pin(run(service, arguments)).await,
            TAIL => Box::pin(tail(service, arguments)).await,
            // `Server::call_known` passes only these tools.
            _ => Box::pin(wait(service, arguments)).await,
        };
        called.unwrap_or_else(|error| failure(&error).into())
    }

    /// State of a task, and its result once available.
    pub(crate) async fn get(
        &self,
        service: &Service,
        id: &str,
    ) -> Result<GetTaskResult, ErrorData> {
        let task = TaskId::parse(id)?;
        let payload = if self.is_cancelled(service, id).await? {
            TaskPayload::Cancelled
        } else {
            task.payload(service, self, id).await?
        };
        Ok(task.told(id, payload))
    }

    async fn is_cancelled(&self, service: &Service, id: &str) -> Result<bool, ErrorData> {
        if lock(&self.cancelled).iter().any(|cancelled| cancelled == id) {
            return Ok(true);
        }
        service.is_task_cancelled_elsewhere(id).await.map_err(not_asked)
    }

    /// Cancels a task. Its jobs continue.
    pub(crate) async fn cancel(&self, service: &Service, id: &str) -> Result<(), ErrorData> {
        // Bounds the length of the id, and so the memory of the list.
        TaskId::parse(id)?;
        service.cancel_task_everywhere(id).await.map_err(not_asked)?;
        let mut cancelled = lock(&self.cancelled);
        if !cancelled.iter().any(|known| known == id) {
            cancelled.push_back(id.to_owned());
        }
        if cancelled.len() > MOST_REMEMBERED {
            cancelled.pop_front();
        }
        Ok(())
    }

    /// The cursors up to which a task has looked.
    fn looked(&self, id: &str) -> Option<BTreeMap<String, String>> {
        let looked = lock(&self.looked);
        looked.iter().find(|(known, _)| known == id).map(|(_, cursors)| cursors.clone())
    }

    fn note_look(&self, id: &str, cursors: BTreeMap<String, String>) {
        let mut looked = lock(&self.looked);
        looked.retain(|(known, _)| known != id);
        looked.push_back((id.to_owned(), cursors));
        if looked.len() > MOST_REMEMBERED {
            looked.pop_front();
        }
    }

    /// Looks whether the condition of a wait is met, from where the last look for this task has ended.
    async fn look(
        &self,
        service: &Service,
        id: &str,
        request: &WaitRequest,
    ) -> Result<WaitReply, Error> {
        let reply = service
            .wait(WaitRequest {
                wait_ms: Some(0),
                cursors: self.looked(id).unwrap_or_else(|| request.cursors.clone()),
                ..request.clone()
            })
            .await?;
        if reply.timed_out && !reply.cursors.is_empty() {
            self.note_look(id, reply.cursors.clone());
        }
        Ok(reply)
    }
}

async fn run(service: &Service, arguments: JsonObject) -> Result<CallToolResponse, Error> {
    let mut request = RunRequest::parse(arguments.clone())?;
    let wait_ms = request.options.wait_ms;
    let max_bytes = request.options.max_bytes;
    request.options.wait_ms = Some(wait_ms.map_or(AT_ONCE_MS, |wait| wait.clamp(0, AT_ONCE_MS)));
    let service = service.with_context(|context| context.approval_wait = Duration::ZERO);
    let reply = match service.run(request).await {
        Ok(reply) => reply,
        Err(error) if error.code == Code::ApprovalPending => {
            let task = if is_long(wait_ms) {
                until_approved(arguments, wait_ms)
            } else {
                None
            };
            return task.ok_or(error);
        }
        Err(error) => return Err(error),
    };
    let waits = Waits::Run {
        job_id: reply.job_id.clone(),
        max_bytes,
    };
    let task = TaskId::new(waits, wait_ms).filter(|_| reply.still_running && is_long(wait_ms));
    // If there is none, the reply itself says how to follow the job.
    Ok(task.and_then(|task| task.begun()).unwrap_or_else(|| success(&reply).into()))
}

/// A task that waits for an approver. `None` if its id, which clients may log, would contain secrets:
/// variables or stdin. (A command is in the host's process list anyway.)
fn until_approved(mut arguments: JsonObject, wait_ms: Option<i64>) -> Option<CallToolResponse> {
    let mut secrets = SECRETS.into_iter().filter_map(|name| arguments.get(name));
    if secrets.any(|secret| !secret.is_null()) {
        return None;
    }
    // Each poll makes the call again, and it must not run twice.
    let key = arguments.entry("idempotency_key").or_insert(Value::Null);
    if key.is_null() {
        *key = Value::String(format!("task-{}", unguessable()));
    }
    TaskId::new(Waits::Approval { arguments }, wait_ms).and_then(|task| task.begun())
}

async fn wait(service: &Service, arguments: JsonObject) -> Result<CallToolResponse, Error> {
    let request = WaitRequest::parse(arguments)?;
    let wait_ms = request.wait_ms;
    let at_once = Some(wait_ms.map_or(AT_ONCE_MS, |wait| wait.clamp(0, AT_ONCE_MS)));
    let reply: WaitReply = service
        .wait(WaitRequest {
            wait_ms: at_once,
            ..request.clone()
        })
        .await?;
    if !reply.timed_out || !is_long(wait_ms) {
        return Ok(success(&reply).into());
    }
    match TaskId::new(Waits::Jobs(request.clone()), None).and_then(|task| task.begun()) {
        Some(begun) => Ok(begun),
        // Too long for an id, so it is waited for here.
        None => Ok(success(&service.wait(request).await?).into()),
    }
}

/// Follows a job. The wait for a line can become a task; other reads are answered directly.
async fn tail(service: &Service, arguments: JsonObject) -> Result<CallToolResponse, Error> {
    let request = TailRequest::parse(arguments)?;
    // Of whole lines of both streams alone: a task looks for them without the reader's other wishes.
    let waits_for_line = request.until.is_some()
        && !request.job_id.is_empty()
        && request.reader.is_none()
        && request.filter.is_none()
        && request.quiet_ms.is_none()
        && request.stream == StreamArg::Both;
    if !waits_for_line || !is_long(Some(request.wait_ms)) {
        return Ok(success(&service.tail(request).await?).into());
    }
    let reply = service
        .tail(TailRequest {
            wait_ms: AT_ONCE_MS,
            ..request.clone()
        })
        .await?;
    // Lines that fill a page are news, too: what follows them is waited for by the next call.
    if reply.returned_because != Because::Timeout {
        return Ok(success(&reply).into());
    }
    // A row of a screen may match, too, and only a plain call looks at rows.
    let state = service.wait(WaitRequest {
        wait_ms: Some(0),
        ..WaitRequest::new(vec![request.job_id.clone()])
    });
    if state.await?.jobs.iter().any(|job| job.pty) {
        return Ok(success(&service.tail(request).await?).into());
    }
    match TaskId::new(Waits::Line(request.clone()), None).and_then(|task| task.begun()) {
        Some(begun) => Ok(begun),
        None => Ok(success(&service.tail(request).await?).into()),
    }
}

/// Whether a call wants to wait for longer than it may at once.
fn is_long(wait_ms: Option<i64>) -> bool {
    wait_ms.is_none_or(|wait| wait > AT_ONCE_MS)
}

impl TaskId {
    fn new(waits: Waits, wait_ms: Option<i64>) -> Option<Self> {
        let created = now();
        let task = Self {
            created,
            until: wait_ms.map(|wait| created.saturating_add_signed(wait.max(0))),
            waits,
        };
        (task.text().len() <= LONGEST_ID).then_some(task)
    }

    fn parse(id: &str) -> Result<Self, ErrorData> {
        if id.len() > LONGEST_ID {
            return Err(unknown_task());
        }
        let bytes = BASE64_URL_SAFE_NO_PAD.decode(id).map_err(|_| unknown_task())?;
        let task: Self = serde_json::from_slice(&bytes).map_err(|_| unknown_task())?;
        // This server did not create it, and RFC 3339 can't express its time.
        if task.created > LATEST_MS {
            return Err(unknown_task());
        }
        Ok(task)
    }

    fn text(&self) -> String {
        BASE64_URL_SAFE_NO_PAD.encode(serde_json::to_vec(self).expect("it is plain data"))
    }

    fn is_over(&self) -> bool {
        self.until.is_some_and(|until| until <= now())
    }

    fn begun(&self) -> Option<CallToolResponse> {
        Some(CallToolResponse::Task(CreateTaskResult::new(
            self.task(&self.text(), TaskStatus::Working),
        )))
    }

    /// The result of the call, once its condition is met.
    async fn outcome(
        &self,
        service: &Service,
        tasks: &Tasks,
        id: &str,
    ) -> Result<Option<CallToolResult>, Error> {
        Ok(match &self.waits {
            Waits::Run { job_id, max_bytes } => {
                let reply = service.ran(job_id, *max_bytes).await?;
                (!reply.still_running || self.is_over()).then(|| success(&reply))
            }
            Waits::Approval { arguments } => {
                let mut request = RunRequest::parse(arguments.clone())?;
                request.options.wait_ms = Some(0);
                let service =
                    service.with_context(|context| context.approval_wait = Duration::ZERO);
                match service.run(request).await {
                    Ok(reply) => (!reply.still_running || self.is_over()).then(|| success(&reply)),
                    Err(error) if error.code == Code::ApprovalPending && !self.is_over() => None,
                    Err(error) => return Err(error),
                }
            }
            Waits::Jobs(request) => {
                let reply = tasks.look(service, id, request).await?;
                (!reply.timed_out).then(|| success(&reply))
            }
            Waits::Line(request) => {
                let cursor = request.since_line_no.unwrap_or(0).max(0).to_string();
                let wait = WaitRequest {
                    on: vec![EventKind::End, EventKind::Match],
                    until: request.until.clone(),
                    cursors: BTreeMap::from([(request.job_id.clone(), cursor)]),
                    ..WaitRequest::new(vec![request.job_id.clone()])
                };
                let looked = tasks.look(service, id, &wait).await?;
                if looked.timed_out {
                    return Ok(None);
                }
                let line = looked.events.first().and_then(|event| event.line_no);
                Some(success(&up_to(service, request.clone(), line).await?))
            }
        })
    }

    /// The result of the call, or that it is not there yet.
    async fn payload(
        &self,
        service: &Service,
        tasks: &Tasks,
        id: &str,
    ) -> Result<TaskPayload, ErrorData> {
        let result = match Box::pin(self.outcome(service, tasks, id)).await {
            Ok(Some(result)) => result,
            Ok(None) => return Ok(TaskPayload::Working),
            // An error of the tool is a result, so the task is complete.
            Err(error) => failure(&error),
        };
        let Ok(Value::Object(result)) = serde_json::to_value(result) else {
            return Err(ErrorData::internal_error(
                "the result is not an object",
                None,
            ));
        };
        Ok(TaskPayload::Completed { result })
    }

    fn told(&self, id: &str, payload: TaskPayload) -> GetTaskResult {
        GetTaskResult::new(DetailedTask::new(self.task(id, payload.status()), payload))
    }

    fn task(&self, id: &str, status: TaskStatus) -> Task {
        let task = Task::new(id, status, rfc3339(self.created), rfc3339(now()))
            .with_poll_interval_ms(POLL_MS);
        match &self.waits {
            Waits::Run { job_id, .. } => task.with_status_message(format!("job {job_id}")),
            Waits::Approval { .. } => {
                task.with_status_message("waits for an approver, or for its job")
            }
            Waits::Line(request) => task.with_status_message(format!("job {}", request.job_id)),
            Waits::Jobs(_) => task,
        }
    }
}

/// The lines up to this one, or to the end. Of more than fit, the last ones: the task has waited for them.
async fn up_to(
    service: &Service,
    request: TailRequest,
    line: Option<u64>,
) -> Result<TailReply, Error> {
    let mut request = TailRequest {
        wait_ms: 0,
        ..request
    };
    if let Some(line) = line {
        let most = request.max_lines.unwrap_or(PAGE_LINES).max(1);
        let first = i64::try_from(line).unwrap_or(i64::MAX).saturating_sub(most);
        request.since_line_no = request.since_line_no.max(Some(first.max(0)));
    } else {
        request.keep = KeepArg::Last;
    }
    service.tail(request).await
}

/// Milliseconds since the Unix epoch.
fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// A time in milliseconds since the Unix epoch in the form of RFC 3339.
fn rfc3339(ms: u64) -> String {
    humantime::format_rfc3339_millis(UNIX_EPOCH + Duration::from_millis(ms)).to_string()
}

/// The error of a call that the other replicas could not be asked about.
fn not_asked(error: Error) -> ErrorData {
    ErrorData::internal_error(error.to_string(), None)
}

fn unknown_task() -> ErrorData {
    ErrorData::invalid_params("no such task", None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_says_all_and_a_strange_one_nothing() {
        let waits = Waits::Run {
            job_id: "web1-7f3k9q2m".to_owned(),
            max_bytes: None,
        };
        let task = TaskId::new(waits, Some(0)).unwrap();
        assert!(task.is_over());
        let read = TaskId::parse(&task.text()).unwrap();
        assert_eq!((read.created, read.until), (task.created, task.until));
        for strange in ["", "x", "e30", "!!", &"A".repeat(10_000)] {
            assert!(TaskId::parse(strange).is_err(), "{strange:?}");
        }
        let latest = TaskId {
            created: LATEST_MS,
            ..task.clone()
        };
        assert!(latest.begun().is_some() && TaskId::parse(&latest.text()).is_ok());
        let too_late = TaskId {
            created: LATEST_MS + 1,
            ..task
        };
        assert!(TaskId::parse(&too_late.text()).is_err());
        let job_ids = (0..1000).map(|number| format!("web1-{number:08}")).collect();
        let arguments = serde_json::json!({"job_ids": Vec::<String>::new()});
        let request = WaitRequest::parse(arguments.as_object().cloned().unwrap()).unwrap();
        assert!(
            TaskId::new(Waits::Jobs(WaitRequest { job_ids, ..request }), None).is_none(),
            "too long"
        );
    }
}
