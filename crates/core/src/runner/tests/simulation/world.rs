//! One simulated run: a host, processes, jobs and readers, and faults in an order that the seed
//! decides.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::dice::Dice;
use super::host::SimulatedHost;
use super::process::{ProcessStart, SimulatedProcess};
use super::reader::{Reader, ReaderOf, ReaderProgress, SeenLines, line_text};
use sshjobs_job::{Caller, Draft, Exit, Job, JobId, JobIdentity, Log, LostWhy, Nonce, Outcome};
use sshjobs_output::RingLimits;
use sshjobs_store::{DiskFault, Memory};

/// After the last fault: time limit for all readers to read the end, and for sessions to end.
const PATIENCE: Duration = Duration::from_secs(600);
/// Interval of checks for sessions that are left, and for a job that was started.
const GLANCE: Duration = Duration::from_secs(1);
/// Time within which a job is started, unless its process is killed.
const START: Duration = Duration::from_secs(5);
/// Longest pause between two faults, and of a job between two pieces of output, in milliseconds.
const FAULT_PAUSE: u64 = 2_000;
const PRINT_PAUSE: u64 = 300;
/// Exit status of the simulated jobs.
const STATUS: u8 = 3;

/// Sizes of a world, which the seed decides before the run.
#[derive(Debug)]
struct WorldPlan {
    jobs: usize,
    /// Lines of each job on stdout and on stderr.
    lines: [u64; 2],
    faults: usize,
    processes: usize,
    ring_lines: usize,
    /// Whether the disk fails and hangs. Lines may then be shown that are not stored.
    has_bad_disk: bool,
}

impl WorldPlan {
    fn new(dice: &Dice) -> Self {
        let has_bad_disk = dice.once_in(3);
        // Most worlds are small: many of them find more than some large ones.
        let is_large = dice.once_in(20);
        let most_lines = if is_large { 60 } else { 9 };
        Self {
            jobs: 1 + if is_large {
                dice.roll(4)
            } else {
                usize::from(dice.once_in(4))
            },
            lines: [
                dice.roll(most_lines) as u64,
                // Lines of two streams that are shown and not stored may be numbered otherwise by
                // the next process.
                if has_bad_disk {
                    0
                } else {
                    dice.roll(most_lines / 3) as u64
                },
            ],
            faults: dice.roll(if is_large { 12 } else { 4 }),
            // A second process reads each job's file every 20 ms, so such a run is slow.
            processes: if dice.once_in(50) { 2 } else { 1 },
            ring_lines: 4 + dice.roll(40),
            has_bad_disk,
        }
    }
}

struct SimulatedWorld {
    dice: Dice,
    plan: WorldPlan,
    host: Arc<SimulatedHost>,
    disk: Memory,
    disk_fault: Arc<DiskFault>,
    processes: Vec<Option<SimulatedProcess>>,
    readers: Vec<Arc<Reader>>,
    has_disk_hung: bool,
    printing: JoinSet<()>,
}

/// Plays one seed. The result has the pages that each reader got.
///
/// # Panics
/// If a promise is broken.
pub(super) async fn play(seed: u64) -> String {
    let dice = Dice::new(seed);
    let plan = WorldPlan::new(&dice);
    let disk_fault = Arc::new(DiskFault::default());
    let mut world = SimulatedWorld {
        host: SimulatedHost::new(),
        disk: Memory::with_fault(Arc::clone(&disk_fault)),
        disk_fault,
        processes: Vec::new(),
        readers: Vec::new(),
        has_disk_hung: false,
        printing: JoinSet::new(),
        plan,
        dice,
    };
    world.run().await;
    let progress: Vec<_> = world.readers.iter().map(|reader| reader.progress()).collect();
    format!("{:?}: {progress:?}", world.plan)
}

impl SimulatedWorld {
    async fn run(&mut self) {
        for _ in 0..self.plan.processes {
            let process = self.start_process();
            self.processes.push(Some(process));
        }
        let (mut jobs, mut faults) = (0, 0);
        while jobs < self.plan.jobs || faults < self.plan.faults {
            let is_last_fault = faults == self.plan.faults;
            if jobs < self.plan.jobs && (is_last_fault || self.dice.once_in(2)) {
                self.spawn_job(jobs);
                jobs += 1;
            } else if !is_last_fault {
                self.make_fault().await;
                faults += 1;
            }
            sleep(self.dice.millis(FAULT_PAUSE)).await;
        }
        while self.printing.join_next().await.is_some() {}
        self.check_readers().await;
        self.check_sessions().await;
        if self.dice.once_in(4) {
            self.read_again().await;
        }
        for process in self.processes.drain(..).flatten() {
            process.kill().await;
        }
    }

    fn start_process(&self) -> SimulatedProcess {
        let process = SimulatedProcess::start(ProcessStart {
            host: &self.host,
            store: self.disk.join(),
            ring_lines: self.plan.ring_lines,
            dice: self.dice.fork(),
        });
        for reader in &self.readers {
            self.let_read(reader, &process);
        }
        process
    }

    fn let_read(&self, reader: &Arc<Reader>, process: &SimulatedProcess) {
        let shared = Arc::clone(&process.shared);
        process
            .shared
            .spawn_task(Arc::clone(reader).read_from(shared, self.dice.fork()));
    }

    /// Starts a job in one of the processes, with two readers. They read from every process, as readers
    /// behind a proxy do.
    fn spawn_job(&mut self, index: usize) {
        let job = durable_job(index, self.plan.ring_lines);
        let process = self.dice.roll(self.processes.len());
        if let Some(process) = &self.processes[process] {
            process.spawn(&self.host, &job);
        }
        self.printing.spawn(print(
            Arc::clone(&self.host),
            job.id.clone(),
            self.plan.lines,
            self.dice.fork(),
        ));
        let known = Arc::new(SeenLines::default());
        for name in ["first", "second"] {
            let reader = self.reader_of(name, &job.id, &known);
            for process in self.processes.iter().flatten() {
                self.let_read(&reader, process);
            }
            self.readers.push(reader);
        }
    }

    fn reader_of(&self, name: &'static str, job: &JobId, known: &Arc<SeenLines>) -> Arc<Reader> {
        Arc::new(Reader::new(ReaderOf {
            name,
            job: job.clone(),
            has_one_stream: self.plan.lines[1] == 0,
            known: Arc::clone(known),
        }))
    }

    async fn make_fault(&mut self) {
        let host = &self.host;
        // A session that is silent for 20 seconds counts as lost.
        let longest = if self.dice.once_in(8) { 40_000 } else { 8_000 };
        let time = self.dice.millis(longest);
        let fault = self.dice.roll(if self.plan.has_bad_disk { 8 } else { 6 });
        tracing::debug!(fault, ?time, "a fault");
        match fault {
            0 => host.cut(),
            1 => {
                host.cut();
                host.refuse_for(time);
            }
            2 => host.freeze_for(time),
            3 => {
                host.delete_scripts();
                host.cut();
            }
            4 | 5 => self.restart_a_process().await,
            6 => self.disk_fault.fail_next_append_after(self.dice.roll(100)),
            _ => {
                self.has_disk_hung = true;
                self.processes.iter().flatten().for_each(|process| process.hang_disk_for(time));
            }
        }
    }

    async fn restart_a_process(&mut self) {
        let index = self.dice.roll(self.processes.len());
        if let Some(process) = self.processes[index].take() {
            process.kill().await;
        }
        sleep(self.dice.millis(3_000)).await;
        tracing::debug!("a process starts");
        self.processes[index] = Some(self.start_process());
    }

    /// All readers read to the end of their jobs, and have seen each line.
    async fn check_readers(&self) {
        for reader in &self.readers {
            self.check_reader(reader).await;
        }
    }

    async fn check_reader(&self, reader: &Reader) {
        let is_done = timeout(PATIENCE, reader.done()).await.is_ok();
        let ReaderProgress {
            seen,
            dropped,
            outcome,
            ..
        } = reader.progress();
        assert!(
            is_done,
            "not read to the end: {seen:?} seen, {dropped} dropped"
        );
        let was_started = self.host.job(reader.job().as_str()).is_some();
        let (expected, lines) = if was_started {
            let exit = Exit::Status(STATUS.into());
            (Outcome::Ended(exit), self.plan.lines.iter().sum())
        } else {
            // Its process was killed before it had started the job.
            (Outcome::Lost(LostWhy::SpoolGone, None), 0)
        };
        assert_eq!(outcome, Some(expected));
        assert_eq!(seen.iter().sum::<u64>() + dropped, lines);
        if !self.has_disk_hung && !self.disk_fault.has_failed() {
            assert_eq!(dropped, 0, "a line was lost");
        }
    }

    /// No process has a session without jobs.
    async fn check_sessions(&self) {
        // A job whose end was read may still be followed: by a process that took it over since.
        let free = async {
            while self.processes.iter().flatten().any(SimulatedProcess::has_session) {
                sleep(GLANCE).await;
            }
        };
        let is_free = timeout(PATIENCE, free).await.is_ok();
        assert!(is_free, "a session continues without jobs");
    }

    /// A new process reads each job from its start, and sees the same.
    async fn read_again(&mut self) {
        let process = self.start_process();
        let firsts: Vec<_> = self.readers.iter().step_by(2).map(Arc::clone).collect();
        for first in firsts {
            let again = self.reader_of("last", first.job(), first.known());
            self.let_read(&again, &process);
            self.check_reader(&again).await;
        }
        process.kill().await;
    }
}

/// A durable job of the simulated host.
pub(super) fn durable_job(index: usize, ring_lines: usize) -> Arc<Job> {
    let mut draft = Draft::new("host", "make");
    draft.durable = true;
    let identity = JobIdentity {
        id: JobId::from(format!("host-{index:06}").as_str()),
        mark: Nonce::new(),
        caller: Caller::local(),
    };
    let ring = RingLimits {
        lines: ring_lines,
        ..RingLimits::default()
    };
    let spec = draft.try_into().expect("the order is valid");
    Arc::new(Job::begun(identity, spec, Log::new(ring)))
}

/// A job that prints its lines, in pieces that end anywhere, and exits.
async fn print(host: Arc<SimulatedHost>, job: JobId, lines: [u64; 2], dice: Dice) {
    let started = async {
        while host.job(job.as_str()).is_none() {
            sleep(GLANCE).await;
        }
    };
    if timeout(START, started).await.is_err() {
        return;
    }
    let mut left = [0, 1].map(|stream| {
        let text: String =
            (1..=lines[stream]).map(|number| line_text(stream, number) + "\n").collect();
        text.into_bytes()
    });
    // The last line may have no end.
    if dice.once_in(3) {
        left[0].pop();
    }
    while left.iter().any(|left| !left.is_empty()) {
        sleep(dice.millis(PRINT_PAUSE)).await;
        let stream = dice.roll(2);
        let left = &mut left[stream];
        let piece: Vec<u8> = left.drain(..left.len().min(1 + dice.roll(120))).collect();
        host.print(job.as_str(), stream, &piece);
    }
    sleep(dice.millis(PRINT_PAUSE)).await;
    host.end(job.as_str(), STATUS);
}
