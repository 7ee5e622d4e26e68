use bytes::Bytes;
use tokio::time::sleep;

use super::*;
use crate::job::{Caller, Change, Draft, Exit, Outcome};
use crate::output::{RingLimits, Stream};
use crate::store::Memory;

const LOG_LIMITS: LogLimits = LogLimits {
    bytes: 1 << 20,
    line_bytes: 1 << 16,
    interval: 1 << 16,
};

const NO_BOUNDS: Bounds = Bounds {
    bytes: u64::MAX,
    age: u64::MAX,
};

fn storing() -> Arc<Storing> {
    let store = Arc::new(Memory::default());
    Storing::start(store, LOG_LIMITS, NO_BOUNDS).unwrap()
}

fn storing_without_threads() -> Arc<Storing> {
    let (storing, _requests) = Storing::new(Arc::new(Memory::default()), LOG_LIMITS, NO_BOUNDS);
    storing
}

/// A job that has printed a line and whose output is stored.
fn stored_job(storing: &Arc<Storing>) -> Arc<Job> {
    let spec = Draft::new("web1", "make").try_into().unwrap();
    let job = Arc::new(Job::new(Caller::local(), spec, RingLimits::default()));
    let record = Record::new(&job, None, String::new());
    storing.store.admit(&record).unwrap();
    storing.keep(&job, record, None);
    print(&job, "line\n");
    job
}

fn print(job: &Job, text: impl Into<Bytes>) {
    let change = Change::Append(Stream::Stdout.into(), text.into());
    job.record(vec![change], Instant::now());
}

/// Waits at most ten seconds.
async fn wait_until(is_so: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while !is_so() {
        assert!(Instant::now() < deadline, "not within ten seconds");
        sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn a_record_is_final_only_with_the_byte_count_of_its_writer() {
    let storing = storing();
    let job = stored_job(&storing);
    let kept = lock(&storing.kept)[&job.id].clone();
    job.end(Outcome::Ended(Exit::Status(0)));
    wait_until(|| kept.is_settled.load(Relaxed)).await;

    // The same moment again, but with a busy writer. A round of `sync_output` may just have dropped the
    // job, because it was settled.
    kept.is_settled.store(false, Relaxed);
    let keep_again = || lock(&storing.kept).insert(job.id.clone(), Arc::clone(&kept));
    keep_again();
    lock(&kept.record).stored_bytes = 0;
    let writer = lock(&kept.writer);
    let byte_count = writer.bytes();
    storing.put_records(HashSet::from([job.id.clone()])).unwrap();
    let was_settled = kept.is_settled.load(Relaxed);
    drop(writer);

    // The next round writes what this one could not know.
    wait_until(|| {
        keep_again();
        kept.is_settled.load(Relaxed)
    })
    .await;
    assert!(!was_settled);
    assert!(byte_count > 0);
    assert_eq!(lock(&kept.record).stored_bytes, byte_count);
}

#[tokio::test]
async fn only_jobs_that_changed_are_looked_at_for_their_records() {
    let storing = storing();
    let idle = stored_job(&storing);
    let busy = stored_job(&storing);
    let kept = |job: &Job| Arc::clone(&lock(&storing.kept)[&job.id]);
    let record_has_lines = |job: &Job, lines| lock(&kept(job).record).total_lines == lines;
    wait_until(|| record_has_lines(&idle, 1)).await;
    // The output of both jobs is stored in order, so nothing about the idle job is left to do.
    print(&busy, "more\n");
    wait_until(|| record_has_lines(&busy, 2)).await;

    // A look at the idle job would correct its record.
    lock(&kept(&idle).record).total_lines = 99;
    print(&busy, "more\n");
    wait_until(|| record_has_lines(&busy, 3)).await;

    assert!(record_has_lines(&idle, 99));
}

#[test]
fn a_job_that_another_machine_records_leaves_nothing_that_waits_to_be_stored() {
    let storing = storing_without_threads();
    let job = stored_job(&storing);
    let waited = storing.waiting_bytes();

    storing.give_up(&job.id);
    // Its recorder may be in the middle of a read.
    print(&job, "later\n");

    assert!(waited > 0);
    assert_eq!(storing.waiting_bytes(), 0);
    assert_eq!(
        job.status().total_lines,
        0,
        "the other machine numbers them"
    );
}

#[tokio::test(start_paused = true)]
async fn giving_a_job_up_wakes_the_recorder_that_waits_for_the_store() {
    let storing = storing_without_threads();
    let job = stored_job(&storing);
    for _ in 0..5 {
        print(&job, "x".repeat(1 << 20) + "\n");
    }
    let patience = Duration::from_secs(3600);
    let began = Instant::now();

    tokio::join!(job.store_caught_up(patience), async {
        storing.give_up(&job.id);
    });

    assert!(began.elapsed() < patience);
}

#[test]
fn output_that_comes_faster_than_it_can_be_stored_is_shown_and_says_so() {
    let storing = storing_without_threads();
    let job = stored_job(&storing);
    let mebibyte = Bytes::from("x".repeat((1 << 20) - 1) + "\n");
    for _ in 0..33 {
        print(&job, mebibyte.clone());
    }

    let status = job.status();
    assert!(status.total_lines > 30, "{}", status.total_lines);
    assert!(status.unstored.is_some_and(|why| why.contains("faster")));
}
