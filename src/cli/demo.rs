use std::io::{self, Write};

use super::exit::{colours, printable};
use super::{DemoArgs, Exit, report};
use crate::api::{Demo, Error, HostsRequest, SpawnRequest, TailReply, TailRequest};

/// A build that takes its time, warns, asks nothing and succeeds.
const COMMAND: &str = "\
for step in fetch compile link test; do echo \"$step ...\"; sleep 0.4; done
echo 'warning: this is stderr' >&2
printf 'all done'; sleep 0.4; echo ', 4 steps'";

/// Runs the main job with nothing set up: a real SSH connection, a real job, followed by cursor as a reader would.
pub async fn demo(args: DemoArgs) -> Exit {
    let command = if args.command.is_empty() { COMMAND.to_owned() } else { args.command.join(" ") };
    match show(command).await {
        Ok(exit) => exit,
        Err(error) => {
            report(&error);
            Exit::of_error(&error)
        }
    }
}

async fn show(command: String) -> Result<Exit, Error> {
    let demo = Demo::start().await?;
    let service = &demo.service;
    let hosts = service.hosts(HostsRequest { host: Some(Demo::HOST.to_owned()), tag: None }).await?;
    let host = &hosts.hosts[0];
    say(&format!(
        "An SSH server inside this process listens at {}; its key is {}.",
        host.address.as_deref().unwrap_or_default(),
        host.host_key.as_deref().unwrap_or_default()
    ));
    let job = service.spawn(SpawnRequest::new(Demo::HOST, command)).await?;
    service.close_stdin(&job.job_id).await.ok();
    say(&format!(
        "ssh_spawn started job {} ({}). Following it with ssh_tail:\n",
        job.job_id,
        job.state.as_str()
    ));
    let mut cursor = 0;
    let exit = loop {
        let reply = service.tail(TailRequest::new(&job.job_id, cursor, 5000)).await?;
        show_page(cursor, &reply);
        cursor = reply.last_line_no;
        if !reply.still_running {
            say(&format!(
                "\nThe job {}, after {} lines. No line was lost or repeated.",
                reply.ending, reply.total_lines
            ));
            break Exit::of(&reply.ending);
        }
    };
    service.shutdown().await;
    Ok(exit)
}

fn show_page(cursor: u64, reply: &TailReply) {
    let (dim, red, plain) =
        if colours(&io::stdout()) { ("\x1b[2m", "\x1b[31m", "\x1b[0m") } else { ("", "", "") };
    let first = reply.first_line_no.unwrap_or(cursor);
    for (line_no, line) in (first..).zip(reply.lines.iter().flatten()) {
        let colour = if reply.stderr_lines.contains(&line_no) { red } else { "" };
        say(&format!(
            "{dim}since_line_no={cursor:<3} line {line_no:>3} |{plain} {colour}{}{plain}",
            printable(line)
        ));
    }
}

fn say(line: &str) {
    // When stdout is gone there is nobody to show anything to.
    writeln!(io::stdout(), "{line}").ok();
}
