//! Why a token of an issuer is refused.

/// Why a token of an issuer is refused. Contains nothing of the token except names of claims.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenRefused {
    /// The token is not a JWT that this server understands.
    #[error("the token is not a signed JWT of the usual form")]
    Malformed,
    /// The token's issuer is not configured.
    #[error("the token comes from an issuer that this server does not know")]
    Issuer,
    /// The token's algorithm is not accepted.
    #[error("the token is signed with an algorithm that is not accepted")]
    Algorithm,
    /// The issuer has no such key.
    #[error("the token is signed with a key that its issuer does not list")]
    Key,
    /// The signature is wrong.
    #[error("the token's signature is wrong")]
    Signature,
    /// The token has expired, or is not valid yet.
    #[error("the token has expired, or is not valid yet")]
    Time,
    /// The token is for another server.
    #[error("the token is for another audience")]
    Audience,
    /// The token has more claims than this server looks at.
    #[error("the token has too many claims, or one that is too long")]
    TooManyClaims,
    /// A claim is missing or invalid.
    #[error("the token lacks the claim {0}, or its value is invalid")]
    Claim(String),
    /// The token's claims give no role.
    #[error("the token's claims give no role on this server")]
    NoRole,
    /// The keys of the token's issuer can't be fetched.
    #[error("the keys of the token's issuer can't be fetched")]
    KeysUnavailable,
}
