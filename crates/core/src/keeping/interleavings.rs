//! Recorder, storing threads and readers of one job, in many orders.
//!
//! shuttle runs the threads one at a time, and decides at each lock, atomic value and channel which
//! one continues. A failure prints the schedule that repeats it. A wake-up that the waiter for the
//! job's end, or a thread that stores, misses is found as a deadlock; the other readers look again and
//! again. Not played: a store that several machines share.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use shuttle::thread;
use tokio::time::Instant;

use super::requests::Task;
use super::*;
use sshjobs_base::sync::mpsc::Receiver;
use sshjobs_base::sync::{Mutex, lock};
use sshjobs_job::{Caller, Draft, Exit, Job, JobId, LogChange, Outcome, OutputStore};
use sshjobs_output::{LineNo, Render, Ring, RingLimits, Selection, Stream};
use sshjobs_store::{DiskFault, LogLimits, Memory, Record, StoreLimits};

const ORDERS: usize = 3_000;
const LINES: u64 = 6;
const READERS: usize = 2;
const WRITERS: usize = 2;

/// Runs a world in random orders, then in orders with few switches, which find bugs that need one slow
/// thread.
fn in_many_orders(world: impl Fn() + Send + Sync + Clone + 'static) {
    shuttle::check_random(world.clone(), ORDERS);
    shuttle::check_pct(world, ORDERS, 3);
}

/// Whether a line must be stored when it is shown.
#[derive(Clone, Copy)]
enum StoringOrder {
    StoredFirst,
    PerhapsShownFirst,
}

struct StoringWorld {
    storing: Arc<Storing>,
    /// Jobs with output to store.
    called: Arc<Mutex<Receiver<JobId>>>,
    /// Records to write, until a thread takes it.
    tasks: Mutex<Option<Receiver<Task>>>,
    job: Arc<Job>,
}

impl StoringWorld {
    fn new(store: Memory) -> Self {
        let limits = LogLimits {
            bytes: 1 << 20,
            line_bytes: 1 << 10,
            interval: 16,
        };
        let bounds = StoreLimits {
            bytes: u64::MAX,
            age: u64::MAX,
        };
        let (storing, requests) = Storing::new(Arc::new(store), limits, bounds);
        let spec = Draft::new("web1", "make").try_into().unwrap();
        let job = Arc::new(Job::new(Caller::local(), spec, RingLimits::default()));
        let record = Record::new(&job, None, String::new());
        storing.store.admit(&record).unwrap();
        storing.keep(&job, record, None);
        Self {
            storing,
            called: Arc::new(Mutex::new(requests.called)),
            tasks: Mutex::new(Some(requests.tasks)),
            job,
        }
    }

    /// Runs the job: it prints numbered lines and ends, while threads store and readers read. The
    /// others run beside them.
    fn run(&self, others: Vec<Box<dyn FnOnce() + Send>>, order: StoringOrder) {
        let mut threads: Vec<_> = others.into_iter().map(thread::spawn).collect();
        for _ in 0..READERS {
            let (storing, job) = (Arc::clone(&self.storing), Arc::clone(&self.job));
            threads.push(thread::spawn(move || match order {
                StoringOrder::StoredFirst => read(&job, Some(&storing)),
                StoringOrder::PerhapsShownFirst => read(&job, None),
            }));
        }
        let job = Arc::clone(&self.job);
        threads.push(thread::spawn(move || {
            let outcome = shuttle::future::block_on(job.outcome());
            assert_eq!(outcome, Outcome::Ended(Exit::Status(0)));
        }));
        let writers: Vec<_> = (0..WRITERS).map(|_| self.start_writer()).collect();

        for number in 1..=LINES {
            let line = LogChange::Append(Stream::Stdout.into(), format!("{number}\n").into());
            self.job.record(vec![line], Instant::now());
        }
        self.job.record(vec![LogChange::FinishStreams], Instant::now());
        self.job.end(Outcome::Ended(Exit::Status(0)));

        threads.into_iter().for_each(|thread| thread.join().unwrap());
        // The writers wait for calls: these let them see that the job is over.
        (0..WRITERS).for_each(|_| self.storing.notify(&self.job.id));
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        assert_eq!(
            self.storing.waiting_balance(),
            0,
            "each byte is subtracted once"
        );
    }

    fn start_writer(&self) -> thread::JoinHandle<()> {
        let (storing, job) = (Arc::clone(&self.storing), Arc::clone(&self.job));
        let called = Arc::clone(&self.called);
        thread::spawn(move || {
            while !job.is_over() {
                let id = lock(&called).recv().unwrap();
                storing.store_output(&id);
            }
        })
    }

    /// The lines that another process finds in the store, with their numbers.
    fn stored_lines(&self) -> Vec<(u64, String)> {
        let ring = stored_ring(&self.storing, &self.job);
        let lines = ring.lines_after(LineNo::START, Selection::Both);
        lines
            .map(|line| (line.line_no.value(), line.render(Render::Raw).into_owned()))
            .collect()
    }
}

/// What another process would find in the store now.
fn stored_ring(storing: &Storing, job: &Job) -> Ring {
    storing.store.log(&job.id).open(RingLimits::default()).unwrap().ring
}

/// Reads a job to its end. Each line comes once and in order and, if a store is given, only after it is
/// stored.
fn read(job: &Job, must_be_stored_in: Option<&Storing>) {
    let mut cursor = 0;
    loop {
        let (lines, is_over) = job.read_log(|log| {
            let lines = log.ring().lines_after(LineNo::new(cursor), Selection::Both);
            let lines: Vec<_> = lines
                .map(|line| (line.line_no.value(), line.render(Render::Raw).into_owned()))
                .collect();
            (lines, log.outcome().is_some())
        });
        let has_news = !lines.is_empty();
        for (number, text) in lines {
            cursor += 1;
            assert_eq!((number, text), (cursor, cursor.to_string()));
        }
        if has_news && let Some(storing) = must_be_stored_in {
            let stored = stored_ring(storing, job).newest().value();
            assert!(
                stored >= cursor,
                "line {cursor} is shown, and {stored} lines are stored"
            );
        }
        if is_over {
            assert_eq!(cursor, LINES, "the end is shown after all lines");
            return;
        }
        thread::yield_now();
    }
}

fn numbered(lines: impl Iterator<Item = u64>) -> Vec<(u64, String)> {
    lines.map(|number| (number, number.to_string())).collect()
}

#[test]
fn each_reader_and_the_store_have_every_line_once() {
    in_many_orders(|| {
        let world = StoringWorld::new(Memory::default());
        let [for_sync, for_records] = [(); 2].map(|()| Arc::clone(&world.storing));
        let tasks = lock(&world.tasks).take().unwrap();
        let sync = move || {
            for _ in 0..3 {
                for_sync.sync_all();
                thread::yield_now();
            }
        };
        let records = move || {
            for _ in 0..3 {
                for_records.do_tasks(tasks.try_iter());
                for_records.put_changed().unwrap();
                thread::yield_now();
            }
        };
        world.run(
            vec![Box::new(sync), Box::new(records)],
            StoringOrder::StoredFirst,
        );
        assert_eq!(world.stored_lines(), numbered(1..=LINES));
        assert_eq!(world.job.status().unstored, None);
    });
}

#[test]
fn what_is_shown_before_it_is_stored_is_shown_once_and_numbered_alike() {
    // Of the standard library, so that shuttle does not switch threads at them.
    let [with_overdue, with_fault, with_lines] = [(); 3].map(|()| Arc::new(AtomicUsize::new(0)));
    let counts = [&with_overdue, &with_fault, &with_lines].map(Arc::clone);
    in_many_orders(move || {
        let [with_overdue, with_fault, with_lines] = counts.each_ref().map(Arc::clone);
        let fault = Arc::new(DiskFault::default());
        let world = StoringWorld::new(Memory::with_fault(Arc::clone(&fault)));
        let job = Arc::clone(&world.job);
        let overdue = move || {
            for _ in 0..3 {
                if job.show_overdue(Duration::ZERO) {
                    with_overdue.fetch_add(1, Relaxed);
                }
                thread::yield_now();
            }
        };
        let armed = Arc::clone(&fault);
        let fail = move || {
            thread::yield_now();
            armed.fail_next_append_after(7);
        };
        world.run(
            vec![Box::new(overdue), Box::new(fail)],
            StoringOrder::PerhapsShownFirst,
        );
        with_fault.fetch_add(usize::from(fault.has_failed()), Relaxed);
        for (number, text) in world.stored_lines() {
            assert_eq!(text, number.to_string());
            with_lines.fetch_add(1, Relaxed);
        }
    });
    for count in [with_overdue, with_fault, with_lines] {
        assert!(
            count.load(Relaxed) > ORDERS / 10,
            "hardly any order has a line shown early, a failed append and a stored line"
        );
    }
}
