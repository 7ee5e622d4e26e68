//! The discovery document of an issuer.

use serde::Deserialize;

use super::fetch::fetch;

/// An issuer's discovery document (OpenID Connect Discovery 1.0, section 3).
#[derive(Clone, Deserialize)]
pub(super) struct Discovery {
    issuer: String,
    pub(super) jwks_uri: String,
    /// Where people log in. Issuers for machines only have none.
    pub(super) authorization_endpoint: Option<String>,
    /// Where an answer is exchanged for tokens.
    pub(super) token_endpoint: Option<String>,
}

impl Discovery {
    /// Fetches the document of an issuer.
    ///
    /// # Errors
    /// A message for the log.
    pub(super) async fn fetch(issuer: &str) -> Result<Self, String> {
        let base = issuer.trim_end_matches('/');
        let found: Self = fetch(&format!("{base}/.well-known/openid-configuration")).await?;
        // OpenID Connect Discovery, section 4.3.
        if found.issuer != issuer {
            return Err("its discovery document names another issuer".to_owned());
        }
        let endpoints = [&found.authorization_endpoint, &found.token_endpoint];
        let urls = endpoints.into_iter().flatten().chain([&found.jwks_uri]);
        let is_secure = issuer.starts_with("https://");
        if let Some(url) = urls.into_iter().find(|url| is_secure && !url.starts_with("https://")) {
            return Err(format!(
                "its discovery document has a URL without TLS: {url:?}"
            ));
        }
        Ok(found)
    }
}
