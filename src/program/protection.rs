//! Limits of this process that protect its secrets.

use rustix::process::{
    DumpableBehavior, Resource, Rlimit, getrlimit, set_dumpable_behavior, setrlimit,
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
                current: files.maximum,
                ..files
            },
        ),
    ];
    for (resource, limit) in limits {
        if let Err(error) = setrlimit(resource, limit) {
            tracing::debug!(%error, ?resource, "a limit could not be set");
        }
    }
    if let Err(error) = set_dumpable_behavior(DumpableBehavior::NotDumpable) {
        tracing::debug!(%error, "our memory could not be protected");
    }
}
