//! Hashes of texts.

use sha2::{Digest, Sha256};

/// SHA-256 of a text, in hexadecimal.
pub fn sha256_hex(text: &str) -> String {
    Sha256::digest(text).iter().map(|byte| format!("{byte:02x}")).collect()
}
