//! HTTP statuses of errors.

use axum::Json;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};

use sshjobs_wire::{Code, Error};

/// An error as the body of a response.
pub(super) struct HttpFailure {
    status: StatusCode,
    error: Error,
}

impl From<Error> for HttpFailure {
    fn from(error: Error) -> Self {
        Self {
            status: status_of(error.code),
            error,
        }
    }
}

impl HttpFailure {
    /// With a status that is more specific than the code's.
    pub(super) fn with(status: StatusCode, error: Error) -> Self {
        Self { status, error }
    }
}

impl IntoResponse for HttpFailure {
    fn into_response(self) -> Response {
        let Self { status, error } = self;
        let mut response = (status, Json(error)).into_response();
        let headers = response.headers_mut();
        // RFC 9110, section 15.5.2: a 401 must name the scheme.
        if status == StatusCode::UNAUTHORIZED {
            headers.insert(
                header::WWW_AUTHENTICATE,
                header::HeaderValue::from_static("Bearer"),
            );
        }
        if matches!(
            status,
            StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE
        ) {
            headers.insert(header::RETRY_AFTER, header::HeaderValue::from_static("1"));
        }
        response
    }
}

/// The HTTP status of a code (RFC 9110, section 15).
pub(super) fn status_of(code: Code) -> StatusCode {
    match code {
        Code::NotReadOnly | Code::InvalidArgument => StatusCode::BAD_REQUEST,
        Code::Unauthenticated => StatusCode::UNAUTHORIZED,
        Code::PolicyDenied
        | Code::ApprovalDenied
        | Code::ApprovalExpired
        | Code::ApprovalUnavailable
        | Code::SecretDenied => StatusCode::FORBIDDEN,
        Code::UnknownJob | Code::UnknownHost | Code::NotFound | Code::NoSuchFile => {
            StatusCode::NOT_FOUND
        }
        // The account on the host has no rights; the caller may have.
        Code::PermissionDenied => StatusCode::FORBIDDEN,
        Code::ChangedMeanwhile => StatusCode::PRECONDITION_FAILED,
        Code::EditNotFound | Code::EditNotUnique | Code::FileExists => StatusCode::CONFLICT,
        Code::DiskFull => StatusCode::INSUFFICIENT_STORAGE,
        Code::NotVerified => StatusCode::BAD_GATEWAY,
        Code::AddressInUse
        | Code::StdinClosed
        | Code::Backpressure
        | Code::NotOwner
        | Code::StillRunning
        | Code::ApprovalPending
        | Code::ApprovalClosed
        | Code::JobEnded => StatusCode::CONFLICT,
        Code::ExpiredJob => StatusCode::GONE,
        Code::RateLimited => StatusCode::TOO_MANY_REQUESTS,
        Code::Io => StatusCode::INTERNAL_SERVER_ERROR,
        Code::Unsupported => StatusCode::NOT_IMPLEMENTED,
        // For HTTP, the SSH host is an upstream server.
        Code::HostKeyUnknown
        | Code::HostKeyChanged
        | Code::HostKeyTypeChanged
        | Code::HostKeyRevoked
        | Code::HostKeyWeak
        | Code::HostCertExpired
        | Code::HostCertUntrusted
        | Code::HostCertInvalid
        | Code::JumpHostKeyChanged
        | Code::Unreachable
        | Code::AuthFailed
        | Code::BecomeFailed
        | Code::ConnectionLost
        | Code::ExecRefused => StatusCode::BAD_GATEWAY,
        Code::ChannelLimit
        | Code::Capacity
        | Code::ShuttingDown
        | Code::SecretUnavailable
        | Code::AuditFailed => StatusCode::SERVICE_UNAVAILABLE,
        Code::Timeout => StatusCode::GATEWAY_TIMEOUT,
    }
}
