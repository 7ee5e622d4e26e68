//! What git knows of a directory. Without git, nothing.
//!
//! The directory may be one that an agent writes to, so git runs none of the programs that its configuration names.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Files below `root` that git tracks, by their paths below it.
pub(crate) fn tracked_files(root: &Path) -> Vec<PathBuf> {
    let listed = ask(root, &["ls-files", "-z"]).unwrap_or_default();
    let paths = listed.split(|byte| *byte == 0).filter(|path| !path.is_empty());
    paths.map(|path| OsStr::from_bytes(path).into()).collect()
}

/// The commit that is checked out.
pub(crate) fn commit(root: &Path) -> Option<String> {
    let printed = ask(root, &["rev-parse", "--verify", "--quiet", "HEAD"])?;
    let commit = String::from_utf8(printed).ok()?.trim().to_owned();
    let is_hash = commit.len() >= 40 && commit.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_hash.then_some(commit)
}

/// What a command of git prints. `None` if it fails, or there is no git.
fn ask(root: &Path, words: &[&str]) -> Option<Vec<u8>> {
    let asked = Command::new("git")
        .args([
            "-c",
            "core.fsmonitor=false",
            "-c",
            "core.hooksPath=/dev/null",
        ])
        .args(words)
        .current_dir(root)
        // These would name another repository.
        .env_remove("GIT_DIR")
        .env_remove("GIT_WORK_TREE")
        .env_remove("GIT_INDEX_FILE")
        .env("GIT_OPTIONAL_LOCKS", "0")
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output();
    match asked {
        Ok(ended) if ended.status.success() => Some(ended.stdout),
        Ok(_) => None,
        Err(error) => {
            tracing::debug!(%error, "git can't be asked");
            None
        }
    }
}
