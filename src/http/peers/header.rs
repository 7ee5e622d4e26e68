//! The header that says for whom a call is passed on.

use axum::http::{HeaderMap, HeaderName, HeaderValue};
use serde::{Deserialize, Serialize};

use crate::jobs::{Caller, HostPatterns, Rights, Role};

/// Its name. No listener for clients reads it.
const CALLER: HeaderName = HeaderName::from_static("sshjobs-caller");

/// A caller and its rights.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct PassedCaller {
    caller: Caller,
    role: Role,
    hosts: HostPatterns,
}

impl PassedCaller {
    pub(super) fn new(caller: &Caller, rights: &Rights) -> Self {
        Self {
            caller: caller.clone(),
            role: rights.role,
            hosts: rights.hosts.clone(),
        }
    }

    pub(super) fn into_parts(self) -> (Caller, Rights) {
        let Self {
            caller,
            role,
            hosts,
        } = self;
        (caller, Rights { role, hosts })
    }

    /// Writes the header. A client's own header of this name is replaced.
    pub(super) fn write_to(&self, headers: &mut HeaderMap) {
        let json = serde_json::to_vec(self).expect("it is plain data");
        let value = HeaderValue::from_bytes(&json).expect("JSON has no control characters");
        headers.insert(CALLER, value);
    }

    pub(super) fn of(headers: &HeaderMap) -> Option<Self> {
        serde_json::from_slice(headers.get(CALLER)?.as_bytes()).ok()
    }
}
