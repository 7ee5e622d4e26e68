use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use tokio::time::sleep;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::Instant;

use super::*;
use crate::hosts::HostRef;
use sshjobs_base::lock::lock;
use sshjobs_job::Caller;

const LIMITS: PoolLimits = PoolLimits {
    channels_per_connection: 2,
    connections_per_host: 2,
    idle: Duration::from_secs(60),
    queue: Duration::from_secs(10),
};

fn host(name: &str) -> &'static HostRef {
    Box::leak(Box::new(HostRef {
        caller: Caller::local(),
        name: name.to_owned(),
    }))
}

#[derive(Default)]
struct Fake {
    closed: AtomicBool,
    heavy: AtomicBool,
    suspect: AtomicBool,
    worn_out: AtomicBool,
}

impl Pooled for Fake {
    fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }

    fn is_heavy(&self) -> bool {
        self.heavy.load(Ordering::Relaxed)
    }

    fn is_suspect(&self) -> bool {
        self.suspect.load(Ordering::Relaxed)
    }

    fn is_worn_out(&self) -> bool {
        self.worn_out.load(Ordering::Relaxed)
    }
}

/// Connects in one second, and fails while `broken`.
#[derive(Default)]
struct Network {
    /// Number of connection attempts.
    made: Arc<AtomicUsize>,
    broken: Arc<AtomicBool>,
}

impl Connect for Network {
    type Connection = Fake;
    type Error = &'static str;

    async fn connect(&self, _host: &HostRef) -> Result<Fake, &'static str> {
        self.made.fetch_add(1, Ordering::Relaxed);
        sleep(Duration::from_secs(1)).await;
        if self.broken.load(Ordering::Relaxed) {
            return Err("broken");
        }
        Ok(Fake::default())
    }
}

fn pool() -> (Pool<Network>, Arc<AtomicUsize>, Arc<AtomicBool>) {
    let network = Network::default();
    let made = Arc::clone(&network.made);
    let broken = Arc::clone(&network.broken);
    (Pool::new(network, LIMITS), made, broken)
}

#[tokio::test(start_paused = true)]
async fn callers_at_the_same_time_share_one_connection() {
    let (pool, made, _) = pool();
    let (a, b) = tokio::join!(pool.lease(host("web1")), pool.lease(host("web1")));
    assert!(a.is_ok() && b.is_ok());
    assert_eq!(made.load(Ordering::Relaxed), 1);
    assert_eq!(
        pool.usage(host("web1")),
        HostUsage {
            connections: 1,
            channels_in_use: 2
        }
    );
}

#[tokio::test(start_paused = true)]
async fn a_full_connection_is_joined_by_another_up_to_the_bound() {
    let (pool, made, _) = pool();
    let mut leases = Vec::new();
    for _ in 0..4 {
        leases.push(pool.lease(host("web1")).await.ok());
    }
    assert_eq!(made.load(Ordering::Relaxed), 2);
    let began = Instant::now();
    assert!(matches!(
        pool.lease(host("web1")).await,
        Err(PoolError::Full { connections: 2, .. })
    ));
    assert_eq!(began.elapsed(), LIMITS.queue);
    leases.pop();
    assert!(pool.lease(host("web1")).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_dead_connection_is_replaced() {
    let (pool, made, _) = pool();
    let lease = pool.lease(host("web1")).await.ok().unwrap();
    lease.connection().closed.store(true, Ordering::Relaxed);
    let next = pool.lease(host("web1")).await.ok().unwrap();
    assert!(!next.connection().is_closed());
    assert_eq!(made.load(Ordering::Relaxed), 2);
}

#[tokio::test(start_paused = true)]
async fn a_heavy_connection_is_avoided_while_another_may_be_made() {
    let (pool, made, _) = pool();
    let noisy = pool.lease(host("web1")).await.ok().unwrap();
    noisy.connection().heavy.store(true, Ordering::Relaxed);
    let quiet = [
        pool.lease(host("web1")).await.ok().unwrap(),
        pool.lease(host("web1")).await.ok().unwrap(),
    ];
    assert!(quiet.iter().all(|lease| !lease.connection().is_heavy()));
    let last = pool.lease(host("web1")).await.ok().unwrap();
    assert!(
        last.connection().is_heavy(),
        "better beside a noisy job than not at all"
    );
    assert_eq!(made.load(Ordering::Relaxed), 2);
}

#[tokio::test(start_paused = true)]
async fn an_idle_connection_expires_and_a_used_one_does_not() {
    let (pool, _, _) = pool();
    let used = pool.lease(host("web1")).await.ok().unwrap();
    drop(pool.lease(host("web2")).await.ok().unwrap());
    sleep(LIMITS.idle).await;
    assert_eq!(pool.expire().len(), 1);
    assert_eq!(
        (
            pool.usage(host("web1")).connections,
            pool.usage(host("web2")).connections
        ),
        (1, 0)
    );
    drop(used);
    assert!(pool.expire().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_failure_is_reported_and_the_next_caller_tries_again() {
    let (pool, _, broken) = pool();
    broken.store(true, Ordering::Relaxed);
    assert!(
        matches!(pool.lease(host("web1")).await, Err(PoolError::Connect(error)) if *error == "broken")
    );
    broken.store(false, Ordering::Relaxed);
    assert!(pool.lease(host("web1")).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_refused_channel_teaches_the_real_limit() {
    let (pool, made, _) = pool();
    let _first = pool.lease(host("web1")).await.ok().unwrap();
    pool.lease(host("web1")).await.ok().unwrap().note_refusal();
    let _second = pool.lease(host("web1")).await.ok().unwrap();
    assert_eq!(made.load(Ordering::Relaxed), 2);
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_caller_does_not_block_the_next() {
    let (pool, _, _) = pool();
    drop(tokio::time::timeout(Duration::from_millis(500), pool.lease(host("web1"))).await);
    assert!(pool.lease(host("web1")).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn who_waits_gets_the_next_free_place() {
    let (pool, _, _) = pool();
    let mut leases = Vec::new();
    for _ in 0..4 {
        leases.push(pool.lease(host("web1")).await.ok());
    }
    let began = Instant::now();
    let (waited, ()) = tokio::join!(pool.lease(host("web1")), async {
        sleep(Duration::from_secs(3)).await;
        leases.pop();
    });
    assert!(waited.is_ok());
    assert_eq!(began.elapsed(), Duration::from_secs(3));
}

/// Maximum number of parallel handshakes when `count` callers come at once.
async fn handshakes(before: usize, count: usize) -> (usize, usize) {
    #[derive(Clone, Default)]
    struct Counting(Arc<Mutex<(usize, usize, usize)>>);
    impl Connect for Counting {
        type Connection = Fake;
        type Error = ();
        async fn connect(&self, _host: &HostRef) -> Result<Fake, ()> {
            {
                let mut counts = lock(&self.0);
                counts.0 += 1;
                counts.1 = counts.1.max(counts.0);
                counts.2 += 1;
            }
            sleep(Duration::from_secs(1)).await;
            lock(&self.0).0 -= 1;
            Ok(Fake::default())
        }
    }
    let counting = Counting::default();
    let limits = PoolLimits {
        connections_per_host: 100,
        ..LIMITS
    };
    let pool = Arc::new(Pool::new(counting.clone(), limits));
    let mut leases = Vec::new();
    for _ in 0..before {
        leases.push(pool.lease(host("web1")).await);
    }
    lock(&counting.0).1 = 0;
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..count {
        let pool = Arc::clone(&pool);
        tasks.spawn(async move { pool.lease(host("web1")).await.map_err(drop) });
    }
    let leases = tasks.join_all().await;
    assert!(leases.iter().all(Result::is_ok));
    let counts = lock(&counting.0);
    (counts.1, counts.2)
}

#[tokio::test(start_paused = true)]
async fn the_first_connection_is_made_alone_and_then_four_at_a_time() {
    assert_eq!(handshakes(0, 1).await, (1, 1));
    assert_eq!(handshakes(0, 2).await, (1, 1));
    assert_eq!(
        handshakes(2, 2).await,
        (1, 2),
        "not more than callers wait for"
    );
    assert_eq!(handshakes(2, 40).await, (4, 21));
    assert_eq!(handshakes(0, 40).await, (4, 20));
}

#[tokio::test(start_paused = true)]
async fn a_login_that_fails_does_so_once_for_all_who_wait() {
    let (pool, made, broken) = pool();
    broken.store(true, Ordering::Relaxed);
    let began = Instant::now();
    let (a, b, c) = tokio::join!(
        pool.lease(host("web1")),
        pool.lease(host("web1")),
        pool.lease(host("web1"))
    );
    for result in [a, b, c] {
        assert!(matches!(result, Err(PoolError::Connect(_))));
    }
    assert_eq!(
        (began.elapsed(), made.load(Ordering::Relaxed)),
        (Duration::from_secs(1), 1),
        "one attempt, not three"
    );
}

#[tokio::test(start_paused = true)]
async fn a_suspect_connection_is_not_leased_until_it_is_heard_of_again() {
    let (pool, made, _) = pool();
    let first = pool.lease(host("web1")).await.unwrap();
    first.connection().suspect.store(true, Ordering::Relaxed);
    let _second = pool.lease(host("web1")).await.unwrap();
    assert_eq!(made.load(Ordering::Relaxed), 2);
    assert!(pool.borrow(host("web1"), |link| link.suspect.load(Ordering::Relaxed)).is_none());
    first.connection().suspect.store(false, Ordering::Relaxed);
    let _third = pool.lease(host("web1")).await.unwrap();
    assert_eq!(made.load(Ordering::Relaxed), 2);
}

#[tokio::test(start_paused = true)]
async fn who_leases_alone_stays_alone() {
    let (pool, made, _) = pool();
    let _shared = pool.lease(host("web1")).await.unwrap();
    let alone = pool.lease_alone(host("web1")).await.unwrap();
    assert!(alone.is_only());
    let _other = pool.lease(host("web1")).await.unwrap();
    assert!(alone.is_only(), "no other caller gets a slot");
    drop(alone);
    let again = pool.lease_alone(host("web1")).await.unwrap();
    assert!(again.is_only());
    assert_eq!(
        made.load(Ordering::Relaxed),
        2,
        "a returned slot is used again"
    );
    drop(again);
    drop(pool.lease_new(host("web1")).await.unwrap());
    assert_eq!(
        made.load(Ordering::Relaxed),
        3,
        "who wants a new one gets a new one"
    );
    let _many = futures_util::future::join_all((0..6).map(|_| pool.lease(host("web1")))).await;
    assert_eq!(
        made.load(Ordering::Relaxed),
        3,
        "also by those who share it, and a new one is given up"
    );
    let idle = pool.lease_alone(host("web2")).await.unwrap();
    assert!(idle.is_only());
    assert_eq!(
        made.load(Ordering::Relaxed),
        4,
        "an idle one, or the first, is taken as it is"
    );
}

#[tokio::test(start_paused = true)]
async fn a_host_that_was_never_reached_is_forgotten() {
    let (pool, _, broken) = pool();
    broken.store(true, Ordering::Relaxed);
    let (one, two) = tokio::join!(pool.lease(host("web1")), pool.lease(host("web1")));
    assert!(one.is_err() && two.is_err());
    assert!(pool.lease(host("web1")).await.is_err());
    assert!(lock(&pool.hosts).is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_worn_out_connection_is_replaced_and_ends_after_its_last_channel() {
    let (pool, made, _) = pool();
    let first = pool.lease(host("h")).await.unwrap();
    first.connection().worn_out.store(true, Ordering::Relaxed);

    let second = pool.lease(host("h")).await.unwrap();
    assert!(!second.connection().worn_out.load(Ordering::Relaxed));
    assert_eq!(pool.usage(host("h")).connections, 2);

    drop(first);
    let _third = pool.lease(host("h")).await.unwrap();
    assert_eq!(pool.usage(host("h")).connections, 1);
    assert_eq!(made.load(Ordering::Relaxed), 2);
}

#[tokio::test(start_paused = true)]
async fn at_the_limit_a_worn_out_connection_still_gets_channels() {
    let (pool, _, _) = pool();
    let mut leases = Vec::new();
    for _ in 0..LIMITS.connections_per_host {
        let lease = pool.lease(host("h")).await.unwrap();
        lease.connection().worn_out.store(true, Ordering::Relaxed);
        leases.push(lease);
    }
    let one_more = pool.lease(host("h")).await.unwrap();
    assert!(one_more.connection().worn_out.load(Ordering::Relaxed));
    assert_eq!(
        pool.usage(host("h")).connections,
        LIMITS.connections_per_host
    );
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_wants_a_connection_alone_gets_no_worn_out_one() {
    let (pool, made, _) = pool();
    let first = pool.lease_alone(host("h")).await.unwrap();
    first.connection().worn_out.store(true, Ordering::Relaxed);
    drop(first);

    let second = pool.lease_alone(host("h")).await.unwrap();
    assert!(!second.connection().worn_out.load(Ordering::Relaxed));
    assert_eq!(pool.usage(host("h")).connections, 1);
    assert_eq!(made.load(Ordering::Relaxed), 2);
}
