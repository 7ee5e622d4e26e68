//! Verdicts of known_hosts on keys and certificates, compared with the real ssh in tests.

use std::io;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use russh::keys::ssh_key::public::KeyData;
use russh::keys::{Algorithm, Certificate, HashAlg, PublicKey, PublicKeyOrCertificate};

use super::entry::{KnownHostsLine, Marker, undecoded_lines};
use super::known_hosts_file::KnownHostsFile;
use super::{CertificateFault, CertificateRules, HostName, KnownHostsError, Verdict};
use crate::HostConfig;
use crate::files::off_runtime;

/// Entries of the known_hosts files that apply to a host.
///
/// The format is that of sshd(8): markers, comma-separated patterns with `*`, `?` and `!`, hashed
/// names, `[host]:port`. Lines that can't be parsed are skipped. `@cert-authority` lines allow
/// certificates only, never a plain key.
#[derive(Debug, Default)]
pub struct KnownHosts {
    entries: Vec<KnownHostsLine>,
}

impl KnownHosts {
    /// Reads the entries for `host`. A missing file is empty; one that can't be read is an error,
    /// never empty.
    pub async fn load(files: &[PathBuf], host: &HostName) -> Result<Self, KnownHostsError> {
        let first = files.first().cloned().unwrap_or_default();
        let files = files.to_vec();
        let host = host.clone();
        off_runtime(&first, move || Self::read(&files, &host)).await.map_err(|source| {
            KnownHostsError {
                file: first.clone(),
                source,
            }
        })?
    }

    /// Blocking version of [`load`](Self::load).
    pub fn read(files: &[PathBuf], host: &HostName) -> Result<Self, KnownHostsError> {
        let mut known = Self::default();
        for file in files {
            match KnownHostsFile::open(file) {
                Ok(lines) => known.entries.extend(lines.lines_for(host)),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(source) => {
                    return Err(KnownHostsError {
                        file: file.clone(),
                        source,
                    });
                }
            }
        }
        Ok(known)
    }

    /// Adds the entries of a file's text.
    pub fn add(&mut self, file: &Path, text: &str) {
        let lines = undecoded_lines(file, text);
        self.entries.extend(lines.filter_map(|line| line.decode(file, text)));
    }

    /// Judges a key or certificate presented by a configured host.
    pub(crate) fn verdict_on(
        &self,
        host: &HostConfig,
        presented: &PublicKeyOrCertificate,
    ) -> Verdict {
        let name = HostName::of(host);
        match presented {
            PublicKeyOrCertificate::PublicKey { key, .. } => self.verdict(&name, key),
            PublicKeyOrCertificate::Certificate(certificate) => {
                // With a clock before 1970 every certificate is in the future.
                let now =
                    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |age| age.as_secs());
                let signatures = host.ca_signature_algorithms.as_deref();
                let rules = CertificateRules {
                    now,
                    shortest_rsa: host.shortest_rsa,
                    signatures,
                };
                self.verdict_on_certificate(&name, certificate, rules)
            }
        }
    }

    /// Judges a key presented by `host`.
    pub fn verdict(&self, host: &HostName, key: &PublicKey) -> Verdict {
        self.under_each_name(host, |name| self.verdict_on_key(name, key))
    }

    /// Judges a certificate presented by `host`.
    ///
    /// It is accepted if an `@cert-authority` line for the host lists its signer and it has no
    /// fault. Otherwise, as in ssh, its key is judged like one presented without a certificate.
    pub fn verdict_on_certificate(
        &self,
        host: &HostName,
        certificate: &Certificate,
        rules: CertificateRules<'_>,
    ) -> Verdict {
        let key = PublicKey::from(certificate.public_key().clone());
        let signer = certificate.signature_key();
        self.under_each_name(host, |name| {
            // First, because a revoked authority may still be listed as one.
            if let Some(revoked) = self.revoked(name, signer) {
                return revoked;
            }
            let listed =
                self.of(name, Marker::Authority).any(|entry| entry.key.key_data() == signer);
            let fault = if listed {
                CertificateFault::find(certificate, host.principal(), rules)
            } else {
                Some(CertificateFault::Foreign)
            };
            match (self.verdict_on_key(name, &key), fault) {
                (revoked @ Verdict::Revoked { .. }, _) => revoked,
                // A valid certificate is enough, even if another plain key is listed for the host.
                (_, None) => Verdict::Known,
                (Verdict::Unknown, Some(fault)) => Verdict::Uncertified(fault),
                (verdict, _) => verdict,
            }
        })
    }

    /// Judges the host by its name with the port and, if that decides nothing, by its bare name, as
    /// ssh does for ports other than 22. Under the bare name a key can be known or revoked; another
    /// key that is listed there is no mismatch.
    fn under_each_name(&self, host: &HostName, verdict_on: impl Fn(&str) -> Verdict) -> Verdict {
        let exact = verdict_on(&host.exact);
        if !matches!(exact, Verdict::Unknown | Verdict::Uncertified(_)) {
            return exact;
        }
        let Some(bare) = &host.bare else { return exact };
        match (verdict_on(bare), exact) {
            (decided @ (Verdict::Known | Verdict::Revoked { .. }), _) => decided,
            // The signer may be listed under the bare name only. Then the certificate's fault found
            // there says more than that its signer is not listed.
            (fault @ Verdict::Uncertified(_), Verdict::Uncertified(CertificateFault::Foreign)) => {
                fault
            }
            (Verdict::Unknown | Verdict::Changed { .. } | Verdict::Uncertified(_), exact) => exact,
        }
    }

    /// Entries for `name` with this marker.
    fn of(&self, name: &str, marker: Marker) -> impl Iterator<Item = &KnownHostsLine> {
        self.entries
            .iter()
            .filter(move |entry| entry.marker == marker && entry.hosts.contains(name))
    }

    fn revoked(&self, name: &str, key: &KeyData) -> Option<Verdict> {
        let entry = self.of(name, Marker::Revoked).find(|entry| entry.key.key_data() == key)?;
        Some(Verdict::Revoked {
            file: entry.file.clone(),
            line: entry.line,
        })
    }

    fn verdict_on_key(&self, name: &str, key: &PublicKey) -> Verdict {
        if let Some(revoked) = self.revoked(name, key.key_data()) {
            return revoked;
        }
        let listed: Vec<&KnownHostsLine> = self.of(name, Marker::Plain).collect();
        let vouches = |entry: &&KnownHostsLine| {
            !entry.is_certificate && entry.key.key_data() == key.key_data()
        };
        if listed.iter().any(vouches) {
            return Verdict::Known;
        }
        // The error names the entry of the same type, which is the one to check.
        let Some(nearest) = listed
            .iter()
            .find(|entry| entry.key.algorithm() == key.algorithm())
            .or(listed.first())
        else {
            return Verdict::Unknown;
        };
        Verdict::Changed {
            file: nearest.file.clone(),
            line: nearest.line,
            listed: nearest.key.fingerprint(HashAlg::Sha256).to_string(),
            other_type: nearest.key.algorithm() != key.algorithm(),
        }
    }

    /// Types of the keys listed for `host`, to request these first from the server.
    pub fn key_types(&self, host: &HostName) -> Vec<Algorithm> {
        let exact = self.types_for(&host.exact);
        match &host.bare {
            Some(bare) if exact.is_empty() => self.types_for(bare),
            _ => exact,
        }
    }

    /// Whether `host` has a `@cert-authority` line, or a `@revoked` line, whose key may be that of
    /// an authority.
    pub fn has_authority(&self, host: &HostName) -> bool {
        let mut names = [Some(&host.exact), host.bare.as_ref()].into_iter().flatten();
        names.any(|name| {
            let mut entries =
                self.of(name, Marker::Authority).chain(self.of(name, Marker::Revoked));
            entries.next().is_some()
        })
    }

    /// Fingerprints of the keys that are trusted for the hosts and authorities of the entries, in
    /// order and each once.
    pub fn fingerprints(&self) -> Vec<String> {
        let trusted = self.entries.iter().filter(|entry| entry.marker != Marker::Revoked);
        let mut found: Vec<String> = trusted
            .map(|entry| entry.key.fingerprint(HashAlg::Sha256).to_string())
            .collect();
        found.sort();
        found.dedup();
        found
    }

    fn types_for(&self, name: &str) -> Vec<Algorithm> {
        self.of(name, Marker::Plain).map(|entry| entry.key.algorithm()).collect()
    }
}

#[cfg(test)]
mod tests;
