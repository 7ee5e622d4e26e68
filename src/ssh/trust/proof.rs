use russh::keys::Algorithm;
use russh::keys::agent::AgentSessionBinding;

use super::HostKeyError;
use crate::output::printable;

/// Compares what a server proved itself with, its key and its signature as they came (RFC 4253 §8), with the algorithm that was
/// agreed on. russh takes any signature that is valid, so a server, or somebody in the middle who can forge weak ones, could
/// do with SHA-1 what was to be SHA-2.
pub(crate) fn check_agreed(agreed: &Algorithm, proof: &AgentSessionBinding) -> Result<(), HostKeyError> {
    let (key, signature) = (first_word(proof.host_key()), first_word(proof.signature()));
    let is_certificate = key.ends_with(CERTIFICATE_ENDING);
    let expected_key = match (agreed, is_certificate) {
        (Algorithm::Rsa { .. }, false) => "ssh-rsa".to_owned(),
        (Algorithm::Rsa { .. }, true) => format!("ssh-rsa{CERTIFICATE_ENDING}"),
        (other, false) => other.to_string(),
        (other, true) => other.to_certificate_type(),
    };
    let wrong = [(&key, expected_key), (&signature, agreed.to_string())];
    match wrong.into_iter().find(|(came, expected)| *came != expected) {
        None => Ok(()),
        Some((came, expected)) => Err(HostKeyError::NotAgreed { came: printable(came), expected }),
    }
}

/// How the names of certificate types end (OpenSSH's PROTOCOL.certkeys).
const CERTIFICATE_ENDING: &str = "-cert-v01@openssh.com";

/// The string that an encoded key or signature begins with (RFC 4253 §6.6): its algorithm.
fn first_word(blob: &[u8]) -> String {
    let word = blob.split_first_chunk().and_then(|(length, rest)| {
        let length = usize::try_from(u32::from_be_bytes(*length)).ok()?;
        rest.get(..length)
    });
    String::from_utf8_lossy(word.unwrap_or_default()).into_owned()
}
