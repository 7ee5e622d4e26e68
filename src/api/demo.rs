use super::{Code, Config, Error, Service};
use crate::ssh::LoopbackServer;

/// A service with one host, `demo`: an SSH server inside this process. Nothing has to be set up.
pub struct Demo {
    /// The service.
    pub service: Service,
    _server: LoopbackServer,
}

impl Demo {
    /// The host's name.
    pub const HOST: &str = "demo";

    /// Starts the server and a service that knows it.
    pub async fn start() -> Result<Self, Error> {
        let server = LoopbackServer::start().await.map_err(|error| {
            Error::new(
                Code::Io,
                format!("the demo's SSH server can't start: {error}"),
                "check the temporary directory",
            )
        })?;
        let service = Service::with_host(Config::default(), server.host_config(Self::HOST));
        Ok(Self { service, _server: server })
    }
}
