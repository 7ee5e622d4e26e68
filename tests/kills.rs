//! Durable jobs while links are cut and servers are killed, again and again.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::support::command::{sshjobs, told};
use crate::support::{HOST, McpClient, Sshd};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use tokio::time::Instant;

fn lines(reply: &Value) -> Vec<String> {
    reply["lines"]
        .as_array()
        .unwrap()
        .iter()
        .map(|line| line.as_str().unwrap().to_owned())
        .collect()
}

const JOBS: usize = 20;
/// On stdout; a fifth as many come on stderr.
const LINES: usize = 20_000;
const CUTS: usize = 50;
const KILLS: usize = 20;

#[tokio::test]
async fn killed_servers_and_cut_links_lose_double_and_renumber_nothing() {
    let sshd = Sshd::start().await;
    let mut client = McpClient::start(&sshd.ssh_config());
    let command = format!(
        "i=0; while [ $i -lt {LINES} ]; do i=$((i+1)); echo out $i; [ $((i%5)) = 0 ] && echo err $i >&2; [ $((i%25)) = 0 ] && sleep 0.03; done; exit 9"
    );
    let mut shown: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for _ in 0..JOBS {
        let spawned = client.ok(
            "ssh_spawn",
            json!({"host": HOST, "command": command, "durable": true}),
        );
        shown.insert(spawned["job_id"].as_str().unwrap().to_owned(), Vec::new());
    }
    let (all, mut read, mut cuts, mut kills) = (JOBS * (LINES + LINES / 5), 0, 0, 0);
    let deadline = Instant::now() + Duration::from_secs(600);
    while read < all {
        for (job, known) in &mut shown {
            let arguments = json!({"job_id": job, "since_line_no": known.len(), "wait_ms": 50});
            let reply = client.ok("ssh_tail", arguments);
            assert!(reply["dropped_lines"].is_null(), "{reply}");
            known.extend(lines(&reply));
            read += reply["lines"].as_array().unwrap().len();
            if read * (CUTS + 1) > all * (cuts + 1) {
                sshd.cut();
                cuts += 1;
            }
            if read * (KILLS + 1) > all * (kills + 1) {
                kill(Pid::from_raw(client.pid().cast_signed()), Signal::SIGKILL).unwrap();
                client = McpClient::start(&sshd.ssh_config());
                kills += 1;
            }
        }
        assert!(
            Instant::now() < deadline,
            "it comes to no end: {read} of {all}"
        );
    }
    assert!(cuts >= CUTS && kills >= KILLS, "{cuts} cuts, {kills} kills");
    for (job, known) in &shown {
        let of = |name: &str| {
            known.iter().filter(|line| line.starts_with(name)).cloned().collect::<Vec<_>>()
        };
        assert_eq!(
            of("out"),
            (1..=LINES).map(|i| format!("out {i}")).collect::<Vec<_>>()
        );
        assert_eq!(
            of("err"),
            (1..=LINES / 5).map(|i| format!("err {}", 5 * i)).collect::<Vec<_>>()
        );
        let again = told(&sshjobs(&sshd, &["tail", "--since", "0", job]));
        assert_eq!(
            &again.lines().collect::<Vec<_>>(),
            known,
            "another reader's numbers are the same"
        );
        assert_eq!(sshjobs(&sshd, &["wait", job]).status.code(), Some(9));
    }
}
