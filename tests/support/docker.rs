//! Containers of the tests, removed when dropped.

use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;
use std::process::Command;

/// Runs docker and returns its stdout. Panics if it fails.
pub fn docker(arguments: &[&str]) -> String {
    let output = Command::new("docker").args(arguments).output().expect("docker");
    let (stdout, stderr) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert!(
        output.status.success(),
        "docker {arguments:?}: {stdout}{stderr}"
    );
    stdout.trim().to_owned()
}

/// A running container. Removed when dropped.
pub struct Container {
    pub id: String,
}

impl Container {
    /// Runs a command in its shell and returns its stdout. Panics if it fails.
    pub fn run(&self, command: &str) -> String {
        docker(&["exec", &self.id, "sh", "-euc", command])
    }

    /// A part of docker's description of it, by a Go template.
    pub fn inspect(&self, template: &str) -> String {
        docker(&["inspect", "--format", template, &self.id])
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        let remove = ["rm", "--force", "--volumes", &self.id];
        Command::new("docker").args(remove).output().ok();
    }
}

/// An image around one program. Removed when dropped; its containers must be gone by then.
pub struct Image {
    pub name: String,
}

impl Image {
    /// Builds the image of a Dockerfile around this program.
    pub fn build(dockerfile: &str, program: &Path) -> Self {
        let context = tempfile::tempdir().unwrap();
        std::fs::copy(program, context.path().join("sshjobs")).unwrap();
        let name = format!("sshjobs-image-test-{}", std::process::id());
        let context = context.path().to_str().unwrap();
        docker(&[
            "build",
            "--network",
            "host",
            "-q",
            "-f",
            dockerfile,
            "-t",
            &name,
            context,
        ]);
        Self { name }
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        let remove = ["rmi", "--force", &self.name];
        Command::new("docker").args(remove).output().ok();
    }
}

/// A directory for the `.ssh` of a container's user, with this `ssh_config` and the files that it names.
pub fn dot_ssh(config: &Path, user: u32) -> tempfile::TempDir {
    let own = tempfile::tempdir().unwrap();
    let fleet = config.parent().unwrap();
    let text = std::fs::read_to_string(config).unwrap();
    let text = text.replace(fleet.to_str().unwrap(), "/home/sshjobs/.ssh");
    std::fs::write(own.path().join("config"), text).unwrap();
    for file in ["id", "known_hosts"] {
        std::fs::copy(fleet.join(file), own.path().join(file)).unwrap();
    }
    for entry in std::fs::read_dir(own.path()).unwrap() {
        let path = entry.unwrap().path();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        chown(&path, Some(user), Some(user)).unwrap();
    }
    std::fs::set_permissions(own.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    own
}
