//! A job's output as server-sent events. A client that reconnects continues after the last id
//! it has seen.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::time::Duration;

use axum::Extension;
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream::{Stream, unfold};
use serde::Deserialize;
use serde_json::json;

use crate::reject;
use crate::status::HttpFailure;
use sshjobs_wire::{Error, Format, RenderArg, Service, StreamArg, TailReply, TailRequest};

/// Parts of the job that a stream of events shows.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct EventParts {
    since: Option<i64>,
    stream: StreamArg,
    render: RenderArg,
}

/// Longest wait for news in one request; another one follows.
const WAIT_MS: u64 = 30_000;
/// Interval of comments that keep proxies from closing the connection.
pub(super) const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// Pause of a client before it connects again.
const RETRY: Duration = Duration::from_secs(1);

/// `GET /jobs/ID/stream`: a job's lines as server-sent events, until the job ends.
///
/// The id of an event is the number of its line, so that a client that reconnects continues after
/// the last line it has seen (Last-Event-ID). A client that has seen the end gets a status that
/// stops it from reconnecting.
pub(crate) async fn stream(
    Extension(service): Extension<Service>,
    id: Result<Path<String>, PathRejection>,
    shown: Result<Query<EventParts>, QueryRejection>,
    headers: HeaderMap,
) -> Result<Response, HttpFailure> {
    let Path(id) = id.map_err(|error| reject::bad_address(&error.body_text()))?;
    let Query(shown) = shown.map_err(|error| reject::bad_address(&error.body_text()))?;
    let resumed = headers.get("last-event-id").map(last_event_id).transpose()?;
    let request = TailRequest {
        since_line_no: resumed.or(shown.since),
        stream: shown.stream,
        render: shown.render,
        format: Format::Records,
        // Without a wait, so that the client gets the head of the response at once.
        ..TailRequest::new(id, 0, 0)
    };
    // An unknown job is an error and not a stream.
    let first = service.tail(request.clone()).await?;
    let has_nothing = first.records.as_ref().is_none_or(Vec::is_empty) && first.dropped_lines == 0;
    // EventSource reconnects after the end of any stream; only a 204 stops it.
    if resumed.is_some() && has_nothing && !first.still_running {
        return Ok(StatusCode::NO_CONTENT.into_response());
    }
    let events = EventStream {
        service,
        request,
        ready: VecDeque::new(),
        is_over: false,
    };
    let keep_alive = KeepAlive::new().interval(KEEP_ALIVE);
    let mut response = Sse::new(events.into_stream(first)).keep_alive(keep_alive).into_response();
    // nginx would buffer events otherwise.
    response
        .headers_mut()
        .insert("x-accel-buffering", HeaderValue::from_static("no"));
    Ok(response)
}

/// The last event that a client has seen. An invalid one is an error: the client would get lines
/// again.
fn last_event_id(id: &HeaderValue) -> Result<i64, Error> {
    id.to_str()
        .ok()
        .and_then(|id| id.trim().parse().ok())
        .filter(|id| *id >= 0)
        .ok_or_else(|| {
            Error::invalid(
                "Last-Event-ID is not a line number",
                "send the id of the last event, or omit it",
            )
        })
}

struct EventStream {
    service: Service,
    request: TailRequest,
    ready: VecDeque<Event>,
    is_over: bool,
}

impl EventStream {
    fn into_stream(mut self, first: TailReply) -> impl Stream<Item = Result<Event, Infallible>> {
        self.ready.push_back(Event::default().retry(RETRY));
        self.take(first);
        unfold(self, |mut events| async {
            let event = events.next().await?;
            Some((Ok(event), events))
        })
    }

    async fn next(&mut self) -> Option<Event> {
        while self.ready.is_empty() && !self.is_over {
            let request = TailRequest {
                wait_ms: i64::try_from(WAIT_MS).unwrap_or(i64::MAX),
                ..self.request.clone()
            };
            tokio::select! {
                biased;
                // The client reconnects, perhaps to another server.
                () = self.service.closed() => return None,
                reply = self.service.tail(request) => match reply {
                    Ok(reply) => self.take(reply),
                    // Without an id, so that the client keeps that of the last line.
                    Err(error) => self.end(Event::default().event("error"), &json!(error)),
                },
            }
        }
        self.ready.pop_front()
    }

    fn take(&mut self, reply: TailReply) {
        let TailReply {
            records,
            last_line_no,
            dropped_lines,
            still_running,
            standing,
            ..
        } = reply;
        let records = records.unwrap_or_default();
        if dropped_lines > 0 {
            let gap = Event::default()
                .event("dropped")
                .json_data(json!({"dropped_lines": dropped_lines}));
            let before = records.first().map_or(last_line_no, |record| record.line_no - 1);
            // The id of the last dropped line, so that a client that reconnects gets no gap twice.
            self.ready.extend(gap.map(|gap| gap.id(before.to_string())));
        }
        for record in records {
            let event = Event::default().id(record.line_no.to_string()).json_data(&record);
            self.ready.extend(event);
        }
        self.request.since_line_no = Some(i64::try_from(last_line_no).unwrap_or(i64::MAX));
        if !still_running {
            let mut end = json!(standing);
            end["last_line_no"] = last_line_no.into();
            // With an id, so that also a client that got no line reconnects with one, and gets 204.
            let event = Event::default().event("end").id(last_line_no.to_string());
            self.end(event, &end);
        }
    }

    fn end(&mut self, event: Event, data: &serde_json::Value) {
        self.ready.extend(event.json_data(data));
        self.is_over = true;
    }
}
