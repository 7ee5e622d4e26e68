//! A host's key for a person to confirm, and writing it to known_hosts.

use std::fs::{DirBuilder, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use russh::keys::{HashAlg, PublicKey, PublicKeyOrCertificate};

use super::key::fingerprint;
use super::{HostKeyError, HostName, KnownHosts, KnownHostsError, TrustError, Verdict};
use crate::HostConfig;
use crate::files::off_runtime;

/// The key that a host presents, with its verdict.
#[derive(Debug)]
pub struct PresentedKey {
    /// The host.
    pub host: HostConfig,
    presented: PublicKeyOrCertificate,
    /// Verdict of known_hosts.
    pub verdict: Verdict,
}

impl PresentedKey {
    pub(crate) async fn new(
        host: &HostConfig,
        presented: PublicKeyOrCertificate,
    ) -> Result<Self, KnownHostsError> {
        let known = KnownHosts::load(&host.known_hosts, &HostName::of(host)).await?;
        let verdict = known.verdict_on(host, &presented);
        Ok(Self {
            host: host.clone(),
            presented,
            verdict,
        })
    }

    fn key(&self) -> PublicKey {
        self.presented.public_key()
    }

    /// The key, unless known_hosts lists another one or marks it as revoked.
    pub(crate) fn reject_conflict(self) -> Result<Self, HostKeyError> {
        match &self.verdict {
            Verdict::Known | Verdict::Unknown => Ok(self),
            verdict @ (Verdict::Changed { .. }
            | Verdict::Revoked { .. }
            | Verdict::Uncertified(_)) => verdict
                .clone()
                .judge(&HostName::of(&self.host), &self.fingerprint())
                .map(|()| self),
        }
    }

    /// Type and SHA-256 fingerprint.
    pub fn fingerprint(&self) -> String {
        fingerprint(&self.key())
    }

    /// Fingerprint as a picture, as ssh-keygen draws it.
    pub fn randomart(&self) -> String {
        let header = format!(
            "[{}]",
            self.key().algorithm().as_str().trim_start_matches("ssh-").to_uppercase()
        );
        self.key().fingerprint(HashAlg::Sha256).to_randomart(&header)
    }

    /// Writes the key to the host's first known_hosts file and returns that file.
    ///
    /// Appends one line in one write, with the file locked against other writers of this program.
    /// Writes nothing if this key or another one is listed already. If cancelled, the key may have
    /// been written.
    pub async fn trust(self: Arc<Self>) -> Result<PathBuf, TrustError> {
        let file = self.host.own_known_hosts.clone().unwrap_or_default();
        let path = file.clone();
        off_runtime(&path, move || self.write())
            .await
            .map_err(|source| TrustError::Unwritable { file, source })?
    }

    fn write(&self) -> Result<PathBuf, TrustError> {
        let name = HostName::of(&self.host);
        let file = self
            .host
            .own_known_hosts
            .as_ref()
            .ok_or_else(|| TrustError::NoFile(self.host.name.clone()))?;
        let unwritable = |source| TrustError::Unwritable {
            file: file.clone(),
            source,
        };
        let mut opened = open(file).map_err(unwritable)?;
        // Locked up to the end of the function: the check and the write belong together.
        opened.lock().map_err(unwritable)?;
        // Another process may have changed the file since the verdict.
        let known = KnownHosts::read(&self.host.known_hosts, &name).map_err(HostKeyError::from)?;
        match known.verdict_on(&self.host, &self.presented) {
            Verdict::Known => return Ok(file.clone()),
            Verdict::Unknown => {}
            verdict @ (Verdict::Changed { .. }
            | Verdict::Revoked { .. }
            | Verdict::Uncertified(_)) => {
                verdict.judge(&name, &self.fingerprint())?;
            }
        }
        let key = self.key().to_openssh().map_err(|error| unwritable(io::Error::other(error)))?;
        let line_end = if ends_in_mid_line(&mut opened).map_err(unwritable)? {
            "\n"
        } else {
            ""
        };
        let name = if self.host.hash_known_hosts {
            name.hashed()
        } else {
            name.as_str().to_owned()
        };
        let line = format!("{line_end}{name} {}\n", key.trim_end());
        opened.write_all(line.as_bytes()).map_err(unwritable)?;
        // /dev/null, a common UserKnownHostsFile, can't be synced.
        if opened.metadata().is_ok_and(|file| file.is_file()) {
            opened.sync_all().map_err(unwritable)?;
        }
        Ok(file.clone())
    }
}

fn open(file: &Path) -> io::Result<std::fs::File> {
    if let Some(directory) = file.parent() {
        DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    }
    OpenOptions::new().read(true).append(true).create(true).mode(0o600).open(file)
}

fn ends_in_mid_line(file: &mut std::fs::File) -> io::Result<bool> {
    if file.seek(SeekFrom::End(0))? == 0 {
        return Ok(false);
    }
    file.seek(SeekFrom::End(-1))?;
    let mut last = [0];
    file.read_exact(&mut last)?;
    Ok(last != [b'\n'])
}
