//! Callers with tokens of configured issuers.

use super::error::TokenRefused;
use super::issuer::{Issuer, named_issuer};
use super::ring_provider;
use sshjobs_core::jobs::{
    Caller, Claims, HostPatterns, IssuerConfig, OidcConfig, Rights, Role, glob_matches,
};

/// The issuers whose tokens are accepted.
pub struct Oidc {
    pub(super) issuers: Vec<Issuer>,
}

/// Longest token in bytes.
const LONGEST_TOKEN: usize = 16 << 10;
/// Longest name of a caller in bytes.
const LONGEST_NAME: usize = 300;

impl Oidc {
    /// The issuers of a configuration. `None` if it has none.
    pub fn new(config: &OidcConfig) -> Option<Self> {
        let issuers: Vec<Issuer> = config.issuers.iter().cloned().map(Issuer::new).collect();
        if issuers.is_empty() {
            return None;
        }
        ring_provider::install();
        Some(Self { issuers })
    }

    /// URLs of the issuers.
    pub fn issuers(&self) -> impl Iterator<Item = &str> {
        self.issuers.iter().map(|issuer| issuer.config.issuer.as_str())
    }

    /// Whether a token may be a JWT. Static tokens contain no dot.
    pub fn is_jwt(token: &str) -> bool {
        token.contains('.')
    }

    /// The caller of a token, and its rights. May wait some seconds for the keys of the issuer. Cancel
    /// safe.
    ///
    /// # Errors
    /// Why the token is refused.
    pub async fn caller_of(&self, token: &str) -> Result<(Caller, Rights), TokenRefused> {
        if token.len() > LONGEST_TOKEN {
            return Err(TokenRefused::Malformed);
        }
        let named = named_issuer(token)?;
        let issuer = self.issuers.iter().find(|issuer| issuer.config.issuer == named);
        let issuer = issuer.ok_or(TokenRefused::Issuer)?;
        let payload = issuer.verify(token).await?;
        let claims = Claims::of(&payload).map_err(|_| TokenRefused::TooManyClaims)?;

        let caller = caller_named(&issuer.config, &claims)?;
        let (role, hosts) = role_of(&issuer.config, &claims).ok_or(TokenRefused::NoRole)?;
        let rights = Rights {
            role,
            hosts,
            claims,
        };
        Ok((caller, rights))
    }
}

/// The caller that the claims name. Names of static tokens contain no `|`, so they never equal one of
/// these.
fn caller_named(config: &IssuerConfig, claims: &Claims) -> Result<Caller, TokenRefused> {
    match claims.values(&config.caller) {
        [name] if is_name(name) => Ok(Caller::new(&format!("{}|{name}", config.prefix()))),
        _ => Err(TokenRefused::Claim(config.caller.clone())),
    }
}

/// Whether a claim can name a caller.
fn is_name(name: &str) -> bool {
    let is_plain = name.chars().all(|c| c.is_ascii_graphic());
    is_plain && !name.is_empty() && name.len() <= LONGEST_NAME
}

/// The role that the claims give, and its hosts.
fn role_of(config: &IssuerConfig, claims: &Claims) -> Option<(Role, HostPatterns)> {
    if config.roles.is_empty() {
        let scopes = claims.values("scope");
        let role = Role::ALL.into_iter().filter(|role| scopes.contains(&scope_of(*role))).max()?;
        return Some((role, HostPatterns::default()));
    }
    let matching = config.roles.iter().find(|role| {
        role.claims.iter().all(|(name, pattern)| {
            claims.values(name).iter().any(|value| glob_matches(pattern, value))
        })
    });
    matching.map(|role| role.granted())
}

/// The OAuth scope that gives a role, such as `sshjobs:run`.
pub fn scope_of(role: Role) -> String {
    format!("sshjobs:{}", role.as_str())
}
