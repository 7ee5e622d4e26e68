//! Approvals: `GET /v1/approvals`, and `GET` and `POST /v1/approvals/ID`.

use axum::body::Bytes;
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Extension, Json, Router};
use serde::Deserialize;

use super::calls::answer;
use crate::reject;
use crate::status::HttpFailure;
use sshjobs_wire::{ApprovalsRequest, Error, Service, VoteRequest};

/// The query of a list.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListQuery {
    #[serde(default)]
    all: bool,
}

/// The routes, relative to `/v1`.
pub(crate) fn routes() -> Router {
    Router::new()
        .route("/approvals", get(list))
        .route("/approvals/{id}", get(one).post(vote))
}

async fn list(
    Extension(service): Extension<Service>,
    query: Result<Query<ListQuery>, QueryRejection>,
) -> Result<Response, HttpFailure> {
    let Ok(Query(query)) = query else {
        let hint = "the only parameter is all=true, which adds decided, used and expired approvals";
        return Err(Error::invalid("the query can't be read", hint).into());
    };
    let reply = service.approvals(ApprovalsRequest { all: query.all }).await?;
    Ok(Json(reply).into_response())
}

async fn one(
    Extension(service): Extension<Service>,
    id: Result<Path<String>, PathRejection>,
) -> Result<Response, HttpFailure> {
    let Path(id) = id.map_err(|error| reject::bad_address(&error.body_text()))?;
    Ok(Json(service.approval(&id).await?).into_response())
}

async fn vote(
    Extension(service): Extension<Service>,
    id: Result<Path<String>, PathRejection>,
    body: Bytes,
) -> Result<Response, HttpFailure> {
    let Path(id) = id.map_err(|error| reject::bad_address(&error.body_text()))?;
    Ok(answer(&body, async |request: VoteRequest| {
        service.vote(&id, request).await
    })
    .await)
}
