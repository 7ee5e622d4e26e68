//! Tests a program against a host that fails: a private sshd whose connections can be cut.
#![allow(clippy::print_stdout, reason = "an example")]

use sshjobs::testing::Sshd;
use sshjobs::{Command, Error};

#[tokio::main]
async fn main() -> Result<(), Error> {
    let sshd = Sshd::start().await.expect("OpenSSH's sshd is installed");
    let jobs = sshd.jobs().await?;
    let command = Command::shell("echo before; sleep 60");
    let job = jobs.host(Sshd::HOST).spawn(&command).await?;
    let first = job.lines().await?.next().await;
    println!(
        "{}",
        first.expect("a line").expect("nothing was evicted").text
    );

    sshd.cut();

    println!("{}", job.wait().await);
    jobs.shutdown().await;
    Ok(())
}
