//! What an operator of a cluster sees and does.

use std::io::{BufRead, BufReader};
use std::process::{Output, Stdio};

use serde_json::{Value, json};

use crate::support::command::{command, sshjobs, told};
use crate::support::replicas::Cluster;
use crate::support::server::{Caller, Server};
use crate::support::{Sshd, eventually};
use crate::{canonical_loop, job_id};
use sshjobs::testing::NatsServer;

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[tokio::test]
async fn an_operator_sees_replicas_hosts_and_nats() {
    let mut cluster = Cluster::start(2).await;
    let callers = cluster.callers("ci", &[]);
    for (number, caller) in callers.iter().enumerate() {
        let request = json!({"host": format!("h{number}"), "command": "sleep 60"});
        caller.ok("spawn", request);
    }

    let status = || -> Value {
        serde_json::from_str(&told(&cluster.run(&["cluster", "status", "--json"]))).unwrap()
    };
    eventually("both replicas tell of their hosts and jobs", async || {
        let status = status();
        let sum = |what: &str| -> u64 {
            let replicas = status["replicas"].as_array().unwrap();
            replicas.iter().map(|replica| replica[what].as_u64().unwrap()).sum()
        };
        status["replicas"].as_array().unwrap().len() == 2
            && (sum("hosts"), sum("jobs"), sum("lag")) == (2, 2, 0)
    })
    .await;
    let shown = status();
    let hosts = shown["hosts"].as_array().unwrap();
    assert!(
        hosts
            .iter()
            .all(|host| host["replica"].is_string() && host["token"].as_u64() > Some(0)),
        "{shown}"
    );
    let streams = shown["nats"]["streams"].as_array().unwrap();
    assert!(
        streams
            .iter()
            .any(|stream| stream["name"] == "KV_sshjobs_jobs" && stream["messages"] == 2),
        "{shown}"
    );

    let page = told(&cluster.run(&["cluster", "status"]));
    assert!(
        page.contains("REPLICA") && page.contains("sshjobs serve") && page.contains("h1"),
        "{page}"
    );
    let metrics = ureq::get(&cluster.replicas[0].metrics).call().unwrap();
    let metrics = metrics.into_body().read_to_string().unwrap();
    assert!(metrics.contains("sshjobs_cluster_replicas 2"), "{metrics}");

    cluster.replicas.clear();
    eventually("no replica is left", async || {
        let output = cluster.run(&["cluster", "status"]);
        output.status.code() == Some(1) && stderr(&output).contains("no replica takes hosts")
    })
    .await;
}

#[tokio::test]
async fn the_status_of_what_is_no_cluster_is_an_error() {
    let sshd = Sshd::start().await;
    let output = sshjobs(&sshd, &["cluster", "status"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("--cluster"), "{}", stderr(&output));

    let nats = NatsServer::start().expect("`make test-cluster` installs NATS");
    let output = sshjobs(&sshd, &["cluster", "status", "--cluster", &nats.url()]);
    assert_ne!(output.status.code(), Some(0));
    assert!(
        stderr(&output).contains("no replica has ever used the prefix"),
        "{}",
        stderr(&output)
    );
}

#[tokio::test]
async fn the_jobs_of_a_state_directory_are_copied_to_a_cluster() {
    let sshd = Sshd::start().await;
    let token = told(&sshjobs(&sshd, &["token", "new", "ci"])).trim().to_owned();
    let go = sshd.path("go");
    let request = |command: &str, durable: bool, key: &str| json!({"host": crate::HOST, "command": command, "durable": durable, "idempotency_key": key});
    let waiting = format!(
        "echo before; until [ -e {} ]; do sleep 0.1; done; echo after",
        go.display()
    );
    let (finished, durable, attached) = {
        let server = Server::start(&sshd);
        let caller = Caller::new(&server.url, &token);
        let finished = job_id(&caller.ok("spawn", request("seq 200000", false, "k1")));
        caller.ok("wait", json!({"job_ids": [&finished], "wait_ms": 50_000}));
        let read = json!({"job_id": finished, "reader": "one", "max_lines": 7});
        caller.ok("tail", read);
        let durable = job_id(&caller.ok("spawn", request(&waiting, true, "k2")));
        let attached = job_id(&caller.ok("spawn", request("sleep 100", false, "k3")));
        let line = json!({"job_id": durable, "since_line_no": 0, "wait_ms": 10_000});
        assert_eq!(caller.ok("tail", line)["lines"], json!(["before"]));
        let nats = NatsServer::start().expect("`make test-cluster` installs NATS");
        let busy = sshjobs(&sshd, &["store", "copy", "--to", &nats.url()]);
        assert_eq!(busy.status.code(), Some(1), "{}", stderr(&busy));
        assert!(stderr(&busy).contains("it belongs to a process that runs"));
        (finished, durable, attached)
    };

    let cluster = Cluster::on(sshd);
    let copied = told(&cluster.run_as(&["store", "copy", "--json"], "--to"));
    let copied: Value = serde_json::from_str(&copied).unwrap();
    assert_eq!(
        (
            &copied["copied"],
            &copied["known"],
            &copied["tokens"],
            &copied["left"]
        ),
        (&json!(3), &json!(0), &json!(1), &json!([])),
        "{copied}"
    );
    let again = told(&cluster.run_as(&["store", "copy"], "--to"));
    assert!(
        again.contains("3 jobs were already in the cluster"),
        "{again}"
    );

    let mut cluster = cluster;
    for _ in 0..2 {
        cluster.add_replica();
    }
    let callers: Vec<Caller> = cluster
        .replicas
        .iter()
        .map(|replica| Caller::new(&replica.url, &token))
        .collect();
    let numbers: Vec<String> = (1..=200_000).map(|number| number.to_string()).collect();
    let lines = canonical_loop(&callers, &finished);
    assert!(
        lines.iter().map(|(_, text)| text).eq(&numbers),
        "{}",
        lines.len()
    );
    let read = json!({"job_id": finished, "reader": "one", "max_lines": 1});
    assert_eq!(callers[0].ok("tail", read)["lines"], json!(["8"]));
    assert_eq!(
        job_id(&callers[1].ok("spawn", request("seq 200000", false, "k1"))),
        finished
    );

    std::fs::write(&go, "").unwrap();
    let lines = canonical_loop(&callers, &durable);
    assert_eq!(lines, [(1, "before".to_owned()), (2, "after".to_owned())]);
    let lost = callers[0].ok("wait", json!({"job_ids": [&attached], "wait_ms": 10_000}));
    assert_eq!(lost["jobs"][0]["state"], "lost", "{lost}");
}

#[tokio::test]
async fn a_forward_is_listed_and_closed_at_every_replica() {
    let cluster = Cluster::start(3).await;
    let callers = cluster.callers("ci", &[]);
    let ids = |caller: &Caller| -> Vec<String> {
        let listed = caller.ok("forward", json!({"action": "list"}));
        let forwards = listed["forwards"].as_array().unwrap();
        forwards
            .iter()
            .map(|forward| forward["id"].as_str().unwrap().to_owned())
            .collect()
    };

    for (number, host) in ["h1", "h2", "h3"].into_iter().enumerate() {
        let target = format!("127.0.0.1:{}", cluster.sshd.port());
        let request = json!({"action": "open", "host": host, "target": target});
        let opened = callers[number].ok("forward", request);
        let id = opened["forwards"][0]["id"].as_str().unwrap().to_owned();

        for caller in &callers {
            assert_eq!(ids(caller), [id.as_str()]);
        }
        let close = json!({"action": "close", "id": id});
        let closed = callers[(number + 1) % 3].ok("forward", close.clone());
        assert_eq!(closed["forwards"][0]["state"], "closed", "{closed}");
        assert!(callers.iter().all(|caller| ids(caller).is_empty()));
        assert_ne!(callers[0].call("forward", close).0, 200);
    }
}

#[tokio::test]
async fn a_replica_that_starts_before_nats_waits_for_it() {
    let mut cluster = Cluster::start(0).await;
    cluster.nats[0].kill().unwrap();
    let url = cluster.nats[0].url();
    let mut replica = command(
        &cluster.sshd,
        &["serve", "--http", "127.0.0.1:0", "--cluster", &url],
    )
    .stderr(Stdio::piped())
    .spawn()
    .unwrap();
    let told = BufReader::new(replica.stderr.take().unwrap());
    let mut told = told.lines().map(Result::unwrap);
    assert!(
        told.any(|line| line.contains("waiting for NATS")),
        "it ends"
    );
    cluster.nats[0].start_again().unwrap();
    assert!(
        told.any(|line| line.contains("http://127.0.0.1:")),
        "it ends"
    );
    replica.kill().unwrap();
    replica.wait().unwrap();
}
