use std::io;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use russh::keys::ssh_key::public::KeyData;
use russh::keys::{Algorithm, Certificate, HashAlg, PublicKey, PublicKeyOrCertificate};

use super::entry::{Entry, Marker, parse};
use super::{CertificateFault, CertificateRules, HostName, KnownHostsError, Verdict};
use crate::ssh::HostConfig;
use crate::ssh::files::off_runtime;

/// The entries of the known_hosts files that count for a host.
///
/// The format is sshd(8)'s: markers, comma-separated patterns with `*`, `?` and `!`, hashed names, `[host]:port`.
/// Lines that can't be understood are no entries. `@cert-authority` lines vouch for certificates only, never for a key.
#[derive(Debug, Default)]
pub struct KnownHosts {
    entries: Vec<Entry>,
}

impl KnownHosts {
    /// Reads what the files say of `host`; entries for others are not kept. One that doesn't exist is empty; one that can't be
    /// read is an error, never empty.
    pub(crate) async fn load(files: &[PathBuf], host: &HostName) -> Result<Self, KnownHostsError> {
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

    /// Judges what a configured host presents: a key or a certificate.
    pub(crate) fn verdict_on(&self, host: &HostConfig, presented: &PublicKeyOrCertificate) -> Verdict {
        let name = HostName::of(host);
        match presented {
            PublicKeyOrCertificate::PublicKey { key, .. } => self.verdict(&name, key),
            PublicKeyOrCertificate::Certificate(certificate) => {
                // A clock before 1970 makes every certificate one of the future.
                let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |age| age.as_secs());
                let signatures = host.ca_signature_algorithms.as_deref();
                let rules = CertificateRules { now, shortest_rsa: host.shortest_rsa, signatures };
                self.verdict_on_certificate(&name, certificate, rules)
            }
        }
    }

    /// Judges `key` as presented by `host`.
    pub fn verdict(&self, host: &HostName, key: &PublicKey) -> Verdict {
        self.under_each_name(host, |name| self.verdict_on_key(name, key))
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
            match (self.verdict_on_key(name, &key), fault) {
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

    fn verdict_on_key(&self, name: &str, key: &PublicKey) -> Verdict {
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

#[cfg(test)]
mod tests;
