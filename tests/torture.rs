//! Torture: durable jobs print numbered lines while everything between them and their readers is broken, again and again,
//! in an order that a seed decides. By default a twentieth of it runs, with `SSHJOBS_TORTURE_PART=1` all.
//!
//! The promises: each reader sees each line once, in order, under the same number, and learns how many lines a full disk
//! has lost; each command ran once; each exit status is right; no process of a stranger was signalled.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::disallowed_methods,
    unreachable_pub,
    reason = "tests"
)]

#[path = "torture/faults.rs"]
mod faults;
#[path = "torture/network.rs"]
mod network;
#[path = "torture/readers.rs"]
mod readers;
mod support;

use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::process::{Child, Command};
use std::time::Duration;

use faults::{Fault, House};
use network::Network;
use nix::unistd::geteuid;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use readers::{Line, Readers, Seen, assert_whole};
use serde_json::{Value, json};
use support::HOST;
use support::command::{sshjobs, told};
use support::server::{Caller, token};
use tokio::runtime::Runtime;
use tokio::time::{Instant, sleep};

/// How much is done and how often.
#[derive(Clone, Copy, Debug)]
struct Size {
    jobs: usize,
    /// Lines of each job.
    lines: u64,
    /// Faults between the server and the host.
    cuts: usize,
    /// Faults of the server's process.
    kills: usize,
    /// Time limit for a reader.
    patience: Duration,
}

impl Size {
    /// The full size divided by `SSHJOBS_TORTURE_PART`, 20 by default.
    fn of_environment() -> Self {
        let part = std::env::var("SSHJOBS_TORTURE_PART").map_or(20, |part| part.parse().unwrap());
        assert!(
            (1..=50).contains(&part),
            "SSHJOBS_TORTURE_PART is 1 to 50, so that something is tried"
        );
        Self {
            jobs: 200 / part,
            lines: 50_000,
            cuts: 1000 / part,
            kills: 100 / part,
            patience: Duration::from_secs(300)
                + Duration::from_secs(6000) / u32::try_from(part).unwrap(),
        }
    }

    /// About what all jobs print, in bytes.
    fn bytes(self) -> u64 {
        self.jobs as u64 * self.lines * 20
    }

    /// The command of a job. It prints its lines in the time that the faults take, and notes that it ran.
    fn command(self, job: usize, ran: &str) -> String {
        let bursts = self.lines / BURST;
        let faults = (self.cuts + self.kills) as f64;
        let pause = (PAUSE + FAULT).as_secs_f64() * faults / bursts as f64;
        format!(
            "echo {job} >> {ran}; exec perl -e '$| = 1; for my $b (0..{last}) {{ print map {{ \"job {job} line $_\\n\" }} \
             ($b * {BURST} + 1 .. ($b + 1) * {BURST}); select undef, undef, undef, {pause}; }} exit {code}'",
            last = bursts - 1,
            code = exit_code(job),
        )
    }
}

/// Lines that a job prints at once.
const BURST: u64 = 250;
/// Average pause between two faults.
const PAUSE: Duration = Duration::from_millis(700);
/// Average duration of a fault.
const FAULT: Duration = Duration::from_millis(800);

fn exit_code(job: usize) -> usize {
    1 + job % 100
}

/// The seed of `SSHJOBS_TORTURE_SEED`, or another one each time.
fn seed() -> u64 {
    let given = std::env::var("SSHJOBS_TORTURE_SEED").ok();
    given.map_or_else(
        || RandomState::new().hash_one(0),
        |seed| seed.parse().unwrap(),
    )
}

/// A process of no job, with an environment like that of one.
struct Stranger(Child);

impl Stranger {
    fn start() -> Self {
        let mut command = Command::new("sleep");
        command.arg("100000").env("SSHJOBS_JOB", "sshjobs-of-somebody-else");
        Self(command.spawn().unwrap())
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

fn parse_line(json: &str) -> Line {
    let line: Value = serde_json::from_str(json).unwrap();
    let text = line["text"].as_str().unwrap().to_owned();
    (line["line_no"].as_u64().unwrap(), text)
}

/// The sum of all notes "sshjobs: NUMBER lines were evicted".
fn lines_that_are_gone(notes: &str) -> u64 {
    let numbers = notes.lines().filter_map(|note| {
        note.strip_prefix("sshjobs: ")?
            .strip_suffix(" lines were evicted")?
            .parse::<u64>()
            .ok()
    });
    numbers.sum()
}

#[test]
fn every_reader_sees_each_line_once_whatever_is_broken() {
    torture(Disk::Large);
}

#[test]
fn lines_are_missing_only_if_a_disk_was_full_and_readers_learn_it() {
    if geteuid().is_root() {
        torture(Disk::SometimesFull);
    } else {
        println!("only root can mount a disk to fill");
    }
}

/// The disk of the server's state directory.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Disk {
    Large,
    SometimesFull,
}

fn torture(disk: Disk) {
    // Before other threads start, so that they use this network, too.
    let network = Network::enter();
    if let Err(reason) = &network {
        println!("packets are not lost in this run: {reason}");
    }
    Runtime::new().unwrap().block_on(break_everything(network.ok(), disk));
}

async fn break_everything(network: Option<Network>, disk: Disk) {
    let (size, seed) = (Size::of_environment(), seed());
    println!("SSHJOBS_TORTURE_SEED={seed} repeats this run: {size:?}");
    let mut dice = SmallRng::seed_from_u64(seed);
    let mut house = House::start(size, network, disk == Disk::SometimesFull).await;
    let mut stranger = Stranger::start();
    let ran = house.sshd.path("ran").display().to_string();
    let caller = Caller::new(
        &format!("http://{}", house.address),
        &token(&house.sshd, "torture", &[]),
    );
    let deadline = Instant::now() + size.patience;
    let readers: Vec<Readers> = (0..size.jobs)
        .map(|number| {
            let request =
                json!({"host": HOST, "command": size.command(number, &ran), "durable": true});
            let job = caller.ok("spawn", request)["job_id"].as_str().unwrap().to_owned();
            Readers::start(job, &caller, deadline, seed ^ (number as u64 + 1))
        })
        .collect();

    let mut injected = BTreeMap::new();
    for fault in house.faults().choose(size, &mut dice) {
        *injected.entry(fault).or_insert(0) += 1;
        house.inject(fault, &mut dice).await;
        sleep(PAUSE / 2 + Duration::from_millis(dice.random_range(0..700))).await;
    }
    println!("injected: {injected:?}");

    let gaps_allowed = injected.contains_key(&Fault::DiskFull);
    let mut gone = 0;
    for (number, readers) in readers.into_iter().enumerate() {
        let job = readers.job;
        let by_page = readers.pages.join().unwrap();
        assert_whole(
            "a reader of pages",
            number,
            &by_page,
            size.lines,
            gaps_allowed,
        );
        let by_event = readers.events.join().unwrap();
        assert_whole(
            "a reader of events",
            number,
            &by_event,
            size.lines,
            gaps_allowed,
        );
        let waited = caller.ok("wait", json!({"job_ids": [&job], "wait_ms": 30_000}));
        let code = waited["jobs"][0]["exit_status"].as_u64();
        assert_eq!(code, Some(exit_code(number) as u64), "{waited}");
        // Another process, which reads the stored output.
        let again = sshjobs(&house.sshd, &["tail", "--since", "0", "--json", &job]);
        let again = Seen {
            lines: told(&again).lines().map(parse_line).collect(),
            gone: lines_that_are_gone(&String::from_utf8_lossy(&again.stderr)),
        };
        assert_whole("a second process", number, &again, size.lines, gaps_allowed);
        gone += by_page.gone + by_event.gone + again.gone;
    }
    println!("lines that were gone for a reader: {gone}");
    let ran = std::fs::read_to_string(house.sshd.path("ran")).unwrap();
    let mut ran: Vec<usize> = ran.lines().map(|line| line.parse().unwrap()).collect();
    ran.sort_unstable();
    assert_eq!(
        ran,
        (0..size.jobs).collect::<Vec<_>>(),
        "each command runs once"
    );
    assert!(
        stranger.0.try_wait().unwrap().is_none(),
        "a stranger was signalled"
    );
    let listed: Value = caller.ok("jobs", json!({"state": "running"}));
    assert_eq!(listed["jobs"], json!([]), "{listed}");
}
