//! Calls that wait, as tasks (SEP-2663): the client asks for the result instead of holding a request open.
//!
//! A task's id says all of what is waited for, and the jobs are in the store: so a task survives a restart, and there is nothing to
//! keep, to expire or to guess. Whoever shows the id may see what the caller may see, and no more. Only that a task was cancelled
//! is remembered, while the server lives; the job goes on, as with every call that is cancelled.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use rmcp::model::{
    CallToolResponse, CallToolResult, CreateTaskResult, DetailedTask, ErrorData, GetTaskResult, JsonObject,
    Task, TaskPayload, TaskStatus,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::tool_call::{failure, success};
use crate::lock::lock;
use crate::wire::{Error, Request, RunRequest, Service, WaitReply, WaitRequest};

/// The tools whose calls may become tasks. A spawn never does: the model would lose the job's id.
pub(super) const RUN: &str = "ssh_run";
pub(super) const WAIT: &str = "ssh_wait";

/// What a task's id says.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct TaskId {
    /// Milliseconds since the Unix epoch.
    created: u64,
    /// When the wait is over, if the caller has set a time.
    until: Option<u64>,
    waits: Waits,
}

/// What is waited for.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Waits {
    Run { job_id: String, max_bytes: Option<i64> },
    Jobs(WaitRequest),
}

/// The tasks that were cancelled.
#[derive(Default)]
pub(super) struct Tasks(Mutex<VecDeque<String>>);

/// Time for which a call is waited for before it becomes a task: most commands are quick.
const AT_ONCE_MS: i64 = 1000;
/// Pause that a client should make between two questions.
const POLL_MS: u64 = 1000;
/// Longest id: a call that needs a longer one is answered in the ordinary way.
const LONGEST_ID: usize = 4096;
/// Cancelled tasks that are remembered.
const MOST_CANCELLED: usize = 1000;

impl Tasks {
    /// Makes a call for a client that knows tasks: its result if it is quick, else a task.
    pub(super) async fn call(
        &self,
        service: &Service,
        tool: &str,
        arguments: JsonObject,
    ) -> CallToolResponse {
        let called = match tool {
            RUN => run(service, arguments).await,
            _ => wait(service, arguments).await,
        };
        called.unwrap_or_else(|error| failure(&error).into())
    }

    /// How a task stands, and its result when there is one.
    pub(super) async fn get(&self, service: &Service, id: &str) -> Result<GetTaskResult, ErrorData> {
        let task = TaskId::parse(id)?;
        if lock(&self.0).iter().any(|cancelled| cancelled == id) {
            return Ok(task.told(id, TaskPayload::Cancelled));
        }
        let result = match task.outcome(service).await {
            Ok(Some(result)) => result,
            Ok(None) => return Ok(task.told(id, TaskPayload::Working)),
            Err(error) => failure(&error),
        };
        let Ok(Value::Object(result)) = serde_json::to_value(result) else {
            return Err(ErrorData::internal_error("the result is no object", None));
        };
        Ok(task.told(id, TaskPayload::Completed { result }))
    }

    /// Ends a task. What it waits for goes on.
    pub(super) fn cancel(&self, id: &str) -> Result<(), ErrorData> {
        TaskId::parse(id)?;
        let mut cancelled = lock(&self.0);
        if !cancelled.iter().any(|known| known == id) {
            cancelled.push_back(id.to_owned());
        }
        if cancelled.len() > MOST_CANCELLED {
            cancelled.pop_front();
        }
        Ok(())
    }
}

async fn run(service: &Service, arguments: JsonObject) -> Result<CallToolResponse, Error> {
    let mut request = RunRequest::parse(arguments)?;
    let (wait_ms, max_bytes) = (request.options.wait_ms, request.options.max_bytes);
    request.options.wait_ms = Some(wait_ms.map_or(AT_ONCE_MS, |wait| wait.clamp(0, AT_ONCE_MS)));
    let reply = service.run(request).await?;
    let waits = Waits::Run { job_id: reply.job_id.clone(), max_bytes };
    let task = TaskId::new(waits, wait_ms).filter(|task| reply.still_running && !task.is_over());
    Ok(task.and_then(|task| task.begun()).unwrap_or_else(|| success(&reply).into()))
}

async fn wait(service: &Service, arguments: JsonObject) -> Result<CallToolResponse, Error> {
    let request = WaitRequest::parse(arguments)?;
    let wait_ms = request.wait_ms;
    let at_once = Some(wait_ms.map_or(AT_ONCE_MS, |wait| wait.clamp(0, AT_ONCE_MS)));
    let reply: WaitReply = service.wait(WaitRequest { wait_ms: at_once, ..request.clone() }).await?;
    let task = TaskId::new(Waits::Jobs(request.clone()), wait_ms);
    let task = task.filter(|task| reply.timed_out && !task.is_over());
    match task.and_then(|task| task.begun()) {
        Some(begun) => Ok(begun),
        // Too long for an id: it is waited for here.
        None if reply.timed_out => Ok(success(&service.wait(request).await?).into()),
        None => Ok(success(&reply).into()),
    }
}

impl TaskId {
    fn new(waits: Waits, wait_ms: Option<i64>) -> Option<Self> {
        let created = now();
        let until = wait_ms.map(|wait| created.saturating_add_signed(wait.max(0)));
        let task = Self { created, until, waits };
        (task.text().len() <= LONGEST_ID).then_some(task)
    }

    fn parse(id: &str) -> Result<Self, ErrorData> {
        let unknown = || ErrorData::invalid_params("there is no such task", None);
        let bytes = BASE64_URL_SAFE_NO_PAD.decode(id).map_err(|_| unknown())?;
        serde_json::from_slice(&bytes).map_err(|_| unknown())
    }

    fn text(&self) -> String {
        BASE64_URL_SAFE_NO_PAD.encode(serde_json::to_vec(self).expect("it is plain data"))
    }

    fn is_over(&self) -> bool {
        self.until.is_some_and(|until| until <= now())
    }

    fn begun(&self) -> Option<CallToolResponse> {
        Some(CallToolResponse::Task(CreateTaskResult::new(self.task(&self.text(), TaskStatus::Working))))
    }

    /// The result of the call, once what is waited for has come or the time is over.
    async fn outcome(&self, service: &Service) -> Result<Option<CallToolResult>, Error> {
        Ok(match &self.waits {
            Waits::Run { job_id, max_bytes } => {
                let reply = service.ran(job_id, *max_bytes).await?;
                (!reply.still_running || self.is_over()).then(|| success(&reply))
            }
            Waits::Jobs(request) => {
                let reply = service.wait(WaitRequest { wait_ms: Some(0), ..request.clone() }).await?;
                (!reply.timed_out || self.is_over()).then(|| success(&reply))
            }
        })
    }

    fn told(&self, id: &str, payload: TaskPayload) -> GetTaskResult {
        GetTaskResult::new(DetailedTask::new(self.task(id, payload.status()), payload))
    }

    fn task(&self, id: &str, status: TaskStatus) -> Task {
        let time = |ms| humantime::format_rfc3339_millis(UNIX_EPOCH + Duration::from_millis(ms)).to_string();
        let mut task = Task::new(id, status, time(self.created), time(now())).with_poll_interval_ms(POLL_MS);
        if let Waits::Run { job_id, .. } = &self.waits {
            task = task.with_status_message(format!("job {job_id}"));
        }
        task
    }
}

/// Milliseconds since the Unix epoch.
fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_says_all_and_a_strange_one_nothing() {
        let waits = Waits::Run { job_id: "web1-7f3k9q2m".to_owned(), max_bytes: None };
        let task = TaskId::new(waits, Some(0)).unwrap();
        assert!(task.is_over());
        let read = TaskId::parse(&task.text()).unwrap();
        assert_eq!((read.created, read.until), (task.created, task.until));
        for strange in ["", "x", "e30", "!!", &"A".repeat(10_000)] {
            assert!(TaskId::parse(strange).is_err(), "{strange:?}");
        }
        let job_ids = (0..1000).map(|number| format!("web1-{number:08}")).collect();
        let arguments = serde_json::json!({"job_ids": Vec::<String>::new()});
        let request = WaitRequest::parse(arguments.as_object().cloned().unwrap()).unwrap();
        assert!(TaskId::new(Waits::Jobs(WaitRequest { job_ids, ..request }), None).is_none(), "too long");
    }
}
