//! The end of a job's output and its state as server-sent events, for readers who look at the end
//! and not at each line: a page, a dashboard. A job that prints fast does not slow such a reader,
//! because lines between two updates are skipped.

use std::convert::Infallible;
use std::time::Duration;

use axum::Extension;
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query};
use axum::http::HeaderValue;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream::{Stream, unfold};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::events::KEEP_ALIVE;
use crate::reject;
use crate::status::HttpFailure;
use sshjobs_wire::{Format, KeepArg, RenderArg, Service, StreamArg, TailReply, TailRequest};

/// The query of a request for updates.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct UpdatesQuery {
    stream: StreamArg,
    render: RenderArg,
}

/// Maximum lines of one update: more than a screen has.
const LINES: i64 = 200;
/// Least time between two updates.
const PAUSE: Duration = Duration::from_millis(50);
/// Time after which the stream ends, and the client connects again: its token is checked then. A
/// client whose token was revoked sees nothing new after this time.
const LIFETIME: Duration = Duration::from_secs(60);
/// Pause of a client before it connects again.
const RETRY: Duration = Duration::from_millis(200);
/// Milliseconds after which the state is looked at again although no line was finished: a prompt is an
/// unfinished line.
const LOOK_MS: i64 = 1_000;

/// `GET /jobs/ID/updates`: replies of tail with the newest lines, whenever there is news, at most 20
/// a second, until the job ends.
pub(crate) async fn updates(
    Extension(service): Extension<Service>,
    id: Result<Path<String>, PathRejection>,
    query: Result<Query<UpdatesQuery>, QueryRejection>,
) -> Result<Response, HttpFailure> {
    let Path(id) = id.map_err(|error| reject::bad_address(&error.body_text()))?;
    let Query(query) = query.map_err(|error| reject::bad_address(&error.body_text()))?;
    let request = TailRequest {
        stream: query.stream,
        render: query.render,
        format: Format::Records,
        keep: KeepArg::Last,
        max_lines: Some(LINES),
        ..TailRequest::new(id, 0, 0)
    };
    // An unknown job is an error and not a stream.
    let first = service.tail(request.clone()).await?;
    let updates = Updates {
        service,
        request,
        sent: Value::Null,
        ends_at: Instant::now() + LIFETIME,
        is_over: false,
    };
    let keep_alive = KeepAlive::new().interval(KEEP_ALIVE);
    let mut response = Sse::new(updates.into_stream(first)).keep_alive(keep_alive).into_response();
    // nginx would buffer events otherwise.
    response
        .headers_mut()
        .insert("x-accel-buffering", HeaderValue::from_static("no"));
    Ok(response)
}

/// Fields of a reply that change although nothing happens, or that count from the update before.
const OMITTED: [&str; 4] = [
    "silent_ms",
    "disconnected_ms",
    "returned_because",
    "skipped_lines",
];
/// Fields that describe the lines of one update and not the job.
const OF_LINES: [&str; 5] = [
    "records",
    "first_line_no",
    "stderr_lines",
    "continuation_lines",
    "has_more",
];

/// The updates of one reader.
struct Updates {
    service: Service,
    request: TailRequest,
    /// The state in the newest update.
    sent: Value,
    /// End of the stream's [`LIFETIME`].
    ends_at: Instant,
    is_over: bool,
}

impl Updates {
    fn into_stream(self, first: TailReply) -> impl Stream<Item = Result<Event, Infallible>> {
        unfold((self, Some(first)), async |(mut updates, first)| {
            let event = match first {
                Some(first) => updates.event_of(first)?.retry(RETRY),
                None => updates.next().await?,
            };
            Some((Ok(event), (updates, None)))
        })
    }

    /// The next update that differs from the one before. `None` after the end.
    async fn next(&mut self) -> Option<Event> {
        while !self.is_over && Instant::now() < self.ends_at {
            sleep(PAUSE).await;
            let request = TailRequest {
                wait_ms: LOOK_MS,
                ..self.request.clone()
            };
            let reply = tokio::select! {
                biased;
                // The client reconnects, perhaps to another server.
                () = self.service.closed() => return None,
                reply = self.service.tail(request) => reply,
            };
            let event = match reply {
                Ok(reply) => self.event_of(reply),
                Err(error) => {
                    self.is_over = true;
                    Event::default().event("error").json_data(&error).ok()
                }
            };
            if event.is_some() {
                return event;
            }
        }
        None
    }

    /// The update for a reply. `None` if it has no news.
    fn event_of(&mut self, reply: TailReply) -> Option<Event> {
        self.request.since_line_no = i64::try_from(reply.last_line_no).ok();
        self.is_over = !reply.still_running;
        let name = if self.is_over { "end" } else { "update" };
        let has_lines = reply.records.as_ref().is_some_and(|records| !records.is_empty());
        let mut data = json!(reply);
        let fields = data.as_object_mut()?;
        for field in OMITTED {
            fields.remove(field);
        }
        let mut state = data.clone();
        for field in OF_LINES {
            state.as_object_mut()?.remove(field);
        }
        if !has_lines && state == self.sent {
            return None;
        }
        self.sent = state;
        Event::default().event(name).json_data(data).ok()
    }
}
