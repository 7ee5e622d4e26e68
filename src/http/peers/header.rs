//! The header that says for whom a call is passed on.

use axum::http::{HeaderMap, HeaderName, HeaderValue};
use serde::{Deserialize, Serialize};

use crate::jobs::{Caller, Claims, HostPatterns, Rights, Role};
use crate::wire::ReachedAt;

/// Name of the header with the caller. No listener for clients reads it.
const CALLER: HeaderName = HeaderName::from_static("sshjobs-caller");

/// Name of the header with the URL at which the client has reached the first replica.
const REACHED_AT: HeaderName = HeaderName::from_static("sshjobs-reached-at");

/// A caller and its rights.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct PassedCaller {
    caller: Caller,
    role: Role,
    hosts: HostPatterns,
    #[serde(default)]
    claims: Claims,
}

impl PassedCaller {
    pub(super) fn new(caller: &Caller, rights: &Rights) -> Self {
        Self {
            caller: caller.clone(),
            role: rights.role,
            hosts: rights.hosts.clone(),
            claims: rights.claims.clone(),
        }
    }

    pub(super) fn into_parts(self) -> (Caller, Rights) {
        let Self {
            caller,
            role,
            hosts,
            claims,
        } = self;
        let rights = Rights {
            role,
            hosts,
            claims,
        };
        (caller, rights)
    }

    /// Writes the header. A client's own header of this name is replaced.
    pub(super) fn write_to(&self, headers: &mut HeaderMap) {
        let json = serde_json::to_vec(self).expect("it is plain data");
        let value = HeaderValue::from_bytes(&json).expect("JSON has no control characters");
        headers.insert(CALLER, value);
    }

    /// Says at which URL the client has reached the first replica, if that is known: answers link to it.
    pub(super) fn write_reached_at(headers: &mut HeaderMap, reached_at: Option<&ReachedAt>) {
        headers.remove(REACHED_AT);
        if let Some(url) = reached_at.and_then(|at| HeaderValue::from_str(&at.0).ok()) {
            headers.insert(REACHED_AT, url);
        }
    }

    /// The URL at which the client has reached the first replica.
    pub(super) fn reached_at(headers: &HeaderMap) -> Option<ReachedAt> {
        Some(ReachedAt(
            headers.get(REACHED_AT)?.to_str().ok()?.to_owned(),
        ))
    }

    pub(super) fn of(headers: &HeaderMap) -> Option<Self> {
        serde_json::from_slice(headers.get(CALLER)?.as_bytes()).ok()
    }
}
