//! `GET /v1/notifications`: the notifications of the caller's jobs.

use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};

use crate::status::HttpFailure;
use sshjobs_wire::Service;

/// Lists the notifications of the caller's jobs.
pub(crate) async fn notifications(
    Extension(service): Extension<Service>,
) -> Result<Response, HttpFailure> {
    Ok(Json(service.notifications().await?).into_response())
}
