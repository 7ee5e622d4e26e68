//! The cookie of a person who has logged in on the page.

use std::time::Duration;

use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderValue, Method, header};
use cookie::{Cookie, SameSite};
use secrecy::{ExposeSecret, SecretString};

/// The cookie that keeps a page logged in. Its value is the key of one of the [`PageLogins`](super::PageLogins), and not a token. Scripts
/// can't read it, and other sites can't make a browser send it; servers on other ports of this host get it all the same.
pub(crate) struct LoginCookie {
    name: String,
    path: String,
    /// Whether browsers send it only over TLS.
    is_secure: bool,
    /// Which pages of other sites make browsers send it.
    same_site: SameSite,
    /// How long browsers keep it. `None`: until they end.
    lifetime: Option<Duration>,
}

/// Time for a person to log in at an issuer.
const ATTEMPT_TIME: Duration = Duration::from_secs(600);

/// Most bytes of a value that every browser keeps in a cookie, with its name and attributes (RFC 6265,
/// section 6.1).
const LONGEST_VALUE: usize = 3800;

impl LoginCookie {
    /// The cookie of a server that the browser reaches at `host`, below `path`.
    pub(super) fn new(host: Option<&Authority>, path: &str, is_secure: bool) -> Self {
        // Servers on other ports of a host get the same cookies, and would replace this one.
        let name = match host.and_then(Authority::port_u16) {
            Some(port) => format!("sshjobs-{port}"),
            None => "sshjobs".to_owned(),
        };
        let path = format!("{}/", path.trim_end_matches('/'));
        // Other hosts of the domain can't set a cookie with this prefix.
        let name = if is_secure && path == "/" {
            format!("__Host-{name}")
        } else {
            name
        };
        Self {
            name,
            path,
            is_secure,
            same_site: SameSite::Strict,
            // It ends with the browser, or with the login.
            lifetime: None,
        }
    }

    /// The cookie of an attempt to log in at an issuer, which sends the browser back to `path`.
    pub(crate) fn of_attempt(self, path: &str) -> Self {
        Self {
            name: format!("{}-attempt", self.name.trim_start_matches("__Host-")),
            path: format!("{}{path}", self.path.trim_end_matches('/')),
            // The issuer's page leads to the request that needs it.
            same_site: SameSite::Lax,
            lifetime: Some(ATTEMPT_TIME),
            ..self
        }
    }

    /// The value in the cookies of a request.
    pub(crate) fn value_in(&self, headers: &HeaderMap) -> Option<SecretString> {
        headers
            .get_all(header::COOKIE)
            .iter()
            .filter_map(|cookies| cookies.to_str().ok())
            .flat_map(Cookie::split_parse)
            .filter_map(Result::ok)
            .find(|cookie| cookie.name() == self.name)
            .map(|cookie| cookie.value().into())
    }

    /// The header that stores a login or an attempt. `None` if a cookie can't hold it.
    pub(crate) fn set_header(&self, value: &SecretString) -> Option<HeaderValue> {
        let value = value.expose_secret();
        if value.len() > LONGEST_VALUE || !value.bytes().all(may_be_in_cookie) {
            return None;
        }
        let mut header = HeaderValue::from_str(&self.with_value(value).to_string()).ok()?;
        header.set_sensitive(true);
        Some(header)
    }

    /// The header that deletes it.
    pub(crate) fn removal_header(&self) -> Option<HeaderValue> {
        let mut cookie = self.with_value("");
        cookie.make_removal();
        HeaderValue::from_str(&cookie.to_string()).ok()
    }

    fn with_value<'a>(&'a self, value: &'a str) -> Cookie<'a> {
        let mut cookie = Cookie::build((self.name.as_str(), value))
            .path(self.path.as_str())
            .secure(self.is_secure)
            .http_only(true)
            .same_site(self.same_site)
            .build();
        cookie.set_max_age(self.lifetime.and_then(|lifetime| lifetime.try_into().ok()));
        cookie
    }
}

/// Whether a request with cookies comes from a page of this server. `is_own_origin`: whether its Origin
/// is this server, `None` without one.
///
/// `SameSite` keeps other sites out, but not other ports of this host or other names of its domain.
pub(super) fn is_from_own_page(
    method: &Method,
    headers: &HeaderMap,
    is_own_origin: Option<bool>,
) -> bool {
    let only_reads = *method == Method::GET || *method == Method::HEAD;
    match headers.get("sec-fetch-site").map(HeaderValue::as_bytes) {
        Some(b"same-origin") => is_own_origin != Some(false),
        // A person has opened a link to a download.
        Some(b"none") => only_reads && is_own_origin.is_none(),
        Some(_) => false,
        // Browsers send Sec-Fetch-Site only over TLS and to loopback addresses, and Origin with each
        // request that is not a plain GET.
        None => is_own_origin.unwrap_or(only_reads),
    }
}

/// Whether a cookie's value may contain a byte (RFC 6265 §4.1.1).
fn may_be_in_cookie(byte: u8) -> bool {
    byte.is_ascii_graphic() && !b"\",;\\".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cookie() -> LoginCookie {
        let host = Authority::from_static("jobs.example.com:8443");
        LoginCookie::new(Some(&host), "/ssh", true)
    }

    fn with_cookies(cookies: &'static str) -> HeaderMap {
        HeaderMap::from_iter([(header::COOKIE, HeaderValue::from_static(cookies))])
    }

    #[test]
    fn scripts_and_other_sites_do_not_get_the_cookie() {
        let header = cookie().set_header(&"token".into()).unwrap();

        assert_eq!(
            header,
            "sshjobs-8443=token; HttpOnly; SameSite=Strict; Secure; Path=/ssh/"
        );
        assert!(header.is_sensitive());
    }

    #[test]
    fn the_value_comes_back_among_other_cookies() {
        let token = cookie().value_in(&with_cookies("a=b; sshjobs-8443=token; sshjobs=other"));
        assert_eq!(token.unwrap().expose_secret(), "token");

        assert!(cookie().value_in(&with_cookies("sshjobs-1=token")).is_none());
    }

    #[test]
    fn a_value_that_would_end_the_cookie_is_refused() {
        for token in [
            "a;b",
            "a b",
            "a\"b",
            "a\r\nSet-Cookie: x=y",
            &"x".repeat(4000),
        ] {
            assert!(cookie().set_header(&token.into()).is_none());
        }
    }

    #[test]
    fn a_request_of_another_page_has_no_cookie() {
        let judge = |method: &Method, site: Option<&'static str>, is_own_origin| {
            let headers =
                site.map(|site| ("sec-fetch-site".parse().unwrap(), site.parse().unwrap()));
            is_from_own_page(method, &HeaderMap::from_iter(headers), is_own_origin)
        };
        let get = |site, is_own_origin| judge(&Method::GET, site, is_own_origin);
        let post = |site, is_own_origin| judge(&Method::POST, site, is_own_origin);

        assert!(get(Some("same-origin"), None));
        assert!(get(Some("none"), None));
        assert!(get(None, None));
        assert!(!get(Some("same-site"), None));
        assert!(!get(Some("cross-site"), None));
        assert!(!get(None, Some(false)));
        assert!(post(Some("same-origin"), Some(true)));
        assert!(post(None, Some(true)));
        assert!(!post(None, None));
        assert!(!post(Some("none"), None));
        assert!(!post(Some("same-site"), Some(false)));
        assert!(!post(None, Some(false)));
    }
}
