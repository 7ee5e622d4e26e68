//! Starts a durable job, and reads it from other `Jobs`, as another process would.
#![allow(clippy::print_stdout, reason = "an example")]

use sshjobs::testing::Sshd;
use sshjobs::{Command, Error, LineNo};

#[tokio::main]
async fn main() -> Result<(), Error> {
    let sshd = Sshd::start().await.expect("OpenSSH's sshd is installed");
    let start = || sshd.builder().state_dir(sshd.path("state")).start();
    let id = {
        let jobs = start().await?;
        let command = Command::shell("seq 3; sleep 1; echo late").durable();
        jobs.host(Sshd::HOST).spawn(&command).await?.id().to_owned()
    };

    let jobs = start().await?;
    let job = jobs.job(&id).await?;
    let mut lines = job.lines_after(LineNo::new(2)).await?;
    while let Some(line) = lines.next().await {
        let line = line.expect("nothing was evicted");
        println!("{} {}", line.line_no.value(), line.text);
    }
    jobs.shutdown().await;
    Ok(())
}
