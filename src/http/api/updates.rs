//! The end of a job's output and its state as server-sent events, for readers who look at the end
//! and not at each line: a page, a dashboard. A job that prints faster than a reader can look costs
//! it nothing, because lines between two updates are skipped.

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
use tokio::time::sleep;

use super::events::{KEEP_ALIVE, RETRY};
use crate::http::reject;
use crate::http::status::Failure;
use crate::wire::{Format, KeepArg, RenderArg, Service, StreamArg, TailReply, TailRequest};

/// Parts of the job that an update has.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Shown {
    stream: StreamArg,
    render: RenderArg,
}

/// Maximum lines of one update: more than a screen has.
const LINES: i64 = 200;
/// Least time between two updates.
const PAUSE: Duration = Duration::from_millis(50);
/// Milliseconds after which the state is looked at again although no line was finished: a prompt is an
/// unfinished line.
const LOOK_MS: i64 = 1_000;

/// `GET /jobs/ID/updates`: replies of tail with the newest lines, whenever there is news, at most 20
/// a second, until the job ends.
pub(crate) async fn updates(
    Extension(service): Extension<Service>,
    id: Result<Path<String>, PathRejection>,
    shown: Result<Query<Shown>, QueryRejection>,
) -> Result<Response, Failure> {
    let Path(id) = id.map_err(|error| reject::bad_address(&error.body_text()))?;
    let Query(shown) = shown.map_err(|error| reject::bad_address(&error.body_text()))?;
    let request = TailRequest {
        stream: shown.stream,
        render: shown.render,
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

/// The updates of one reader.
struct Updates {
    service: Service,
    request: TailRequest,
    /// The newest update, without the time that passes by itself.
    sent: Value,
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
        while !self.is_over {
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
        let mut data = json!(reply);
        let fields = data.as_object_mut()?;
        // These change although nothing happens.
        fields.remove("silent_ms");
        fields.remove("returned_because");
        // Relative to the update before, and the records' numbers say the same.
        fields.remove("skipped_lines");
        if data == self.sent {
            return None;
        }
        self.sent = data;
        Event::default().event(name).json_data(&self.sent).ok()
    }
}
