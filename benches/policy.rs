//! The cost of a decision of the policy, beside the work that can't be avoided: to look at each rule.
#![allow(missing_docs, clippy::unwrap_used, reason = "a bench")]

use std::fmt::Write;
use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use sshjobs::policy::{
    CommandSource, Decision, Endpoint, Identity, Machine, Policy, Request, Role, Verb, WeekMinute,
};

/// A policy of a team: many callers, each with hosts of its own, and a few rules that deny.
fn policy(rules: usize) -> Policy {
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
    Policy::parse(&text).unwrap()
}

fn decide(c: &mut Criterion) {
    let mut group = c.benchmark_group("decide");
    for rules in [10, 100, 1000] {
        let policy = policy(rules);
        let caller = Identity {
            name: "team9-agent".to_owned(),
            role: Role::Run,
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

criterion_group!(benches, decide);
criterion_main!(benches);
