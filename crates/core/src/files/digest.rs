//! SHA-256 digests, computed here and on hosts.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use sha2::{Digest as _, Sha256};

use super::path::RemotePath;
use sshjobs_job::inert_bytes;

/// The SHA-256 digest of a content. Shown as 64 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Digest([u8; 32]);

/// A text that is not a digest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a SHA-256 digest has 64 hexadecimal digits")]
pub struct NotADigest;

/// Computes the digest of a content that arrives in pieces.
#[derive(Clone, Debug, Default)]
pub struct Hasher(Sha256);

impl Hasher {
    /// Adds the next bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The digest of all bytes so far.
    pub fn digest(&self) -> Digest {
        Digest(self.0.clone().finalize().into())
    }
}

impl Digest {
    /// The digest of `content`.
    pub fn of(content: &[u8]) -> Self {
        Self(Sha256::digest(content).into())
    }

    /// Its bytes.
    pub(super) fn bytes(self) -> [u8; 32] {
        self.0
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Digest {
    type Err = NotADigest;

    fn from_str(text: &str) -> Result<Self, NotADigest> {
        let mut bytes = [0; 32];
        if text.len() != 64 || !text.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return Err(NotADigest);
        }
        for (byte, digits) in bytes.iter_mut().zip(text.as_bytes().chunks(2)) {
            let digits = str::from_utf8(digits).map_err(|_| NotADigest)?;
            *byte = u8::from_str_radix(digits, 16).map_err(|_| NotADigest)?;
        }
        Ok(Self(bytes))
    }
}

/// Time for a host to read this many bytes, and to start a shell.
pub(super) fn time_for(bytes: u64) -> Duration {
    const BYTES_PER_SECOND: u64 = 16 << 20;
    Duration::from_secs(60 + bytes / BYTES_PER_SECOND)
}

/// Length from which the fastest tool is worth its start.
const LONG: u64 = 4 << 20;

/// A script that prints the digest of a part of a file.
pub(super) fn script(path: &RemotePath, length: u64) -> String {
    // A point follows the name, because the shell removes newlines at the end. A whole file is read
    // without a pipe, which takes half the time.
    let name = inert_bytes(path.as_bytes());
    // openssl uses the processor's instructions for SHA-256, which coreutils does not: a fourth of
    // the time. But it takes longer to start.
    let tools = if length < LONG {
        "sha256sum shasum openssl"
    } else {
        "openssl sha256sum shasum"
    };
    format!(
        "f=$(printf %b. '{name}'); f=${{f%.}}; \
         case $f in /*) ;; *) f=./$f ;; esac; \
         for s in {tools} none; do command -v $s >/dev/null 2>&1 && break; done; \
         case $s in shasum) s='shasum -a 256' ;; openssl) s='openssl dgst -sha256' ;; none) exit 0 ;; esac; \
         exec 3<\"$f\" || exit 0; \
         if [ -n \"$(find -L \"$f\" -prune -size {length}c 2>/dev/null)\" ]; \
         then $s <&3; else head -c {length} <&3 | $s; fi"
    )
}

/// How a transferred content was verified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verified {
    /// The digests of both sides are equal.
    BySha256,
    /// It was read back: the host has no tool for digests.
    ByReadingBack,
    /// It was not: the host has no tool for digests, and the file is too long to read back.
    Not,
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    const EMPTY: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

    #[test]
    fn a_digest_is_read_as_it_is_shown() {
        let digest = Digest::of(b"");
        assert_eq!(digest.to_string(), EMPTY);
        assert_eq!(EMPTY.parse(), Ok(digest));
        assert_eq!("e3b0".parse::<Digest>(), Err(NotADigest));
        assert_eq!("+".repeat(64).parse::<Digest>(), Err(NotADigest));
    }

    #[test]
    fn a_content_in_pieces_has_the_same_digest() {
        let mut hasher = Hasher::default();
        hasher.update(b"one ");
        hasher.update(b"two");
        assert_eq!(hasher.digest(), Digest::of(b"one two"));
    }

    #[test]
    fn the_script_takes_names_of_any_bytes() {
        use std::os::unix::ffi::OsStrExt;

        let directory = tempfile::tempdir().unwrap();
        for name in [
            &b"plain"[..],
            b"$(id)'\"",
            b"new\nline\n",
            b"\xff\xfe",
            b"-n",
        ] {
            let local = directory.path().join(std::ffi::OsStr::from_bytes(name));
            std::fs::write(&local, "0123456789").unwrap();
            let path = RemotePath::new(local.as_os_str().as_bytes().to_vec()).unwrap();

            let run = Command::new("/bin/sh").args(["-c", &script(&path, 4)]).output().unwrap();

            let printed = String::from_utf8(run.stdout).unwrap();
            let digest = printed.split_whitespace().find_map(|word| word.parse().ok());
            assert_eq!(digest, Some(Digest::of(b"0123")), "{name:?}: {printed}");
        }
    }
}
