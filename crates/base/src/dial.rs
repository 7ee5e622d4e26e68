//! Connects to servers over TCP, with TLS if wanted.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, ToSocketAddrs};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

/// A connection to a server.
pub trait Io: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Io for T {}

/// Time limit for connecting.
const CONNECT: Duration = Duration::from_secs(10);

/// Connects to a port. For TLS, the server's certificate is checked against the system's authorities,
/// or those of `SSL_CERT_FILE`.
///
/// # Errors
/// Those of connecting, at most after ten seconds.
pub async fn dial(host: &str, port: u16, is_secure: bool) -> io::Result<Box<dyn Io>> {
    connect((host, port), host, is_secure).await
}

/// Like [`dial`], to an address that was chosen before. The certificate must be that of `host`.
///
/// # Errors
/// Those of connecting, at most after ten seconds.
pub async fn dial_at(address: SocketAddr, host: &str, is_secure: bool) -> io::Result<Box<dyn Io>> {
    connect(address, host, is_secure).await
}

async fn connect(to: impl ToSocketAddrs, host: &str, is_secure: bool) -> io::Result<Box<dyn Io>> {
    let connecting = async {
        let stream = TcpStream::connect(to).await?;
        // Calls and keys are small and must not wait for the previous acknowledgement.
        stream.set_nodelay(true)?;
        if !is_secure {
            return Ok(Box::new(stream) as Box<dyn Io>);
        }
        let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
        let stream = TlsConnector::from(Arc::new(config()?)).connect(name, stream).await?;
        Ok(Box::new(stream) as Box<dyn Io>)
    };
    timeout(CONNECT, connecting)
        .await
        .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}

fn config() -> io::Result<ClientConfig> {
    let loaded = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    // One certificate that rustls can't parse must not prevent the use of all others.
    roots.add_parsable_certificates(loaded.certs);
    if roots.is_empty() {
        let why = loaded.errors.first().map_or_else(String::new, |error| format!(": {error}"));
        return Err(io::Error::other(format!(
            "this system has no authorities for certificates{why}"
        )));
    }
    // `ClientConfig::builder` panics if a build has two providers and installs neither.
    let versions = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?;
    Ok(versions.with_root_certificates(roots).with_no_client_auth())
}
