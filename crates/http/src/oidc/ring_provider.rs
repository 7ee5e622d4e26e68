//! Verifies signatures of JWTs with `ring`, which TLS and SSH use here, too.

use std::sync::Once;

use jsonwebtoken::crypto::{CryptoProvider, JwtVerifier, KeyUtils};
use jsonwebtoken::errors::{Error, ErrorKind};
use jsonwebtoken::signature::{self, Verifier};
use jsonwebtoken::{Algorithm, DecodingKey, DecodingKeyKind};
use ring::signature as algorithms;

/// Makes `jsonwebtoken` use `ring` in this process.
pub(super) fn install() {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| {
        // Fails only if another provider of this process is installed, which verifies as well.
        PROVIDER.install_default().ok();
    });
}

static PROVIDER: CryptoProvider = CryptoProvider {
    signer_factory: |_, _| Err(Error::from(ErrorKind::InvalidAlgorithm)),
    verifier_factory: |algorithm, key| {
        Ok(Box::new(RingVerifier {
            algorithm: *algorithm,
            method: method(*algorithm)?,
            key: key.clone(),
        }))
    },
    // Used only for private keys and thumbprints.
    key_utils: KeyUtils::new_unimplemented(),
};

/// Verifies signatures of one algorithm with one key.
struct RingVerifier {
    algorithm: Algorithm,
    method: Method,
    key: DecodingKey,
}

/// How `ring` verifies an algorithm.
enum Method {
    Rsa(&'static algorithms::RsaParameters),
    Curve(&'static dyn algorithms::VerificationAlgorithm),
}

#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "no other algorithm is accepted, also of later versions"
)]
fn method(algorithm: Algorithm) -> Result<Method, Error> {
    Ok(match algorithm {
        Algorithm::RS256 => Method::Rsa(&algorithms::RSA_PKCS1_2048_8192_SHA256),
        Algorithm::RS384 => Method::Rsa(&algorithms::RSA_PKCS1_2048_8192_SHA384),
        Algorithm::RS512 => Method::Rsa(&algorithms::RSA_PKCS1_2048_8192_SHA512),
        Algorithm::PS256 => Method::Rsa(&algorithms::RSA_PSS_2048_8192_SHA256),
        Algorithm::PS384 => Method::Rsa(&algorithms::RSA_PSS_2048_8192_SHA384),
        Algorithm::PS512 => Method::Rsa(&algorithms::RSA_PSS_2048_8192_SHA512),
        Algorithm::ES256 => Method::Curve(&algorithms::ECDSA_P256_SHA256_FIXED),
        Algorithm::ES384 => Method::Curve(&algorithms::ECDSA_P384_SHA384_FIXED),
        Algorithm::EdDSA => Method::Curve(&algorithms::ED25519),
        // Shared secrets, and algorithms that ring does not have.
        _ => return Err(ErrorKind::InvalidAlgorithm.into()),
    })
}

impl Verifier<Vec<u8>> for RingVerifier {
    fn verify(&self, message: &[u8], signature: &Vec<u8>) -> Result<(), signature::Error> {
        let verified = match (&self.method, self.key.kind()) {
            (Method::Rsa(parameters), DecodingKeyKind::RsaModulusExponent { n, e }) => {
                let key = algorithms::RsaPublicKeyComponents { n, e };
                key.verify(parameters, message, signature)
            }
            (Method::Curve(algorithm), DecodingKeyKind::SecretOrDer(point)) => {
                algorithms::UnparsedPublicKey::new(*algorithm, point).verify(message, signature)
            }
            (Method::Rsa(_) | Method::Curve(_), _) => Err(ring::error::Unspecified),
        };
        verified.map_err(|_| signature::Error::new())
    }
}

impl JwtVerifier for RingVerifier {
    fn algorithm(&self) -> Algorithm {
        self.algorithm
    }
}
