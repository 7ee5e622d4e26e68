//! The screen of a terminal job, as JSON or as text.

use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query};
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use serde::Deserialize;

use crate::reject;
use crate::status::HttpFailure;
use sshjobs_wire::{ReadRequest, RenderArg, Service, UnitArg};

/// The requested screen.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct ScreenParams {
    since_version: Option<u64>,
    wait_ms: i64,
    /// With spans also the rows in pieces of one style.
    render: RenderArg,
}

/// `GET /jobs/ID/screen`: what the job's terminal shows, as JSON or, if the client accepts only
/// `text/plain`, as its rows. With `since_version` and `wait_ms` it waits for a newer screen.
pub(crate) async fn screen(
    Extension(service): Extension<Service>,
    id: Result<Path<String>, PathRejection>,
    wanted: Result<Query<ScreenParams>, QueryRejection>,
    headers: HeaderMap,
) -> Result<Response, HttpFailure> {
    let Path(id) = id.map_err(|error| reject::bad_address(&error.body_text()))?;
    let Query(wanted) = wanted.map_err(|error| reject::bad_address(&error.body_text()))?;
    let whole = ReadRequest {
        unit: UnitArg::Screen,
        ..ReadRequest::new(&id)
    };
    let reply = service
        .read(ReadRequest {
            since_version: wanted.since_version,
            wait_ms: wanted.wait_ms,
            render: wanted.render,
            ..whole.clone()
        })
        .await?;
    if !wants_text(&headers) {
        return Ok(Json(reply.screen).into_response());
    }
    // The reply to a version has only the rows that changed.
    let screen = service.read(whole).await?.screen;
    let rows = screen.and_then(|screen| screen.rows).unwrap_or_default();
    let text: String = rows.iter().map(|row| format!("{row}\n")).collect();
    Ok(text.into_response())
}

/// Whether a client asks for text and not for JSON. (A browser and curl accept anything.)
fn wants_text(headers: &HeaderMap) -> bool {
    let accepted = headers.get(header::ACCEPT).and_then(|accepted| accepted.to_str().ok());
    accepted.is_some_and(|accepted| {
        accepted.contains("text/plain") && !accepted.contains("application/json")
    })
}
