//! A stream of a job as raw bytes, with ranges. A body that can't be completed ends with an
//! error and never with a gap.

use axum::Extension;
use axum::body::{Body, Bytes};
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use futures_util::stream::{Stream, unfold};
use serde::Deserialize;

use crate::http::reject;
use crate::http::status::Failure;
use crate::jobs::{Job, ReadQuery, Render, Selection, Stream as Output, Unit};
use crate::wire::{Error, Service};

/// The requested bytes.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Wanted {
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

/// Start and, if known, end of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Span {
    start: u64,
    end: Option<u64>,
}

/// `GET /jobs/ID/raw?stream=stdout`: the raw bytes of one stream, up to now or, with `follow=true`,
/// to the end of the job. A Range (RFC 9110, section 14) selects a part.
pub(crate) async fn raw(
    Extension(service): Extension<Service>,
    id: Result<Path<String>, PathRejection>,
    wanted: Result<Query<Wanted>, QueryRejection>,
    headers: HeaderMap,
) -> Result<Response, Failure> {
    let Path(id) = id.map_err(|error| reject::bad_address(&error.body_text()))?;
    let Query(wanted) = wanted.map_err(|error| reject::bad_address(&error.body_text()))?;
    let stream = match wanted.stream {
        OneStream::Stdout => Output::Stdout,
        OneStream::Stderr => Output::Stderr,
    };
    let job = service.library().job(&id).await.map_err(Error::from)?;
    let (available_from, total) = extent(&job, stream).await;
    let follows = wanted.follow && !job.is_over();
    let range = headers
        .get(header::RANGE)
        .and_then(|range| range.to_str().ok())
        .and_then(parse_range);
    let Some((span, is_part)) = span(range, available_from, total, follows) else {
        let sizes = format!("bytes */{total}");
        return Ok((
            StatusCode::RANGE_NOT_SATISFIABLE,
            [(header::CONTENT_RANGE, sizes)],
        )
            .into_response());
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
async fn extent(job: &Job, stream: Output) -> (u64, u64) {
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

/// First and last position of a range of bytes, or a number of bytes from the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Range {
    From(u64, Option<u64>),
    Last(u64),
}

/// Parses a Range header. One that is invalid or has several parts is ignored.
fn parse_range(text: &str) -> Option<Range> {
    let (first, last) = text.strip_prefix("bytes=")?.split_once('-')?;
    match (first.trim(), last.trim()) {
        ("", last) => Some(Range::Last(last.parse().ok()?)),
        (first, "") => Some(Range::From(first.parse().ok()?, None)),
        (first, last) => {
            let first = first.parse().ok()?;
            let last = last.parse().ok()?;
            (first <= last).then_some(Range::From(first, Some(last)))
        }
    }
}

/// The bytes to send, and whether they are a part. `None` if the range is outside of the kept
/// bytes.
fn span(range: Option<Range>, from: u64, total: u64, follows: bool) -> Option<(Span, bool)> {
    match range {
        // A range has an end, so the job is not followed.
        Some(Range::Last(count)) if count > 0 && total > 0 => {
            let start = total.saturating_sub(count);
            // If some of the suffix is evicted, the rest is not the requested suffix.
            (start >= from).then_some((
                Span {
                    start,
                    end: Some(total),
                },
                true,
            ))
        }
        Some(Range::From(start, last)) if start >= from && start < total => {
            let end = last.map_or(total, |last| last.saturating_add(1).min(total));
            Some((
                Span {
                    start,
                    end: Some(end),
                },
                true,
            ))
        }
        Some(Range::From(..) | Range::Last(_)) => None,
        None => Some((
            Span {
                start: from,
                end: (!follows).then_some(total),
            },
            false,
        )),
    }
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
    job: Job,
    stream: Output,
    span: Span,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_what_rfc_9110_says() {
        assert_eq!(parse_range("bytes=0-99"), Some(Range::From(0, Some(99))));
        assert_eq!(parse_range("bytes=100-"), Some(Range::From(100, None)));
        assert_eq!(parse_range("bytes=-5"), Some(Range::Last(5)));
        for text in [
            "bytes=5-4",
            "bytes=0-1,3-4",
            "lines=0-1",
            "bytes=",
            "bytes=-",
            "bytes=a-b",
        ] {
            assert_eq!(parse_range(text), None, "{text}");
        }
    }

    #[test]
    fn a_range_is_cut_to_the_available_bytes_and_refused_if_none_are_kept() {
        let part = |start, end| {
            Some((
                Span {
                    start,
                    end: Some(end),
                },
                true,
            ))
        };
        assert_eq!(
            span(Some(Range::From(10, Some(500))), 0, 100, false),
            part(10, 100)
        );
        assert_eq!(
            span(Some(Range::From(10, None)), 0, 100, true),
            part(10, 100)
        );
        assert_eq!(span(Some(Range::Last(7)), 0, 100, false), part(93, 100));
        assert_eq!(span(Some(Range::From(100, None)), 0, 100, false), None);
        assert_eq!(span(Some(Range::From(10, None)), 20, 100, false), None);
        assert_eq!(span(Some(Range::Last(90)), 20, 100, false), None);
        assert_eq!(
            span(None, 20, 100, false),
            Some((
                Span {
                    start: 20,
                    end: Some(100)
                },
                false
            ))
        );
        assert_eq!(
            span(None, 0, 100, true),
            Some((
                Span {
                    start: 0,
                    end: None
                },
                false
            ))
        );
    }
}
