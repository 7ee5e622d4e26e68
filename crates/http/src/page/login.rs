//! Logs a person in on the page: a token becomes a login, whose cookie scripts can't read.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::body::to_bytes;
use axum::extract::{Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use secrecy::SecretString;
use serde::{Deserialize, Serialize};
use tokio::time::timeout;

use crate::api::calls::is_json;
use crate::guard::RequestGuard;
use crate::reject;
use crate::status::HttpFailure;
use sshjobs_core::jobs::Role;
use sshjobs_wire::{Error, Service};

/// The caller as whom the page acts.
#[derive(Serialize)]
struct LoggedIn {
    caller: String,
    role: Role,
    /// Whether the server has tokens, so that the page can log out.
    by_token: bool,
}

/// The body of a login.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LoginBody {
    token: SecretString,
}

/// Maximum bytes of a login, and time for it to arrive.
const MOST_BYTES: usize = 16 << 10;
const LOGIN_TIME: Duration = Duration::from_secs(10);

/// `GET /login`: the caller who is logged in, or 401.
pub(crate) async fn logged_in_caller(
    State(guard): State<Arc<RequestGuard>>,
    request: Request,
) -> Response {
    let (parts, _) = request.into_parts();
    match guard.identify(&parts).await {
        Ok(service) => guard.logged_in(&service),
        Err(error) => HttpFailure::from(error).into_response(),
    }
}

/// `POST /login` with `{"token": "…"}`: checks the token and answers with a cookie.
pub(crate) async fn log_in(State(guard): State<Arc<RequestGuard>>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    // Pages of other sites can't declare JSON without asking first, and get no answer.
    if !is_json(&parts.headers) {
        return reject::not_json().into_response();
    }
    let read = timeout(LOGIN_TIME, to_bytes(body, MOST_BYTES)).await;
    let Ok(Ok(body)) = read else {
        return HttpFailure::from(reject::no_login()).into_response();
    };
    let Ok(LoginBody { token }) = serde_json::from_slice(&body) else {
        return HttpFailure::from(reject::no_login()).into_response();
    };
    match log_in_with(&guard, token, &parts).await {
        Ok(response) => response,
        Err(error) => HttpFailure::from(error).into_response(),
    }
}

async fn log_in_with(
    guard: &RequestGuard,
    token: SecretString,
    request: &Parts,
) -> Result<Response, Error> {
    // Otherwise a page with `--allow-origin` could log a person in as someone else.
    if !guard.is_own_or_no_page(request) {
        return Err(reject::wrong_origin());
    }
    let service = guard.service_with(token.clone(), request).await?;
    let login = guard.logins.begin(&token).await.map_err(reject::logins_unusable)?;
    let cookie = guard.login_cookie(request).set_header(&login);
    let mut response = guard.logged_in(&service);
    response.headers_mut().extend(cookie.map(|cookie| (header::SET_COOKIE, cookie)));
    Ok(response)
}

/// `DELETE /login`: ends the login. The token stays valid.
pub(crate) async fn log_out(State(guard): State<Arc<RequestGuard>>, request: Request) -> Response {
    let (parts, _) = request.into_parts();
    if !guard.is_own_or_no_page(&parts) {
        return HttpFailure::from(reject::wrong_origin()).into_response();
    }
    let cookie = guard.login_cookie(&parts);
    if let Some(login) = cookie.value_in(&parts.headers)
        && let Err(error) = guard.logins.end(&login).await
    {
        return HttpFailure::from(reject::logins_unusable(error)).into_response();
    }
    let mut response = StatusCode::NO_CONTENT.into_response();
    if let Some(cookie) = cookie.removal_header() {
        response.headers_mut().insert(header::SET_COOKIE, cookie);
    }
    response
}

impl RequestGuard {
    fn logged_in(&self, service: &Service) -> Response {
        let library = service.library();
        let mut response = Json(LoggedIn {
            caller: library.caller().as_str().to_owned(),
            role: library.rights().role,
            by_token: self.tokens.is_some(),
        })
        .into_response();
        response
            .headers_mut()
            .insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        response
    }
}
