//! Three replicas over NATS beside one of them, beside a single server, and beside NATS alone.

use std::time::{Duration, Instant};

use crate::report::{Report, median, millis, ratio};
use crate::support::Sshd;
use crate::support::replicas::Cluster;
use crate::support::server::{Caller, Server, token};
use async_nats::jetstream;
use async_nats::jetstream::message::PublishMessage;
use serde_json::{Value, json};
use sshjobs::testing::NatsServer;

/// Lease of the replicas, in seconds.
const LEASE: u32 = 6;

/// The median time of a call.
fn timed(count: usize, mut call: impl FnMut()) -> Duration {
    let times = (0..count).map(|_| {
        let began = Instant::now();
        call();
        began.elapsed()
    });
    median(times.collect())
}

fn job_id(reply: &Value) -> String {
    reply["job_id"].as_str().unwrap_or_else(|| panic!("{reply}")).to_owned()
}

/// Processor time of a process.
fn processor_time(pid: u32) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let after_name = stat.rsplit(')').next().unwrap();
    let fields: Vec<u64> =
        after_name.split_whitespace().filter_map(|field| field.parse().ok()).collect();
    // The state is no number, so utime (14) and stime (15) are the eleventh and twelfth of these.
    Duration::from_millis((fields[10] + fields[11]) * 10)
}

/// The index of the replica that holds a host.
fn holder(cluster: &Cluster, host: &str) -> usize {
    let status = cluster.run(&["cluster", "status", "--json"]);
    let status: Value = serde_json::from_slice(&status.stdout).unwrap();
    let of_host = status["hosts"].as_array().unwrap().iter().find(|entry| entry["host"] == host);
    let name = of_host.unwrap()["replica"].as_str().unwrap().to_owned();
    let is_holder = |replica: &Server| name.starts_with(&format!("{}-", replica.pid()));
    cluster.replicas.iter().position(is_holder).unwrap()
}

pub(crate) async fn calls(report: &mut Report) {
    let cluster = Cluster::with_leases_of(LEASE, 3).await;
    let callers = cluster.callers("bench", &[]);
    let finished = job_id(&callers[0].ok("spawn", json!({"host": "h0", "command": "seq 20000"})));
    callers[0].ok("wait", json!({"job_ids": [&finished], "wait_ms": 50_000}));
    let owner = holder(&cluster, "h0");
    let (owner, other) = (&callers[owner], &callers[(owner + 1) % 3]);

    let page = |caller: &Caller| {
        let mut from = 0;
        timed(200, || {
            from = (from + 500) % 19_000;
            caller.ok(
                "tail",
                json!({"job_id": finished, "since_line_no": from, "max_lines": 500}),
            );
        })
    };
    let (here, there) = (page(owner), page(other));
    report.row(
        "a page of 500 lines from another replica, against the owner, p50 of 200",
        &millis(there),
        &millis(here),
        ratio(there, here),
        "≤ 5",
    );

    let spawn = |caller: &Caller| {
        timed(50, || {
            caller.ok("spawn", json!({"host": "h0", "command": "true"}));
        })
    };
    let (here, there) = (spawn(owner), spawn(other));
    report.row(
        "spawn through another replica, against the owner, p50 of 50",
        &millis(there),
        &millis(here),
        ratio(there, here),
        "≤ 2",
    );

    let line = |reader: &Caller| {
        let job = job_id(&owner.ok("spawn", json!({"host": "h0", "command": "cat"})));
        let times = (0..100_u64).map(|line| {
            let request = json!({"job_id": job, "since_line_no": line, "wait_ms": 20_000});
            let reader = reader.clone();
            let waiting = std::thread::spawn(move || {
                reader.ok("tail", request);
                Instant::now()
            });
            std::thread::sleep(Duration::from_millis(50));
            let began = Instant::now();
            owner.ok("write", json!({"job_id": job, "data": "x\n"}));
            waiting.join().unwrap().duration_since(began)
        });
        median(times.collect())
    };
    let (here, there) = (line(owner), line(other));
    report.row(
        "a line, from the write to its stdin to a reader at another replica, against one at the owner, p50 of 100",
        &millis(there),
        &millis(here),
        ratio(there, here),
        "≤ 20 ms",
    );
}

const OUTPUT_JOBS: usize = 4;
const OUTPUT_BYTES: u64 = 200 << 20;

/// Runs jobs that print much, and returns the time until all is stored, and the processor time of the
/// servers.
fn print_much(callers: &[&Caller], servers: &[&Server]) -> (Duration, Duration) {
    let cpu = || servers.iter().map(|server| processor_time(server.pid())).sum::<Duration>();
    let (began, before) = (Instant::now(), cpu());
    let ids: Vec<String> = (0..OUTPUT_JOBS)
        .map(|number| {
            let line = "y".repeat(99);
            let command = format!("yes {line} | head -c {OUTPUT_BYTES}");
            let request = json!({"host": format!("h{number}"), "command": command});
            job_id(&callers[number % callers.len()].ok("spawn", request))
        })
        .collect();
    for id in &ids {
        while callers[0].ok("wait", json!({"job_ids": [id], "wait_ms": 50_000}))["ended"] != 1 {}
    }
    (began.elapsed(), cpu().saturating_sub(before))
}

pub(crate) async fn output(report: &mut Report) {
    let megabytes = (OUTPUT_JOBS as u64 * OUTPUT_BYTES) as f64 / 1e6;
    let cluster = Cluster::with_leases_of(LEASE, 3).await;
    let callers = cluster.callers("bench", &[]);
    let (ours, ours_cpu) = print_much(
        &callers.iter().collect::<Vec<_>>(),
        &cluster.replicas.iter().collect::<Vec<_>>(),
    );
    drop(cluster);

    let sshd = Sshd::with("MaxStartups 1000\nMaxSessions 100").await;
    sshd.alias((0..100).map(|number| format!("h{number}")));
    let server = Server::with(&sshd, &[]);
    let caller = Caller::new(&server.url, &token(&sshd, "bench", &[]));
    let (single, single_cpu) = print_much(&[&caller], &[&server]);
    drop(server);

    let nats = publish_alone().await;
    let speed = |time: Duration| megabytes / time.as_secs_f64();
    report.row(
        "output printed on hosts and stored, against NATS alone with the same messages",
        &format!("{:.0} MB/s", speed(ours)),
        &format!("{:.0} MB/s", speed(nats)),
        Some(speed(ours) / speed(nats)),
        "≥ 0.5",
    );
    report.row(
        "the same against a single server with a state directory",
        &format!("{:.0} MB/s", speed(ours)),
        &format!("{:.0} MB/s", speed(single)),
        Some(speed(ours) / speed(single)),
        "–",
    );
    let per_gigabyte = |cpu: Duration| cpu.as_secs_f64() / megabytes * 1e3;
    report.row(
        "processor time in our processes for a gigabyte of output, against a single server",
        &format!("{:.2} s", per_gigabyte(ours_cpu)),
        &format!("{:.2} s", per_gigabyte(single_cpu)),
        Some(per_gigabyte(ours_cpu) / per_gigabyte(single_cpu)),
        "≤ 2",
    );
}

/// Publishes as much in messages of 128 KiB, one after the other on as many subjects at once as there
/// are jobs, as replicas do.
async fn publish_alone() -> Duration {
    let server = NatsServer::start().unwrap();
    let client = async_nats::connect(server.url()).await.unwrap();
    let context = jetstream::new(client);
    let config = jetstream::stream::Config {
        name: "bench".to_owned(),
        subjects: vec!["bench.>".to_owned()],
        ..Default::default()
    };
    context.create_stream(config).await.unwrap();
    let bytes = bytes::Bytes::from(vec![b'y'; 128 << 10]);
    let began = Instant::now();
    let publishing = (0..OUTPUT_JOBS).map(|number| {
        let (context, bytes) = (context.clone(), bytes.clone());
        async move {
            let mut newest = 0;
            for _ in 0..OUTPUT_BYTES / (128 << 10) {
                let message = PublishMessage::build()
                    .payload(bytes.clone())
                    .expected_last_subject_sequence(newest);
                let sent = context.send_publish(format!("bench.{number}"), message).await.unwrap();
                newest = sent.await.unwrap().sequence;
            }
        }
    });
    futures_util::future::join_all(publishing).await;
    began.elapsed()
}

pub(crate) async fn takeover(report: &mut Report) {
    let mut times = Vec::new();
    for _ in 0..3 {
        let mut cluster = Cluster::with_leases_of(LEASE, 3).await;
        let callers = cluster.callers("bench", &[]);
        let command = "i=0; while :; do i=$((i+1)); echo $i; sleep 0.1; done";
        let request = json!({"host": "h0", "command": command, "durable": true});
        let job = job_id(&callers[0].ok("spawn", request));
        let owner = holder(&cluster, "h0");
        let reader = &callers[(owner + 1) % 3];
        let newest = || {
            reader.ok(
                "tail",
                json!({"job_id": job, "since_line_no": 0, "max_lines": 1}),
            )["total_lines"]
                .as_u64()
        };
        std::thread::sleep(Duration::from_secs(2));
        drop(cluster.replicas.remove(owner));
        let killed_at = Instant::now();
        std::thread::sleep(Duration::from_millis(500));
        let before = newest();
        while newest() <= before {
            std::thread::sleep(Duration::from_millis(20));
        }
        times.push(killed_at.elapsed());
    }
    let longest = times.into_iter().max().unwrap();
    let lease = Duration::from_secs(LEASE.into());
    report.row(
        "from SIGKILL of a replica until its job's lines come again, the longest of 3, against the lease",
        &format!("{:.1} s", longest.as_secs_f64()),
        &format!("{LEASE} s"),
        ratio(longest, lease),
        "≤ 2",
    );
}

/// The idle cost of a thousand hosts.
pub(crate) async fn hosts(report: &mut Report) {
    const HOSTS: usize = 1000;
    const WATCHED: Duration = Duration::from_secs(30);
    // Connections of their own would send keepalives.
    let cluster = Cluster::with_short_connections(5, LEASE, 3).await;
    cluster.sshd.alias((0..HOSTS).map(|number| format!("h{number}")));
    let callers = cluster.callers("bench", &[]);
    let cpu = || -> Duration {
        cluster.replicas.iter().map(|replica| processor_time(replica.pid())).sum()
    };
    let watched = || {
        let before = cpu();
        std::thread::sleep(WATCHED);
        cpu().saturating_sub(before)
    };
    let idle = watched();
    std::thread::scope(|scope| {
        for (thread, caller) in callers.iter().enumerate() {
            scope.spawn(move || {
                for number in (thread..HOSTS).step_by(3) {
                    let request = json!({"host": format!("h{number}"), "command": "true"});
                    caller.ok("run", request);
                }
            });
        }
    });
    // Until their connections have been closed as idle.
    std::thread::sleep(Duration::from_secs(20));
    let held = watched();
    let of_a_core = |cpu: Duration| 100.0 * cpu.as_secs_f64() / WATCHED.as_secs_f64();
    report.row(
        "processor time of three idle replicas that hold 1000 hosts, against none",
        &format!("{:.2} % of a core", of_a_core(held)),
        &format!("{:.2} %", of_a_core(idle)),
        None,
        "≤ 2 % more",
    );
}

/// Memory with many running jobs.
pub(crate) async fn jobs(report: &mut Report) {
    const JOBS: usize = 10_000;
    let cluster = Cluster::with_leases_of(LEASE, 3).await;
    let callers = cluster.callers("bench", &[]);
    let began = Instant::now();
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let callers = &callers;
            scope.spawn(move || {
                for number in (thread..JOBS).step_by(8) {
                    let host = format!("h{}", number % 100);
                    let request = json!({"host": host, "command": "exec sleep 1000"});
                    callers[number % 3].ok("spawn", request);
                }
            });
        }
    });
    let started = began.elapsed();
    let memory: Vec<String> = cluster
        .replicas
        .iter()
        .map(|replica| format!("{} MB", replica.memory() / 1024))
        .collect();
    report.row(
        "10,000 running jobs on 100 hosts over three replicas: memory of each",
        &format!(
            "{}; started in {:.0} s",
            memory.join(", "),
            started.as_secs_f64()
        ),
        "–",
        None,
        "< 300 MB",
    );
    let listed = timed(20, || {
        callers[0].ok("jobs", json!({"limit": 100}));
    });
    report.row(
        "a list of the newest 100 of them, p50 of 20",
        &millis(listed),
        "–",
        None,
        "< 50 ms",
    );
}
