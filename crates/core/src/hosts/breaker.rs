use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Duration;

use tokio::time::Instant;

use sshjobs_base::lock::lock;

/// Pauses failing logins, so that the server does not ban our address.
///
/// The first failure causes no pause, so that a person can correct it and try again. OpenSSH's
/// PerSourcePenalties (9.8 and newer) adds 5 s for each failed login and refuses an address at 15
/// s. These pauses stay below that.
#[derive(Debug, Default)]
pub(super) struct Breaker {
    failed: Mutex<HashMap<String, FailedLogins>>,
}

#[derive(Clone, Copy, Debug)]
struct FailedLogins {
    times: u32,
    last: Instant,
}

/// A login that must wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Paused {
    /// Number of consecutive failures.
    pub(super) times: u32,
    /// Remaining pause.
    pub(super) wait: Duration,
}

const FIRST_PAUSE: Duration = Duration::from_secs(10);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
const FORGOTTEN_AFTER: Duration = Duration::from_secs(3600);

impl Breaker {
    /// Whether a login may be tried.
    pub(super) fn check(&self, route: &str) -> Result<(), Paused> {
        let failed = lock(&self.failed);
        let Some(&FailedLogins { times, last }) = failed.get(route) else {
            return Ok(());
        };
        match pause(times).saturating_sub(last.elapsed()) {
            Duration::ZERO => Ok(()),
            wait => Err(Paused { times, wait }),
        }
    }

    /// Records the result of a login.
    pub(super) fn note(&self, route: &str, is_let_in: bool) {
        let mut failed = lock(&self.failed);
        if is_let_in {
            failed.remove(route);
            return;
        }
        // Old failures no longer count, and unused routes must not accumulate.
        failed.retain(|_, failed| failed.last.elapsed() < FORGOTTEN_AFTER);
        let times = failed.get(route).map_or(0, |failed| failed.times);
        failed.insert(
            route.to_owned(),
            FailedLogins {
                times: times.saturating_add(1),
                last: Instant::now(),
            },
        );
    }
}

fn pause(times: u32) -> Duration {
    match times {
        0 | 1 => Duration::ZERO,
        // The shift is bounded so that it can't overflow; the longest pause is reached before.
        times => FIRST_PAUSE.saturating_mul(1 << (times - 2).min(8)).min(LONGEST_PAUSE),
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_second_failure_in_a_row_makes_a_pause_that_grows() {
        let breaker = Breaker::default();
        for pause in [0, 10, 20, 40, 60, 60] {
            breaker.note("web1", false);
            if pause > 0 {
                assert!(
                    matches!(breaker.check("web1"), Err(Paused { wait, .. }) if wait.as_secs() == pause)
                );
                advance(Duration::from_secs(pause)).await;
            }
            assert_eq!(breaker.check("web1"), Ok(()));
        }
        assert_eq!(breaker.check("web2"), Ok(()));
        breaker.note("web1", true);
        breaker.note("web1", false);
        assert_eq!(
            breaker.check("web1"),
            Ok(()),
            "a success is a new beginning"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn logins_within_the_allowed_rate_earn_no_penalty() {
        // As sshd counts: 5 s for each failure, running off in time; an address with 15 s is
        // refused.
        let breaker = Breaker::default();
        let mut penalty = Duration::ZERO;
        for _ in 0..600 {
            if breaker.check("web1").is_ok() {
                breaker.note("web1", false);
                penalty += Duration::from_secs(5);
            }
            assert!(penalty < Duration::from_secs(15));
            advance(Duration::from_secs(1)).await;
            penalty = penalty.saturating_sub(Duration::from_secs(1));
        }
    }
}
