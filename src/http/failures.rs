use std::net::{IpAddr, Ipv6Addr};
use std::num::NonZeroU32;

use governor::{DefaultKeyedRateLimiter, Quota, RateLimiter};

/// Bounds how often one address may show a token that is none. Whoever shows a valid one is not counted, and always let in:
/// tokens can't be guessed, so that this only saves work.
pub(super) struct Failures(DefaultKeyedRateLimiter<IpAddr>);

/// Failures at once, and then each second.
const BURST: NonZeroU32 = NonZeroU32::new(20).expect("it is not zero");
const PER_SECOND: NonZeroU32 = NonZeroU32::new(2).expect("it is not zero");
/// Addresses that are remembered, about.
const MOST_ADDRESSES: usize = 10_000;

impl Failures {
    pub(super) fn new() -> Self {
        Self(RateLimiter::keyed(Quota::per_second(PER_SECOND).allow_burst(BURST)))
    }

    /// Notes a failure; false when there are too many.
    pub(super) fn note(&self, address: Option<IpAddr>) -> bool {
        if self.0.len() > MOST_ADDRESSES {
            self.0.retain_recent();
        }
        // A unix socket has one owner.
        let address = address.unwrap_or(IpAddr::V6(Ipv6Addr::UNSPECIFIED));
        self.0.check_key(&network(address)).is_ok()
    }
}

/// Of IPv6 a whole network is one caller's.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & (!0 << 64))),
        address => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_of_one_network_are_bounded_and_do_not_bound_others() {
        let failures = Failures::new();
        let address = |text: &str| Some(text.parse().unwrap());
        for host in 0..BURST.get() {
            assert!(failures.note(address(&format!("2001:db8::{host:x}"))));
        }
        assert!(!failures.note(address("2001:db8::ffff")));
        assert!(failures.note(address("2001:db8:1::1")) && failures.note(address("10.0.0.1")));
    }
}
