use axum::http::{HeaderMap, Uri, header, uri::Authority};

/// What the Host and Origin headers may say.
///
/// A page in a browser can have any name point at this server (DNS rebinding), and any page can send requests: both show who
/// they are in these headers.
pub(super) struct Names {
    hosts: Vec<String>,
    origins: Vec<String>,
}

impl Names {
    /// Loopback names, `own` (the address listened on) and those of the operator.
    pub(super) fn new(own: Option<String>, names: &[String], origins: &[String]) -> Self {
        let loopback = ["localhost", "127.0.0.1", "::1"].map(str::to_owned);
        let names = names.iter().map(|name| name.to_ascii_lowercase());
        Self {
            hosts: loopback.into_iter().chain(own).chain(names).collect(),
            origins: origins.iter().map(|origin| origin.trim_end_matches('/').to_ascii_lowercase()).collect(),
        }
    }

    /// The host that a request is for, when it may be.
    pub(super) fn host(&self, uri: &Uri, headers: &HeaderMap) -> Option<Authority> {
        // HTTP/2 has it in the URI.
        let authority = match uri.authority() {
            Some(authority) => authority.clone(),
            // Two of them: it is not said which one counts.
            None if headers.get_all(header::HOST).iter().count() > 1 => return None,
            None => headers.get(header::HOST)?.to_str().ok()?.parse().ok()?,
        };
        let name = authority.host().trim_matches(['[', ']']).to_ascii_lowercase();
        self.hosts.contains(&name).then_some(authority)
    }

    /// Whether a request comes from no web page, from one of this server's own, or from one that the operator has named.
    pub(super) fn allow_origin(&self, headers: &HeaderMap, host: Option<&Authority>) -> bool {
        let Some(origin) = headers.get(header::ORIGIN) else { return true };
        let Ok(origin) = origin.to_str().map(str::to_ascii_lowercase) else { return false };
        let is_own = host.is_some_and(|host| {
            let host = host.as_str().to_ascii_lowercase();
            origin == format!("http://{host}") || origin == format!("https://{host}")
        });
        is_own || self.origins.contains(&origin)
    }
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
        let names = Names::new(Some("10.0.0.5".to_owned()), &["jobs.example.com".to_owned()], &[]);
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
            assert_eq!(names.host(&uri, &headers(host, None)).is_some(), is_ours, "{host:?}");
        }
        assert!(names.host(&uri, &HeaderMap::new()).is_none(), "no Host at all");
        let absolute = Uri::from_static("http://evil.example/v1/jobs");
        assert!(names.host(&absolute, &headers("localhost", None)).is_none());
    }

    #[test]
    fn a_page_of_somebody_elses_is_not_let_in() {
        let names = Names::new(None, &[], &["https://app.example.com/".to_owned()]);
        let host: Authority = "localhost:8022".parse().unwrap();
        for (origin, is_allowed) in [
            (None, true),
            (Some("http://localhost:8022"), true),
            (Some("https://app.example.com"), true),
            (Some("http://localhost:9999"), false),
            (Some("http://evil.example"), false),
            (Some("null"), false),
        ] {
            assert_eq!(names.allow_origin(&headers("x", origin), Some(&host)), is_allowed, "{origin:?}");
        }
    }
}
