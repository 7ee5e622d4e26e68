//! Errors for requests that are refused before they reach a verb.

use axum::http::StatusCode;

use super::status::HttpFailure;
use crate::oidc::TokenRefused;
use sshjobs_core::jobs::{Refusal, Role, SharedValueError};
use sshjobs_wire::tokens::TokenRefusal;
use sshjobs_wire::{Code, Error, Service};

pub(super) fn wrong_host() -> Error {
    let hint = "call it by its own name, or start the server with --allow-host NAME";
    Error::new(
        Code::PolicyDenied,
        "the Host header names another server",
        hint,
    )
}

pub(super) fn wrong_origin() -> Error {
    let hint = "start the server with --allow-origin ORIGIN to let this page in";
    Error::new(
        Code::PolicyDenied,
        "pages of this origin may not call this server",
        hint,
    )
}

pub(super) fn without_token() -> Error {
    let hint = "send the header `Authorization: Bearer TOKEN` (sshjobs: --token-file \
        or SSHJOBS_TOKEN); `sshjobs token new` makes one";
    Error::new(Code::Unauthenticated, "the request has no token", hint)
}

/// The body of a login that can't be read. Nothing of it is repeated, because it holds a token.
pub(super) fn no_login() -> Error {
    Error::invalid("the body is not a login", "send {\"token\": \"…\"} as JSON")
}

/// The cookie of a login that has ended, or of another server.
pub(super) fn login_ended() -> Error {
    let hint = "log in again, from the page";
    Error::new(Code::Unauthenticated, "the login has ended", hint)
}

/// The logins can't be read or stored. Without the reason, which may name files: the caller may be anybody.
pub(super) fn logins_unusable(error: SharedValueError) -> Error {
    tracing::error!(%error, "the logins of the page can't be used");
    let message = "the logins can't be read or stored";
    if let SharedValueError::Damaged(..) = error {
        let hint =
            "the operator has to delete logins.json in the state directory; then log in again";
        return Error::new(Code::Io, message, hint);
    }
    let hint = "the server's log says why; try again, or use a token in the header Authorization";
    Error::new(Code::Io, message, hint).retryable()
}

pub(super) fn refused(why: TokenRefusal) -> Error {
    if let TokenRefusal::Unreadable(error) = why {
        return tokens_unreadable(&error);
    }
    let hint = "ask the operator for a new one; `sshjobs token list` shows which there are";
    Error::new(Code::Unauthenticated, why.to_string(), hint)
}

pub(super) fn refused_jwt(why: &TokenRefused) -> Error {
    let message = why.to_string();
    if *why == TokenRefused::KeysUnavailable {
        let hint = "the server's log says why; try again in a minute, or use another token";
        return Error::new(Code::Unreachable, message, hint).retryable();
    }
    if *why == TokenRefused::NoRole {
        let hint = "ask the operator for a role for these claims, in [[oidc.issuers.roles]]";
        return Error::new(Code::PolicyDenied, message, hint);
    }
    let hint = "get a new token for this server from an issuer that is listed at \
        /.well-known/oauth-protected-resource";
    Error::new(Code::Unauthenticated, message, hint)
}

pub(super) fn too_many_failures() -> Error {
    let hint = "wait a second, and use a token that is valid";
    Error::new(
        Code::RateLimited,
        "too many tokens that are not valid",
        hint,
    )
    .retryable()
}

pub(super) fn too_many_calls() -> Error {
    let hint = "wait for answers before sending more";
    Error::new(Code::RateLimited, "too many calls at a time", hint).retryable()
}

pub(super) fn closing() -> Error {
    Error::new(
        Code::ShuttingDown,
        "the server shuts down",
        "call the server that replaces it, in a moment",
    )
    .retryable()
}

pub(super) fn tokens_unreadable(error: &dyn std::fmt::Display) -> Error {
    tracing::error!(%error, "the tokens can't be read, so every request is refused");
    Error::new(
        Code::Io,
        "the tokens can't be read",
        "the server's log says why",
    )
}

pub(super) fn body_too_large(most: usize) -> HttpFailure {
    let message = format!("the body has more than {most} bytes");
    HttpFailure::with(
        StatusCode::PAYLOAD_TOO_LARGE,
        Error::invalid(message, "send less at a time"),
    )
}

pub(super) fn too_many_bytes_of_caller() -> HttpFailure {
    let message = "the bodies of your calls in progress have too many bytes";
    Error::new(
        Code::RateLimited,
        message,
        "wait for answers before sending more",
    )
    .retryable()
    .into()
}

pub(super) fn too_many_bytes_of_all() -> HttpFailure {
    let message = "the request bodies of all callers exceed the server's limit";
    let error = Error::new(Code::RateLimited, message, "send it again in a moment").retryable();
    HttpFailure::with(StatusCode::SERVICE_UNAVAILABLE, error)
}

pub(super) fn body_broken() -> HttpFailure {
    Error::invalid("the body broke off", "send it again, whole").into()
}

/// The caller's role is too low for a path, whatever the body contains.
pub(super) fn role(service: &Service, needed: Role) -> Refusal {
    let library = service.library();
    let caller = library.caller().clone();
    Refusal::Denied {
        caller,
        role: library.rights().role,
        needed,
    }
}

pub(super) fn body_too_slow() -> HttpFailure {
    let error = Error::new(
        Code::Timeout,
        "the body took too long to arrive",
        "send it again",
    )
    .retryable();
    HttpFailure::with(StatusCode::REQUEST_TIMEOUT, error)
}

pub(super) fn panicked() -> HttpFailure {
    Error::new(
        Code::Io,
        "the call failed inside the server",
        "please report this",
    )
    .into()
}

pub(super) fn not_json() -> HttpFailure {
    let hint = "send the header `Content-Type: application/json`, and a JSON object";
    let error = Error::invalid("the body is not declared as JSON", hint);
    HttpFailure::with(StatusCode::UNSUPPORTED_MEDIA_TYPE, error)
}

/// A path or query that can't be parsed.
pub(super) fn bad_address(message: &str) -> Error {
    Error::invalid(message, "v1/openapi.json describes paths and parameters")
}

pub(super) fn nothing_here() -> HttpFailure {
    Error::new(
        Code::NotFound,
        "there is nothing here",
        "GET v1/openapi.json describes all paths",
    )
    .into()
}

pub(super) fn wrong_method() -> HttpFailure {
    let hint = "verbs are called with POST, streams with GET; v1/openapi.json describes them";
    let error = Error::new(
        Code::NotFound,
        "there is nothing here for this method",
        hint,
    );
    HttpFailure::with(StatusCode::METHOD_NOT_ALLOWED, error)
}
