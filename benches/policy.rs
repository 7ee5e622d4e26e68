//! The cost of a decision of the policy, and of a start that is decided on and recorded, beside one
//! without a policy in the same run.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::panic,
    clippy::disallowed_methods,
    clippy::cast_precision_loss,
    reason = "a bench"
)]

#[path = "../tests/support/mod.rs"]
mod support;

use std::fmt::Write;
use std::hint::black_box;
use std::path::Path;
use std::time::{Duration, Instant};

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use sshjobs::jobs::{Access, Config, Jobs, PolicyConfig};
use sshjobs::policy::{
    Claims, CommandSource, Decision, Endpoint, Identity, Machine, Policy, Request, Role, Verb,
    WeekMinute,
};
use support::{HOST, Sshd};

/// A policy of a team: many callers, each with hosts of its own, and a few rules that deny.
fn policy(rules: usize) -> Policy {
    Policy::parse(&self::rules(rules)).unwrap()
}

fn rules(rules: usize) -> String {
    let mut text = String::new();
    for number in 0..rules {
        writeln!(text, "[[rules]]\nname = \"rule {number}\"").unwrap();
        match number % 10 {
            0 => writeln!(text, "effect = \"deny\"\nhosts = [\"db{number}-*\", \"tag:pci\"]"),
            1 => writeln!(text, "callers = [\"team{number}-*\"]\nverbs = [\"tail\", \"read\"]"),
            _ => writeln!(
                text,
                "callers = [\"team{number}-*\"]\nhosts = [\"web{number}-*\", \"10.{}.*\"]\ncommands = \"any\"",
                number % 250
            ),
        }
        .unwrap();
    }
    text
}

fn decide(c: &mut Criterion) {
    let mut group = c.benchmark_group("decide");
    for rules in [10, 100, 1000] {
        let policy = policy(rules);
        let caller = Identity {
            name: "team9-agent".to_owned(),
            role: Role::Run,
            claims: Claims::default(),
        };
        let endpoint = Endpoint {
            machine: Machine::new(["web9-1", "10.9.0.1"], 22, ["staging".to_owned()]),
            users: vec!["deploy".to_owned()],
            jumps: vec![Machine::new(["bastion"], 22, [])],
        };
        let request = Request {
            caller: &caller,
            verb: Verb::Run,
            endpoint: Some(&endpoint),
            command: Some(CommandSource::Free),
            target: None,
            minute: WeekMinute::default(),
        };
        assert!(matches!(policy.decide(&request), Decision::Allowed(_)));
        group.bench_function(BenchmarkId::new("rules", rules), |b| {
            b.iter(|| policy.decide(black_box(&request)));
        });
    }
    group.finish();
}

/// Starts of each kind, in turns.
const STARTS: usize = 300;

/// Spawns jobs with and without a policy and its log, in turns, and prints the ratios of the medians.
fn starts(_: &mut Criterion) {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let sshd = Sshd::start().await;
        let disk = sshd.path("");
        let kinds = [
            ("without a policy", None),
            ("with a policy", Some(None)),
            (
                "with a policy and a log in memory",
                Some(Some(Path::new("/dev/shm"))),
            ),
            (
                "with a policy and a log on the disk",
                Some(Some(disk.as_path())),
            ),
        ];
        let mut runs = Vec::new();
        for (number, (name, policy)) in kinds.into_iter().enumerate() {
            let file = policy.map(|log| write_policy(&sshd, number, log));
            let config = Config {
                ssh_config: Some(sshd.ssh_config()),
                state_dir: Some(sshd.path(&format!("state{number}"))),
                policy: PolicyConfig { file },
                ..Config::default()
            };
            runs.push((name, Jobs::new(config, Access::Listed), Vec::new()));
        }
        for _ in 0..STARTS {
            for (_, jobs, times) in &mut runs {
                let began = Instant::now();
                let job = jobs.command(HOST, "true").spawn().await.unwrap();
                times.push(began.elapsed());
                job.wait().await;
            }
        }
        let medians: Vec<Duration> = runs
            .iter_mut()
            .map(|(_, _, times)| {
                times.sort();
                times[times.len() / 2]
            })
            .collect();
        println!("| a start | p50 | ratio | bar |\n|---|---|---|---|");
        for ((name, jobs, _), median) in runs.iter().zip(&medians) {
            let ratio = median.as_secs_f64() / medians[0].as_secs_f64();
            println!("| {name} | {median:.2?} | {ratio:.2} | ≤ 1.1 without fsync |");
            jobs.shutdown().await;
        }
    });
}

/// A policy of a hundred rules, the last of which allows everything here, perhaps with a log in a
/// directory.
fn write_policy(sshd: &Sshd, number: usize, log: Option<&Path>) -> std::path::PathBuf {
    // The bench's host has no tags, and a tag that no host has is a mistake.
    let mut text = rules(100).replace(", \"tag:pci\"", "");
    text.push_str("[[rules]]\nname = \"here\"\ncallers = [\"local\"]\ncommands = \"any\"\n");
    if let Some(directory) = log {
        let log = directory.join(format!("sshjobs-bench-{}.jsonl", std::process::id()));
        let key = sshd.path("audit.key");
        writeln!(text, "[audit]\nfile = {log:?}\nkey = {key:?}").unwrap();
    }
    let file = sshd.path(&format!("policy{number}.toml"));
    std::fs::write(&file, text).unwrap();
    file
}

criterion_group!(benches, decide, starts);
criterion_main!(benches);
