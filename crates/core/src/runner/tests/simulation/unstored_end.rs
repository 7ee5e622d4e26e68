//! A job whose end a full disk could not take, read from another process.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{sleep, timeout};

use super::dice::Dice;
use super::host::SimulatedHost;
use super::process::{ProcessStart, SimulatedProcess};
use super::reader::{Reader, ReaderOf, SeenLines, line_text};
use super::world::durable_job;
use sshjobs_base::blocking::in_place;
use sshjobs_job::{Exit, Outcome};
use sshjobs_output::RingLimits;
use sshjobs_store::{DiskFault, Memory, Store};

/// Time in which a job's output is received and stored.
const QUIET: Duration = Duration::from_secs(10);
/// Time for which the disk hangs, so that line and end are stored together.
const HANG: Duration = Duration::from_secs(2);
/// Time for which the disk is full: longer than the output of a durable job waits for room.
const LONG_FULL: Duration = Duration::from_secs(90);
/// Time limit for reading the job to its end.
const PATIENCE: Duration = Duration::from_secs(60);

#[tokio::test(start_paused = true)]
async fn a_reader_at_another_process_reads_to_an_end_that_the_disk_could_not_take() {
    let _in_place = in_place::enter();
    let dice = Dice::new(1);
    let fault = Arc::new(DiskFault::default());
    let disk = Memory::with_fault(Arc::clone(&fault));
    let host = SimulatedHost::new();
    let process = || {
        SimulatedProcess::start(ProcessStart {
            host: &host,
            store: disk.join(),
            ring_lines: 100,
            dice: dice.fork(),
        })
    };
    let (owner, other) = (process(), process());
    let job = durable_job(0, 100);
    owner.spawn(&host, &job);
    sleep(QUIET).await;
    let line = |number| line_text(0, number) + "\n";
    host.print(job.id.as_str(), 0, line(1).as_bytes());
    sleep(QUIET).await;
    let reader = Arc::new(Reader::new(ReaderOf {
        name: "the",
        job: job.id.clone(),
        has_one_stream: true,
        known: Arc::new(SeenLines::default()),
    }));
    let reading = Arc::clone(&reader).read_from(Arc::clone(&other.shared), dice.fork());
    other.shared.spawn_task(reading);
    sleep(QUIET).await;

    owner.hang_disk_for(HANG);
    fault.set_full(true);
    host.print(job.id.as_str(), 0, line(2).as_bytes());
    host.end(job.id.as_str(), 0);

    sleep(LONG_FULL).await;
    let log = disk.log(&job.id);
    assert!(fault.has_failed() && log.open(RingLimits::default()).unwrap().outcome.is_none());

    fault.set_full(false);
    let is_done = timeout(PATIENCE, reader.done()).await.is_ok();
    let progress = reader.progress();
    assert!(is_done, "{progress:?}");
    assert_eq!((progress.seen, progress.dropped), ([1, 0], 1));
    assert_eq!(progress.outcome, Some(Outcome::Ended(Exit::Status(0))));
}
