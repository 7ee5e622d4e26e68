use russh::{Preferred, cipher, kex};

/// On processors with AES instructions this order is by far the fastest.
const CIPHERS: &[cipher::Name] = &[
    cipher::AES_256_GCM,
    cipher::AES_128_GCM,
    cipher::CHACHA20_POLY1305,
    cipher::AES_256_CTR,
    cipher::AES_192_CTR,
    cipher::AES_128_CTR,
];

/// Order for processors without AES instructions.
const CIPHERS_WITHOUT_AES: &[cipher::Name] = &[
    cipher::CHACHA20_POLY1305,
    cipher::AES_256_GCM,
    cipher::AES_128_GCM,
    cipher::AES_256_CTR,
    cipher::AES_192_CTR,
    cipher::AES_128_CTR,
];

/// Key exchanges in order of preference: those of russh, then the curves of NIST for servers that have no other.
pub(super) fn key_exchanges() -> Vec<kex::Name> {
    let nist = [
        kex::ECDH_SHA2_NISTP256,
        kex::ECDH_SHA2_NISTP384,
        kex::ECDH_SHA2_NISTP521,
    ];
    Preferred::DEFAULT.kex.iter().copied().chain(nist).collect()
}

/// Ciphers in order of preference.
pub(super) fn ciphers() -> &'static [cipher::Name] {
    #[cfg(target_arch = "x86_64")]
    let has_aes = std::arch::is_x86_feature_detected!("aes");
    #[cfg(target_arch = "aarch64")]
    let has_aes = std::arch::is_aarch64_feature_detected!("aes");
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let has_aes = false;
    if has_aes {
        CIPHERS
    } else {
        CIPHERS_WITHOUT_AES
    }
}
