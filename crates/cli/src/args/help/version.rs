/// The features that make a difference to users.
const FEATURES: &str = if cfg!(feature = "cluster") {
    "cli http mcp cluster"
} else {
    "cli http mcp"
};

/// Version, commit and features.
pub(crate) fn long_version() -> String {
    let commit = option_env!("SSHJOBS_COMMIT").unwrap_or("not recorded");
    format!(
        "{}\ncommit: {commit}\nfeatures: {}",
        env!("CARGO_PKG_VERSION"),
        FEATURES
    )
}
