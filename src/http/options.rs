use std::net::SocketAddr;
use std::path::PathBuf;

use crate::jobs::Role;
use crate::tokens::Tokens;

/// Where a server listens, and whom it lets in. By default: nowhere, and, where it listens, everybody as whoever started it, to look.
pub struct Options {
    /// Address to listen on.
    pub address: Option<SocketAddr>,
    /// Path of a unix socket to listen on; only its owner may connect.
    pub socket: Option<PathBuf>,
    /// Address for metrics, which need no token.
    pub metrics: Option<SocketAddr>,
    /// Certificate and key; without them the address speaks plain HTTP.
    pub tls: Option<TlsFiles>,
    /// Names by which clients may call the server, beside loopback ones and its own address: what the Host header may say.
    pub names: Vec<String>,
    /// Origins of web pages that may call the server, beside its own.
    pub origins: Vec<String>,
    /// Path below which everything lies, such as `/sshjobs`; for a proxy that does not take it away.
    pub prefix: String,
    /// Address at which browsers reach the server, without a slash at its end; none when it is the one that a client has used.
    pub public_url: Option<String>,
    /// The most that anybody may do.
    pub most: Role,
    /// Who may call; without tokens everybody who can connect is whoever started the server.
    pub tokens: Option<Tokens>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            address: None,
            socket: None,
            metrics: None,
            tls: None,
            names: Vec::new(),
            origins: Vec::new(),
            prefix: String::new(),
            public_url: None,
            most: Role::Read,
            tokens: None,
        }
    }
}

/// PEM files for TLS, read again when they change.
#[derive(Clone, Debug)]
pub struct TlsFiles {
    /// The certificate, with those that lead to its authority.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
}
