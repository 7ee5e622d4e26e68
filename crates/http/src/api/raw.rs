//! A stream of a job as raw bytes, with ranges. A body that can't be completed ends with an
//! error and never with a gap.

use axum::Extension;
use axum::body::{Body, Bytes};
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::Response;
use futures_util::stream::{Stream, unfold};
use serde::Deserialize;

use super::range::{BodySpan, not_satisfiable, range_of, span};
use crate::reject;
use crate::status::HttpFailure;
use sshjobs_core::jobs::{ReadQuery, ReadableJob, Render, Selection, Stream as Output, Unit, Verb};
use sshjobs_wire::{Error, Service};

/// The requested bytes.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawParams {
    stream: OneStream,
    #[serde(default)]
    follow: bool,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum OneStream {
    Stdout,
    Stderr,
}

/// `GET /jobs/ID/raw?stream=stdout`: the raw bytes of one stream, up to now or, with `follow=true`,
/// to the end of the job. A Range (RFC 9110, section 14) selects a part.
pub(crate) async fn raw(
    Extension(service): Extension<Service>,
    id: Result<Path<String>, PathRejection>,
    wanted: Result<Query<RawParams>, QueryRejection>,
    headers: HeaderMap,
) -> Result<Response, HttpFailure> {
    let Path(id) = id.map_err(|error| reject::bad_address(&error.body_text()))?;
    let Query(wanted) = wanted.map_err(|error| reject::bad_address(&error.body_text()))?;
    let stream = match wanted.stream {
        OneStream::Stdout => Output::Stdout,
        OneStream::Stderr => Output::Stderr,
    };
    let job = service.library().readable(Verb::Read, &id).await.map_err(Error::from)?;
    let (available_from, total) = extent(&job, stream).await;
    let follows = wanted.follow && !job.is_over();
    let range = range_of(&headers);
    let Some((span, is_part)) = span(range, available_from, total, follows) else {
        return Ok(not_satisfiable(total));
    };
    let body = Body::from_stream(pieces(service, job, stream, span));
    let mut response = Response::new(body);
    *response.status_mut() = if is_part {
        StatusCode::PARTIAL_CONTENT
    } else {
        StatusCode::OK
    };
    let headers = response.headers_mut();
    headers.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/octet-stream"),
    );
    headers.insert(header::ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    // hyper can't know the length of a body that is a stream.
    if let Some(end) = span.end {
        headers.insert(header::CONTENT_LENGTH, (end - span.start).into());
    }
    if is_part && let Some(end) = span.end {
        let range = format!("bytes {}-{}/{total}", span.start, end.saturating_sub(1));
        headers.insert(
            header::CONTENT_RANGE,
            range.parse().map_err(|_| reject::bad_address("Range"))?,
        );
    }
    if !is_part && span.start > 0 {
        headers.insert("sshjobs-dropped-bytes", span.start.into());
    }
    Ok(response)
}

/// Start and current end of the kept bytes of a stream.
async fn extent(job: &ReadableJob, stream: Output) -> (u64, u64) {
    let nothing = ReadQuery {
        unit: Unit::Bytes,
        // Past the end: only the extent is wanted, no bytes.
        offset: i64::MAX,
        length: 0,
        max_bytes: 0,
        selection: Selection::Only(stream),
        render: Render::Raw,
    };
    let (reading, _) = job.read(&nothing).await;
    (reading.available_from, reading.total)
}

/// Why a body ends early.
#[derive(Debug, thiserror::Error)]
enum BrokenOff {
    #[error("the server shuts down")]
    Closing,
    #[error("{0} bytes were evicted before they could be sent")]
    Gone(u64),
}

/// The bytes, in pieces. If a piece is evicted before it is sent, the body ends with an error;
/// everything sent before is exact.
fn pieces(
    service: Service,
    job: ReadableJob,
    stream: Output,
    span: BodySpan,
) -> impl Stream<Item = Result<Bytes, BrokenOff>> {
    unfold(Some(span.start), move |position| {
        let job = job.clone();
        let service = service.clone();
        async move {
            let position = position?;
            if span.end == Some(position) {
                return None;
            }
            let piece = tokio::select! {
                piece = job.stream_piece(stream, position) => piece,
                // An error, because a normal end would look like the end of the job.
                () = service.closed() => return Some((Err(BrokenOff::Closing), None)),
            };
            if piece.dropped_bytes > 0 {
                return Some((Err(BrokenOff::Gone(piece.dropped_bytes)), None));
            }
            let mut bytes = piece.bytes;
            let mut end = piece.end;
            if let Some(last) = span.end.filter(|last| *last < end) {
                bytes.truncate(usize::try_from(last - position).unwrap_or(usize::MAX));
                end = last;
            }
            let next = (!piece.at_end || span.end.is_some_and(|last| end < last)).then_some(end);
            // A piece is empty only if the job ended at this position.
            (!bytes.is_empty()).then_some((Ok(bytes.into()), next))
        }
    })
}
