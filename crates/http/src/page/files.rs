//! The files of the page, which are part of the binary (`src/web`). They are the same for everybody and
//! contain nothing about jobs, so they need no caller.

use std::sync::LazyLock;

use axum::extract::rejection::PathRejection;
use axum::extract::{OriginalUri, Path};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Redirect, Response};
use sha2::{Digest, Sha256};

use crate::api::conditions::Conditions;
use crate::reject;

/// A file of the page.
struct PageFile {
    name: &'static str,
    media_type: &'static str,
    content: &'static [u8],
    /// Its entity tag: a hash of the content.
    tag: String,
}

const HTML: &str = "text/html; charset=utf-8";
const STYLE: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const IMAGE: &str = "image/svg+xml";

/// Name of the file at the root.
const INDEX: &str = "index.html";

static FILES: LazyLock<Vec<PageFile>> = LazyLock::new(|| {
    let files = sshjobs_page::FILES.iter();
    files.map(|(name, text)| PageFile::new(name, text)).collect()
});

/// The media type of a file, by the ending of its name.
fn media_type(name: &str) -> &'static str {
    match name.rsplit_once('.') {
        Some((_, "html")) => HTML,
        Some((_, "css")) => STYLE,
        Some((_, "svg")) => IMAGE,
        _ => SCRIPT,
    }
}

/// Rights of the page: it may run its own scripts and styles and call its own server, nothing else.
/// Output can't become HTML, because no script may make any.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
    connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
    require-trusted-types-for 'script'; trusted-types 'none'";

const HEADERS: [(HeaderName, &str); 5] = [
    (header::CONTENT_SECURITY_POLICY, POLICY),
    (header::REFERRER_POLICY, "no-referrer"),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (
        HeaderName::from_static("cross-origin-opener-policy"),
        "same-origin",
    ),
    (
        HeaderName::from_static("cross-origin-resource-policy"),
        "same-origin",
    ),
];

impl PageFile {
    fn new(name: &'static str, text: &'static str) -> Self {
        let digest = Sha256::digest(text);
        let tag: String = digest.iter().take(16).map(|byte| format!("{byte:02x}")).collect();
        Self {
            name,
            media_type: media_type(name),
            content: text.as_bytes(),
            tag: format!("\"{tag}\""),
        }
    }

    fn answer(&self, request: &HeaderMap) -> Response {
        let is_known = Conditions::of(request).excludes(Some(&self.tag));
        let mut response = if is_known {
            StatusCode::NOT_MODIFIED.into_response()
        } else {
            ([(header::CONTENT_TYPE, self.media_type)], self.content).into_response()
        };
        let headers = response.headers_mut();
        let tag = HeaderValue::from_str(&self.tag).expect("it has only hexadecimal digits");
        headers.insert(header::ETAG, tag);
        // A newer server has other files: browsers ask each time.
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
        for (name, value) in HEADERS {
            headers.insert(name, HeaderValue::from_static(value));
        }
        response
    }
}

fn file_named(name: &str) -> Option<&'static PageFile> {
    FILES.iter().find(|file| file.name == name)
}

/// `GET /`: the page. Its addresses are relative, so the path must end with a slash.
pub(crate) async fn index(OriginalUri(uri): OriginalUri, headers: HeaderMap) -> Response {
    if !uri.path().ends_with('/') {
        let query = uri.query().map(|query| format!("?{query}")).unwrap_or_default();
        return Redirect::permanent(&format!("{}/{query}", uri.path())).into_response();
    }
    file_named(INDEX).expect("INDEX is in FILES").answer(&headers)
}

/// `GET /web/NAME`: a file of the page.
pub(crate) async fn static_file(
    name: Result<Path<String>, PathRejection>,
    headers: HeaderMap,
) -> Response {
    let file = name.ok().and_then(|Path(name)| file_named(&name));
    match file {
        Some(file) => file.answer(&headers),
        None => reject::nothing_here().into_response(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_files_together_are_small() {
        let bytes: usize = FILES.iter().map(|file| file.content.len()).sum();

        assert!(bytes < 145_000, "{bytes} bytes");
    }

    #[test]
    fn scripts_make_no_html_of_text() {
        for file in FILES.iter() {
            let text = std::str::from_utf8(file.content).unwrap();
            for word in [
                "innerHTML",
                "outerHTML",
                "insertAdjacentHTML",
                "document.write",
                "eval(",
            ] {
                assert!(!text.contains(word), "{} has {word}", file.name);
            }
        }
    }
}
