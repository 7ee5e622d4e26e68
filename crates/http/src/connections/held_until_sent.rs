//! Ties the life of a value, such as a slot or a ticket, to the sending of a response.

use axum::body::{Body, HttpBody};
use axum::response::Response;
use http_body_util::BodyExt;

/// Keeps `held` until the whole body has been sent or the client has disconnected.
///
/// The body must already have a `Content-Length` if it needs one: its size is unknown from here on.
pub(crate) fn hold_until_sent<T: Send + 'static>(held: T, response: Response) -> Response {
    response.map(|body| {
        // Nothing is left to send, and an empty body keeps its known size.
        if body.is_end_stream() {
            return body;
        }
        Body::new(body.map_frame(move |frame| {
            // Moves `held` into the closure, which is dropped with the body.
            let _held = &held;
            frame
        }))
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[tokio::test]
    async fn a_value_is_held_until_the_body_is_sent() {
        let held = Arc::new(());

        let response = hold_until_sent(Arc::clone(&held), Response::new(Body::from("text")));
        assert_eq!(Arc::strong_count(&held), 2);

        response.into_body().collect().await.unwrap();
        assert_eq!(Arc::strong_count(&held), 1);
    }

    #[test]
    fn an_empty_response_holds_nothing() {
        let held = Arc::new(());

        let _response = hold_until_sent(Arc::clone(&held), Response::new(Body::empty()));

        assert_eq!(Arc::strong_count(&held), 1);
    }
}
