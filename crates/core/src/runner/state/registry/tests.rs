use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::sync::watch;
use tokio::time::advance;

use super::*;
use crate::runner::state::StartOrder;
use sshjobs_job::{Caller, Controls, Draft, FarEndError, FleetPlan, JobSpec, Outcome, Signal};
use sshjobs_output::{RingLimits, TerminalSize};

fn spec(command: &str) -> JobSpec {
    Draft::new("web1", command).try_into().unwrap()
}

fn of(caller: &str) -> Scope {
    Scope::Of(Caller::new(caller))
}

fn order(caller: &str, command: &str, key: &str) -> StartOrder {
    StartOrder::new(&Caller::new(caller), spec(command), Some(key.to_owned()))
}

/// Registers a job that is about to start.
fn insert(registry: &mut Registry, order: StartOrder) -> Arc<Job> {
    let job = Arc::new(Job::new(order.caller, order.spec, RingLimits::default()));
    registry.insert(Arc::clone(&job), order.key);
    job
}

fn end(registry: &mut Registry, job: &Job) {
    job.end(Outcome::Closed);
    registry.finish(&job.id);
}

#[tokio::test]
async fn a_key_stands_for_one_job_of_one_caller() {
    let mut registry = Registry::default();
    let job = insert(&mut registry, order("me", "make", "k"));
    let again = registry.by_key(&order("me", "make", "k")).unwrap().unwrap();
    assert!(Arc::ptr_eq(&again, &job));
    assert!(matches!(
        registry.by_key(&order("me", "make clean", "k")),
        Err(SpawnError::KeyReused)
    ));
    assert!(
        registry.by_key(&order("you", "make clean", "k")).unwrap().is_none(),
        "another's key"
    );
}

#[tokio::test]
async fn an_adopted_job_was_counted_by_who_started_it() {
    let mut registry = Registry::default();
    insert(&mut registry, order("me", "make", "k"));
    let adopted = Arc::new(Job::new(
        Caller::new("me"),
        spec("make"),
        RingLimits::default(),
    ));
    registry.adopt(adopted, None, None);
    assert_eq!(registry.counts(), (2, 0, 1));
}

#[tokio::test]
async fn a_job_is_unknown_to_other_callers_even_when_it_is_gone() {
    let mut registry = Registry::default();
    let job = insert(&mut registry, order("me", "make", "k"));
    assert!(matches!(
        registry.lookup(&of("me"), &job.id),
        Lookup::Found(_)
    ));
    assert!(matches!(
        registry.lookup(&of("you"), &job.id),
        Lookup::Unknown
    ));
    end(&mut registry, &job);
    registry.bury(&job.id);
    assert!(matches!(
        registry.lookup(&of("me"), &job.id),
        Lookup::Expired(_)
    ));
    assert!(matches!(
        registry.lookup(&of("you"), &job.id),
        Lookup::Unknown
    ));
}

#[tokio::test]
async fn a_failed_start_leaves_nothing_unless_a_caller_has_its_id() {
    let mut registry = Registry::default();
    let untold = insert(&mut registry, order("me", "make", "k"));
    registry.fail(&untold.id);
    assert!(
        matches!(registry.lookup(&of("me"), &untold.id), Lookup::Unknown)
            && !registry.is_known(&untold.id)
    );
    let told = insert(&mut registry, order("me", "make", "k"));
    assert!(registry.mark_visible(&told.id));
    registry.fail(&told.id);
    assert!(matches!(
        registry.lookup(&of("me"), &told.id),
        Lookup::Found(_)
    ));
    assert!(
        registry.by_key(&order("me", "make", "k")).unwrap().is_none(),
        "the key is free again"
    );
}

#[tokio::test(start_paused = true)]
async fn a_forgotten_job_keeps_its_key_for_a_day() {
    let mut registry = Registry::default();
    let job = insert(&mut registry, order("me", "make", "k"));
    end(&mut registry, &job);
    registry.bury(&job.id);
    assert!(matches!(
        registry.by_key(&order("me", "make", "k")),
        Err(SpawnError::Expired(_))
    ));
    assert!(matches!(
        registry.by_key(&order("me", "make clean", "k")),
        Err(SpawnError::KeyReused)
    ));
    advance(GRAVE_KEPT).await;
    registry.clear_graves();
    assert!(registry.by_key(&order("me", "make clean", "k")).unwrap().is_none());
    assert!(matches!(
        registry.lookup(&of("me"), &job.id),
        Lookup::Unknown
    ));
}

fn on(host: &str) -> JobSpec {
    Draft::new(host, "true").try_into().unwrap()
}

#[tokio::test]
async fn a_fleet_takes_the_room_of_no_job_and_fleets_have_a_limit_of_their_own() {
    let mut registry = Registry::default();
    let limits = Limits {
        max_jobs: 1,
        ..Limits::default()
    };
    let mut fleet = Draft::new("web[1-2]", "true");
    fleet.fleet = Some(FleetPlan::new(vec!["web1".to_owned(), "web2".to_owned()]));
    let fleet: JobSpec = fleet.try_into().unwrap();
    let ring = RingLimits::default();
    let first = Arc::new(Job::new(Caller::new("me"), fleet.clone(), ring));
    registry.insert(Arc::clone(&first), None);

    assert!(registry.check_room(&on("web1"), &limits).is_ok());
    assert!(registry.check_room(&fleet, &limits).is_err());
    end(&mut registry, &first);
    insert(&mut registry, order("me", "1", "1"));
    assert!(registry.check_room(&fleet, &limits).is_ok());
    assert!(registry.check_room(&on("web1"), &limits).is_err());
}

#[tokio::test]
async fn running_jobs_are_limited_and_finished_jobs_do_not_count() {
    let mut registry = Registry::default();
    let limits = Limits {
        max_jobs: 3,
        max_jobs_per_host: 2,
        ..Limits::default()
    };
    let one = insert(&mut registry, order("me", "1", "1"));
    insert(&mut registry, order("me", "2", "2"));
    let full = registry.check_room(&on("web1"), &limits);
    assert!(matches!(full, Err(SpawnError::Capacity { running: 2, place }) if place == "on web1"));
    assert!(registry.check_room(&on("web2"), &limits).is_ok());
    end(&mut registry, &one);
    assert!(registry.check_room(&on("web1"), &limits).is_ok());
    let all = Limits {
        max_jobs: 1,
        ..limits
    };
    assert!(matches!(
        registry.check_room(&on("web2"), &all),
        Err(SpawnError::Capacity { running: 1, .. })
    ));
}

/// A far end that accepts every call and does nothing.
struct Still {
    outlives_us: bool,
}

impl Controls for Still {
    fn write<'a>(&'a self, data: &'a [u8]) -> BoxFuture<'a, Result<usize, FarEndError>> {
        async { Ok(data.len()) }.boxed()
    }

    fn eof(&self) -> BoxFuture<'_, Result<(), FarEndError>> {
        async { Ok(()) }.boxed()
    }

    fn signal(&self, _signal: Signal) -> BoxFuture<'_, Result<(), FarEndError>> {
        async { Ok(()) }.boxed()
    }

    fn resize(&self, _size: TerminalSize) -> BoxFuture<'_, Result<(), FarEndError>> {
        async { Ok(()) }.boxed()
    }

    fn close(&self) -> BoxFuture<'_, Result<(), FarEndError>> {
        async { Ok(()) }.boxed()
    }

    fn outlives_us(&self) -> bool {
        self.outlives_us
    }
}

#[tokio::test]
async fn a_shutdown_leaves_jobs_alone_that_outlive_us_or_were_detached() {
    let mut registry = Registry::default();
    let mut started = |key: &str, outlives_us| {
        let job = insert(&mut registry, order("me", "make", key));
        let controls = Arc::new(Still { outlives_us });
        let told = watch::Sender::new(0).subscribe();
        let stdin = Arc::new(JobStdin::new(controls, Arc::clone(&job), told, None));
        registry.note_followed(&job.id, stdin, None);
        job
    };
    let attached = started("a", false);
    let durable = started("b", true);
    let detached = started("c", false);
    registry.detach(&detached);
    let to_end: Vec<JobId> = registry.to_end().iter().map(|job| job.id.clone()).collect();
    assert_eq!(to_end, std::slice::from_ref(&attached.id));
    assert!(registry.place(&detached.id).is_none() && registry.stdin(&durable.id).is_some());
    assert!(matches!(
        registry.lookup(&of("me"), &detached.id),
        Lookup::Found(_)
    ));

    attached.end(Outcome::Closed);
    let is_empty = registry.to_end().is_empty();
    assert!(
        is_empty,
        "a job that is over is left alone, also while its entry still has its stdin"
    );
}
