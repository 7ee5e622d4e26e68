//! Which addresses a webhook may have.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The first address of a host that may be called. The name is resolved here, once, so that the address
/// that was checked is the one that is called.
///
/// # Errors
/// If the name can't be resolved, or all of its addresses are private.
pub(super) async fn address_of(
    host: &str,
    port: u16,
    allows_private: bool,
) -> io::Result<SocketAddr> {
    let found: Vec<SocketAddr> = tokio::net::lookup_host((host, port)).await?.collect();
    let allowed = found.iter().find(|address| allows_private || is_public(address.ip()));
    allowed.copied().ok_or_else(|| {
        io::Error::new(
            io::ErrorKind::PermissionDenied,
            "its addresses are private, and allow_private_addresses is not set",
        )
    })
}

/// Whether an address is one of the public internet (RFC 6890 and the registries of IANA).
fn is_public(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => is_public_v6(address),
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let [first, second, third, _] = address.octets();
    let is_shared = first == 100 && (64..128).contains(&second);
    let is_protocol = first == 192 && second == 0 && third == 0;
    let is_benchmark = first == 198 && (second == 18 || second == 19);
    !(address.is_private()
        || address.is_loopback()
        || address.is_link_local()
        || address.is_broadcast()
        || address.is_documentation()
        || address.is_multicast()
        || first == 0
        || first >= 240
        || is_shared
        || is_protocol
        || is_benchmark)
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    let [first, second, ..] = address.segments();
    // Only 2000::/3 is assigned for use in the internet. Of that, some blocks lead to IPv4 addresses.
    let is_global = first & 0xe000 == 0x2000;
    let is_6to4 = first == 0x2002;
    let is_teredo_or_special = first == 0x2001 && second < 0x200;
    let is_documentation = (first == 0x2001 && second == 0xdb8) || first == 0x3fff;
    is_global && !is_6to4 && !is_teredo_or_special && !is_documentation
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn private_addresses_are_told_from_public_ones() {
        for (address, expected) in [
            ("93.184.216.34", true),
            ("2606:2800:220:1::1", true),
            ("127.0.0.1", false),
            ("10.1.2.3", false),
            ("172.16.0.1", false),
            ("192.168.1.1", false),
            ("169.254.169.254", false),
            ("100.64.0.1", false),
            ("0.0.0.0", false),
            ("224.0.0.1", false),
            ("255.255.255.255", false),
            ("::1", false),
            ("::", false),
            ("fe80::1", false),
            ("fd00::1", false),
            ("::ffff:127.0.0.1", false),
            ("::ffff:10.0.0.1", false),
            ("2002:7f00:1::", false),
            ("64:ff9b::7f00:1", false),
            ("2001:db8::1", false),
            ("ff02::1", false),
        ] {
            assert_eq!(is_public(address.parse().unwrap()), expected, "{address}");
        }
    }
}
