use std::io::{self, Write};
use std::process::ExitCode;

use super::colours::{DIM, RED, are_wanted, paint};
use crate::jobs::{self, Outcome, printable};
use crate::wire::{Code, Error, JobEntry, JobState};

/// How the program ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exit(u8);

impl Exit {
    /// All went well.
    pub const SUCCESS: Self = Self(0);
    /// A person was asked, and said no; or nothing was found.
    pub(super) const DECLINED: Self = Self(1);
    /// The command line or the configuration can't be taken.
    pub const USAGE: Self = Self(2);
    /// The job's time limit ended it, as with timeout(1).
    pub const TIMED_OUT: Self = Self(124);
    /// Our output can't be written (sysexits' EX_IOERR).
    pub const OUTPUT: Self = Self(74);
    /// Whoever read our output has gone, as if by SIGPIPE.
    pub const BROKEN_PIPE: Self = Self(141);
    /// The host, or the way there, as with ssh.
    pub const CONNECTION: Self = Self(255);

    pub(super) fn signaled(number: u8) -> Self {
        Self(128 + number)
    }

    /// The remote command's end as our own.
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
        Self(u8::try_from(status).unwrap_or(Self::CONNECTION.0))
    }

    /// A signal that ended it.
    pub(super) fn of_signal(signal: &str) -> Self {
        Self::signaled(signal_number(signal))
    }

    /// What an error that kept us from the command's end means for our own.
    pub fn of_error(error: &Error) -> Self {
        let is_usage = matches!(error.code, Code::InvalidArgument | Code::UnknownJob | Code::ExpiredJob);
        if is_usage { Self::USAGE } else { Self::CONNECTION }
    }

    /// The number for the operating system.
    pub fn code(self) -> u8 {
        self.0
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.0)
    }
}

/// A job's end as our own.
pub(super) fn exit_of(entry: &JobEntry) -> Exit {
    match (entry.standing.state, entry.standing.exit_status, &entry.standing.exit_signal) {
        (JobState::TimedOut, ..) => Exit::TIMED_OUT,
        (JobState::Exited, Some(status), _) => Exit::of_status(status),
        (JobState::Signaled, _, Some(signal)) => Exit::of_signal(signal),
        _ => Exit::CONNECTION,
    }
}

/// Linux's numbers; where they differ elsewhere nobody can tell them apart by exit code anyway.
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
        _ => 0,
    }
}

/// Tells a person what went wrong and what to do next.
pub fn report(error: &Error) {
    let is_coloured = are_wanted(&io::stderr());
    let code = paint(error.code.as_str(), RED, is_coloured);
    let message = printable(&error.message);
    let hint = paint(&format!("  hint: {}", printable(error.hint.for_a_person())), DIM, is_coloured);
    // When stderr is gone there is nobody to tell.
    writeln!(io::stderr(), "sshjobs: {code}: {message}\n{hint}").ok();
}

/// Tells a person something that is no error.
pub fn note(text: &str) {
    // When stderr is gone there is nobody to tell.
    writeln!(io::stderr(), "sshjobs: {}", printable(text)).ok();
}

/// Writes a result to stdout. A reader that has gone needs none.
pub(super) fn print(text: &str) -> Exit {
    write_out(format!("{text}\n").as_bytes())
}

/// The same for bytes, as they are.
pub(super) fn write_out(bytes: &[u8]) -> Exit {
    match io::stdout().write_all(bytes).and_then(|()| io::stdout().flush()) {
        Ok(()) => Exit::SUCCESS,
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Exit::BROKEN_PIPE,
        Err(error) => {
            report(&output_error(&error));
            Exit::OUTPUT
        }
    }
}

pub(super) fn output_error(error: &io::Error) -> Error {
    Error::new(Code::Io, format!("can't write the output: {error}"), "check where stdout goes")
}
