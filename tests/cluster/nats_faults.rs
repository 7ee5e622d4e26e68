//! Faults of NATS: full, far away, without its disk, and of another version.

use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use sshjobs::testing::NatsServer;
use tokio::time::Instant;

use crate::support::relay::Relay;
use crate::support::replicas::Cluster;
use crate::support::server::Caller;
use crate::support::{PATIENCE, eventually};
use crate::{canonical_loop, job_id};

/// Numbers of all lines of a job, each page from the next caller. Calls that fail are repeated if that
/// may help.
fn numbers(callers: &[Caller], job: &str) -> Vec<u64> {
    let deadline = Instant::now() + PATIENCE;
    let mut numbers = Vec::new();
    let mut cursor = 0;
    for caller in callers.iter().cycle() {
        assert!(Instant::now() < deadline, "{} lines", numbers.len());
        let page = json!({"job_id": job, "since_line_no": cursor, "wait_ms": 5000,
            "max_lines": 500, "format": "records"});
        let (status, page) = caller.call("tail", page);
        if status != 200 {
            assert_eq!(page["retryable"], true, "{page}");
            std::thread::park_timeout(Duration::from_millis(200));
            continue;
        }
        let records = page["records"].as_array().into_iter().flatten();
        numbers.extend(records.map(|record| record["line_no"].as_u64().expect("a number")));
        cursor = page["last_line_no"].as_u64().expect("a number");
        if page["still_running"] == false {
            break;
        }
    }
    numbers
}

#[tokio::test]
async fn output_that_a_full_nats_refuses_is_stored_when_it_has_room() {
    let nats = NatsServer::with_room(4 << 20).expect("`make test-cluster` installs NATS");
    let mut cluster = Cluster::over_servers(vec![nats], 2).await;
    let callers = cluster.callers("ci", &[]);
    // 8 MB.
    let large = json!({"host": "h1", "command": "seq -f %079.0f 100000"});
    let job = job_id(&callers[0].ok("spawn", large));
    let waits = |caller: &Caller| {
        let reply = caller.call(
            "tail",
            json!({"job_id": job, "since_line_no": 0, "max_lines": 1}),
        );
        reply.1.to_string().contains("waits to be stored")
    };
    eventually("the job says that its output waits", async || {
        callers.iter().any(waits)
    })
    .await;

    cluster.nats[0].kill().unwrap();
    cluster.nats[0].make_room();
    cluster.nats[0].start_again().unwrap();
    for caller in &callers {
        let all = numbers(std::slice::from_ref(caller), &job);
        assert_eq!(all.len(), 100_000);
        assert!(
            all.into_iter().eq(1..=100_000),
            "each line once and in order"
        );
    }
}

#[tokio::test]
async fn replicas_work_with_a_nats_that_is_far_away() {
    let mut cluster = Cluster::start(0).await;
    // 50 ms there and back.
    let relay = Relay::with_delay(&cluster.nats[0].url(), Duration::from_millis(25));
    for _ in 0..2 {
        cluster.add_replica_at(&relay.url());
    }
    let callers = cluster.callers("ci", &[]);
    for durable in [false, true] {
        let cat = json!({"host": "h1", "command": "seq 2000; cat", "durable": durable});
        let job = job_id(&callers[0].ok("spawn", cat));
        let text = json!({"job_id": job, "data": "last\n", "close_after": true});
        callers[1].ok("write", text);
        assert!(numbers(&callers, &job).into_iter().eq(1..=2001));
    }
}

/// Starts a job, again if the reply says that a later call may succeed: a host is handed over once.
#[expect(
    clippy::disallowed_methods,
    reason = "the callers are threads that block anyway"
)]
fn accepted(caller: &Caller, request: &Value) -> String {
    for _ in 0..100 {
        let (status, reply) = caller.call("spawn", request.clone());
        if status == 200 {
            return job_id(&reply);
        }
        assert_eq!(reply["code"], "not_owner", "{reply}");
        std::thread::sleep(Duration::from_millis(100));
    }
    panic!("no replica starts a job");
}

#[tokio::test(flavor = "multi_thread")]
async fn of_starts_that_race_for_a_queue_over_three_servers_none_is_refused() {
    const STARTS: usize = 30;
    let cluster = Cluster::over_three_servers(3).await;
    let callers = cluster.callers("ci", &[]);
    let racing: Vec<_> = callers
        .iter()
        .cycle()
        .take(STARTS)
        .map(|caller| {
            let caller = caller.clone();
            let queued = json!({"host": "h1", "command": "true", "queue": "deploy"});
            std::thread::spawn(move || accepted(&caller, &queued))
        })
        .collect();
    let jobs: Vec<String> = racing.into_iter().map(|racer| racer.join().unwrap()).collect();

    eventually("all jobs have ended", async || {
        let reply = callers[0].ok("wait", json!({"job_ids": jobs, "wait_ms": 20_000}));
        reply["ended"] == STARTS
    })
    .await;
    let reply = callers[0].ok("wait", json!({"job_ids": jobs}));
    for job in reply["jobs"].as_array().unwrap() {
        assert_eq!(job["exit_status"], 0, "{job}");
    }
}

#[tokio::test]
async fn one_of_three_nats_servers_may_lose_its_disk() {
    let mut cluster = Cluster::over_three_servers(2).await;
    let callers = cluster.callers("ci", &[]);
    let lines = "for i in $(seq 200); do echo $i; sleep 0.05; done";
    let job = json!({"host": "h1", "command": lines});
    let job = job_id(&callers[0].ok("spawn", job));
    cluster.nats[1].kill().unwrap();
    cluster.nats[1].lose_all().unwrap();
    cluster.nats[1].start_again().unwrap();
    assert!(numbers(&callers, &job).into_iter().eq(1..=200));
    eventually("all copies are up to date", async || {
        cluster.run(&["cluster", "status"]).status.success()
    })
    .await;
}

#[tokio::test]
async fn replicas_end_when_nats_has_lost_everything_and_start_an_empty_cluster() {
    let mut cluster = Cluster::start(2).await;
    let callers = cluster.callers("ci", &[]);
    let durable = json!({"host": "h1", "command": "echo before", "durable": true});
    callers[0].ok("run", durable);

    cluster.nats[0].kill().unwrap();
    cluster.nats[0].lose_all().unwrap();
    cluster.nats[0].start_again().unwrap();
    for replica in std::mem::take(&mut cluster.replicas) {
        assert_eq!(replica.ended().await, Some(255));
    }

    cluster.add_replica();
    cluster.add_replica();
    let old = Caller::new(&cluster.replicas[0].url, &callers[0].token);
    assert_eq!(old.call("jobs", json!({})).0, 401, "its token is lost");
    let callers = cluster.callers("ci", &[]);
    for caller in &callers {
        eventually("the new token is known", async || {
            caller.call("jobs", json!({})).0 == 200
        })
        .await;
        assert_eq!(caller.ok("jobs", json!({}))["total"], 0);
    }
    for durable in [true, false] {
        let request = json!({"host": "h1", "command": "echo after", "durable": durable});
        let job = job_id(&callers[1].ok("run", request));
        for caller in &callers {
            let lines = canonical_loop(std::slice::from_ref(caller), &job);
            assert_eq!(lines, [(1, "after".to_owned())]);
        }
    }
}

#[tokio::test]
async fn jobs_run_on_while_the_servers_of_nats_are_upgraded_one_by_one() {
    let old = std::env::var("NATS_SERVER_OLD").expect("`make test-cluster` sets it");
    let new = std::env::var("NATS_SERVER").expect("`make test-cluster` sets it");
    let nats = NatsServer::cluster_of(Path::new(&old)).expect("`make test-cluster` installs NATS");
    let mut cluster = Cluster::over_servers(Vec::from(nats), 2).await;
    let callers = cluster.callers("ci", &[]);
    let lines = "for i in $(seq 400); do echo $i; sleep 0.05; done";
    let jobs = [false, true].map(|durable| {
        let request = json!({"host": "h1", "command": lines, "durable": durable});
        job_id(&callers[0].ok("spawn", request))
    });
    for number in 0..3 {
        cluster.nats[number].kill().unwrap();
        cluster.nats[number].change_program(Path::new(&new));
        cluster.nats[number].start_again().unwrap();
        eventually("all copies are up to date", async || {
            cluster.run(&["cluster", "status"]).status.success()
        })
        .await;
    }
    for job in &jobs {
        assert!(numbers(&callers, job).into_iter().eq(1..=400));
    }
    let status = String::from_utf8(cluster.run(&["cluster", "status"]).stdout).unwrap();
    assert!(!status.contains("2.10."), "{status}");
}
