//! Logs a person in with an issuer: sends the browser there, and makes a token of the issuer's answer.

use std::sync::Arc;

use axum::Json;
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Redirect, Response};
use serde_json::json;

use crate::guard::{LoginCookie, RequestGuard};
use crate::oidc::{LoginAnswer, LoginAttempt, LoginFailed, Oidc};
use crate::reject;

/// Path to which issuers send browsers back, below the server's URL.
const REDIRECT: &str = "/login/oidc";

/// `GET /login/issuers`: names of the issuers with which people can log in.
pub(crate) async fn issuers(State(guard): State<Arc<RequestGuard>>) -> Response {
    let names: Vec<&str> = guard.oidc.iter().flat_map(Oidc::login_names).collect();
    Json(json!({"issuers": names})).into_response()
}

/// `GET /login/oidc/NAME`: sends the browser to an issuer.
pub(crate) async fn begin(
    State(guard): State<Arc<RequestGuard>>,
    name: Result<Path<String>, PathRejection>,
    request: Request,
) -> Response {
    let (parts, _) = request.into_parts();
    let Ok(Path(name)) = name else {
        return reject::nothing_here().into_response();
    };
    match begin_at(&guard, &name, &parts).await {
        Ok(response) => response,
        Err(why) => explain(&why),
    }
}

async fn begin_at(
    guard: &RequestGuard,
    name: &str,
    request: &Parts,
) -> Result<Response, LoginFailed> {
    let oidc = guard.oidc.as_ref().ok_or(LoginFailed::UnknownIssuer)?;
    let redirect_uri = redirect_uri(guard, request)?;
    let (attempt, address) = oidc.begin_login(name, &redirect_uri).await?;
    let cookie = attempt_cookie(guard, request).set_header(&attempt.to_cookie());
    with_cookie(Redirect::to(&address), cookie)
}

/// `GET /login/oidc?code=…&state=…`: the issuer's answer, which a browser brings.
pub(crate) async fn finish(
    State(guard): State<Arc<RequestGuard>>,
    answer: Result<Query<LoginAnswer>, QueryRejection>,
    request: Request,
) -> Response {
    let (parts, _) = request.into_parts();
    let finished = match answer.ok() {
        Some(Query(answer)) => finish_with(&guard, answer, &parts).await,
        None => Err(LoginFailed::OtherAttempt),
    };
    let mut response = match finished {
        Ok(response) => response,
        Err(why) => explain(&why),
    };
    // The attempt is over, also if it has failed.
    if let Some(cookie) = attempt_cookie(&guard, &parts).removal_header() {
        response.headers_mut().append(header::SET_COOKIE, cookie);
    }
    response
}

async fn finish_with(
    guard: &RequestGuard,
    answer: LoginAnswer,
    request: &Parts,
) -> Result<Response, LoginFailed> {
    let oidc = guard.oidc.as_ref().ok_or(LoginFailed::UnknownIssuer)?;
    // Not the check of the page's own requests: the issuer has sent the browser here.
    let cookie = attempt_cookie(guard, request).value_in(&request.headers);
    let attempt = cookie.as_ref().and_then(LoginAttempt::from_cookie);
    let attempt = attempt.ok_or(LoginFailed::OtherAttempt)?;
    let token = oidc.finish_login(attempt, answer, &redirect_uri(guard, request)?).await?;
    // The page itself: two steps up from this path.
    let to_page = (StatusCode::SEE_OTHER, [(header::LOCATION, "../")]);
    let login = guard.logins.begin(&token).await;
    let login = login.map_err(|error| LoginFailed::Issuer(format!("it can't be kept: {error}")))?;
    with_cookie(to_page, guard.login_cookie(request).set_header(&login))
}

fn attempt_cookie(guard: &RequestGuard, request: &Parts) -> LoginCookie {
    guard.login_cookie(request).of_attempt(REDIRECT)
}

fn with_cookie(
    response: impl IntoResponse,
    cookie: Option<HeaderValue>,
) -> Result<Response, LoginFailed> {
    let Some(cookie) = cookie else {
        return Err(LoginFailed::Issuer(
            "its name is too long for a cookie".to_owned(),
        ));
    };
    let mut response = response.into_response();
    response.headers_mut().append(header::SET_COOKIE, cookie);
    Ok(response)
}

/// The URL to which the issuer sends the browser back, as it is registered there.
fn redirect_uri(guard: &RequestGuard, request: &Parts) -> Result<String, LoginFailed> {
    let base = guard.base_url(request).ok_or(LoginFailed::UnknownIssuer)?;
    Ok(format!("{base}{REDIRECT}"))
}

/// The failure as plain text for a person: at this address the browser shows no page of ours.
fn explain(why: &LoginFailed) -> Response {
    let (status, hint) = match why {
        LoginFailed::UnknownIssuer => (StatusCode::NOT_FOUND, "the page lists those that do"),
        LoginFailed::OtherAttempt => (StatusCode::BAD_REQUEST, "log in again, from the page"),
        LoginFailed::Refused(_) => (StatusCode::FORBIDDEN, "log in again, or ask the operator"),
        LoginFailed::Issuer(detail) => {
            tracing::warn!("a login failed: {detail}");
            (StatusCode::BAD_GATEWAY, "the server's log says why")
        }
        LoginFailed::Token(_) => (
            StatusCode::FORBIDDEN,
            "ask the operator: audiences and roles of the issuer must match its tokens",
        ),
    };
    (status, format!("The login failed: {why} ({hint}).\n")).into_response()
}
