use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use crate::oidc::Oidc;
use crate::peers::ClusterPrompters;
use sshjobs_core::jobs::Role;
use sshjobs_wire::tokens::Tokens;

/// Where a server listens, and which clients it accepts. By default it does not listen. Once an
/// address is set, every client has read access as the user who started it.
pub struct ServerOptions {
    /// Address to listen on.
    pub address: Option<SocketAddr>,
    /// Path of a unix socket to listen on. Only its owner may connect.
    pub socket: Option<PathBuf>,
    /// In a cluster, who asks this replica's clients on behalf of other replicas.
    pub prompters: Option<ClusterPrompters>,
    /// Address for metrics, which need no token.
    pub metrics: Option<SocketAddr>,
    /// Certificate and key. Without them the address uses plain HTTP.
    pub tls: Option<TlsFiles>,
    /// Names by which clients may call the server, in addition to loopback names and its own
    /// address: values of the Host header.
    pub names: Vec<String>,
    /// Origins of web pages that may call the server, in addition to its own.
    pub origins: Vec<String>,
    /// Prefix of all paths, such as `/sshjobs`, for a proxy that does not remove it.
    pub prefix: String,
    /// URL at which browsers reach the server, without a final slash. `None` if it is the one that
    /// the client used.
    pub public_url: Option<String>,
    /// In a cluster, time for attached jobs to end when the server shuts down.
    pub drain: Duration,
    /// Maximum role of any caller.
    pub most: Role,
    /// Tokens of callers. Without tokens every client acts as the user who started the server.
    pub tokens: Option<Tokens>,
    /// Issuers of OpenID Connect whose tokens are accepted beside these.
    pub oidc: Option<Oidc>,
}

impl Default for ServerOptions {
    fn default() -> Self {
        Self {
            address: None,
            socket: None,
            prompters: None,
            metrics: None,
            tls: None,
            names: Vec::new(),
            origins: Vec::new(),
            prefix: String::new(),
            public_url: None,
            drain: Duration::ZERO,
            most: Role::Read,
            tokens: None,
            oidc: None,
        }
    }
}

/// PEM files for TLS. Read again when they change.
#[derive(Clone, Debug)]
pub struct TlsFiles {
    /// The certificate and its chain.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
}
