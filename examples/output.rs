//! Runs a command with a file name as its argument, and reads its output.
#![allow(clippy::print_stdout, reason = "an example")]

use sshjobs::jobs::{Demo, Error};

#[tokio::main]
async fn main() -> Result<(), Error> {
    let demo = Demo::start().await?;

    // `arg` quotes: no name of a file can become a part of the command.
    let output = demo
        .jobs
        .command(Demo::HOST, "echo")
        .arg("$(rm -rf ~); it's.txt")
        .output()
        .await?;

    print!("{}", String::from_utf8_lossy(&output.stdout));
    println!("{}", output.outcome);
    demo.jobs.shutdown().await;
    Ok(())
}
