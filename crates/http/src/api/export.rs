//! `GET /jobs/ID/export`: the stored output as a file for other programs.

use axum::Extension;
use axum::body::Body;
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query};
use axum::http::{HeaderValue, header};
use axum::response::Response;
use serde::Deserialize;

use crate::reject;
use crate::status::HttpFailure;
use sshjobs_wire::{ExportFormat, Service};

/// The requested format.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct ExportParams {
    format: ExportFormat,
}

/// The file, in pieces. If output can't be read any more, the body ends with an error.
pub(crate) async fn export(
    Extension(service): Extension<Service>,
    id: Result<Path<String>, PathRejection>,
    wanted: Result<Query<ExportParams>, QueryRejection>,
) -> Result<Response, HttpFailure> {
    let Path(id) = id.map_err(|error| reject::bad_address(&error.body_text()))?;
    let Query(wanted) = wanted.map_err(|error| reject::bad_address(&error.body_text()))?;
    let pages = service.export(&id, wanted.format).await?;
    let mut response = Response::new(Body::from_stream(pages));
    response.headers_mut().insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static(wanted.format.media_type()),
    );
    Ok(response)
}
