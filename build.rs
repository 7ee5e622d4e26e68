//! Notes the commit of a release build and the features of any, for `sshjobs --version`.

use std::env;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=SSHJOBS_COMMIT");
    println!("cargo::rustc-env=SSHJOBS_FEATURES={}", features());
    if let Some(commit) = commit() {
        println!("cargo::rustc-env=SSHJOBS_COMMIT={commit}");
    }
}

/// The features that make a difference to users.
fn features() -> String {
    let mut features = vec!["cli", "http", "mcp", "cluster"];
    features.retain(|feature| {
        env::var_os(format!("CARGO_FEATURE_{}", feature.to_uppercase())).is_some()
    });
    features.join(" ")
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
    let log = ".git/logs/HEAD";
    if std::path::Path::new(log).exists() {
        println!("cargo::rerun-if-changed={log}");
    }
    let output = Command::new("git").args(["rev-parse", "--short=12", "HEAD"]).output().ok()?;
    let commit = String::from_utf8(output.stdout).ok()?;
    (output.status.success() && !commit.trim().is_empty()).then(|| commit.trim().to_owned())
}
