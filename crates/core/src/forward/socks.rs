//! SOCKS5 (RFC 1928): the command CONNECT, without authentication. Names are passed on, so that the
//! host resolves them.

use std::net::{Ipv4Addr, Ipv6Addr};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use sshjobs_ssh::{ChannelError, DialError, Endpoint};

const VERSION: u8 = 5;
const WITHOUT_AUTHENTICATION: u8 = 0;
const NO_METHOD: u8 = 0xff;
const CONNECT: u8 = 1;

/// Result of a request (RFC 1928, section 6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SocksReply {
    Succeeded = 0,
    GeneralFailure = 1,
    NotAllowed = 2,
    HostUnreachable = 4,
    ConnectionRefused = 5,
    CommandNotSupported = 7,
    AddressNotSupported = 8,
}

/// Why a client gets no stream.
#[derive(Debug, thiserror::Error)]
pub(super) enum SocksError {
    #[error("a client does not speak SOCKS5")]
    NotSocks5,
    #[error("a client wants to authenticate")]
    NoMethod,
    #[error("a client's request is not supported")]
    Unsupported,
    #[error("a client has ended its request early")]
    Broken(#[from] std::io::Error),
}

impl SocksReply {
    pub(super) fn of(error: &DialError) -> Self {
        match error {
            DialError::Prohibited => Self::NotAllowed,
            DialError::ConnectFailed => Self::ConnectionRefused,
            DialError::Channel(ChannelError::TimedOut(_)) => Self::HostUnreachable,
            DialError::ListenRefused | DialError::NotOpened | DialError::Channel(_) => {
                Self::GeneralFailure
            }
        }
    }
}

/// Reads a client's request. Returns the target that it names.
pub(super) async fn read_request(
    client: &mut (impl AsyncRead + AsyncWrite + Unpin),
) -> Result<Endpoint, SocksError> {
    if client.read_u8().await? != VERSION {
        return Err(SocksError::NotSocks5);
    }
    let mut methods = vec![0; client.read_u8().await?.into()];
    client.read_exact(&mut methods).await?;
    if !methods.contains(&WITHOUT_AUTHENTICATION) {
        client.write_all(&[VERSION, NO_METHOD]).await?;
        return Err(SocksError::NoMethod);
    }
    client.write_all(&[VERSION, WITHOUT_AUTHENTICATION]).await?;

    let mut head = [0; 4];
    client.read_exact(&mut head).await?;
    let [version, command, _reserved, address] = head;
    if version != VERSION {
        return Err(SocksError::NotSocks5);
    }
    let host = match address {
        1 => {
            let mut octets = [0; 4];
            client.read_exact(&mut octets).await?;
            Ipv4Addr::from(octets).to_string()
        }
        3 => {
            let mut name = vec![0; client.read_u8().await?.into()];
            client.read_exact(&mut name).await?;
            String::from_utf8(name).unwrap_or_default()
        }
        4 => {
            let mut octets = [0; 16];
            client.read_exact(&mut octets).await?;
            Ipv6Addr::from(octets).to_string()
        }
        _ => return refuse(client, SocksReply::AddressNotSupported).await,
    };
    let port = client.read_u16().await?;
    if host.is_empty() || host.contains(char::is_control) {
        return refuse(client, SocksReply::AddressNotSupported).await;
    }
    if command != CONNECT {
        return refuse(client, SocksReply::CommandNotSupported).await;
    }
    Ok(Endpoint::tcp(host, port))
}

async fn refuse(
    client: &mut (impl AsyncWrite + Unpin),
    answer: SocksReply,
) -> Result<Endpoint, SocksError> {
    write_answer(client, answer).await?;
    Err(SocksError::Unsupported)
}

/// Writes the result of a request. The address that the host uses is unknown, and sent as zero.
pub(super) async fn write_answer(
    client: &mut (impl AsyncWrite + Unpin),
    answer: SocksReply,
) -> std::io::Result<()> {
    let address = [1, 0, 0, 0, 0, 0, 0];
    client.write_all(&[&[VERSION, answer as u8, 0], &address[..]].concat()).await
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a request is read as, and what the client receives.
    async fn read(request: &[u8]) -> (Option<String>, Vec<u8>) {
        let (mut near, mut far) = tokio::io::duplex(1024);
        near.write_all(request).await.unwrap();
        near.shutdown().await.unwrap();
        let target = read_request(&mut far).await.ok();
        drop(far);
        let mut received = Vec::new();
        near.read_to_end(&mut received).await.unwrap();
        (target.map(|target| target.to_string()), received)
    }

    #[tokio::test]
    async fn targets_are_names_and_addresses() {
        let name = [b"\x05\x01\x00\x05\x01\x00\x03\x04web1", &[0, 80][..]].concat();
        assert_eq!(read(&name).await.0.as_deref(), Some("web1:80"));
        let address = b"\x05\x02\x02\x00\x05\x01\x00\x01\x7f\x00\x00\x01\x1f\x90";
        assert_eq!(read(address).await.0.as_deref(), Some("127.0.0.1:8080"));
    }

    #[tokio::test]
    async fn other_requests_get_their_code() {
        let udp = b"\x05\x01\x00\x05\x03\x00\x01\x7f\x00\x00\x01\x1f\x90";
        assert_eq!(read(udp).await.1[3], SocksReply::CommandNotSupported as u8);
        let kind = b"\x05\x01\x00\x05\x01\x00\x09\x7f";
        assert_eq!(read(kind).await.1[3], SocksReply::AddressNotSupported as u8);
        assert_eq!(read(b"\x05\x01\x02").await.1, [5, 0xff]);
        for broken in [
            &b"\x04\x01"[..],
            b"",
            b"\x05",
            b"\x05\x01\x00\x05\x01\x00\x03\xff",
        ] {
            assert_eq!(read(broken).await.0, None, "{broken:?}");
        }
    }
}
