//! Approvals: `GET /v1/approvals`, and `GET` and `POST /v1/approvals/ID`.

use axum::body::Bytes;
use axum::extract::{Path, Query};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Extension, Json, Router};
use serde::Deserialize;

use super::calls::answer;
use crate::http::status::Failure;
use crate::wire::{ApprovalsRequest, Error, Service, VoteRequest};

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
    query: Result<Query<ListQuery>, axum::extract::rejection::QueryRejection>,
) -> Result<Response, Failure> {
    let Ok(Query(query)) = query else {
        let hint = "the only parameter is all=true, for approvals that are over, too";
        return Err(Error::invalid("the query can't be read", hint).into());
    };
    let reply = service.approvals(ApprovalsRequest { all: query.all }).await?;
    Ok(Json(reply).into_response())
}

async fn one(
    Extension(service): Extension<Service>,
    Path(id): Path<String>,
) -> Result<Response, Failure> {
    Ok(Json(service.approval(&id).await?).into_response())
}

async fn vote(
    Extension(service): Extension<Service>,
    Path(id): Path<String>,
    body: Bytes,
) -> Response {
    answer(&body, async |request: VoteRequest| {
        service.vote(&id, request).await
    })
    .await
}
