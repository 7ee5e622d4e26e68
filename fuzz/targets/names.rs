//! Short texts that people write: hosts, addresses, digests.

use sshjobs_base::host_pattern::glob_matches;
use sshjobs_core::files::Digest;
use sshjobs_job::{fold, unfold, words};
use sshjobs_policy::audit::LogHead;
use sshjobs_ssh::{Destination, Endpoint};
use sshjobs_wire::remote::ServerAddress;

/// Ends of streams, digests, heads of logs and ranges of hosts that are accepted mean the same when
/// they are written again.
pub fn names(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    if let Ok(endpoint) = Endpoint::parse(text, "localhost") {
        assert_eq!(
            Endpoint::parse(&endpoint.to_string(), "elsewhere").as_ref(),
            Ok(&endpoint)
        );
    }
    if let Ok(destination) = Destination::parse(text) {
        assert!(
            !destination.host.starts_with('-'),
            "ssh would take it for an option"
        );
        destination.canonical_host();
    }
    if let Ok(digest) = text.parse::<Digest>() {
        assert_eq!(digest.to_string().parse(), Ok(digest));
    }
    if let Ok(head) = text.parse::<LogHead>() {
        assert_eq!(head.to_string().parse(), Ok(head));
    }
    text.parse::<ServerAddress>().ok();
    if let Some((pattern, name)) = text.split_once('\n') {
        glob_matches(pattern, name);
    }
    hosts(text);
}

/// Ranges of hosts.
fn hosts(list: &str) {
    for word in words(list) {
        let Ok(hosts) = unfold(word) else {
            continue;
        };
        assert!(hosts.len() <= 10_000, "{word}");
        // As long as no name has a bracket or a comma of its own.
        if hosts.len() < 100 && !hosts.iter().any(|host| host.contains(['[', ']', ','])) {
            let folded = fold(hosts.iter().map(String::as_str));
            let again = words(&folded).flat_map(|word| unfold(word).expect("written by fold"));
            let sorted = |hosts: Vec<String>| {
                let mut hosts = hosts;
                hosts.sort_unstable();
                hosts.dedup();
                hosts
            };
            assert_eq!(
                sorted(again.collect()),
                sorted(hosts),
                "{word} became {folded}"
            );
        }
    }
}
