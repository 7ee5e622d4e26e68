//! The header that says for whom a call is passed on.

use std::net::IpAddr;

use axum::http::{HeaderMap, HeaderName, HeaderValue};
use serde::{Deserialize, Serialize};

use sshjobs_core::jobs::{Caller, Claims, HostPatterns, Rights, Role};
use sshjobs_wire::{ReachedAt, Service};

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
    /// From where it has called, for the audit log. `None` for a caller on the first replica's machine.
    #[serde(default)]
    address: Option<IpAddr>,
}

impl PassedCaller {
    pub(super) fn new(caller: &Caller, rights: &Rights) -> Self {
        Self {
            caller: caller.clone(),
            role: rights.role,
            hosts: rights.hosts.clone(),
            claims: rights.claims.clone(),
            address: None,
        }
    }

    pub(super) fn called_from(self, address: Option<IpAddr>) -> Self {
        Self { address, ..self }
    }

    /// The caller of a service.
    pub(super) fn of_service(service: &Service) -> Self {
        let library = service.library();
        Self::new(library.caller(), library.rights()).called_from(library.context().address)
    }

    /// The service for the caller.
    pub(super) fn admit(self, service: &Service) -> Service {
        let rights = Rights {
            role: self.role,
            hosts: self.hosts,
            claims: self.claims,
        };
        let service = service.of(self.caller, rights);
        match self.address {
            Some(address) => service.with_context(|context| context.address = Some(address)),
            None => service,
        }
    }

    /// Writes the header. A client's own header of this name is replaced.
    pub(super) fn write_to(&self, headers: &mut HeaderMap) {
        let json = serde_json::to_string(self).expect("it is plain data");
        // The only control character that JSON has in its texts. A header must not have it.
        let json = json.replace('\u{7f}', "\\u007f");
        let value = HeaderValue::from_bytes(json.as_bytes()).expect("it has no control characters");
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_claim_passes_in_a_header() {
        let rights = Rights {
            claims: serde_json::from_str(r#"{"name": ["a\u007fb\u0001\u00e4"]}"#).unwrap(),
            ..Rights::everywhere(Role::Run)
        };
        let mut headers = HeaderMap::new();

        PassedCaller::new(&Caller::new("alice"), &rights).write_to(&mut headers);

        assert_eq!(PassedCaller::of(&headers).unwrap().claims, rights.claims);
    }
}
