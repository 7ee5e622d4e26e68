use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use tokio::time::sleep;

use super::*;

const LIMITS: PoolLimits =
    PoolLimits { channels_per_connection: 2, connections_per_host: 2, idle: Duration::from_secs(60) };

#[derive(Default)]
struct Fake {
    closed: AtomicBool,
    heavy: AtomicBool,
}

impl Pooled for Fake {
    fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }

    fn is_heavy(&self) -> bool {
        self.heavy.load(Ordering::Relaxed)
    }
}

/// Connects in a second, and fails while `broken`.
#[derive(Default)]
struct Network {
    made: Arc<AtomicUsize>,
    broken: Arc<AtomicBool>,
}

impl Connect for Network {
    type Connection = Fake;
    type Error = &'static str;

    async fn connect(&self, _host: &str) -> Result<Fake, &'static str> {
        sleep(Duration::from_secs(1)).await;
        if self.broken.load(Ordering::Relaxed) {
            return Err("broken");
        }
        self.made.fetch_add(1, Ordering::Relaxed);
        Ok(Fake::default())
    }
}

fn pool() -> (Pool<Network>, Arc<AtomicUsize>, Arc<AtomicBool>) {
    let network = Network::default();
    let (made, broken) = (Arc::clone(&network.made), Arc::clone(&network.broken));
    (Pool::new(network, LIMITS), made, broken)
}

#[tokio::test(start_paused = true)]
async fn callers_at_the_same_time_share_one_connection() {
    let (pool, made, _) = pool();
    let (a, b) = tokio::join!(pool.lease("web1"), pool.lease("web1"));
    assert!(a.is_ok() && b.is_ok());
    assert_eq!(made.load(Ordering::Relaxed), 1);
    assert_eq!(pool.usage("web1"), Usage { connections: 1, channels_in_use: 2 });
}

#[tokio::test(start_paused = true)]
async fn a_full_connection_is_joined_by_another_up_to_the_bound() {
    let (pool, made, _) = pool();
    let mut leases = Vec::new();
    for _ in 0..4 {
        leases.push(pool.lease("web1").await.ok());
    }
    assert_eq!(made.load(Ordering::Relaxed), 2);
    assert!(matches!(pool.lease("web1").await, Err(PoolError::Full { connections: 2, .. })));
    leases.pop();
    assert!(pool.lease("web1").await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_dead_connection_is_replaced() {
    let (pool, made, _) = pool();
    let lease = pool.lease("web1").await.ok().unwrap();
    lease.connection().closed.store(true, Ordering::Relaxed);
    let next = pool.lease("web1").await.ok().unwrap();
    assert!(!next.connection().is_closed());
    assert_eq!(made.load(Ordering::Relaxed), 2);
}

#[tokio::test(start_paused = true)]
async fn a_heavy_connection_is_avoided_while_another_may_be_made() {
    let (pool, made, _) = pool();
    let noisy = pool.lease("web1").await.ok().unwrap();
    noisy.connection().heavy.store(true, Ordering::Relaxed);
    let quiet = [pool.lease("web1").await.ok().unwrap(), pool.lease("web1").await.ok().unwrap()];
    assert!(quiet.iter().all(|lease| !lease.connection().is_heavy()));
    let last = pool.lease("web1").await.ok().unwrap();
    assert!(last.connection().is_heavy(), "better beside a noisy job than not at all");
    assert_eq!(made.load(Ordering::Relaxed), 2);
}

#[tokio::test(start_paused = true)]
async fn an_idle_connection_expires_and_a_used_one_does_not() {
    let (pool, _, _) = pool();
    let used = pool.lease("web1").await.ok().unwrap();
    drop(pool.lease("web2").await.ok().unwrap());
    sleep(LIMITS.idle).await;
    assert_eq!(pool.expire().len(), 1);
    assert_eq!((pool.usage("web1").connections, pool.usage("web2").connections), (1, 0));
    drop(used);
    assert!(pool.expire().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_failure_is_told_and_the_next_caller_tries_again() {
    let (pool, _, broken) = pool();
    broken.store(true, Ordering::Relaxed);
    assert!(matches!(pool.lease("web1").await, Err(PoolError::Connect("broken"))));
    broken.store(false, Ordering::Relaxed);
    assert!(pool.lease("web1").await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_refused_channel_teaches_the_real_limit() {
    let (pool, made, _) = pool();
    let _first = pool.lease("web1").await.ok().unwrap();
    pool.lease("web1").await.ok().unwrap().refused();
    let _second = pool.lease("web1").await.ok().unwrap();
    assert_eq!(made.load(Ordering::Relaxed), 2);
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_caller_does_not_block_the_next() {
    let (pool, _, _) = pool();
    drop(tokio::time::timeout(Duration::from_millis(500), pool.lease("web1")).await);
    assert!(pool.lease("web1").await.is_ok());
}
