use std::net::{IpAddr, Ipv6Addr};
use std::num::NonZeroU32;

use governor::{DefaultKeyedRateLimiter, Quota, RateLimiter};

use crate::connections::Peer;

/// Limits how often one address may present an invalid token, or a cookie that this server does not know yet. A valid token is
/// not counted and always accepted: tokens can't be guessed, so the limit only saves work.
pub(crate) struct LoginFailures(DefaultKeyedRateLimiter<IpAddr>);

/// Failures allowed at once, and then per second.
const BURST: NonZeroU32 = NonZeroU32::new(20).expect("it is not zero");
const PER_SECOND: NonZeroU32 = NonZeroU32::new(2).expect("it is not zero");
/// Approximate maximum of remembered addresses.
const MOST_ADDRESSES: usize = 10_000;

impl LoginFailures {
    pub(crate) fn new() -> Self {
        Self(RateLimiter::keyed(
            Quota::per_second(PER_SECOND).allow_burst(BURST),
        ))
    }

    /// Notes a failure. Returns false if there were too many.
    pub(crate) fn note(&self, peer: Peer) -> bool {
        if self.0.len() > MOST_ADDRESSES {
            // Forgets the addresses whose burst is available again.
            self.0.retain_recent();
        }
        // Only its owner connects to the unix socket, so that one key is enough.
        let network = peer.network().unwrap_or(IpAddr::V6(Ipv6Addr::UNSPECIFIED));
        self.0.check_key(&network).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_of_one_network_are_bounded_and_do_not_bound_others() {
        let failures = LoginFailures::new();
        let address = |text: &str| Peer::Network(text.parse().unwrap());
        for host in 0..BURST.get() {
            assert!(failures.note(address(&format!("2001:db8::{host:x}"))));
        }
        assert!(!failures.note(address("2001:db8::ffff")));
        assert!(failures.note(address("2001:db8:1::1")) && failures.note(address("10.0.0.1")));
    }
}
