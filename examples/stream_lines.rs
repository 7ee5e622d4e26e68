//! Follows a job line by line.
#![allow(clippy::print_stdout, reason = "an example")]

use sshjobs::testing::Demo;
use sshjobs::{Command, Error};

#[tokio::main]
async fn main() -> Result<(), Error> {
    // An SSH server in this process. `Jobs::start().await?.host("web1")` uses your ssh_config instead.
    let demo = Demo::start().await?;
    let job = demo.host().spawn(&Command::shell("seq 3; echo done >&2")).await?;

    let mut lines = job.lines().await?;
    while let Some(line) = lines.next().await {
        match line {
            Ok(line) => println!("{} {:?} {}", line.line_no.value(), line.stream, line.text),
            Err(lagged) => println!("{lagged}"),
        }
    }

    println!("{}", job.wait().await);
    demo.jobs().shutdown().await;
    Ok(())
}
