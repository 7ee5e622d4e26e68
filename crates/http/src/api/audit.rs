//! `GET /jobs/ID/audit`: the lines of the audit log about a job.

use axum::extract::Path;
use axum::extract::rejection::PathRejection;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};

use crate::reject;
use crate::status::HttpFailure;
use sshjobs_wire::Service;

/// The lines, in words.
pub(crate) async fn audit(
    Extension(service): Extension<Service>,
    id: Result<Path<String>, PathRejection>,
) -> Result<Response, HttpFailure> {
    let Path(id) = id.map_err(|error| reject::bad_address(&error.body_text()))?;
    Ok(Json(service.audit(&id).await?).into_response())
}
