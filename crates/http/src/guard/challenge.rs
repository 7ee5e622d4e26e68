//! Says how to get a token: the header `WWW-Authenticate` (RFC 6750, RFC 9728) and the metadata of the
//! server as a resource of OAuth.

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use serde_json::{Value, json};

use crate::oidc::scope_of;
use sshjobs_core::jobs::Role;
use sshjobs_wire::ReachedAt;

/// Path of the metadata (RFC 9728, section 3). The path of the resource follows it.
pub(crate) const METADATA: &str = "/.well-known/oauth-protected-resource";
/// Path of the MCP endpoint.
pub(super) const MCP: &str = "/mcp";

/// The reason for which another token would help a refused request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lack {
    /// It has no token.
    Token,
    /// Its token is not valid.
    ValidToken,
    /// Its caller lacks the role.
    Role,
}

impl Lack {
    /// The lack that a response reports. `None` if another token would not help.
    pub(super) fn of(response: &Response, token: Option<&str>, lacks_role: bool) -> Option<Self> {
        match (response.status(), token) {
            (StatusCode::UNAUTHORIZED, Some(_)) => Some(Self::ValidToken),
            (StatusCode::UNAUTHORIZED, None) => Some(Self::Token),
            (StatusCode::FORBIDDEN, _) if lacks_role => Some(Self::Role),
            _ => None,
        }
    }

    fn error(self) -> Option<&'static str> {
        match self {
            Self::Token => None,
            Self::ValidToken => Some("invalid_token"),
            Self::Role => Some("insufficient_scope"),
        }
    }
}

/// Adds the header to a response. The request needs `role`. A role includes all lesser roles, so the
/// challenge names one scope.
pub(super) fn add_challenge(
    response: &mut Response,
    lack: Lack,
    role: Role,
    base: Option<&ReachedAt>,
) {
    let mut challenge = "Bearer ".to_owned();
    if let Some(error) = lack.error() {
        challenge.push_str(&format!("error=\"{error}\", "));
    }
    challenge.push_str(&format!("scope=\"{}\"", scope_of(role)));
    if let Some(ReachedAt(url)) = base {
        let (origin, prefix) = origin_and_path(url);
        challenge.push_str(&format!(
            ", resource_metadata=\"{origin}{METADATA}{prefix}{MCP}\""
        ));
    }
    if let Ok(value) = HeaderValue::from_str(&challenge) {
        response.headers_mut().insert(header::WWW_AUTHENTICATE, value);
    }
}

/// The metadata of the server at `base`, or of its MCP endpoint.
pub(super) fn metadata(issuers: &[&str], base: &str, is_mcp: bool, most: Role) -> Json<Value> {
    let path = if is_mcp { MCP } else { "" };
    let scopes: Vec<String> =
        Role::ALL.into_iter().filter(|role| *role <= most).map(scope_of).collect();
    Json(json!({
        "resource": format!("{base}{path}"),
        "resource_name": "sshjobs",
        "authorization_servers": issuers,
        "bearer_methods_supported": ["header"],
        "scopes_supported": scopes,
    }))
}

/// The path of a base URL.
pub(super) fn path_of(url: &str) -> &str {
    origin_and_path(url).1
}

/// A base URL without its path, and the path.
pub(super) fn origin_and_path(url: &str) -> (&str, &str) {
    let host = url.find("://").map_or(0, |at| at + 3);
    match url.get(host..).and_then(|rest| rest.find('/')) {
        Some(at) => url.split_at(host + at),
        None => (url, ""),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_challenge_names_the_metadata_of_the_endpoint_below_its_prefix() {
        let mut response = Response::new(axum::body::Body::empty());
        let base = ReachedAt("https://jobs.example.com/ssh".to_owned());
        add_challenge(&mut response, Lack::Role, Role::Run, Some(&base));
        assert_eq!(
            response.headers()[header::WWW_AUTHENTICATE],
            "Bearer error=\"insufficient_scope\", scope=\"sshjobs:run\", resource_metadata=\
             \"https://jobs.example.com/.well-known/oauth-protected-resource/ssh/mcp\""
        );
        add_challenge(&mut response, Lack::Token, Role::Read, None);
        assert_eq!(
            response.headers()[header::WWW_AUTHENTICATE],
            "Bearer scope=\"sshjobs:read\""
        );
    }
}
