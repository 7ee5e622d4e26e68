//! `GET /jobs/ID/fetched/PATH`: a file that a job gave back and that this server keeps.

use axum::Extension;
use axum::body::Body;
use axum::extract::Path;
use axum::extract::rejection::PathRejection;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use tokio_util::io::ReaderStream;

use crate::reject;
use crate::status::HttpFailure;
use sshjobs_wire::{Error, Service};

/// The content of the file.
pub(crate) async fn fetched(
    Extension(service): Extension<Service>,
    address: Result<Path<(String, String)>, PathRejection>,
) -> Result<Response, HttpFailure> {
    let Path((id, path)) = address.map_err(|error| reject::bad_address(&error.body_text()))?;
    let (file, length) = service.library().result_file(&id, &path).await.map_err(Error::from)?;
    let body = Body::from_stream(ReaderStream::new(tokio::fs::File::from_std(file)));
    let kind = HeaderValue::from_static("application/octet-stream");
    let headers = [
        (header::CONTENT_TYPE, kind),
        (header::CONTENT_LENGTH, length.into()),
    ];
    Ok((headers, body).into_response())
}
