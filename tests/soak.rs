//! Soak: twenty short jobs a second through all faces, for two hours. `make soak` runs it; `SSHJOBS_SOAK_MINUTES` makes
//! it shorter.
//!
//! The promises: each job succeeds; memory grows by less than a MiB an hour; the number of open files does not grow; the
//! host keeps no process of a job. It prints how many directories of jobs remain on the host.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::disallowed_methods,
    clippy::cast_precision_loss,
    reason = "tests"
)]

mod support;

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use serde_json::json;
use sshjobs_core::jobs::{self, Access, Config, Jobs};
use support::command::{command, told};
use support::server::Server;
use support::{HOST, McpClient, Sshd};
use tokio::time::MissedTickBehavior;

/// Time between two jobs of one face. Five faces start twenty jobs a second.
const INTERVAL: Duration = Duration::from_millis(250);
/// Time between two looks at memory and files.
const SAMPLE: Duration = Duration::from_secs(10);
/// Prints 4 KB and ends.
const COMMAND: &str = "seq 1000";
/// Percentage of the run that is not judged, because memory still grows to its final size. Slowest is the registry's list
/// of forgotten jobs: it reaches its 10,000 entries after 45 minutes.
const WARM_UP: usize = 50;
/// Bar on the growth of memory, in MiB an hour.
const MOST_GROWTH: f64 = 1.0;
/// Shortest run whose growth is judged, in minutes.
const SHORTEST_JUDGED: u64 = 90;
/// Lowest acceptable rate of jobs a second. Faces that are late do not catch up.
const LOWEST_RATE: f64 = 10.0;

/// A process that is observed.
struct Observed {
    name: &'static str,
    pid: u32,
    samples: Vec<Sample>,
}

struct Sample {
    hours: f64,
    mebibytes: f64,
    open_files: usize,
}

impl Observed {
    fn new(name: &'static str, pid: u32) -> Self {
        Self {
            name,
            pid,
            samples: Vec::new(),
        }
    }

    fn look(&mut self, since: Instant) {
        // Without pages of files: those of the program come and go with the machine's load.
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid)).unwrap();
        let line = status.lines().find(|line| line.starts_with("RssAnon:")).unwrap();
        let kibibytes: f64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
        self.samples.push(Sample {
            hours: since.elapsed().as_secs_f64() / 3600.0,
            mebibytes: kibibytes / 1024.0,
            open_files: fs::read_dir(format!("/proc/{}/fd", self.pid)).unwrap().count(),
        });
    }

    /// The samples after the warm-up.
    fn settled(&self) -> &[Sample] {
        &self.samples[self.samples.len() * WARM_UP / 100..]
    }

    /// Growth of memory in MiB an hour: the slope of the line with the least squares.
    fn growth(&self) -> f64 {
        let samples = self.settled();
        let count = samples.len() as f64;
        let mean_hours = samples.iter().map(|sample| sample.hours).sum::<f64>() / count;
        let mean_mebibytes = samples.iter().map(|sample| sample.mebibytes).sum::<f64>() / count;
        let mut covariance = 0.0;
        let mut variance = 0.0;
        for sample in samples {
            covariance += (sample.hours - mean_hours) * (sample.mebibytes - mean_mebibytes);
            variance += (sample.hours - mean_hours).powi(2);
        }
        covariance / variance
    }

    fn report(&self) {
        let (first, second) = self.open_files();
        let (growth, last) = (self.growth(), self.samples.last().unwrap().mebibytes);
        println!(
            "{}: {last:.1} MiB, growth {growth:.2} MiB an hour; open files {first}, then {second}",
            self.name
        );
    }

    fn judge(&self, minutes: u64) {
        let (first, second) = self.open_files();
        let growth = self.growth();
        // Some are those of calls that are under way.
        assert!(second <= first + 10, "{}: open files grow", self.name);
        assert!(
            minutes < SHORTEST_JUDGED || growth < MOST_GROWTH,
            "{}: memory grows by {growth:.2} MiB an hour",
            self.name
        );
    }

    /// The most open files in the first and in the second half after the warm-up.
    fn open_files(&self) -> (usize, usize) {
        let (first, second) = self.settled().split_at(self.settled().len() / 2);
        let most =
            |samples: &[Sample]| samples.iter().map(|sample| sample.open_files).max().unwrap();
        (most(first), most(second))
    }
}

/// Calls `job` at each interval until the soak is over. Counts the calls.
fn at_intervals(
    is_over: &Arc<AtomicBool>,
    count: &Arc<AtomicUsize>,
    mut job: impl FnMut() + Send + 'static,
) -> JoinHandle<()> {
    let (is_over, count) = (Arc::clone(is_over), Arc::clone(count));
    thread::spawn(move || {
        let mut next = Instant::now();
        while !is_over.load(Relaxed) {
            job();
            count.fetch_add(1, Relaxed);
            // A face that is late does not catch up.
            next = Instant::now().max(next + INTERVAL);
            thread::sleep(next.saturating_duration_since(Instant::now()));
        }
    })
}

/// The faces of a server: the JSON API, with attached and with durable jobs, and the command line.
fn faces_of(
    server: &Server,
    sshd: &Arc<Sshd>,
    is_over: &Arc<AtomicBool>,
    count: &Arc<AtomicUsize>,
) -> Vec<JoinHandle<()>> {
    let caller = server.caller(sshd, "soak", &[]);
    let token = caller.token.clone();
    let over_http = {
        let caller = caller.clone();
        move || {
            let reply = caller.ok("run", json!({"host": HOST, "command": COMMAND}));
            assert_eq!(reply["exit_status"], 0, "{reply}");
        }
    };
    let durable = move || {
        let request = json!({"host": HOST, "command": COMMAND, "durable": true});
        let job = caller.ok("spawn", request)["job_id"].clone();
        let reply = caller.ok("wait", json!({"job_ids": [job], "wait_ms": 50_000}));
        assert_eq!(reply["jobs"][0]["exit_status"], 0, "{reply}");
        caller.ok("forget", json!({"job_id": job}));
    };
    let by_command_line = {
        let (sshd, socket) = (Arc::clone(sshd), server.socket.display().to_string());
        move || {
            let mut run = command(&sshd, &["--server", &socket, "run", HOST, "--", COMMAND]);
            let run = run.env("SSHJOBS_TOKEN", &token).stdout(Stdio::piped());
            let output = run.output().unwrap();
            assert_eq!(told(&output).lines().count(), 1000);
        }
    };
    vec![
        at_intervals(is_over, count, over_http),
        at_intervals(is_over, count, durable),
        at_intervals(is_over, count, by_command_line),
    ]
}

/// A process that runs jobs by the library. Killed when dropped.
///
/// It is not this process, whose memory has the clients of all faces.
struct Library(Child);

/// Names the ssh_config for the process of the library.
const LIBRARY_CONFIG: &str = "SSHJOBS_SOAK_LIBRARY_CONFIG";
/// The line that it prints after each job.
const RAN: &str = "the library ran a job";

impl Library {
    fn start(sshd: &Sshd) -> Self {
        let child = Command::new(std::env::current_exe().unwrap())
            .args([
                "the_library_runs_jobs_until_it_is_killed",
                "--exact",
                "--ignored",
                "--nocapture",
            ])
            .env(LIBRARY_CONFIG, sshd.ssh_config())
            .stdout(Stdio::piped())
            .spawn();
        Self(child.unwrap())
    }

    /// Counts its jobs until the soak is over.
    fn follow(&mut self, is_over: &Arc<AtomicBool>, count: &Arc<AtomicUsize>) -> JoinHandle<()> {
        let (is_over, count) = (Arc::clone(is_over), Arc::clone(count));
        let stdout = BufReader::new(self.0.stdout.take().unwrap());
        thread::spawn(move || {
            for line in stdout.lines() {
                count.fetch_add(usize::from(line.unwrap() == RAN), Relaxed);
                if is_over.load(Relaxed) {
                    return;
                }
            }
            panic!("the process of the library has ended");
        })
    }
}

impl Drop for Library {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "the soak starts it"]
async fn the_library_runs_jobs_until_it_is_killed() {
    let Some(ssh_config) = std::env::var_os(LIBRARY_CONFIG) else { return };
    let config = Config {
        ssh_config: Some(ssh_config.into()),
        store: false,
        ..Config::default()
    };
    let jobs = Jobs::new(config, Access::Listed);
    let mut ticks = tokio::time::interval(INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let job = jobs.spawn(HOST, jobs::Command::shell(COMMAND)).await;
        assert!(job.unwrap().wait().await.is_success());
        println!("{RAN}");
    }
}

/// Processes on this machine that belong to a job.
fn processes_of_jobs() -> usize {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let of_jobs = processes.filter(|process| {
        let environment = fs::read(process.path().join("environ")).unwrap_or_default();
        environment
            .split(|&byte| byte == 0)
            .any(|variable| variable.starts_with(b"SSHJOBS_JOB="))
    });
    of_jobs.count()
}

#[tokio::test(flavor = "multi_thread")]
async fn twenty_jobs_a_second_leave_nothing_behind() {
    let minutes = std::env::var("SSHJOBS_SOAK_MINUTES").map_or(120, |text| text.parse().unwrap());
    let time = Duration::from_secs(60 * minutes);
    let sshd = Arc::new(Sshd::start().await);
    let processes_before = processes_of_jobs();
    let server = Server::start(&sshd);
    let mut agent = McpClient::start(&sshd.ssh_config());
    let mut library = Library::start(&sshd);
    let mut observed = [
        Observed::new("server", server.pid()),
        Observed::new("MCP on stdio", agent.pid()),
        Observed::new("library", library.0.id()),
    ];

    let is_over = Arc::new(AtomicBool::new(false));
    let count = Arc::new(AtomicUsize::new(0));
    let on_stdio = move || {
        let reply = agent.ok("ssh_run", json!({"host": HOST, "command": COMMAND}));
        assert_eq!(reply["exit_status"], 0, "{reply}");
    };
    let mut faces = faces_of(&server, &sshd, &is_over, &count);
    faces.extend([
        at_intervals(&is_over, &count, on_stdio),
        library.follow(&is_over, &count),
    ]);

    let began = Instant::now();
    while began.elapsed() < time && !faces.iter().any(JoinHandle::is_finished) {
        tokio::time::sleep(SAMPLE).await;
        observed.iter_mut().for_each(|process| process.look(began));
    }
    is_over.store(true, Relaxed);
    for face in faces {
        face.join().expect("every job of the face succeeds");
    }

    let rate = count.load(Relaxed) as f64 / began.elapsed().as_secs_f64();
    println!(
        "{minutes} minutes, {} jobs, {rate:.1} a second",
        count.load(Relaxed)
    );
    assert!(rate >= LOWEST_RATE, "{rate:.1} jobs a second");
    observed.iter().for_each(|process| process.report());
    observed.iter().for_each(|process| process.judge(minutes));
    assert_eq!(server.stop().await, Some(0));
    let spools = sshd.spool("none").parent().map(|spools| fs::read_dir(spools).unwrap().count());
    println!("directories of jobs on the host: {}", spools.unwrap());
    support::eventually("the host has no process of a job", async || {
        processes_of_jobs() <= processes_before
    })
    .await;
}
