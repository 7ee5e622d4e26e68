//! Logs people in with a browser: the authorization code flow (OpenID Connect Core 1.0, section 3.1),
//! with PKCE (RFC 7636).
//!
//! The server keeps nothing between the two requests. The browser keeps the attempt in a cookie, and
//! brings it back with the issuer's answer.

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;
use sha2::{Digest, Sha256};
use url::Url;

use super::discovery::Discovery;
use super::error::TokenRefused;
use super::fetch::{IssuerClient, post_form};
use super::issuer::Issuer;
use super::oidc::Oidc;
use sshjobs_core::jobs::{Claims, LoginConfig};

/// An attempt to log in, until the issuer has answered.
pub struct LoginAttempt {
    /// Name of the issuer.
    issuer: String,
    /// Ties the answer to this browser, and the token to this attempt (`state` and `nonce`).
    id: String,
    /// Proves to the issuer that the answer comes to the one who has asked (PKCE).
    verifier: SecretString,
}

/// The answer of an issuer, as it is in the address to which it sends the browser.
#[derive(Deserialize)]
pub struct LoginAnswer {
    state: Option<String>,
    code: Option<SecretString>,
    error: Option<String>,
}

/// Why a login fails.
#[derive(Debug, thiserror::Error)]
pub enum LoginFailed {
    /// No issuer with this name lets people log in.
    #[error("no issuer with this name lets people log in")]
    UnknownIssuer,
    /// The answer is for another attempt, or an old one.
    #[error("the answer belongs to another attempt to log in, or to an old one")]
    OtherAttempt,
    /// The issuer has refused it.
    #[error("the issuer has refused the login: {0}")]
    Refused(String),
    /// The issuer does not answer as it should. The message is for the log.
    #[error("the issuer does not answer as it should")]
    Issuer(String),
    /// Its token is not accepted here.
    #[error(transparent)]
    Token(#[from] TokenRefused),
}

/// The reply of the issuer's token endpoint (RFC 6749, section 5.1).
#[derive(Deserialize)]
struct IssuedTokens {
    access_token: Option<SecretString>,
    id_token: Option<SecretString>,
}

impl LoginAttempt {
    fn new(issuer: &str) -> Self {
        Self {
            issuer: issuer.to_owned(),
            id: unguessable(),
            verifier: unguessable().into(),
        }
    }

    /// As the value of a cookie.
    pub fn to_cookie(&self) -> SecretString {
        let verifier = self.verifier.expose_secret();
        format!("{}.{verifier}.{}", self.id, self.issuer).into()
    }

    /// An attempt from its cookie.
    pub fn from_cookie(value: &SecretString) -> Option<Self> {
        let mut parts = value.expose_secret().splitn(3, '.');
        Some(Self {
            id: parts.next()?.to_owned(),
            verifier: parts.next()?.into(),
            issuer: parts.next()?.to_owned(),
        })
    }

    /// Address at the issuer where a person logs in.
    fn address(&self, endpoint: &Url, login: &LoginConfig, redirect_uri: &str) -> String {
        let digest = Sha256::digest(self.verifier.expose_secret().as_bytes());
        let challenge = BASE64_URL_SAFE_NO_PAD.encode(digest);
        let mut address = endpoint.clone();
        address
            .query_pairs_mut()
            .append_pair("response_type", "code")
            .append_pair("client_id", &login.client_id)
            .append_pair("redirect_uri", redirect_uri)
            .append_pair("scope", &login.scope)
            .append_pair("state", &self.id)
            .append_pair("nonce", &self.id)
            .append_pair("code_challenge", &challenge)
            .append_pair("code_challenge_method", "S256");
        address.into()
    }
}

impl Oidc {
    /// Names of the issuers with which people can log in.
    pub fn login_names(&self) -> impl Iterator<Item = &str> {
        self.issuers
            .iter()
            .filter(|issuer| issuer.config.login.is_some())
            .map(|issuer| issuer.config.prefix())
    }

    /// Begins a login. Returns the attempt, and the address at the issuer to which the browser goes.
    ///
    /// # Errors
    /// [`LoginFailed::UnknownIssuer`], [`LoginFailed::Issuer`] after five seconds at the latest.
    pub async fn begin_login(
        &self,
        name: &str,
        redirect_uri: &str,
    ) -> Result<(LoginAttempt, String), LoginFailed> {
        let (issuer, login) = self.issuer_for_login(name)?;
        let discovery = issuer.discovery().await.map_err(LoginFailed::Issuer)?;
        let endpoint = endpoint(discovery.authorization_endpoint)?;
        let attempt = LoginAttempt::new(name);
        let address = attempt.address(&endpoint, login, redirect_uri);
        Ok((attempt, address))
    }

    /// Ends a login: exchanges the issuer's answer for a token that this server accepts. Cancelling
    /// wastes the answer, which is valid once.
    ///
    /// # Errors
    /// [`LoginFailed`] with the reason.
    pub async fn finish_login(
        &self,
        attempt: LoginAttempt,
        answer: LoginAnswer,
        redirect_uri: &str,
    ) -> Result<SecretString, LoginFailed> {
        let (issuer, login) = self.issuer_for_login(&attempt.issuer)?;
        if answer.state.as_deref() != Some(&attempt.id) {
            return Err(LoginFailed::OtherAttempt);
        }
        if let Some(error) = answer.error {
            let plain = error.chars().filter(|c| c.is_ascii_alphanumeric() || *c == '_');
            let code: String = plain.take(64).collect();
            return Err(LoginFailed::Refused(code));
        }
        let code = answer.code.ok_or(LoginFailed::OtherAttempt)?;
        let discovery = issuer.discovery().await.map_err(LoginFailed::Issuer)?;
        let endpoint = endpoint(discovery.token_endpoint)?;
        let client = IssuerClient {
            id: &login.client_id,
            secret: login.secret().map_err(|error| LoginFailed::Issuer(error.to_string()))?,
        };
        let form = [
            ("grant_type", "authorization_code"),
            ("code", code.expose_secret()),
            ("redirect_uri", redirect_uri),
            ("code_verifier", attempt.verifier.expose_secret()),
        ];
        let tokens: IssuedTokens =
            post_form(&endpoint, &client, &form).await.map_err(LoginFailed::Issuer)?;
        self.accepted_token(tokens, issuer, &attempt).await
    }

    /// The token that this server accepts: the access token if it is a JWT for this server, else the id
    /// token.
    async fn accepted_token(
        &self,
        tokens: IssuedTokens,
        issuer: &Issuer,
        attempt: &LoginAttempt,
    ) -> Result<SecretString, LoginFailed> {
        if let Some(token) = tokens.access_token
            && Self::is_jwt(token.expose_secret())
            && self.caller_of(token.expose_secret()).await.is_ok()
        {
            return Ok(token);
        }
        let Some(token) = tokens.id_token else {
            return Err(LoginFailed::Issuer("the reply has no id_token".to_owned()));
        };
        self.caller_of(token.expose_secret()).await?;
        let payload = issuer.verify(token.expose_secret()).await?;
        let claims = Claims::of(&payload).map_err(|_| TokenRefused::TooManyClaims)?;
        // Otherwise the token of another login could be slipped in.
        if claims.values("nonce") != [attempt.id.clone()] {
            return Err(LoginFailed::OtherAttempt);
        }
        Ok(token)
    }

    fn issuer_for_login(&self, name: &str) -> Result<(&Issuer, &LoginConfig), LoginFailed> {
        let issuer = self.issuers.iter().find(|issuer| issuer.config.prefix() == name);
        issuer
            .and_then(|issuer| Some((issuer, issuer.config.login.as_ref()?)))
            .ok_or(LoginFailed::UnknownIssuer)
    }
}

impl Issuer {
    /// Its discovery document, which is fetched once.
    async fn discovery(&self) -> Result<Discovery, String> {
        self.discovery
            .get_or_try_init(|| Discovery::fetch(&self.config.issuer))
            .await
            .cloned()
    }
}

/// An endpoint of a discovery document.
fn endpoint(url: Option<String>) -> Result<Url, LoginFailed> {
    url.and_then(|url| Url::parse(&url).ok())
        .ok_or_else(|| LoginFailed::Issuer("its discovery document lacks an endpoint".to_owned()))
}

/// 43 characters with 256 random bits, as RFC 7636 recommends for the verifier.
fn unguessable() -> String {
    BASE64_URL_SAFE_NO_PAD.encode(rand::random::<[u8; 32]>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_attempt_comes_back_from_its_cookie() {
        let attempt = LoginAttempt::new("corp.example");

        let again = LoginAttempt::from_cookie(&attempt.to_cookie()).unwrap();

        assert_eq!(again.id, attempt.id);
        assert_eq!(again.issuer, "corp.example");
        assert_eq!(
            again.verifier.expose_secret(),
            attempt.verifier.expose_secret()
        );
        assert!(LoginAttempt::from_cookie(&"a.b".into()).is_none());
    }
}
