//! Ranges of bytes in requests and responses (RFC 9110, section 14).

use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};

/// Start and, if known, end of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BodySpan {
    pub(super) start: u64,
    pub(super) end: Option<u64>,
}

/// First and last position of a range of bytes, or a number of bytes from the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Range {
    From(u64, Option<u64>),
    Last(u64),
}

/// The Range header of a request.
pub(super) fn range_of(headers: &HeaderMap) -> Option<Range> {
    parse_range(headers.get(header::RANGE)?.to_str().ok()?)
}

/// The response to a range that has none of the `total` bytes.
pub(super) fn not_satisfiable(total: u64) -> Response {
    let sizes = format!("bytes */{total}");
    let headers = [(header::CONTENT_RANGE, sizes)];
    (StatusCode::RANGE_NOT_SATISFIABLE, headers).into_response()
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
pub(super) fn span(
    range: Option<Range>,
    from: u64,
    total: u64,
    follows: bool,
) -> Option<(BodySpan, bool)> {
    match range {
        // A range has an end, so the job is not followed.
        Some(Range::Last(count)) if count > 0 && total > 0 => {
            let start = total.saturating_sub(count);
            // If some of the suffix is evicted, the rest is not the requested suffix.
            (start >= from).then_some((
                BodySpan {
                    start,
                    end: Some(total),
                },
                true,
            ))
        }
        Some(Range::From(start, last)) if start >= from && start < total => {
            let end = last.map_or(total, |last| last.saturating_add(1).min(total));
            Some((
                BodySpan {
                    start,
                    end: Some(end),
                },
                true,
            ))
        }
        Some(Range::From(..) | Range::Last(_)) => None,
        None => Some((
            BodySpan {
                start: from,
                end: (!follows).then_some(total),
            },
            false,
        )),
    }
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
                BodySpan {
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
                BodySpan {
                    start: 20,
                    end: Some(100)
                },
                false
            ))
        );
        assert_eq!(
            span(None, 0, 100, true),
            Some((
                BodySpan {
                    start: 0,
                    end: None
                },
                false
            ))
        );
    }
}
