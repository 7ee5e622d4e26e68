//! A queued job needs a process that starts it when its turn comes. If no server does, `spawn` leaves that
//! to a copy of itself, the keeper, and returns as soon as the job is queued.
//!
//! # Theory of operation
//!
//! The keeper is the same command line with a variable set, in the same session: it may ask the person, and
//! gets Ctrl-C as `spawn` does. Its stdout and stderr are pipes that `spawn` copies. When the job is queued,
//! the keeper leaves the session, so that the terminal's end and Ctrl-C spare it; then it writes
//! [`QUEUED_MARK`] to both pipes and closes them. If it ends before, its exit code is that of `spawn`.

use std::io::{self, Read, Write};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;

use rustix::process::{getppid, setsid};
use rustix::stdio::{dup2_stderr, dup2_stdin, dup2_stdout};

use crate::exit::write_out;
use crate::terminal::Signals;
use crate::{ProgramExit, note, report};
use sshjobs_wire::{Code, Error};

/// Variable of a keeper: the process id of its `spawn`.
const KEEPER: &str = "SSHJOBS_KEEPER";
/// Byte that the keeper writes last to stdout and stderr, once its job is queued. No id, no JSON and no message has it.
const QUEUED_MARK: u8 = 0;

/// Notes whether this process is a keeper. Must be called before its parent can end.
pub fn note_parent() {
    is_keeper();
}

/// Whether this process is a keeper. The processes that a keeper starts have its variable and another parent.
pub(crate) fn is_keeper() -> bool {
    static IS_KEEPER: OnceLock<bool> = OnceLock::new();
    // Once, because the parent ends before the keeper.
    *IS_KEEPER.get_or_init(|| {
        let parent = getppid().map(|parent| parent.as_raw_pid().to_string());
        parent.is_some() && std::env::var(KEEPER).ok() == parent
    })
}

/// Runs this command line again in the background, up to the moment when its job is queued or it ends.
///
/// `signals` are caught, so that Ctrl-C ends this process only when it has ended the keeper.
pub(super) fn run_in_background(_signals: &Signals) -> ProgramExit {
    match start().and_then(relay) {
        Ok(exit) => exit,
        Err(error) => {
            let error = Error::new(
                Code::Io,
                format!("the background process for the queued job can't be started: {error}"),
                "use `sshjobs serve`, which starts queued jobs, and SSHJOBS_SERVER",
            );
            report(&error);
            ProgramExit::of_error(&error)
        }
    }
}

fn start() -> io::Result<Child> {
    Command::new(std::env::current_exe()?)
        .args(std::env::args_os().skip(1))
        .env(KEEPER, std::process::id().to_string())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
}

/// Copies the output of a keeper. Returns its exit code, or success once it stays with a queued job.
fn relay(mut keeper: Child) -> io::Result<ProgramExit> {
    let errors = keeper.stderr.take().ok_or(io::ErrorKind::BrokenPipe)?;
    let copying = thread::spawn(move || copy_to_mark(errors));
    let mut told = Vec::new();
    keeper.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?.read_to_end(&mut told)?;
    let is_queued = told.last() == Some(&QUEUED_MARK);
    if is_queued {
        told.pop();
    }
    copying.join().ok();
    let printed = write_out(&told);
    if is_queued {
        return Ok(printed);
    }
    let status = keeper.wait()?.code().and_then(|code| u8::try_from(code).ok());
    Ok(status.map_or(ProgramExit::CONNECTION, ProgramExit::with_code).or(printed))
}

/// Copies messages to stderr, up to the mark or the end. A program that the keeper has started may hold the pipe longer.
fn copy_to_mark(mut errors: impl Read) {
    let mut buffer = [0; 4096];
    while let Ok(count @ 1..) = errors.read(&mut buffer) {
        let text = buffer.get(..count).unwrap_or_default();
        let end = text.iter().position(|byte| *byte == QUEUED_MARK);
        // Ignored: a closed stderr can't show it.
        io::stderr()
            .write_all(text.get(..end.unwrap_or(count)).unwrap_or_default())
            .ok();
        if end.is_some() {
            return;
        }
    }
}

/// Lets the waiting `spawn` return: this process stays with the job. Does nothing if no `spawn` waits.
pub(super) fn let_spawn_return() {
    static HAS_RETURNED: AtomicBool = AtomicBool::new(false);
    if !is_keeper() || HAS_RETURNED.swap(true, Relaxed) {
        return;
    }
    note("a process in the background stays with it until it has started");
    // Fails only for the leader of a process group, which a child is not.
    setsid().ok();
    // Ignored: a `spawn` that was killed needs no answer.
    io::stderr().write_all(&[QUEUED_MARK]).ok();
    io::stdout().write_all(&[QUEUED_MARK]).and_then(|()| io::stdout().flush()).ok();
    if let Ok(null) = std::fs::File::options().read(true).write(true).open("/dev/null") {
        dup2_stdin(&null).ok();
        dup2_stdout(&null).ok();
        dup2_stderr(&null).ok();
    }
}
