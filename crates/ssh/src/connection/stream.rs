use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use super::Connection;
use super::errors::{timed_out, unreachable};
use super::proxy::ProxyCommand;
use crate::{ConnectError, HostConfig};

/// Slots for threads that look up names: with a dead resolver each takes many seconds, and other work needs threads,
/// too.
static LOOKUPS: Semaphore = Semaphore::const_new(128);

/// A transport for an SSH connection.
pub(super) trait ByteStream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> ByteStream for S {}

/// Connects to the host: through the connection `via`, a configured command, or TCP.
pub(super) async fn stream_to(
    host: &HostConfig,
    via: Option<&Connection>,
) -> Result<Box<dyn ByteStream>, ConnectError> {
    if let Some(command) = &host.proxy_command {
        let started = ProxyCommand::start(command).map_err(|source| unreachable(host, source))?;
        return Ok(Box::new(started));
    }
    match via {
        Some(via) => Ok(Box::new(via.tunnel(host).await?)),
        None => Ok(Box::new(tcp(host).await?)),
    }
}

/// A TCP connection to a host on which we have sent nothing.
pub struct OpenedStream(pub(super) TcpStream);

impl OpenedStream {
    /// Opens a connection to a host without a jump host and a ProxyCommand.
    pub async fn to(host: &HostConfig) -> Result<Self, ConnectError> {
        tcp(host).await.map(Self)
    }

    /// Waits until the server has sent something or hung up. Servers speak first, except a few that wait for our
    /// identification (RFC 4253, section 4.2). Cancel safe.
    pub async fn wait_for_server(&self) {
        // The login reports the same error.
        self.0.readable().await.ok();
    }
}

/// The addresses of a host. A name is looked up in a thread, which runs until the resolver answers or gives up, also
/// after this call was dropped.
async fn look_up(host: &HostConfig) -> Result<Vec<SocketAddr>, ConnectError> {
    if let Ok(address) = host.address.parse::<IpAddr>() {
        return Ok(vec![SocketAddr::new(address, host.port)]);
    }
    // Never closed. The wait for others does not count as this host's time.
    let slot = LOOKUPS.acquire().await.ok();
    let name = (host.address.clone(), host.port);
    let looking = spawn_blocking(move || {
        let found = name.to_socket_addrs().map(Iterator::collect);
        drop(slot);
        found
    });
    match timeout(host.connect_timeout, looking).await {
        Ok(found) => {
            let found = found.map_err(io::Error::other).flatten();
            found.map_err(|source| unreachable(host, source))
        }
        Err(_) => Err(timed_out(host, "looking up the address")),
    }
}

async fn tcp(host: &HostConfig) -> Result<TcpStream, ConnectError> {
    let found = look_up(host).await?;
    let no_address = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    let mut last = unreachable(host, no_address);
    let mut connected = None;
    // As in ssh, each address gets the whole time.
    for address in found {
        match timeout(host.connect_timeout, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => {
                connected = Some(stream);
                break;
            }
            Ok(Err(error)) => last = unreachable(host, error),
            Err(_) => last = timed_out(host, "connecting"),
        }
    }
    let Some(stream) = connected else { return Err(last) };
    // russh applies `Config::nodelay` only to sockets that it opens itself.
    stream.set_nodelay(true).map_err(|source| unreachable(host, source))?;
    Ok(stream)
}
