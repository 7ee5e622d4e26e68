//! The cluster that the command line or the configuration names, and the tokens of a server.

use sshjobs_core::jobs::{Cluster, ClusterConfig, Config};
use sshjobs_wire::tokens::Tokens;
use sshjobs_wire::{Code, Error};

/// Connects to the cluster that the option or the configuration names, if there is one.
pub(super) async fn cluster(
    config: &Config,
    urls: Option<&String>,
) -> Result<Option<Cluster>, Error> {
    match named(config, urls)? {
        Some(config) => Ok(Some(Cluster::connect(&config).await?)),
        None => Ok(None),
    }
}

/// Like [`cluster`], but waits while NATS can't be reached.
pub(super) async fn cluster_when_there(
    config: &Config,
    urls: Option<&String>,
) -> Result<Option<Cluster>, Error> {
    match named(config, urls)? {
        Some(config) => Ok(Some(Cluster::connect_when_there(&config).await?)),
        None => Ok(None),
    }
}

/// The configuration of the cluster that is named, if there is one.
fn named(config: &Config, urls: Option<&String>) -> Result<Option<ClusterConfig>, Error> {
    let config = ClusterConfig {
        nats: urls.cloned().or_else(|| config.cluster.nats.clone()),
        ..config.cluster.clone()
    };
    let servers = config.servers().map_err(|why| {
        Error::invalid(
            format!("the URLs of the cluster can't be used: {why}"),
            "see docs/cluster.md",
        )
    })?;
    Ok((!servers.is_empty()).then_some(config))
}

/// The cluster, or the error that none is named.
pub(super) fn require(cluster: Option<Cluster>) -> Result<Cluster, Error> {
    let hint = "name one with --cluster nats://HOST:4222, or as `nats` in the table \
                [cluster] of the configuration";
    cluster.ok_or_else(|| Error::invalid("no NATS server of a cluster is named", hint))
}

/// The tokens of the cluster, or of the state directory.
pub(super) async fn tokens(config: &Config, cluster: Option<&Cluster>) -> Result<Tokens, Error> {
    if let Some(cluster) = cluster.cloned() {
        let text = tokio::task::spawn_blocking(move || cluster.tokens()).await;
        let text = text
            .expect("reading tokens does not panic")
            .map_err(sshjobs_core::jobs::Error::from)?;
        return Ok(Tokens::of_cluster(text));
    }
    match config.state_dir() {
        Some(state_dir) => Ok(Tokens::of(&state_dir)),
        None => Err(no_state_dir()),
    }
}

pub(super) fn no_state_dir() -> Error {
    Error::new(
        Code::Io,
        "no state directory is available",
        "name one with --state-dir",
    )
}
