//! `sshjobs demo`: a job on the server inside the process.

use std::io::{self, Write};
use std::time::Duration;

use crate::args::DemoArgs;
use crate::terminal::{DIM, RED, colours_are_wanted, paint};
use crate::{ProgramExit, report};
use sshjobs_core::jobs::{Command, Demo, printable};
use sshjobs_wire::{Error, Service, Standing, TailReply, TailRequest};

/// A build that takes some seconds, prints warnings and succeeds.
const COMMAND: &str = "\
for step in fetch compile link test; do echo \"$step ...\"; sleep 0.4; done
echo 'warning: this is stderr' >&2
printf 'all done'; sleep 0.4; echo ', 4 steps'";

/// Time limit for closing stdin.
const STDIN_TIMEOUT: Duration = Duration::from_secs(10);

/// Runs a job without any setup: a real SSH connection and a real job, followed by cursor as a
/// reader would.
pub async fn demo(args: DemoArgs) -> ProgramExit {
    let command = if args.command.is_empty() {
        COMMAND.to_owned()
    } else {
        args.command.join(" ")
    };
    match show(command).await {
        Ok(exit) => exit,
        Err(error) => {
            report(&error);
            ProgramExit::of_error(&error)
        }
    }
}

async fn show(command: String) -> Result<ProgramExit, Error> {
    let demo = Demo::start().await?;
    let host = demo.jobs.probe(Demo::HOST).await?;
    let (address, port) = host.address.unwrap_or_default();
    say(&format!(
        "An SSH server inside this process listens at {address} port {port}; its key is {}.",
        host.negotiated.unwrap_or_default().host_key
    ));
    let job = demo.jobs.spawn(Demo::HOST, Command::shell(command)).await?;
    // A command that has ended already has no stdin.
    job.close_stdin(STDIN_TIMEOUT).await.ok();
    let id = job.id().to_owned();
    let state = Standing::of(&job.status()).state.as_str();
    say(&format!(
        "ssh_spawn started job {id} ({state}). Following it with ssh_tail:\n"
    ));
    let service = Service::over(demo.jobs.clone());
    let mut cursor = 0;
    loop {
        let reply = service.tail(TailRequest::new(&id, cursor, 5000)).await?;
        show_page(cursor, &reply);
        cursor = reply.last_line_no;
        if !reply.still_running {
            let standing = reply.standing;
            let lines = reply.total_lines;
            say(&format!(
                "\nThe job {standing}, after {lines} lines. No line was lost or repeated."
            ));
            break;
        }
    }
    let outcome = job.wait().await;
    demo.jobs.shutdown().await;
    Ok(ProgramExit::of(&outcome))
}

fn show_page(cursor: u64, reply: &TailReply) {
    let is_coloured = colours_are_wanted(&io::stdout());
    let first = reply.first_line_no.unwrap_or(cursor);
    // The numbers have no gaps: the request has both streams, no filter, and keeps the first.
    for (line_no, line) in (first..).zip(reply.lines.iter().flatten()) {
        let prefix = paint(
            &format!("since_line_no={cursor:<3} line {line_no:>3} |"),
            DIM,
            is_coloured,
        );
        let is_red = is_coloured && reply.stderr_lines.contains(&line_no);
        say(&format!(
            "{prefix} {}",
            paint(&printable(line), RED, is_red)
        ));
    }
}

fn say(line: &str) {
    // Ignored: a closed stdout can't show this.
    writeln!(io::stdout(), "{line}").ok();
}
