//! Finds excluded hosts that are reached by another name: an address or an alias.

use std::collections::{BTreeSet, HashSet};
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use futures_util::{FutureExt, StreamExt, stream};
use tokio::net::lookup_host;
use tokio::time::timeout;

use super::rights::HostPatterns;
use crate::hosts::HostBook;
use sshjobs_base::host_pattern::canonical_host;
use sshjobs_ssh::HostConfig;

/// Time limit for DNS.
const LOOKUP_TIME: Duration = Duration::from_secs(5);

/// Maximum names resolved concurrently.
const AT_A_TIME: usize = 16;

/// Whether the address behind a name is excluded, although the name is not.
///
/// A name that this machine can't resolve is not excluded by its address. Hosts behind a jump host
/// or a ProxyCommand are compared by address, too. If two networks use the same address, its two
/// machines count as one host: this may exclude too much, but leaves no way around an exclusion.
pub(crate) async fn is_excluded_by_address(
    patterns: &HostPatterns,
    book: &HostBook,
    name: &str,
) -> bool {
    if !patterns.has_exclusions() {
        return false;
    }
    let Ok(host) = book.resolve(name).await else { return false };
    // First without DNS: the address in ssh_config may match a pattern as it is written.
    if patterns.exclude_address(&host.address) {
        return true;
    }

    let addresses = addresses_of(&host).await;
    if addresses
        .iter()
        .any(|address| patterns.exclude_address(&address.ip().to_string()))
    {
        return true;
    }
    let checks: Vec<_> = excluded_names(patterns, book)
        .await
        .into_iter()
        .map(|excluded| is_same_host(book, &host, &addresses, excluded).boxed())
        .collect();
    stream::iter(checks)
        .buffer_unordered(AT_A_TIME)
        .any(async |is_same| is_same)
        .await
}

/// All excluded hosts: names in the patterns, and listed hosts that a wildcard or a tag excludes.
async fn excluded_names(patterns: &HostPatterns, book: &HostBook) -> BTreeSet<String> {
    let by_name = patterns.excluded_names();
    // An unreadable ssh_config is reported when the host is resolved.
    let listed = book.listed().await.unwrap_or_default();
    let by_pattern =
        listed.into_keys().filter(|name| patterns.exclude_tagged(name, book.tags(name)));
    by_name.chain(by_pattern).collect()
}

/// Whether an excluded name leads to the same host.
async fn is_same_host(
    book: &HostBook,
    host: &HostConfig,
    addresses: &HashSet<SocketAddr>,
    excluded: String,
) -> bool {
    let Ok(excluded) = book.resolve(&excluded).await else { return false };
    let is_same_name = canonical_host(&excluded.address) == canonical_host(&host.address)
        && excluded.port == host.port;
    is_same_name || !addresses.is_disjoint(&addresses_of(&excluded).await)
}

/// Addresses of a host, as this machine resolves its name. Loopback addresses count as one.
async fn addresses_of(host: &HostConfig) -> HashSet<SocketAddr> {
    look_up(host).await.into_iter().map(canonical).collect()
}

/// Addresses of a host, as this machine resolves its name.
pub(super) async fn look_up(host: &HostConfig) -> Vec<SocketAddr> {
    let looked_up = timeout(LOOKUP_TIME, lookup_host((host.address.as_str(), host.port))).await;
    match looked_up {
        Ok(Ok(addresses)) => addresses.collect(),
        Ok(Err(_)) | Err(_) => Vec::new(),
    }
}

/// Maps loopback addresses and the unspecified address to 127.0.0.1: a connection to any of them
/// reaches this machine.
fn canonical(address: SocketAddr) -> SocketAddr {
    let ip = address.ip().to_canonical();
    let ip = if ip.is_loopback() || ip.is_unspecified() {
        Ipv4Addr::LOCALHOST.into()
    } else {
        ip
    };
    SocketAddr::new(ip, address.port())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::hosts::Access;
    use sshjobs_ssh::{HostSettings, Resolver};

    fn book(directory: &tempfile::TempDir) -> HostBook {
        let file = directory.path().join("config");
        let text = "Host db1\n  HostName 10.9.8.7\nHost also-db1\n  HostName 10.9.8.7\n\
                    Host here\n  HostName localhost\nHost db2\n  HostName 10.9.8.5\nHost elsewhere\n  HostName 10.9.8.7\n  Port 2222\nHost behind\n  HostName 10.9.8.7\n  ProxyJump web1\n";
        std::fs::write(&file, text).unwrap();
        let tagged = HostSettings {
            tags: vec!["prod".to_owned()],
            ..HostSettings::default()
        };
        let resolver = Resolver {
            ssh_config: Some(file),
            settings: BTreeMap::from([("db1".to_owned(), tagged)]),
            ..Resolver::default()
        };
        HostBook::new(resolver, Access::Any)
    }

    #[tokio::test]
    async fn another_name_of_an_excluded_host_is_excluded() {
        let directory = tempfile::tempdir().unwrap();
        let book = book(&directory);
        for (patterns, name, is_excluded) in [
            ("*,!db1", "also-db1", true),
            ("*,!db1", "10.9.8.7", true),
            ("*,!tag:prod", "10.9.8.7", true),
            ("*,!10.9.8.*", "also-db1", true),
            ("*,!db*", "10.9.8.7", true),
            ("*,!d?2", "10.9.8.5", true),
            ("*,!localhost", "0x7f.1", true),
            ("*,!localhost", "127.1", true),
            ("*,!db1", "elsewhere", false),
            ("*,!db1:2222", "elsewhere", true),
            ("*,!db1", "behind", true),
            ("*,!here", "0.0.0.0", true),
            ("*,!here", "127.0.0.2", true),
            ("*,!here", "::", true),
            ("*,!db1", "10.9.8.6", false),
            ("*", "10.9.8.7", false),
        ] {
            let patterns = HostPatterns::from(patterns.to_owned());
            assert_eq!(
                is_excluded_by_address(&patterns, &book, name).await,
                is_excluded,
                "{patterns}: {name}"
            );
        }
    }
}
