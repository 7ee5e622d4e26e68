//! Floor 5: callers of the HTTP server with tokens of an OpenID Connect issuer.
//!
//! # Theory of operation
//! `issuer.rs` checks a token (a JWT, RFC 7519) as RFC 8725 advises: the configuration names issuers,
//! audiences and asymmetric algorithms, and a token only chooses among them. `key_cache.rs` has the keys
//! of one issuer (RFC 7517). They are fetched (`fetch.rs`) when the first token comes, again after ten
//! minutes, and for a key that is not known, at most once a minute; other tokens are checked with the
//! known keys meanwhile, up to a day. `oidc.rs` makes a caller and its rights of the claims.

mod error;
mod fetch;
mod issuer;
mod key_cache;
mod oidc;
mod ring_provider;

pub use error::TokenRefused;
pub use oidc::Oidc;
