//! Why a token of an issuer is refused.

/// Why a token of an issuer is refused. Contains nothing of the token except names of claims.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TokenRefused {
    /// It is no JWT that this server understands.
    #[error("the token is not a signed JWT of the usual form")]
    Malformed,
    /// Its issuer is not configured.
    #[error("the token is of an issuer that this server does not know")]
    Issuer,
    /// Its algorithm is not accepted.
    #[error("the token is signed with an algorithm that is not accepted")]
    Algorithm,
    /// The issuer has no such key.
    #[error("the token is signed with a key that its issuer does not list")]
    Key,
    /// The signature is wrong.
    #[error("the token's signature is wrong")]
    Signature,
    /// It has expired, or is not valid yet.
    #[error("the token has expired, or is not valid yet")]
    Time,
    /// It is for another server.
    #[error("the token is for another audience")]
    Audience,
    /// It has more claims than this server looks at.
    #[error("the token has too many claims, or one that is too long")]
    TooManyClaims,
    /// A claim is missing or invalid.
    #[error("the token lacks the claim {0}, or its value is invalid")]
    Claim(String),
    /// Its claims give no role.
    #[error("the token's claims give no role on this server")]
    NoRole,
    /// The keys of its issuer can't be fetched.
    #[error("the keys of the token's issuer can't be fetched")]
    KeysUnavailable,
}
