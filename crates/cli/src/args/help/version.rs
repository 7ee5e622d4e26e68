/// Version and commit.
pub(crate) fn long_version() -> String {
    let commit = option_env!("SSHJOBS_COMMIT").unwrap_or("not recorded");
    format!("{}\ncommit: {commit}", env!("CARGO_PKG_VERSION"))
}
