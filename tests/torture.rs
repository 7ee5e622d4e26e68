//! Torture: durable jobs print numbered lines while everything between them and their readers is broken, again and again,
//! in an order that a seed decides. `make torture` runs it in full, `.ci/run` a twentieth of it.
//!
//! The promises: each reader sees each line once, in order, under the same number; nothing is counted as dropped; each
//! command ran once; each exit status is right; no process of a stranger was signalled.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "tests"
)]

mod support;

use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::process::{Child, Command};
use std::thread::JoinHandle;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use support::command::{sshjobs, told};
use support::relay::Relay;
use support::server::{Caller, Server, events, token};
use support::{HOST, Sshd};
use tokio::time::{Instant, sleep, timeout};

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

    /// The command of a job. It prints its lines in the time that the faults take, and notes that it ran.
    fn command(self, job: usize, ran: &str) -> String {
        let bursts = self.lines / BURST;
        let pause = PAUSE.as_secs_f64() * (self.cuts + self.kills) as f64 / bursts as f64;
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

/// A random number generator (xorshift). The same seed gives the same rolls.
struct Dice(u64);

impl Dice {
    fn new(seed: u64) -> Self {
        // From 0, xorshift gets nowhere.
        Self(if seed == 0 { 1 } else { seed })
    }

    fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % sides
    }
}

/// A fault that is injected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Fault {
    /// The host's sessions are killed, and TCP ends their connections (FIN).
    SessionsKilled,
    /// The connections are reset (RST): data on its way is lost.
    ConnectionsReset,
    /// The network passes nothing on for some seconds, without an error.
    NetworkFrozen,
    /// The host's sessions are stopped for some seconds, without an error.
    HostFrozen,
    /// The host's sshd is killed and started again.
    SshdRestarted,
    /// The server is killed and started again.
    ServerKilled,
    /// The server gets TERM, and is started again when it has ended.
    ServerRestarted,
    /// The server is stopped for some seconds.
    ServerStopped,
}

impl Fault {
    const OF_THE_HOST: [Self; 5] = [
        Self::SessionsKilled,
        Self::ConnectionsReset,
        Self::NetworkFrozen,
        Self::HostFrozen,
        Self::SshdRestarted,
    ];
    const OF_THE_SERVER: [Self; 3] = [
        Self::ServerKilled,
        Self::ServerRestarted,
        Self::ServerStopped,
    ];

    /// All faults of a run, in the order that the dice decide.
    fn all(size: Size, dice: &mut Dice) -> Vec<Self> {
        let mut faults: Vec<Self> = (0..size.cuts)
            .map(|_| {
                Self::OF_THE_HOST
                    [usize::try_from(dice.roll(Self::OF_THE_HOST.len() as u64)).unwrap()]
            })
            .collect();
        for _ in 0..size.kills {
            let fault = Self::OF_THE_SERVER
                [usize::try_from(dice.roll(Self::OF_THE_SERVER.len() as u64)).unwrap()];
            let place = dice.roll(faults.len() as u64 + 1);
            faults.insert(usize::try_from(place).unwrap(), fault);
        }
        faults
    }
}

/// A server, a host, and the network between them.
struct House {
    sshd: Sshd,
    relay: Relay,
    server: Option<Server>,
    address: String,
}

impl House {
    async fn start() -> Self {
        let sshd = Sshd::start().await;
        let relay = Relay::to(&format!("ssh://127.0.0.1:{}", sshd.port()));
        let config = std::fs::read_to_string(sshd.ssh_config()).unwrap();
        let direct = format!("Port {}", sshd.port());
        let relayed = config.replace(
            &direct,
            &format!("Port {}\n  HostKeyAlias torture", relay.port()),
        );
        std::fs::write(sshd.ssh_config(), relayed).unwrap();
        let key = std::fs::read_to_string(sshd.path("host.pub")).unwrap();
        sshd.write_known_hosts(&format!("torture {key}"));
        let server = Server::start(&sshd);
        let address = server.address().to_owned();
        Self {
            sshd,
            relay,
            server: Some(server),
            address,
        }
    }

    async fn inject(&mut self, fault: Fault, dice: &mut Dice) {
        let pause = Duration::from_millis(300 + dice.roll(2500));
        match fault {
            Fault::SessionsKilled => self.sshd.cut(),
            Fault::ConnectionsReset => self.relay.reset(),
            Fault::NetworkFrozen => {
                self.relay.freeze(true);
                sleep(pause).await;
                self.relay.freeze(false);
            }
            Fault::HostFrozen => {
                self.sshd.freeze();
                sleep(pause).await;
                self.sshd.thaw();
            }
            Fault::SshdRestarted => {
                self.sshd.kill();
                sleep(pause / 4).await;
                self.sshd.start_again().await.expect("sshd starts again");
            }
            Fault::ServerKilled => {
                // Dropping it is a SIGKILL.
                drop(self.server.take());
                self.server = Some(Server::at(&self.sshd, &self.address, &[]));
            }
            Fault::ServerRestarted => {
                let server = self.server.take().unwrap();
                let ended = timeout(Duration::from_secs(60), server.stop()).await;
                assert_eq!(ended.expect("it ends"), Some(0));
                self.server = Some(Server::at(&self.sshd, &self.address, &[]));
            }
            Fault::ServerStopped => {
                let pid = Pid::from_raw(self.server.as_ref().unwrap().pid().cast_signed());
                kill(pid, Signal::SIGSTOP).unwrap();
                sleep(pause).await;
                kill(pid, Signal::SIGCONT).unwrap();
            }
        }
    }
}

/// A line as a reader got it.
type Line = (u64, String);

/// Repeats a call until it is answered. Panics at the deadline.
fn until_answered<T>(deadline: Instant, job: &str, mut call: impl FnMut() -> Option<T>) -> T {
    loop {
        if let Some(answer) = call() {
            return answer;
        }
        assert!(Instant::now() < deadline, "{job}: no answer in time");
        std::thread::park_timeout(Duration::from_millis(100));
    }
}

/// Reads a job to its end in pages of any size.
fn read_pages(caller: &Caller, job: &str, deadline: Instant, mut dice: Dice) -> Vec<Line> {
    let (mut lines, mut cursor) = (Vec::new(), 0);
    loop {
        let request = json!({"job_id": job, "since_line_no": cursor, "wait_ms": 1000 + dice.roll(4000),
            "max_lines": 1 + dice.roll(2000), "max_bytes": 262_144, "format": "records"});
        let reply = until_answered(deadline, job, || match caller.try_call("tail", &request) {
            Ok((200, reply)) => Some(reply),
            _ => None,
        });
        assert!(reply["dropped_lines"].is_null(), "{job}: {reply}");
        for record in reply["records"].as_array().into_iter().flatten() {
            lines.push((
                record["line_no"].as_u64().unwrap(),
                record["text"].as_str().unwrap().to_owned(),
            ));
        }
        let last = reply["last_line_no"].as_u64().unwrap();
        assert!(last >= cursor, "{job}: from {cursor} back to {last}");
        cursor = last;
        if reply["still_running"] == false {
            return lines;
        }
        assert!(
            Instant::now() < deadline,
            "{job}: only {} lines at the time limit",
            lines.len()
        );
    }
}

/// Follows a job to its end by its events, and continues after each break.
fn read_events(caller: &Caller, job: &str, deadline: Instant) -> Vec<Line> {
    let mut lines: Vec<Line> = Vec::new();
    loop {
        let seen = lines.last().map_or(0, |(number, _)| *number).to_string();
        let path = format!("/v1/jobs/{job}/stream");
        let response = until_answered(deadline, job, || {
            caller
                .try_get(&path, &[("Last-Event-ID", &seen)])
                .ok()
                .filter(|response| matches!(response.status().as_u16(), 200 | 204))
        });
        if response.status().as_u16() == 204 {
            return lines;
        }
        for event in events(response) {
            match event.name.as_str() {
                "end" => return lines,
                "dropped" => panic!("{job}: {event:?}"),
                _ if event.data["text"].is_string() => {
                    let number = event.data["line_no"].as_u64().unwrap();
                    lines.push((number, event.data["text"].as_str().unwrap().to_owned()));
                }
                _ => {}
            }
        }
        assert!(
            Instant::now() < deadline,
            "{job}: only {} lines at the time limit",
            lines.len()
        );
    }
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

/// The readers of one job.
struct Readers {
    job: String,
    pages: JoinHandle<Vec<Line>>,
    events: JoinHandle<Vec<Line>>,
}

impl Readers {
    fn start(job: String, caller: &Caller, deadline: Instant, seed: u64) -> Self {
        let (by_page, by_event) = (caller.clone(), caller.clone());
        let (first, second) = (job.clone(), job.clone());
        Self {
            job,
            pages: std::thread::spawn(move || {
                read_pages(&by_page, &first, deadline, Dice::new(seed))
            }),
            events: std::thread::spawn(move || read_events(&by_event, &second, deadline)),
        }
    }
}

fn assert_whole(reader: &str, job: &str, number: usize, lines: &[Line], count: u64) {
    for (expected, (line_no, text)) in (1..).zip(lines) {
        assert_eq!(
            (*line_no, text.as_str()),
            (expected, format!("job {number} line {expected}").as_str()),
            "{reader} of {job}"
        );
    }
    assert_eq!(lines.len() as u64, count, "{reader} of {job}");
}

#[tokio::test(flavor = "multi_thread")]
async fn every_reader_sees_each_line_once_whatever_is_broken() {
    let (size, seed) = (Size::of_environment(), seed());
    println!("SSHJOBS_TORTURE_SEED={seed} repeats this run: {size:?}");
    let mut dice = Dice::new(seed);
    let mut house = House::start().await;
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
    for fault in Fault::all(size, &mut dice) {
        *injected.entry(fault).or_insert(0) += 1;
        house.inject(fault, &mut dice).await;
        sleep(PAUSE / 2 + Duration::from_millis(dice.roll(700))).await;
    }
    println!("injected: {injected:?}");

    for (number, readers) in readers.into_iter().enumerate() {
        let job = readers.job;
        assert_whole(
            "a reader of pages",
            &job,
            number,
            &readers.pages.join().unwrap(),
            size.lines,
        );
        assert_whole(
            "a reader of events",
            &job,
            number,
            &readers.events.join().unwrap(),
            size.lines,
        );
        let waited = caller.ok("wait", json!({"job_ids": [&job], "wait_ms": 30_000}));
        let code = waited["jobs"][0]["exit_status"].as_u64();
        assert_eq!(code, Some(exit_code(number) as u64), "{waited}");
        // Another process, which reads the stored output.
        let again = told(&sshjobs(&house.sshd, &["tail", "--since", "0", &job]));
        let again: Vec<Line> = (1..).zip(again.lines().map(str::to_owned)).collect();
        assert_whole("a second process", &job, number, &again, size.lines);
    }
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
