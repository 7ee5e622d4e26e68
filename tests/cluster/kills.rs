//! The kill test: replicas and NATS servers die, stop and are cut off while jobs run, and every reader
//! sees each line once.

use std::sync::{Arc, RwLock};
use std::time::Duration;

use nix::sys::signal::Signal;
use rand::rngs::SmallRng;
use rand::seq::{IndexedRandom, SliceRandom};
use rand::{RngExt, SeedableRng};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::support::command::told;
use crate::support::eventually;
use crate::support::relay::Relay;
use crate::support::replicas::Cluster;
use crate::support::server::{Caller, Server};
use crate::{job_id, signal};

/// How much is done and how often. All of it is bounded.
struct Size {
    jobs: usize,
    lines: u64,
    replica_kills: usize,
    leader_kills: usize,
    /// Time for which a replica can't reach NATS, which drops nothing and answers nothing.
    cut_off: Duration,
    /// Time limit for a reader.
    patience: Duration,
}

/// The size that `make test-cluster` has time for, or with `SSHJOBS_KILL_TEST=full` that of
/// docs/cluster.md.
fn size() -> Size {
    if std::env::var("SSHJOBS_KILL_TEST").as_deref() == Ok("full") {
        return Size {
            jobs: 50,
            lines: 20_000,
            replica_kills: 20,
            leader_kills: 5,
            cut_off: Duration::from_secs(30),
            patience: Duration::from_secs(900),
        };
    }
    Size {
        jobs: 12,
        lines: 4000,
        replica_kills: 6,
        leader_kills: 2,
        cut_off: Duration::from_secs(8),
        patience: Duration::from_secs(120),
    }
}

/// Longer than the lease of 3 s.
const STOPPED: Duration = Duration::from_secs(5);
/// Pause between two faults.
const PAUSE: Duration = Duration::from_millis(1500);

/// The URLs of the replicas that are there now.
type Urls = Arc<RwLock<Vec<String>>>;

/// Reads a job to its end, each page at a random replica, whichever is up. Returns the lines and the
/// longest time without a reply.
fn read_anywhere(urls: &Urls, token: &str, job: &str, seed: u64) -> (Vec<(u64, String)>, Duration) {
    let mut dice = SmallRng::seed_from_u64(seed);
    let (mut lines, mut cursor) = (Vec::new(), 0);
    let (mut longest, mut replied_at) = (Duration::ZERO, Instant::now());
    let deadline = Instant::now() + size().patience;
    loop {
        if Instant::now() >= deadline {
            let states: Vec<Value> = urls
                .read()
                .unwrap()
                .iter()
                .map(|url| {
                    let wait = json!({"job_ids": [job], "wait_ms": 0});
                    let state = Caller::new(url, token).try_call("wait", &wait);
                    state.map_or(Value::Null, |(_, reply)| reply)
                })
                .collect();
            panic!("{job} has not ended: {} lines; {states:?}", lines.len());
        }
        let url = {
            let urls = urls.read().unwrap();
            urls.choose(&mut dice).expect("a replica is there").clone()
        };
        let request = json!({"job_id": job, "since_line_no": cursor, "wait_ms": 2000,
            "max_lines": 2000, "max_bytes": 262_144, "format": "records"});
        let Ok((200, reply)) = Caller::new(&url, token).try_call("tail", &request) else {
            std::thread::park_timeout(Duration::from_millis(200));
            continue;
        };
        longest = longest.max(replied_at.elapsed());
        replied_at = Instant::now();
        assert!(
            reply["dropped_lines"].is_null(),
            "{job}: {}",
            reply["dropped_lines"]
        );
        for record in reply["records"].as_array().into_iter().flatten() {
            let number = record["line_no"].as_u64().unwrap();
            lines.push((number, record["text"].as_str().unwrap().to_owned()));
        }
        let last = reply["last_line_no"].as_u64().unwrap();
        if last < cursor {
            let mut shown = reply.clone();
            shown["records"] = Value::Null;
            panic!("{job}: from {cursor} back to {last} at {url}: {shown}");
        }
        cursor = last;
        if reply["still_running"] == false {
            return (lines, longest);
        }
    }
}

/// The NATS server that leads the records.
fn leader(cluster: &Cluster) -> Option<usize> {
    let output = cluster.run(&["cluster", "status", "--json"]);
    let status: Value = serde_json::from_slice(&output.stdout).ok()?;
    let streams = status["nats"]["streams"].as_array()?;
    let records = streams.iter().find(|stream| stream["name"] == "KV_sshjobs_jobs")?;
    records["leader"].as_str()?.strip_prefix('n')?.parse().ok()
}

fn note(urls: &Urls, replicas: &[Server]) {
    *urls.write().unwrap() = replicas.iter().map(|replica| replica.url.clone()).collect();
}

/// One kind of fault.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    KillReplica,
    KillLeader,
    StopReplica,
    CutOff,
}

/// All faults in a random order.
fn faults(size: &Size, dice: &mut SmallRng) -> Vec<Fault> {
    let mut faults = vec![Fault::KillReplica; size.replica_kills];
    faults.extend(vec![Fault::KillLeader; size.leader_kills]);
    faults.extend([Fault::StopReplica, Fault::CutOff]);
    faults.shuffle(dice);
    faults
}

/// Does all faults one after the other.
async fn do_harm(
    size: &Size,
    dice: &mut SmallRng,
    cluster: &mut Cluster,
    (relays, urls): (&[Relay], &Urls),
) {
    for fault in faults(size, dice) {
        sleep(PAUSE).await;
        match fault {
            Fault::KillReplica => {
                // Not the one behind the relays.
                drop(cluster.replicas.remove(dice.random_range(1..=2)));
                note(urls, &cluster.replicas);
                cluster.add_replica();
                note(urls, &cluster.replicas);
            }
            Fault::KillLeader => {
                let server = leader(cluster).unwrap_or_else(|| dice.random_range(0..3));
                cluster.nats[server].kill().unwrap();
                sleep(Duration::from_secs(2)).await;
                cluster.nats[server].start_again().unwrap();
            }
            Fault::StopReplica => {
                let pid = cluster.replicas[dice.random_range(1..=2)].pid();
                signal(pid, Signal::SIGSTOP);
                sleep(STOPPED).await;
                signal(pid, Signal::SIGCONT);
            }
            Fault::CutOff => {
                relays.iter().for_each(|relay| relay.freeze(true));
                sleep(size.cut_off).await;
                relays.iter().for_each(|relay| relay.freeze(false));
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_line_is_lost_or_doubled_while_replicas_and_nats_servers_die_or_are_cut_off() {
    let size = size();
    let seed = 0x5eed_1234_u64;
    let mut dice = SmallRng::seed_from_u64(seed);
    let mut cluster = Cluster::over_three_servers(2).await;
    let relays: Vec<Relay> = cluster.nats.iter().map(|server| Relay::to(&server.url())).collect();
    // One replica reaches NATS through relays only.
    let relayed: Vec<String> = relays.iter().map(Relay::url).collect();
    cluster.add_replica_at(&relayed.join(","));
    let token = cluster.token(&["new", "ci"]);
    let urls = Urls::default();
    note(&urls, &cluster.replicas);
    let ran = cluster.sshd.path("ran");
    let mut readers = Vec::new();
    for number in 0..size.jobs {
        let caller = Caller::new(&cluster.replicas[number % 3].url, &token);
        let command = format!(
            "echo {number} >> {}; i=0; while [ $i -lt {} ]; do i=$((i+1)); echo $i; \
             [ $((i % 50)) = 0 ] && sleep 0.3; done",
            ran.display(),
            size.lines
        );
        let job = job_id(&caller.ok(
            "spawn",
            json!({"host": format!("h{number}"), "command": command, "durable": true}),
        ));
        for reader in 0..2_u64 {
            let (urls, token, job) = (Arc::clone(&urls), token.clone(), job.clone());
            let seed = seed + number as u64 * 2 + reader;
            readers.push(tokio::task::spawn_blocking(move || {
                read_anywhere(&urls, &token, &job, seed)
            }));
        }
    }

    let began = Instant::now();
    do_harm(&size, &mut dice, &mut cluster, (&relays, &urls)).await;
    eprintln!("all faults took {:?}", began.elapsed());

    let expected: Vec<_> = (1..=size.lines).map(|number| (number, number.to_string())).collect();
    let mut longest = Duration::ZERO;
    for reader in readers {
        let (lines, without_reply) = reader.await.unwrap();
        assert_eq!(lines.len(), expected.len());
        assert!(lines == expected, "lines are out of order");
        longest = longest.max(without_reply);
    }
    eprintln!(
        "all was read after {:?}; the longest time without a reply was {longest:?}",
        began.elapsed()
    );
    let ran = std::fs::read_to_string(ran).unwrap();
    let mut numbers: Vec<usize> = ran.lines().map(|line| line.parse().unwrap()).collect();
    numbers.sort_unstable();
    assert_eq!(
        numbers,
        (0..size.jobs).collect::<Vec<_>>(),
        "each command ran once"
    );
    // A server of NATS that was killed may still copy what it has missed.
    eventually("all copies are up to date", async || {
        cluster.run(&["cluster", "status"]).status.success()
    })
    .await;
    let status = told(&cluster.run(&["cluster", "status"]));
    assert!(status.contains("active"), "{status}");
}
