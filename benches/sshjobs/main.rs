//! Measures sshjobs beside other programs: one run, on one machine, against private servers. Asserts
//! nothing about speed.
//!
//! `make bench` measures everything, and `make bench PARTS="spawn curve"` all parts whose names
//! contain one of these words. Prints tables, and writes `report.json` and the curves as pictures
//! to `target/bench`, or to the directory in `SSHJOBS_BENCH_REPORT`.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::panic,
    clippy::disallowed_methods,
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::too_many_arguments,
    clippy::too_many_lines,
    reason = "a bench"
)]

#[path = "../../tests/support/mod.rs"]
mod support;

mod cluster;
mod distance;
mod files;
mod fleet;
mod many_hosts;
mod many_hosts_rig;
mod memory;
mod output;
mod peers;
mod plot;
mod policy;
mod readers;
mod report;
mod ring;
mod server;
mod spawn;
mod starts;
mod stored;
mod syncs;

use std::path::PathBuf;

use report::Report;
use support::Sshd;

/// The words of the command line.
struct Parts(Vec<String>);

impl Parts {
    fn has(&self, name: &str) -> bool {
        self.0.is_empty() || self.0.iter().any(|word| name.contains(word.as_str()))
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.as_slice() {
        [word, rest @ ..] if word == many_hosts_rig::RIG => many_hosts_rig::play(rest),
        _ => measure(),
    }
}

#[tokio::main]
async fn measure() {
    // `cargo test` runs benches too; there is nothing to test here.
    if !std::env::args().any(|argument| argument == "--bench") {
        return;
    }
    let parts = Parts(std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect());
    let directory = std::env::var_os("SSHJOBS_BENCH_REPORT")
        .map_or_else(|| PathBuf::from("target/bench"), PathBuf::from);

    let mut report = Report::default();
    /// Measures each part whose name was asked for. With a title, they are rows of a table.
    macro_rules! measure {
        ($title:literal: $($name:literal $part:expr),+ $(,)?) => {
            if [$($name),+].iter().any(|name| parts.has(name)) {
                report.section($title);
                measure!($($name $part),+);
            }
        };
        ($($name:literal $part:expr),+ $(,)?) => {
            $(if parts.has($name) {
                $part;
                // A run of an hour that is broken off keeps its figures.
                report.write_figures(&directory);
            })+
        };
    }
    measure!("Beside ssh and a bare russh channel":
        "spawn" spawn::latency(&mut report).await,
        "far" spawn::far(&mut report).await,
        "crowd" spawn::crowd(&mut report).await,
        "recovery" spawn::recovery(&mut report).await,
        "slow-login" spawn::slow_login_shell(&mut report).await,
        "throughput" output::throughput(&mut report).await,
        "readers" output::readers(&mut report).await,
        "neighbour" output::neighbour(&mut report).await,
    );
    if std::env::var_os(report::OWN_PROCESS).is_some() {
        measure!("Memory":
            "memory-idle" memory::thousand_jobs(&mut report).await,
            "memory-soak" memory::soak(&mut report).await,
        );
    } else {
        measure!("Memory":
            "memory-idle" report.rows_of_own_process("memory-idle"),
            "memory-soak" report.rows_of_own_process("memory-soak"),
        );
    }
    measure!("Many short jobs": "starts" starts::starts(&mut report).await);
    measure!("Stored and durable jobs":
        "stored-spawn" stored::latency(&mut report).await,
        "stored-throughput" stored::throughput(&mut report).await,
        "stored-pages" stored::pages(&mut report).await,
        "durable" stored::durable(&mut report).await,
        "stored-start" stored::start(&mut report).await,
    );
    let sshd = Sshd::start().await;
    measure!("A server over HTTP":
        "http-polls" server::polls(&mut report, &sshd),
        "http-readers" readers::readers(&mut report, &sshd).await,
        "http-page" server::page(&mut report, &sshd),
        "http-auth" server::auth(&mut report, &sshd),
        "http-raw" server::raw(&mut report, &sshd),
        "http-run" server::run(&mut report, &sshd),
        "http-idle" server::idle(&mut report, &sshd),
        "http-output" server::after_output(&mut report, &sshd),
    );
    measure!("Files and forwards":
        "files-one" files::one_file(&mut report, &sshd),
        "files-far" files::far_away(&mut report, &sshd).await,
        "files-many" files::many_files(&mut report, &sshd),
        "files-hosts" files::many_hosts(&mut report).await,
        "forward" files::forwards(&mut report, &sshd),
        "become" files::becoming(&mut report, &sshd).await,
    );
    measure!("Syncs": "sync" syncs::syncs(&mut report).await);
    measure!("Fleets": "fleets" fleet::fleets(&mut report).await);
    measure!("Ten thousand hosts": "many-hosts" many_hosts::rows(&mut report));
    measure!("Policy":
        "policy-decide" policy::decide(&mut report),
        "policy-starts" policy::starts(&mut report).await,
    );
    measure!("Ring and pages":
        "ring-append" ring::append(&mut report),
        "ring-page" ring::page(&mut report),
        "ring-render" ring::render(&mut report),
    );
    measure!("Replicas over NATS":
        "cluster-calls" cluster::calls(&mut report).await,
        "cluster-output" cluster::output(&mut report).await,
        "cluster-takeover" cluster::takeover(&mut report).await,
        "cluster-hosts" cluster::hosts(&mut report).await,
        "cluster-jobs" cluster::jobs(&mut report).await,
    );
    measure!(
        "curve-jobs" starts::curve(&mut report).await,
        "curve-hosts" fleet::curve(&mut report).await,
        "curve-readers" output::curve(&mut report).await,
        "curve-lines" stored::curve(&mut report).await,
        "curve-distance" spawn::curve(&mut report).await,
    );
    assert!(!report.is_empty(), "no part has a name with {:?}", parts.0);
    report.draw_curves(&directory);
    println!("\nWritten to {}.", directory.display());
}
