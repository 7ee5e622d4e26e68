use std::io;
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use russh::keys::ssh_key::public::KeyData;
use russh::keys::{Algorithm, Certificate, HashAlg, PublicKey};
use sha1::Sha1;

use super::files::off_runtime;
use super::{CertificateFault, CertificateRules, HostConfig, HostKeyError};

/// The name under which a host's key is looked up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostName {
    /// What an entry must match: `host`, or `[host]:port` off port 22. Lower case.
    exact: String,
    /// The bare name, which ssh also accepts off port 22 when nothing else is listed.
    bare: Option<String>,
}

impl HostName {
    /// The name of `address` at `port`.
    pub fn new(address: &str, port: u16) -> Self {
        let bare = address.to_ascii_lowercase();
        match port {
            22 => Self { exact: bare, bare: None },
            _ => Self { exact: format!("[{bare}]:{port}"), bare: Some(bare) },
        }
    }

    /// A HostKeyAlias: looked up as it is, whatever the port.
    pub fn alias(alias: &str) -> Self {
        Self { exact: alias.to_ascii_lowercase(), bare: None }
    }

    /// The name of a configured host.
    pub fn of(host: &HostConfig) -> Self {
        match &host.host_key_alias {
            Some(alias) => Self::alias(alias),
            None => Self::new(&host.address, host.port),
        }
    }

    /// As it would be written into known_hosts.
    pub fn as_str(&self) -> &str {
        &self.exact
    }

    /// The same, hashed with a random salt (HashKnownHosts), so that the file does not tell where its owner goes.
    pub fn hashed(&self) -> String {
        let salt: [u8; 20] = rand::random();
        let mut mac = hmac(&salt);
        mac.update(self.exact.as_bytes());
        let hash = mac.finalize().into_bytes();
        format!("|1|{}|{}", BASE64_STANDARD.encode(salt), BASE64_STANDARD.encode(hash))
    }

    /// The name that a host certificate must be for: without the port.
    pub fn principal(&self) -> &str {
        self.bare.as_deref().unwrap_or(&self.exact)
    }
}

/// What known_hosts says about a key that a host presents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The host is listed with this key.
    Known,
    /// The host is not listed at all.
    Unknown,
    /// The host is listed, but with another key or another type of key.
    Changed {
        /// Where the listed key stands.
        file: PathBuf,
        /// On which line, from 1.
        line: usize,
        /// The listed key's SHA-256 fingerprint.
        listed: String,
        /// No key of the presented type is listed.
        other_type: bool,
    },
    /// The key, or the authority that certified it, is marked as `@revoked` for this host.
    Revoked {
        /// Where that is said.
        file: PathBuf,
        /// On which line, from 1.
        line: usize,
    },
    /// The host presents a certificate that does not hold, and the key in it is not listed either.
    Uncertified(CertificateFault),
}

impl Verdict {
    /// The verdict as the end of the matter: only a known key passes.
    pub(super) fn judge(self, host: &HostName, fingerprint: &str) -> Result<(), HostKeyError> {
        let (host, fingerprint) = (host.as_str().to_owned(), fingerprint.to_owned());
        match self {
            Self::Known => Ok(()),
            Self::Unknown => Err(HostKeyError::Unknown { host, fingerprint }),
            Self::Changed { file, line, listed, other_type } => {
                Err(HostKeyError::Changed { host, fingerprint, file, line, listed, other_type })
            }
            Self::Revoked { file, line } => Err(HostKeyError::Revoked { host, fingerprint, file, line }),
            Self::Uncertified(fault) => Err(HostKeyError::Certificate { host, fingerprint, fault }),
        }
    }
}

/// A known_hosts file that exists but can't be read.
#[derive(Debug, thiserror::Error)]
#[error("can't read {}", file.display())]
pub struct KnownHostsError {
    /// The file.
    pub file: PathBuf,
    /// Why.
    pub source: io::Error,
}

/// The entries of the known_hosts files that count for a host.
///
/// The format is sshd(8)'s: markers, comma-separated patterns with `*`, `?` and `!`, hashed names, `[host]:port`.
/// Lines that can't be understood are no entries. `@cert-authority` lines vouch for certificates only, never for a key.
#[derive(Debug, Default)]
pub struct KnownHosts {
    entries: Vec<Entry>,
}

#[derive(Debug)]
struct Entry {
    file: PathBuf,
    line: usize,
    marker: Marker,
    hosts: Hosts,
    key: PublicKey,
}

/// What an entry says of its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Marker {
    /// It is the host's.
    Plain,
    /// It signs certificates for the host.
    Authority,
    /// It must never be used again.
    Revoked,
}

#[derive(Debug)]
enum Hosts {
    Patterns(Vec<String>),
    /// HMAC-SHA1 of the name with a salt.
    Hashed {
        salt: Vec<u8>,
        hash: Vec<u8>,
    },
}

impl KnownHosts {
    /// Reads what the files say of `host`; entries for others are not kept. One that doesn't exist is empty; one that can't be
    /// read is an error, never empty.
    pub(super) async fn load(files: &[PathBuf], host: &HostName) -> Result<Self, KnownHostsError> {
        let (first, files, host) = (files.first().cloned().unwrap_or_default(), files.to_vec(), host.clone());
        let timed_out = |source| KnownHostsError { file: first.clone(), source };
        off_runtime(&first, move || Self::read(&files, &host)).await.map_err(timed_out)?
    }

    /// The same, for whoever may wait.
    pub fn read(files: &[PathBuf], host: &HostName) -> Result<Self, KnownHostsError> {
        let mut known = Self::default();
        for file in files {
            match std::fs::read(file) {
                Ok(bytes) => {
                    let text = String::from_utf8_lossy(&bytes);
                    let entries = parse(file, &text);
                    known.entries.extend(entries.filter(|entry| entry.is_for(host)));
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(source) => return Err(KnownHostsError { file: file.clone(), source }),
            }
        }
        Ok(known)
    }

    /// Adds the entries of a file's text.
    pub fn add(&mut self, file: &Path, text: &str) {
        self.entries.extend(parse(file, text));
    }

    /// Judges `key` as presented by `host`.
    pub fn verdict(&self, host: &HostName, key: &PublicKey) -> Verdict {
        self.under_each_name(host, |name| self.verdict_on(name, key))
    }

    /// Judges a certificate as presented by `host`.
    ///
    /// It counts when an `@cert-authority` line for the host lists its signer and it is without fault. Else, as with ssh, the
    /// key in it is judged like one that came without a certificate.
    pub fn verdict_on_certificate(
        &self,
        host: &HostName,
        certificate: &Certificate,
        rules: CertificateRules<'_>,
    ) -> Verdict {
        let key = PublicKey::from(certificate.public_key().clone());
        let signer = certificate.signature_key();
        self.under_each_name(host, |name| {
            if let Some(revoked) = self.revoked(name, signer) {
                return revoked;
            }
            let listed = self.of(name, Marker::Authority).any(|entry| entry.key.key_data() == signer);
            let fault = match listed {
                true => CertificateFault::find(certificate, host.principal(), rules),
                false => Some(CertificateFault::Foreign),
            };
            match (self.verdict_on(name, &key), fault) {
                (revoked @ Verdict::Revoked { .. }, _) => revoked,
                (_, None) => Verdict::Known,
                (Verdict::Unknown, Some(fault)) => Verdict::Uncertified(fault),
                (verdict, _) => verdict,
            }
        })
    }

    /// Off port 22 ssh also accepts an entry for the bare name, but holds only a revocation against the host.
    fn under_each_name(&self, host: &HostName, verdict_on: impl Fn(&str) -> Verdict) -> Verdict {
        let exact = verdict_on(&host.exact);
        let (Verdict::Unknown | Verdict::Uncertified(_), Some(bare)) = (&exact, &host.bare) else {
            return exact;
        };
        match (verdict_on(bare), exact) {
            (decided @ (Verdict::Known | Verdict::Revoked { .. }), _) => decided,
            // The signer may be listed under the bare name only; then its fault tells more.
            (fault @ Verdict::Uncertified(_), Verdict::Uncertified(CertificateFault::Foreign)) => fault,
            (Verdict::Unknown | Verdict::Changed { .. } | Verdict::Uncertified(_), exact) => exact,
        }
    }

    /// The entries for `name` that say this of their key.
    fn of(&self, name: &str, marker: Marker) -> impl Iterator<Item = &Entry> {
        self.entries.iter().filter(move |entry| entry.marker == marker && entry.hosts.contains(name))
    }

    fn revoked(&self, name: &str, key: &KeyData) -> Option<Verdict> {
        let entry = self.of(name, Marker::Revoked).find(|entry| entry.key.key_data() == key)?;
        Some(Verdict::Revoked { file: entry.file.clone(), line: entry.line })
    }

    fn verdict_on(&self, name: &str, key: &PublicKey) -> Verdict {
        if let Some(revoked) = self.revoked(name, key.key_data()) {
            return revoked;
        }
        let listed: Vec<_> = self.of(name, Marker::Plain).collect();
        if listed.iter().any(|entry| entry.key.key_data() == key.key_data()) {
            return Verdict::Known;
        }
        let same_type = |entry: &&&Entry| entry.key.algorithm() == key.algorithm();
        let Some(nearest) = listed.iter().find(same_type).or(listed.first()) else { return Verdict::Unknown };
        Verdict::Changed {
            file: nearest.file.clone(),
            line: nearest.line,
            listed: nearest.key.fingerprint(HashAlg::Sha256).to_string(),
            other_type: nearest.key.algorithm() != key.algorithm(),
        }
    }

    /// The types of the keys listed for `host`, so that the server can be asked for one of these first.
    pub fn key_types(&self, host: &HostName) -> Vec<Algorithm> {
        let types_for =
            |name: &str| self.of(name, Marker::Plain).map(|entry| entry.key.algorithm()).collect::<Vec<_>>();
        let exact = types_for(&host.exact);
        match &host.bare {
            Some(bare) if exact.is_empty() => types_for(bare),
            _ => exact,
        }
    }

    /// Whether an authority is listed that could vouch for `host`, or one that could be revoked for it.
    pub fn has_authority(&self, host: &HostName) -> bool {
        let names = || [Some(&host.exact), host.bare.as_ref()].into_iter().flatten();
        let listed = |marker| names().any(|name| self.of(name, marker).next().is_some());
        listed(Marker::Authority) || listed(Marker::Revoked)
    }
}

fn parse(file: &Path, text: &str) -> impl Iterator<Item = Entry> {
    let lines = text.lines().enumerate();
    lines.filter_map(|(index, line)| Entry::parse(file, index + 1, line))
}

impl Entry {
    /// Whether it counts for a host, under its name with port or without.
    fn is_for(&self, host: &HostName) -> bool {
        self.hosts.contains(&host.exact) || host.bare.as_ref().is_some_and(|bare| self.hosts.contains(bare))
    }

    fn parse(file: &Path, line: usize, text: &str) -> Option<Self> {
        let mut fields = text.split_ascii_whitespace().peekable();
        let first = fields.next_if(|field| field.starts_with('@'));
        let marker = match first {
            None => Marker::Plain,
            Some("@cert-authority") => Marker::Authority,
            Some("@revoked") => Marker::Revoked,
            Some(_) => return None,
        };
        let hosts = fields.next().filter(|hosts| !hosts.starts_with('#'))?;
        let (kind, blob) = (fields.next()?, fields.next()?);
        let key = russh::keys::parse_public_key_base64(blob).ok()?;
        // As ssh has it: what contradicts itself is no entry.
        if kind != key.algorithm().as_str() {
            return None;
        }
        Some(Self { file: file.to_owned(), line, marker, hosts: Hosts::parse(hosts)?, key })
    }
}

impl Hosts {
    fn parse(text: &str) -> Option<Self> {
        let Some(hashed) = text.strip_prefix("|1|") else {
            return Some(Self::Patterns(text.split(',').map(str::to_ascii_lowercase).collect()));
        };
        let (salt, hash) = hashed.split_once('|')?;
        Some(Self::Hashed {
            salt: BASE64_STANDARD.decode(salt).ok()?,
            hash: BASE64_STANDARD.decode(hash).ok()?,
        })
    }

    fn contains(&self, name: &str) -> bool {
        match self {
            Self::Hashed { salt, hash } => {
                let mut mac = hmac(salt);
                mac.update(name.as_bytes());
                mac.verify_slice(hash).is_ok()
            }
            Self::Patterns(patterns) => {
                let negated = |pattern: &String| {
                    pattern.strip_prefix('!').is_some_and(|pattern| glob_match(pattern, name))
                };
                !patterns.iter().any(negated) && patterns.iter().any(|pattern| glob_match(pattern, name))
            }
        }
    }
}

fn hmac(salt: &[u8]) -> Hmac<Sha1> {
    Hmac::new_from_slice(salt).expect("HMAC takes a key of any length")
}

/// Whether `name` matches `pattern`, in which `*` stands for any text and `?` for any character. Linear in practice:
/// only the last `*` is ever gone back to.
pub(super) fn glob_match(pattern: &str, name: &str) -> bool {
    let (pattern, name) = (pattern.as_bytes(), name.as_bytes());
    let (mut p, mut n) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while n < name.len() {
        if p < pattern.len() && pattern[p] == b'*' {
            star = Some((p, n));
            p += 1;
        } else if p < pattern.len() && (pattern[p] == b'?' || pattern[p] == name[n]) {
            p += 1;
            n += 1;
        } else if let Some((at, taken)) = star {
            star = Some((at, taken + 1));
            p = at + 1;
            n = taken + 1;
        } else {
            return false;
        }
    }
    pattern[p..].iter().all(|&byte| byte == b'*')
}

#[cfg(test)]
mod tests;
