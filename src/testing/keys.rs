use std::io;
use std::path::Path;
use std::process::{Command, Stdio};

/// Creates a key without a passphrase in `file`, and its public half in `file.pub`. `kind` are
/// arguments of ssh-keygen(1), such as `["-t", "ed25519"]`.
///
/// # Errors
/// If ssh-keygen is missing or fails.
pub fn keygen(file: &Path, kind: &[&str]) -> io::Result<()> {
    ssh_keygen(&[kind, &["-N", "", "-f", &file.display().to_string()]].concat())
}

/// Runs ssh-keygen(1) quietly.
///
/// # Errors
/// If it is missing or fails.
pub fn ssh_keygen(arguments: &[&str]) -> io::Result<()> {
    let status = Command::new("ssh-keygen")
        .arg("-q")
        .args(arguments)
        .stdout(Stdio::null())
        .status();
    let status = status.map_err(|error: io::Error| {
        io::Error::new(error.kind(), format!("ssh-keygen can't be run: {error}"))
    })?;
    if status.success() {
        Ok(())
    } else {
        Err(io::Error::other(format!("ssh-keygen ended with {status}")))
    }
}
