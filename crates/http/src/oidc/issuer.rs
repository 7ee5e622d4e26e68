//! Checks tokens of one issuer.

use std::str::FromStr;

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use jsonwebtoken::errors::ErrorKind;
use jsonwebtoken::{Algorithm, Validation, decode};
use serde::Deserialize;
use serde_json::{Map, Value};
use tokio::sync::OnceCell;

use super::discovery::Discovery;
use super::error::TokenRefused;
use super::key_cache::KeyCache;
use sshjobs_core::jobs::IssuerConfig;

/// An issuer of tokens.
pub(super) struct Issuer {
    pub(super) config: IssuerConfig,
    algorithms: Vec<Algorithm>,
    keys: KeyCache,
    /// Its discovery document, once a person has logged in.
    pub(super) discovery: OnceCell<Discovery>,
}

/// The protected header of a token (RFC 7515, section 4).
#[derive(Deserialize)]
struct TokenHeader {
    alg: String,
    kid: Option<String>,
    typ: Option<String>,
    crit: Option<Value>,
}

/// Types of tokens that are accepted: a plain JWT, and an access token (RFC 9068).
const TYPES: [&str; 3] = ["jwt", "at+jwt", "application/at+jwt"];
/// Accepted difference of clocks, in seconds.
const LEEWAY: u64 = 60;

impl Issuer {
    pub(super) fn new(config: IssuerConfig) -> Self {
        let algorithms = config.algorithms.iter();
        Self {
            algorithms: algorithms.filter_map(|name| Algorithm::from_str(name).ok()).collect(),
            keys: KeyCache::new(config.issuer.clone(), config.jwks_url.clone()),
            discovery: OnceCell::new(),
            config,
        }
    }

    /// The claims of a token that this issuer has signed for this server.
    ///
    /// # Errors
    /// Why the token is refused.
    pub(super) async fn verify(&self, token: &str) -> Result<Map<String, Value>, TokenRefused> {
        let header = header(token)?;
        // This server knows no critical extensions (RFC 7515, section 4.1.11).
        if header.crit.is_some() {
            return Err(TokenRefused::Malformed);
        }
        let typ = header.typ.map(|typ| typ.to_ascii_lowercase());
        if typ.is_some_and(|typ| !TYPES.contains(&typ.as_str())) {
            return Err(TokenRefused::Malformed);
        }
        let algorithm = Algorithm::from_str(&header.alg).map_err(|_| TokenRefused::Algorithm)?;
        if !self.algorithms.contains(&algorithm) {
            return Err(TokenRefused::Algorithm);
        }

        let keys = self.keys.keys_for(header.kid.as_deref(), algorithm).await?;
        let validation = self.validation(algorithm);
        for key in keys {
            match decode::<Map<String, Value>>(token, &key, &validation) {
                Ok(verified) => return Ok(verified.claims),
                // A token without `kid` may be signed with another key.
                Err(error) if *error.kind() == ErrorKind::InvalidSignature => {}
                Err(error) => return Err(refusal_for(error.kind())),
            }
        }
        Err(TokenRefused::Signature)
    }

    fn validation(&self, algorithm: Algorithm) -> Validation {
        let mut validation = Validation::new(algorithm);
        validation.leeway = LEEWAY;
        validation.validate_nbf = true;
        validation.set_issuer(&[&self.config.issuer]);
        validation.set_audience(&self.config.audiences);
        // jsonwebtoken skips the check of a claim that is absent unless it is required here.
        validation.set_required_spec_claims(&["exp", "iss", "aud", "sub"]);
        validation
    }
}

#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "all other errors are about the form of a token, also those of later versions"
)]
fn refusal_for(kind: &ErrorKind) -> TokenRefused {
    match kind {
        ErrorKind::InvalidSignature => TokenRefused::Signature,
        ErrorKind::ExpiredSignature | ErrorKind::ImmatureSignature => TokenRefused::Time,
        ErrorKind::InvalidAudience => TokenRefused::Audience,
        ErrorKind::InvalidIssuer => TokenRefused::Issuer,
        ErrorKind::InvalidAlgorithm | ErrorKind::InvalidAlgorithmName => TokenRefused::Algorithm,
        ErrorKind::MissingRequiredClaim(claim) => TokenRefused::Claim(claim.clone()),
        _ => TokenRefused::Malformed,
    }
}

/// A part of a token that is not verified yet.
fn part<T: for<'de> Deserialize<'de>>(token: &str, index: usize) -> Result<T, TokenRefused> {
    let mut parts = token.split('.');
    let text = parts.nth(index).ok_or(TokenRefused::Malformed)?;
    let bytes = BASE64_URL_SAFE_NO_PAD.decode(text).map_err(|_| TokenRefused::Malformed)?;
    serde_json::from_slice(&bytes).map_err(|_| TokenRefused::Malformed)
}

fn header(token: &str) -> Result<TokenHeader, TokenRefused> {
    part(token, 0)
}

/// The issuer that a token names. It is not verified yet.
///
/// # Errors
/// [`TokenRefused::Malformed`].
pub(super) fn named_issuer(token: &str) -> Result<String, TokenRefused> {
    #[derive(Deserialize)]
    struct Named {
        iss: String,
    }
    if token.split('.').count() != 3 {
        return Err(TokenRefused::Malformed);
    }
    part::<Named>(token, 1).map(|named| named.iss)
}
