//! Runs a command with a file name as its argument, and reads its output.
#![allow(clippy::print_stdout, reason = "an example")]

use sshjobs::testing::Demo;
use sshjobs::{Command, Error};

#[tokio::main]
async fn main() -> Result<(), Error> {
    let demo = Demo::start().await?;

    // `arg` quotes: no name of a file can become a part of the command.
    let command = Command::new("echo").arg("$(rm -rf ~); it's.txt");
    let output = demo.host().output(&command).await?;

    print!("{}", String::from_utf8_lossy(&output.stdout));
    println!("{}", output.outcome);
    demo.jobs().shutdown().await;
    Ok(())
}
