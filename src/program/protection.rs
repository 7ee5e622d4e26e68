//! Limits of this process that protect its secrets.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Maximum of the limit of open files. macOS takes no higher one (`OPEN_MAX`), although its own limit is infinite.
const MOST_FILES: Option<u64> = if cfg!(target_os = "macos") {
    Some(10_240)
} else {
    None
};

/// Protects keys and passwords in memory: no core file contains them, and no other process of the
/// user may read them. Also raises the limit of open files as far as possible, because each
/// connection is one.
pub(super) fn protect_memory() {
    let files = getrlimit(Resource::Nofile);
    let limits = [
        (
            Resource::Core,
            Rlimit {
                current: Some(0),
                maximum: Some(0),
            },
        ),
        (
            Resource::Nofile,
            Rlimit {
                current: lower(files.maximum, MOST_FILES),
                ..files
            },
        ),
    ];
    for (resource, limit) in limits {
        if let Err(error) = setrlimit(resource, limit) {
            tracing::debug!(%error, ?resource, "a limit could not be set");
        }
    }
    hide_memory();
}

/// The lower of two limits. `None` is infinite.
fn lower(one: Option<u64>, other: Option<u64>) -> Option<u64> {
    one.into_iter().chain(other).min()
}

/// Keeps other processes of the user from reading our memory.
#[cfg(target_os = "linux")]
fn hide_memory() {
    use rustix::process::{DumpableBehavior, set_dumpable_behavior};

    if let Err(error) = set_dumpable_behavior(DumpableBehavior::NotDumpable) {
        tracing::debug!(%error, "our memory could not be protected");
    }
}

/// macOS lets only programs with an entitlement, and root, read the memory of others.
#[cfg(not(target_os = "linux"))]
fn hide_memory() {}
