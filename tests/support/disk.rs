//! A disk that a test may fill.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A small disk of its own, for as long as the test runs. Only root can mount it.
pub struct Disk(PathBuf);

impl Disk {
    pub fn mount(path: PathBuf, options: &str) -> Self {
        std::fs::create_dir_all(&path).unwrap();
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", options, "none"])
            .arg(&path)
            .status();
        assert!(mounted.unwrap().success(), "{}", path.display());
        Self(path)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Takes all the room there is. Returns the file that takes it.
    pub fn fill(&self) -> PathBuf {
        let ballast = self.0.join("ballast");
        let zeros = Command::new("dd")
            .arg("if=/dev/zero")
            .arg(format!("of={}", ballast.display()))
            .args(["bs=4096", "status=none"])
            .stderr(Stdio::null())
            .status();
        assert!(!zeros.unwrap().success(), "it ends when the disk is full");
        ballast
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // If it fails, the test has already failed.
        Command::new("umount").arg("-l").arg(&self.0).status().ok();
    }
}
