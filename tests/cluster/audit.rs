//! The audit logs of replicas, whose checkpoints NATS keeps.

use std::fs;
use std::process::Output;

use serde_json::{Value, json};

use crate::support::eventually;
use crate::support::replicas::Cluster;

const POLICY: &str = "[[rules]]\nname = \"all\"\ncommands = \"any\"\n\
                      verbs = [\"run\", \"hosts\", \"jobs\", \"tail\"]\n\
                      [audit]\nfile = \"audit.jsonl\"\nkey = \"KEY\"\n";

struct Fixture {
    cluster: Cluster,
    policy: String,
}

impl Fixture {
    async fn start() -> Self {
        let mut cluster = Cluster::with_policy("", 0).await;
        let policy = cluster.sshd.path("policy.toml");
        let key = cluster.sshd.path("audit.key").display().to_string();
        fs::write(&policy, POLICY.replace("KEY", &key)).unwrap();
        cluster.add_replica();
        Self {
            cluster,
            policy: policy.display().to_string(),
        }
    }

    /// Runs a command on the host, so that the log has a line for it.
    async fn call(&self, caller: &str) {
        let callers = self.cluster.callers(caller, &[]);
        // Another replica may still hold the host.
        eventually("the command runs", async || {
            callers[0].call("run", json!({"host": "h1", "command": "true"})).0 == 200
        })
        .await;
    }

    fn audit(&self, arguments: &[&str]) -> Output {
        self.cluster.run(&[&["--policy", &self.policy, "audit"], arguments].concat())
    }

    /// Checks the log. Returns the exit status and the printed report.
    fn verify(&self) -> (Option<i32>, Value) {
        let output = self.audit(&["verify", "--json"]);
        let report = serde_json::from_slice(&output.stdout);
        (
            output.status.code(),
            report.unwrap_or_else(|_| panic!("{output:?}")),
        )
    }
}

#[tokio::test]
async fn a_log_that_was_cut_or_written_anew_differs_from_what_nats_keeps() {
    let mut fixture = Fixture::start().await;
    fixture.call("before").await;
    let log = fixture.cluster.sshd.path("state/sshjobs/audit.jsonl");
    eventually("NATS has a checkpoint", async || {
        fixture.verify().1["cluster_checkpoints"].as_u64() > Some(0)
    })
    .await;
    assert_eq!(fixture.verify().0, Some(0));
    let listed = String::from_utf8(fixture.audit(&["checkpoints"]).stdout).unwrap();
    assert!(
        listed.contains(&format!(":{} ", log.display())) && listed.contains("LOG"),
        "{listed}"
    );

    fixture.cluster.replicas.clear();
    let text = fs::read_to_string(&log).unwrap();
    let first = text.lines().next().unwrap();
    fs::write(&log, format!("{first}\n")).unwrap();
    let (status, report) = fixture.verify();
    assert_eq!(status, Some(1));
    assert!(
        report.to_string().contains("its tail was cut off"),
        "{report}"
    );

    fs::remove_file(&log).unwrap();
    fixture.cluster.add_replica();
    fixture.call("after").await;
    let (status, report) = fixture.verify();
    assert_eq!(status, Some(1));
    assert!(
        report.to_string().contains("is not the one that was there before"),
        "{report}"
    );
}
