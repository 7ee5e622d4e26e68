//! Callers of the HTTP server with tokens of an OpenID Connect issuer.
//!
//! # Theory of operation
//! `issuer.rs` checks a token (a JWT, RFC 7519) as RFC 8725 advises: the configuration names issuers,
//! audiences and asymmetric algorithms, and a token only chooses among them. `key_cache.rs` caches one
//! issuer's keys (RFC 7517). It fetches them for the first token, after ten minutes, and for an unknown
//! key, but never twice within a minute, in a task of its own (`fetch.rs`). Only a token whose key is not
//! cached waits for it. If a fetch fails, cached keys stay in use for a day. `oidc.rs` derives the caller
//! and its rights from the claims. `login.rs` gets a token for a person with a browser; the browser keeps the
//! state of the attempt.

mod discovery;
mod error;
mod fetch;
mod issuer;
mod key_cache;
mod login;
mod oidc;
mod ring_provider;

pub use error::TokenRefused;
pub use login::{LoginAnswer, LoginAttempt, LoginFailed};
pub use oidc::{Oidc, scope_of};
