use std::ops::{Deref, DerefMut};
use std::path::{Path, PathBuf};

use sshjobs::testing;
use sshjobs_core::jobs::{Access, Config, Jobs};

/// A [`testing::Sshd`] that is killed at the end of its test.
pub struct Sshd(testing::Sshd);

impl Sshd {
    pub async fn start() -> Self {
        Self::with("").await
    }

    pub async fn with(options: &str) -> Self {
        Self::prepared(options, |_| {}).await
    }

    pub async fn prepared(options: &str, prepare: impl FnOnce(&Path)) -> Self {
        Self(
            testing::Sshd::prepared(options, prepare)
                .await
                .expect("`make test` installs sshd"),
        )
    }

    /// A configuration with this host and no other, under which nothing is stored.
    pub fn config(&self) -> Config {
        Config {
            ssh_config: Some(self.ssh_config()),
            ..super::unstored()
        }
    }

    /// Jobs that know this host and no other, and store nothing.
    pub fn jobs(&self) -> Jobs {
        Jobs::new(self.config(), Access::Listed)
    }

    /// Files of a durable job on the host.
    pub fn spool(&self, job: &str) -> PathBuf {
        let machine = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
        self.path("on-the-host/sshjobs/spool").join(machine.trim()).join(job)
    }
}

impl Deref for Sshd {
    type Target = testing::Sshd;

    fn deref(&self) -> &testing::Sshd {
        &self.0
    }
}

impl DerefMut for Sshd {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.0
    }
}

/// Makes a key without a passphrase.
pub fn keygen(file: &Path, kind: &[&str]) {
    testing::keygen(file, kind).expect("a key");
}

/// Runs ssh-keygen, quietly.
pub fn ssh_keygen(arguments: &[&str]) {
    testing::ssh_keygen(arguments).expect("ssh-keygen does it");
}
