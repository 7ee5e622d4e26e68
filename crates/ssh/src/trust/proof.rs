use russh::keys::Algorithm;
use russh::keys::agent::AgentSessionBinding;

use super::HostKeyError;
use sshjobs_output::printable;

/// Compares the key and signature with which a server proved itself (RFC 4253 §8) with the
/// negotiated algorithm. russh accepts any valid signature, so a server, or a machine in the middle
/// that can forge weak ones, could use SHA-1 instead of SHA-2.
pub(crate) fn check_agreed(
    agreed: &Algorithm,
    proof: &AgentSessionBinding,
) -> Result<(), HostKeyError> {
    let key = first_word(proof.host_key());
    let signature = first_word(proof.signature());
    let is_certificate = key.ends_with(CERTIFICATE_ENDING);
    let expected_key = match (agreed, is_certificate) {
        // An RSA key is always named ssh-rsa; only its signature names the hash (RFC 8332 §3).
        (Algorithm::Rsa { .. }, false) => "ssh-rsa".to_owned(),
        (Algorithm::Rsa { .. }, true) => format!("ssh-rsa{CERTIFICATE_ENDING}"),
        (other, false) => other.to_string(),
        (other, true) => other.to_certificate_type(),
    };
    let wrong = [(&key, expected_key), (&signature, agreed.to_string())];
    match wrong.into_iter().find(|(came, expected)| *came != expected) {
        None => Ok(()),
        Some((came, expected)) => Err(HostKeyError::NotAgreed {
            came: printable(came),
            expected,
        }),
    }
}

/// Suffix of certificate types (OpenSSH's PROTOCOL.certkeys).
const CERTIFICATE_ENDING: &str = "-cert-v01@openssh.com";

/// The first string of an encoded key or signature (RFC 4253 §6.6): its algorithm.
fn first_word(blob: &[u8]) -> String {
    let word = blob.split_first_chunk().and_then(|(length, rest)| {
        let length = usize::try_from(u32::from_be_bytes(*length)).ok()?;
        rest.get(..length)
    });
    String::from_utf8_lossy(word.unwrap_or_default()).into_owned()
}
