use std::sync::Arc;

use axum::body::{Body, Bytes, HttpBody};
use axum::extract::Request;
use axum::response::Response;
use futures_util::future::BoxFuture;

/// A service for the requests below a path. The caller's [`Service`](sshjobs_wire::Service) is among
/// a request's extensions.
#[derive(Clone)]
pub struct Mount {
    /// The path.
    pub(super) path: &'static str,
    /// Whether it needs no caller.
    pub(super) is_for_anybody: bool,
    answer: Arc<dyn Fn(Request) -> BoxFuture<'static, Response> + Send + Sync>,
}

impl Mount {
    /// Passes the requests at `path` to `answer`.
    pub fn new<B, F>(
        path: &'static str,
        answer: impl Fn(Request) -> F + Send + Sync + 'static,
    ) -> Self
    where
        B: HttpBody<Data = Bytes> + Send + 'static,
        B::Error: Into<axum::BoxError>,
        F: Future<Output = axum::http::Response<B>> + Send + 'static,
    {
        Self {
            path,
            is_for_anybody: false,
            answer: Arc::new(move |request| {
                let answered = answer(request);
                Box::pin(async move { answered.await.map(Body::new) })
            }),
        }
    }

    /// Accepts requests with or without a token. Then no caller is among the extensions.
    #[must_use]
    pub fn for_anybody(self) -> Self {
        Self {
            is_for_anybody: true,
            ..self
        }
    }

    pub(super) async fn answer(&self, request: Request) -> Response {
        (self.answer)(request).await
    }
}
