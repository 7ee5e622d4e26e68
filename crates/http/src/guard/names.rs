//! Allowed values of the headers Host and Origin.

use std::net::IpAddr;

use axum::http::{HeaderMap, Uri, header, uri::Authority};

use super::challenge::origin_and_path;

/// Allowed values of the Host and Origin headers.
///
/// A page in a browser can make any name point at this server (DNS rebinding), and any page can
/// send requests. Both can be recognized by these headers.
#[derive(Clone)]
pub(crate) struct AllowedNames {
    hosts: Vec<String>,
    origins: Vec<String>,
    /// The origin at which browsers reach the server, if a proxy changes the Host header.
    public: Option<String>,
}

impl AllowedNames {
    /// Allows loopback names, `own` (the address listened on) and those of the operator.
    pub(crate) fn new(own: Option<String>, names: &[String], origins: &[String]) -> Self {
        let loopback = ["localhost", "127.0.0.1", "::1"].map(str::to_owned);
        let names = names.iter().map(|name| name.to_ascii_lowercase());
        Self {
            hosts: loopback.into_iter().chain(own).chain(names).collect(),
            origins: origins
                .iter()
                .map(|origin| origin.trim_end_matches('/').to_ascii_lowercase())
                .collect(),
            public: None,
        }
    }

    /// The same for a server that browsers reach at `url`.
    pub(crate) fn reached_at(self, url: Option<&str>) -> Self {
        Self {
            public: url.map(|url| origin_and_path(url).0.to_ascii_lowercase()),
            ..self
        }
    }

    /// The host of a request, if it is allowed.
    pub(crate) fn host(&self, uri: &Uri, headers: &HeaderMap) -> Option<Authority> {
        let authority = authority(uri, headers)?;
        self.hosts.contains(&name_of(&authority)).then_some(authority)
    }

    /// Whether a request is for an IP address. No page in a browser can make an address point
    /// anywhere else.
    pub(crate) fn is_plain_address(&self, uri: &Uri, headers: &HeaderMap) -> bool {
        authority(uri, headers)
            .is_some_and(|authority| name_of(&authority).parse::<IpAddr>().is_ok())
    }

    /// Whether a request comes from a page that may call the server, or from no page at all.
    pub(crate) fn allow_origin(&self, headers: &HeaderMap, host: Option<&Authority>) -> bool {
        match origin_of(headers) {
            PageOrigin::None => true,
            PageOrigin::Invalid => false,
            PageOrigin::Page(origin) => {
                self.is_own(&origin, host) || self.origins.contains(&origin)
            }
        }
    }

    /// Whether a request comes from a page of this server, reached at `host`. `None` if it comes from no
    /// page.
    pub(super) fn is_own_origin(
        &self,
        headers: &HeaderMap,
        host: Option<&Authority>,
    ) -> Option<bool> {
        match origin_of(headers) {
            PageOrigin::None => None,
            PageOrigin::Invalid => Some(false),
            PageOrigin::Page(origin) => Some(self.is_own(&origin, host)),
        }
    }

    /// Whether an origin is that of this server. With the port: a page on another port of a host has
    /// another origin.
    fn is_own(&self, origin: &str, host: Option<&Authority>) -> bool {
        let is_host = host.is_some_and(|host| {
            let host = host.as_str().to_ascii_lowercase();
            origin == format!("http://{host}") || origin == format!("https://{host}")
        });
        is_host || self.public.as_deref() == Some(origin)
    }
}

/// The page that sends a request.
enum PageOrigin {
    /// Programs other than browsers send no Origin.
    None,
    /// Not text, or more than one.
    Invalid,
    /// The origin of a page, in lower case.
    Page(String),
}

fn origin_of(headers: &HeaderMap) -> PageOrigin {
    let mut origins = headers.get_all(header::ORIGIN).iter();
    match (origins.next(), origins.next()) {
        (None, _) => PageOrigin::None,
        (Some(origin), None) => origin.to_str().map_or(PageOrigin::Invalid, |origin| {
            PageOrigin::Page(origin.to_ascii_lowercase())
        }),
        // Two headers are ambiguous.
        (Some(_), Some(_)) => PageOrigin::Invalid,
    }
}

fn authority(uri: &Uri, headers: &HeaderMap) -> Option<Authority> {
    // HTTP/2 has it in the URI.
    if let Some(authority) = uri.authority() {
        return Some(authority.clone());
    }
    // Two headers are ambiguous.
    if headers.get_all(header::HOST).iter().count() > 1 {
        return None;
    }
    headers.get(header::HOST)?.to_str().ok()?.parse().ok()
}

fn name_of(authority: &Authority) -> String {
    // An IPv6 address has brackets here, and none in the lists.
    authority.host().trim_matches(['[', ']']).to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(host: &str, origin: Option<&str>) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(header::HOST, host.parse().unwrap());
        origin.map(|origin| headers.insert(header::ORIGIN, origin.parse().unwrap()));
        headers
    }

    #[test]
    fn a_request_for_another_host_is_not_for_us() {
        let names = AllowedNames::new(
            Some("10.0.0.5".to_owned()),
            &["jobs.example.com".to_owned()],
            &[],
        );
        let uri = Uri::from_static("/v1/jobs");
        for (host, is_ours) in [
            ("localhost:8022", true),
            ("127.0.0.1:8022", true),
            ("[::1]:8022", true),
            ("10.0.0.5", true),
            ("JOBS.example.com", true),
            ("evil.example.com", false),
            ("localhost.evil.example", false),
            ("127.0.0.1@evil.example", false),
            ("", false),
        ] {
            assert_eq!(
                names.host(&uri, &headers(host, None)).is_some(),
                is_ours,
                "{host:?}"
            );
        }
        assert!(
            names.host(&uri, &HeaderMap::new()).is_none(),
            "no Host at all"
        );
        let absolute = Uri::from_static("http://evil.example/v1/jobs");
        assert!(names.host(&absolute, &headers("localhost", None)).is_none());
    }

    #[test]
    fn two_origins_are_refused() {
        let mut headers = headers("x", Some("http://localhost:8022"));
        headers.append(header::ORIGIN, "http://evil.example".parse().unwrap());
        let host: Authority = "localhost:8022".parse().unwrap();

        assert!(!AllowedNames::new(None, &[], &[]).allow_origin(&headers, Some(&host)));
    }

    #[test]
    fn an_address_is_distinguished_from_a_name() {
        let names = AllowedNames::new(None, &[], &[]);
        for (host, is_address) in [
            ("10.0.0.5:9100", true),
            ("[2001:db8::1]", true),
            ("evil.example", false),
        ] {
            let found = names.is_plain_address(&Uri::from_static("/metrics"), &headers(host, None));
            assert_eq!(found, is_address, "{host}");
        }
    }

    #[test]
    fn a_page_of_another_origin_is_refused() {
        let names = AllowedNames::new(None, &[], &["https://app.example.com/".to_owned()]);
        let host: Authority = "localhost:8022".parse().unwrap();
        for (origin, is_allowed) in [
            (None, true),
            (Some("http://localhost:8022"), true),
            (Some("https://app.example.com"), true),
            (Some("http://localhost:9999"), false),
            (Some("http://evil.example"), false),
            (Some("null"), false),
        ] {
            assert_eq!(
                names.allow_origin(&headers("x", origin), Some(&host)),
                is_allowed,
                "{origin:?}"
            );
        }
    }
}
