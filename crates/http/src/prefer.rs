//! How long a call may wait, by the header `Prefer` (RFC 7240, section 4.3).

use std::time::Duration;

use axum::http::{HeaderMap, HeaderValue};

/// The time that a client wants to wait.
pub(super) fn preferred_wait(headers: &HeaderMap) -> Option<Duration> {
    let preferences = headers.get_all(PREFER).iter().filter_map(|value| value.to_str().ok());
    let mut waits = preferences
        .flat_map(|value| value.split(','))
        .filter_map(|preference| preference.trim().strip_prefix("wait="));
    waits.next()?.trim().parse().ok().map(Duration::from_secs)
}

/// Asks another server to wait this long, in whole seconds.
pub(super) fn prefer_wait(headers: &mut HeaderMap, wait: Duration) {
    let value = HeaderValue::from_str(&format!("wait={}", wait.as_secs()));
    headers.insert(PREFER, value.expect("it is a number"));
}

const PREFER: &str = "prefer";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_wait_of_a_request_counts_and_what_is_no_number_does_not() {
        let wait = |values: &[&'static str]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(PREFER, HeaderValue::from_static(value));
            }
            preferred_wait(&headers).map(|wait| wait.as_secs())
        };
        assert_eq!(wait(&["wait=3"]), Some(3));
        assert_eq!(wait(&["respond-async, wait=0"]), Some(0));
        assert_eq!(wait(&["return=minimal", "wait=7"]), Some(7));
        for strange in [
            "wait=-1",
            "wait=",
            "wait=1.5",
            "waits=1",
            "wait=99999999999999999999",
        ] {
            assert_eq!(wait(&[strange]), None, "{strange}");
        }
    }

    #[test]
    fn a_wait_that_is_passed_on_is_read_again() {
        let mut headers = HeaderMap::new();
        prefer_wait(&mut headers, Duration::from_millis(1500));
        assert_eq!(preferred_wait(&headers), Some(Duration::from_secs(1)));
    }
}
