use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use tokio::time::{Instant, advance, sleep, timeout};

use super::output::OVERDUE;
use super::storing::Storing;
use sshjobs_base::sync::atomic::Ordering::Relaxed;
use sshjobs_base::sync::lock;
use sshjobs_job::{Backlog, Caller, Draft, Exit, Job, LogChange, Outcome};
use sshjobs_output::{RingLimits, Stream};
use sshjobs_store::{DiskFault, LogLimits, Memory, Record, StoreLimits};

const LOG_LIMITS: LogLimits = LogLimits {
    bytes: 1 << 20,
    line_bytes: 1 << 16,
    interval: 1 << 16,
};

const ROOMY_LOG: LogLimits = LogLimits {
    bytes: 1 << 30,
    ..LOG_LIMITS
};

const NO_BOUNDS: StoreLimits = StoreLimits {
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
    stored_job_of(storing, |_| {})
}

fn stored_job_of(storing: &Arc<Storing>, change: impl FnOnce(&mut Draft)) -> Arc<Job> {
    let mut draft = Draft::new("web1", "make");
    change(&mut draft);
    let spec = draft.try_into().unwrap();
    let job = Arc::new(Job::new(Caller::local(), spec, RingLimits::default()));
    let record = Record::new(&job, None, String::new());
    storing.store.admit(&record).unwrap();
    storing.keep(&job, record, None);
    print(&job, "line\n");
    job
}

fn print(job: &Job, text: impl Into<Bytes>) {
    let change = LogChange::Append(Stream::Stdout.into(), text.into());
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
async fn the_record_of_a_job_that_has_ended_has_all_bytes_also_while_its_writer_is_busy() {
    let (storing, requests) = Storing::new(Arc::new(Memory::default()), LOG_LIMITS, NO_BOUNDS);
    let job = stored_job(&storing);
    job.end(Outcome::Ended(Exit::Status(0)));
    assert!(requests.store_next_output(&storing) && job.is_over());
    let kept = lock(&storing.kept)[&job.id].clone();

    // As while the disk hangs.
    let writer = lock(&kept.writer);
    let byte_count = writer.bytes();
    storing.put_due_records(HashSet::from([job.id.clone()])).unwrap();

    assert!(kept.is_settled.load(Relaxed) && byte_count > 0);
    assert_eq!(lock(&kept.record).stored_bytes, byte_count);
}

#[tokio::test]
async fn a_job_is_settled_only_after_the_write_of_its_last_batch() {
    let (storing, _requests) = Storing::new(Arc::new(Memory::default()), LOG_LIMITS, NO_BOUNDS);
    let job = stored_job(&storing);
    let kept = lock(&storing.kept)[&job.id].clone();
    let put_record = || storing.put_due_records(HashSet::from([job.id.clone()])).unwrap();
    job.take_batch(usize::MAX, false).unwrap();
    job.end(Outcome::Ended(Exit::Status(0)));
    // The disk hangs, and the end is shown meanwhile.
    sleep(Duration::from_millis(1)).await;
    assert!(job.show_overdue(Duration::ZERO) && job.is_over());

    put_record();
    assert!(!kept.is_settled.load(Relaxed));

    job.show_attempted(true);
    put_record();
    assert!(kept.is_settled.load(Relaxed));
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
    let waiting = async {
        tokio::join!(job.wait_for_store(Backlog::IsKeptByHost), async {
            storing.give_up(&job.id);
        })
    };

    let waited = timeout(Duration::from_secs(3600), waiting).await;

    assert_eq!(waited, Ok((true, ())));
}

/// Prints this number of mebibytes, in lines of a kibibyte.
fn print_mebibytes(job: &Job, count: usize) {
    let mebibyte = Bytes::from(("x".repeat(1023) + "\n").repeat(1024));
    for _ in 0..count {
        print(job, mebibyte.clone());
    }
}

/// Whether the far end of a job has to wait now.
fn has_to_wait(job: &Job) -> bool {
    job.wait_for_store(Backlog::BlocksTheCommand).now_or_never().is_none()
}

#[test]
fn a_far_end_waits_for_a_store_that_makes_progress_and_no_line_passes_unstored() {
    let (storing, requests) = Storing::new(Arc::new(Memory::default()), ROOMY_LOG, NO_BOUNDS);
    let job = stored_job(&storing);
    for _ in 0..20 {
        print_mebibytes(&job, 5);
        assert!(has_to_wait(&job));
        while requests.store_next_output(&storing) {}
        assert!(!has_to_wait(&job));
    }

    let status = job.status();
    assert_eq!(
        (status.total_lines, status.unstored),
        (1 + 100 * 1024, None)
    );
    assert_eq!(job.coverage().unwrap().gaps, []);
}

#[test]
fn each_far_end_waits_for_its_own_output_while_much_of_all_jobs_waits() {
    let (storing, requests) = Storing::new(Arc::new(Memory::default()), ROOMY_LOG, NO_BOUNDS);
    let jobs: Vec<_> = (0..50).map(|_| stored_job(&storing)).collect();
    let quiet = stored_job(&storing);
    assert!(!has_to_wait(&quiet), "one line of it waits");
    jobs.iter().for_each(|job| print_mebibytes(job, 3));

    assert!(has_to_wait(&quiet));
    while requests.store_next_output(&storing) {}
    assert!(!has_to_wait(&quiet));
}

#[tokio::test(start_paused = true)]
async fn a_store_that_stands_still_is_waited_for_once_and_not_for_each_event() {
    let storing = storing_without_threads();
    let job = stored_job(&storing);
    print_mebibytes(&job, 5);
    assert!(has_to_wait(&job));
    advance(OVERDUE + Duration::from_millis(1)).await;
    storing.show_overdue_or_store_again();

    let began = Instant::now();
    for _ in 0..33 {
        assert!(!has_to_wait(&job));
        print_mebibytes(&job, 1);
    }

    assert_eq!(began.elapsed(), Duration::ZERO);
    let status = job.status();
    assert!(status.total_lines > 30, "{}", status.total_lines);
    assert!(status.unstored.is_some());
}

#[tokio::test]
async fn output_of_a_durable_job_waits_on_a_full_disk_and_is_stored_when_there_is_room() {
    for is_durable in [false, true] {
        let fault = Arc::new(DiskFault::default());
        let store = Arc::new(Memory::with_fault(Arc::clone(&fault)));
        let (storing, requests) = Storing::new(store, LOG_LIMITS, NO_BOUNDS);
        let job = stored_job_of(&storing, |draft| draft.durable = is_durable);
        while requests.store_next_output(&storing) {}
        fault.fail_next_append_after(3);
        print(&job, "more\n");
        while requests.store_next_output(&storing) {}
        let waiting = job.status();
        assert_eq!(waiting.total_lines, if is_durable { 1 } else { 2 });
        assert!(waiting.unstored.is_some());
        storing.show_overdue_or_store_again();
        print(&job, "last\n");
        while requests.store_next_output(&storing) {}

        let status = job.status();
        assert_eq!((status.total_lines, status.unstored), (3, None));
        let gaps = job.coverage().unwrap().gaps;
        assert_eq!(gaps.is_empty(), is_durable, "{gaps:?}");
    }
}
