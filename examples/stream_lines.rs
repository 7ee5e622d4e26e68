//! Follows a job line by line.
#![allow(clippy::print_stdout, reason = "an example")]

use sshjobs::jobs::{Demo, Error};

#[tokio::main]
async fn main() -> Result<(), Error> {
    // An SSH server in this process. `Jobs::builder().start().await?` uses your ssh_config instead.
    let demo = Demo::start().await?;
    let job = demo.jobs.command(Demo::HOST, "seq 3; echo done >&2").spawn().await?;

    let mut lines = job.lines().await?;
    while let Some(line) = lines.next().await {
        match line {
            Ok(line) => println!("{} {:?} {}", line.line_no.value(), line.stream, line.text),
            Err(lagged) => println!("{lagged}"),
        }
    }

    println!("{}", job.wait().await);
    demo.jobs.shutdown().await;
    Ok(())
}
