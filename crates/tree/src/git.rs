//! Reads the tracked files and the commit of a directory from git. Without git, there are none.
//!
//! The directory may be one that an agent writes to, so git runs none of the programs that its configuration names.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Files below `root` that git tracks, by their paths below it. None without git, or if `root` belongs to no repository.
///
/// # Errors
/// What git says, if it can't read the repository.
pub(crate) fn tracked_files(root: &Path) -> Result<Vec<PathBuf>, String> {
    let listed = match run_git(root, &["ls-files", "-z"]) {
        Ok(listed) => listed,
        Err(why) if is_in_repository(root) => return Err(why),
        Err(_) => return Ok(Vec::new()),
    };
    let paths = listed.split(|byte| *byte == 0).filter(|path| !path.is_empty());
    Ok(paths.map(|path| OsStr::from_bytes(path).into()).collect())
}

/// The commit that is checked out.
pub(crate) fn commit(root: &Path) -> Option<String> {
    let printed = run_git(root, &["rev-parse", "--verify", "--quiet", "HEAD"]).ok()?;
    let commit = String::from_utf8(printed).ok()?.trim().to_owned();
    let is_hash = commit.len() >= 40 && commit.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_hash.then_some(commit)
}

fn is_in_repository(root: &Path) -> bool {
    let root = root.canonicalize().unwrap_or_else(|_| root.to_owned());
    root.ancestors().any(|directory| {
        let git = directory.join(".git");
        git.is_file() || git.join("HEAD").exists()
    })
}

/// What a command of git prints.
///
/// # Errors
/// What it says if it fails. Without git, nothing is printed.
fn run_git(root: &Path, words: &[&str]) -> Result<Vec<u8>, String> {
    let ran = Command::new("git")
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
        .output();
    match ran {
        Ok(ended) if ended.status.success() => Ok(ended.stdout),
        Ok(ended) => Err(String::from_utf8_lossy(&ended.stderr).trim().to_owned()),
        Err(error) => {
            tracing::warn!(%error, "git can't be run, so files that it tracks count as ignored if a .gitignore names them");
            Ok(Vec::new())
        }
    }
}
