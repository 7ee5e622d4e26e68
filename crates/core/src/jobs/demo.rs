use std::sync::Arc;

use super::config::Config;
use super::error::Error;
use super::jobs::Jobs;
use sshjobs_ssh::LoopbackServer;

/// Jobs on one host, `demo`: an SSH server inside this process. It needs no setup.
pub struct Demo {
    /// The jobs.
    pub jobs: Jobs,
    _server: LoopbackServer,
}

impl Demo {
    /// The host's name.
    pub const HOST: &str = "demo";

    /// Starts the server, and jobs that know it.
    ///
    /// # Errors
    /// [`Error::Demo`] if it can't listen, or its keys can't be written.
    pub async fn start() -> Result<Self, Error> {
        let server = LoopbackServer::start().await.map_err(|error| Error::Demo(Arc::new(error)))?;
        let jobs = Jobs::with_host(
            Config {
                store: false,
                ..Config::default()
            },
            server.host_config(Self::HOST),
        );
        Ok(Self {
            jobs,
            _server: server,
        })
    }
}
