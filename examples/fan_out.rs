//! Runs a command on several hosts and shows which ended alike.
#![allow(clippy::print_stdout, reason = "an example")]

use sshjobs::testing::Sshd;
use sshjobs::{Command, Error, FleetSpec};

#[tokio::main]
async fn main() -> Result<(), Error> {
    let sshd = Sshd::start().await.expect("OpenSSH's sshd is installed");
    sshd.alias(["web2", "web3"]);
    let jobs = sshd.jobs().await?;
    let hosts = FleetSpec::of(["web[1-3]"]);
    let fleet = jobs.spawn_on(hosts, &Command::new("uname").arg("-s")).await?;

    let mut lines = fleet.lines().await?;
    while let Some(line) = lines.next().await {
        let line = line.expect("nothing was evicted");
        println!("{}: {}", line.host.unwrap_or_default(), line.line.text);
    }

    for group in fleet.wait().await.groups {
        println!("{} ended alike", group.folded());
    }
    jobs.shutdown().await;
    Ok(())
}
