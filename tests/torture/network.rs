//! A network that loses packets, below TCP.

use std::process::Command;

use nix::sched::{CloneFlags, unshare};

/// Five of a hundred packets.
const LOSS: &str = "0.05";

/// A network of its own, in which packets can be lost.
pub struct Network(());

impl Network {
    /// Moves this thread, and all threads and processes that it starts from now on, to a network of their own. The
    /// error says why this machine can't: it takes root, and iptables with the match `statistic`.
    pub fn enter() -> Result<Self, String> {
        unshare(CloneFlags::CLONE_NEWNET)
            .map_err(|error| format!("no network of its own: {error}"))?;
        perform("ip", &["link", "set", "lo", "up"]).expect("a new network can be brought up");
        let network = Self(());
        network.lose_packets()?;
        network.stop_loss();
        Ok(network)
    }

    /// From now on loses one packet in twenty, in every connection.
    pub fn lose_packets(&self) -> Result<(), String> {
        perform("iptables", &rule("--append"))
    }

    /// Loses no more packets.
    pub fn stop_loss(&self) {
        perform("iptables", &rule("--delete")).expect("the rule was there");
    }
}

fn rule(action: &str) -> Vec<&str> {
    let matches = [
        "--in-interface",
        "lo",
        "--match",
        "statistic",
        "--mode",
        "random",
    ];
    [
        &["--wait", action, "INPUT"][..],
        &matches,
        &["--probability", LOSS, "--jump", "DROP"],
    ]
    .concat()
}

fn perform(program: &str, arguments: &[&str]) -> Result<(), String> {
    let output = Command::new(program).args(arguments).output();
    let output = output.map_err(|error| format!("{program}: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!(
        "{program}: {}",
        String::from_utf8_lossy(&output.stderr).trim()
    ))
}
