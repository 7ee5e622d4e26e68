//! Exit codes, and the functions that write results to stdout and messages to stderr. A closed
//! pipe never panics.

use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use crate::terminal::{DIM, RED, above_question, colours_are_wanted, paint};
use sshjobs_core::jobs::{self, Outcome, printable};
use sshjobs_wire::{Code, Error, JobEntry, JobState};

/// How the program ends.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProgramExit(u8);

impl ProgramExit {
    /// All went well.
    pub const SUCCESS: Self = Self(0);
    /// A person declined, nothing was found, or a file was not copied.
    pub(super) const DECLINED: Self = Self(1);
    /// The command line or the configuration is invalid.
    pub const USAGE: Self = Self(2);
    /// The job's time limit ended it, as in timeout(1).
    pub const TIMED_OUT: Self = Self(124);
    /// Our output can't be written (EX_IOERR in sysexits).
    pub const OUTPUT: Self = Self(74);
    /// The reader of our output has closed it, as for SIGPIPE.
    pub const BROKEN_PIPE: Self = Self(141);
    /// The host or the connection failed, as in ssh.
    pub const CONNECTION: Self = Self(255);

    pub(super) fn signaled(number: u8) -> Self {
        Self(128 + number)
    }

    /// The exit code for the outcome of a remote command.
    pub(super) fn of(outcome: &Outcome) -> Self {
        match outcome {
            Outcome::TimedOut(_) => Self::TIMED_OUT,
            Outcome::Ended(ended) => match ended {
                jobs::Exit::Status(status) => Self::of_status(*status),
                jobs::Exit::Signal(signal) => Self::of_signal(signal),
            },
            Outcome::Lost(..) | Outcome::Closed | Outcome::Refused | Outcome::NotStarted(_) => {
                Self::CONNECTION
            }
        }
    }

    /// A status that a command exited with.
    pub(super) fn of_status(status: u32) -> Self {
        // An exit code has eight bits; 256 must not become 0, which means success.
        Self(u8::try_from(status).unwrap_or(Self::CONNECTION.0))
    }

    /// A signal that ended the command.
    pub(super) fn of_signal(signal: &str) -> Self {
        Self::signaled(signal_number(signal))
    }

    /// The exit code for an error of a call.
    pub fn of_error(error: &Error) -> Self {
        let is_usage = matches!(
            error.code,
            Code::InvalidArgument | Code::NotReadOnly | Code::UnknownJob | Code::ExpiredJob
        );
        let is_about_file = matches!(
            error.code,
            Code::NoSuchFile
                | Code::PermissionDenied
                | Code::FileExists
                | Code::ChangedMeanwhile
                | Code::EditNotFound
                | Code::EditNotUnique
                | Code::DiskFull
                | Code::NotVerified
        );
        if is_usage {
            Self::USAGE
        } else if is_about_file {
            Self::DECLINED
        } else {
            Self::CONNECTION
        }
    }

    /// The first failure of the two, or success.
    pub(super) fn or(self, other: Self) -> Self {
        if self == Self::SUCCESS { other } else { self }
    }

    /// The exit code of another process of this program.
    pub(super) fn with_code(code: u8) -> Self {
        Self(code)
    }

    /// The exit code for the operating system.
    pub fn code(self) -> u8 {
        self.0
    }
}

impl From<ProgramExit> for ExitCode {
    fn from(exit: ProgramExit) -> Self {
        Self::from(exit.0)
    }
}

/// The exit code for the end of a job. `CONNECTION` if the job still runs.
pub(super) fn exit_of(entry: &JobEntry) -> ProgramExit {
    match (
        entry.standing.state,
        entry.standing.exit_status,
        &entry.standing.exit_signal,
    ) {
        (JobState::TimedOut, ..) => ProgramExit::TIMED_OUT,
        (JobState::Exited, Some(status), _) => ProgramExit::of_status(status),
        (JobState::Signaled, _, Some(signal)) => ProgramExit::of_signal(signal),
        _ => ProgramExit::CONNECTION,
    }
}

/// Linux's numbers. Other systems differ for a few signals that no exit code needs to distinguish.
pub(super) fn signal_number(name: &str) -> u8 {
    match name {
        "HUP" => 1,
        "INT" => 2,
        "QUIT" => 3,
        "ILL" => 4,
        "TRAP" => 5,
        "ABRT" => 6,
        "BUS" => 7,
        "FPE" => 8,
        "KILL" => 9,
        "USR1" => 10,
        "SEGV" => 11,
        "USR2" => 12,
        "PIPE" => 13,
        "ALRM" => 14,
        "TERM" => 15,
        "XCPU" => 24,
        "XFSZ" => 25,
        "SYS" => 31,
        // The exit code is then 128.
        _ => 0,
    }
}

/// Prints an error and its hint to stderr.
pub fn report(error: &Error) {
    let is_coloured = colours_are_wanted(&io::stderr());
    let code = paint(error.code.as_str(), RED, is_coloured);
    let message = printable(&error.message);
    let hint = paint(
        &format!("  hint: {}", printable(&error.hint.for_a_person())),
        DIM,
        is_coloured,
    );
    tell(&format!("sshjobs: {code}: {message}\n{hint}"));
}

/// Whether notes are left out.
static IS_QUIET: AtomicBool = AtomicBool::new(false);

/// Leaves out notes from now on. Errors are still printed.
pub fn be_quiet() {
    IS_QUIET.store(true, Relaxed);
}

/// Prints a note to stderr.
pub fn note(text: &str) {
    if IS_QUIET.load(Relaxed) {
        return;
    }
    tell(&format!("sshjobs: {}", printable(text)));
}

/// Writes a line to stderr, above a question that is open.
pub(super) fn tell(line: &str) {
    // Ignored: a closed stderr can't report it.
    above_question(|| writeln!(io::stderr(), "{line}").ok());
}

/// Writes a result to stdout. A closed pipe ends the program quietly.
pub(super) fn print(text: &str) -> ProgramExit {
    write_out(format!("{text}\n").as_bytes())
}

/// Writes bytes to stdout unchanged.
pub(super) fn write_out(bytes: &[u8]) -> ProgramExit {
    // Flushed here, because Rust ignores an error of the flush at the program's end.
    let write = || io::stdout().write_all(bytes).and_then(|()| io::stdout().flush());
    let written = if io::stdout().is_terminal() {
        above_question(write)
    } else {
        write()
    };
    match written {
        Ok(()) => ProgramExit::SUCCESS,
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => ProgramExit::BROKEN_PIPE,
        Err(error) => {
            report(&output_error(&error));
            ProgramExit::OUTPUT
        }
    }
}

pub(super) fn output_error(error: &io::Error) -> Error {
    Error::new(
        Code::Io,
        format!("can't write the output: {error}"),
        "check where stdout goes",
    )
}
