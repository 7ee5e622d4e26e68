//! Notes the commit of a release build, for `sshjobs --version`.

use std::env;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=SSHJOBS_COMMIT");
    if let Some(commit) = commit() {
        println!("cargo::rustc-env=SSHJOBS_COMMIT={commit}");
    }
}

/// The commit that is built, if this is a checkout. A debug build is not built again for a new
/// commit, and has none.
fn commit() -> Option<String> {
    if let Ok(commit) = env::var("SSHJOBS_COMMIT") {
        return Some(commit);
    }
    if env::var("PROFILE").ok()? != "release" {
        return None;
    }
    // Grows with each commit and checkout. A file that is missing would cause a build each time.
    let log = "../../.git/logs/HEAD";
    if std::path::Path::new(log).exists() {
        println!("cargo::rerun-if-changed={log}");
    }
    let output = Command::new("git").args(["rev-parse", "--short=12", "HEAD"]).output().ok()?;
    let commit = String::from_utf8(output.stdout).ok()?;
    (output.status.success() && !commit.trim().is_empty()).then(|| commit.trim().to_owned())
}
