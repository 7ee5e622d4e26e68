//! Copies the newest hash to places outside of the log.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::net::UnixDatagram;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::time::Instant;

use super::line::LogHead;
use super::settings::Anchor;

/// Time limit for a message or a command. Less than the time that the end of a process waits.
const COPY_TIME: Duration = Duration::from_secs(4);
/// Interval of checks whether a command has ended.
const CHECK_INTERVAL: Duration = Duration::from_millis(20);
/// Priority of a message: facility 10 (security), severity 6 (informational), RFC 5424 §6.2.1.
const PRIORITY: u32 = 10 * 8 + 6;

/// Copies a head. Blocks the thread.
pub(super) fn copy_to(anchor: &Anchor, head: LogHead) -> io::Result<()> {
    match anchor {
        Anchor::File(file) => {
            let mut file = OpenOptions::new().append(true).create(true).open(file)?;
            // At once, so that lines of several processes do not mix.
            file.write_all(format!("{head}\n").as_bytes())?;
            file.sync_data()
        }
        Anchor::Syslog(socket) => {
            let message = format!("<{PRIORITY}>sshjobs-audit: {head}");
            let sender = UnixDatagram::unbound()?;
            sender.set_write_timeout(Some(COPY_TIME))?;
            sender.send_to(message.as_bytes(), socket).map(drop)
        }
        Anchor::Command(command) => run(command, head),
    }
}

fn run(command: &str, head: LogHead) -> io::Result<()> {
    let mut child = Command::new("/bin/sh")
        .args(["-c", command])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        // A group of its own, to end it with all that it has started.
        .process_group(0)
        .spawn()?;
    let deadline = Instant::now() + COPY_TIME;
    if let Some(mut stdin) = child.stdin.take() {
        // A command that does not read it may have its hash in another way.
        writeln!(stdin, "{head}").ok();
    }
    loop {
        match child.try_wait()? {
            Some(status) if status.success() => return Ok(()),
            Some(status) => return Err(io::Error::other(format!("it ended with {status}"))),
            None if Instant::now() < deadline => std::thread::park_timeout(CHECK_INTERVAL),
            None => {
                if let Some(group) = Pid::from_raw(child.id().cast_signed()) {
                    kill_process_group(group, Signal::KILL)?;
                }
                child.wait()?;
                return Err(io::ErrorKind::TimedOut.into());
            }
        }
    }
}
