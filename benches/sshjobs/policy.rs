//! The cost of a decision of the policy, and of a start that is decided on and recorded, beside one
//! without a policy in the same run.

use std::fmt::Write;
use std::hint::black_box;
use std::path::Path;
use std::time::Instant;

use sshjobs_core::jobs::{Access, Command, Config, Jobs, PolicyConfig};
use sshjobs_policy::{
    Claims, CommandSource, Machine, MachineAccount, Policy, PolicyCaller, PolicyDecision,
    PolicyRequest, Role, Verb, WeekMinute,
};

use crate::report::{Report, median, micros, millis, ratio, time_per_call};
use crate::support::{HOST, Sshd};

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

/// A decision, by ever more rules.
pub(crate) fn decide(report: &mut Report) {
    let times = [10, 100, 1000].map(|rules| {
        let policy = policy(rules);
        let caller = PolicyCaller {
            name: "team9-agent".to_owned(),
            role: Role::Run,
            claims: Claims::default(),
        };
        let endpoint = MachineAccount {
            machine: Machine::new(["web9-1", "10.9.0.1"], 22, ["staging".to_owned()]),
            users: vec!["deploy".to_owned()],
            jumps: vec![Machine::new(["bastion"], 22, [])],
        };
        let request = PolicyRequest {
            caller: &caller,
            verb: Verb::Run,
            endpoint: Some(&endpoint),
            command: Some(CommandSource::Free),
            target: None,
            minute: WeekMinute::default(),
        };
        assert!(matches!(
            policy.decide(&request),
            PolicyDecision::Allowed(_)
        ));
        time_per_call(|| {
            black_box(policy.decide(black_box(&request)));
        })
    });
    report.row(
        "a decision by 1,000 rules, against 10",
        &micros(times[2]),
        &micros(times[0]),
        ratio(times[2], times[0]),
        "≤ 100",
    );
}

/// Starts of each kind, in turns.
const STARTS: usize = 300;

/// Spawns jobs with and without a policy and its log, in turns.
pub(crate) async fn starts(report: &mut Report) {
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
            let job = jobs.spawn(HOST, Command::shell("true")).await.unwrap();
            times.push(began.elapsed());
            job.wait().await;
        }
    }
    let mut plain = None;
    for (name, jobs, times) in runs {
        let ours = median(times);
        let plain = *plain.get_or_insert(ours);
        report.row(
            &format!("a start {name}, against one without a policy, p50"),
            &millis(ours),
            &millis(plain),
            ratio(ours, plain),
            "≤ 1.1 without fsync",
        );
        jobs.shutdown().await;
    }
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
