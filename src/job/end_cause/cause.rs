//! Decides why a job ended.

use std::fmt;
use std::time::Duration;

use super::evidence::{EndEvidence, MemoryKills};
use super::post_mortem::{KilledProcess, PostMortem};
use crate::job::{Exit, Outcome, Signal};

/// Why a job ended. `Display` is a phrase that follows the job's id.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum EndCause {
    /// The command exited by itself with this status.
    Exited(u32),
    /// A signal that was sent through sshjobs ended it.
    SentSignal(String),
    /// Its time limit ended it.
    TimeLimit,
    /// It was ended because it had printed more than its host stores for it.
    OutputLimit,
    /// The kernel killed a process of it because memory ran out.
    OutOfMemory(MemoryProof),
    /// A program ended itself with a signal that reports a fault in it, such as SEGV.
    Crashed(String),
    /// A signal from an unknown sender ended it.
    UnknownSender {
        /// The signal, named without `SIG`.
        signal: String,
        /// No process of the host was killed because memory ran out.
        had_memory: bool,
    },
    /// The outcome says all that is known: the job was lost, refused or not started.
    Outcome(Outcome),
}

/// Why a lack of memory is taken for the cause.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MemoryProof {
    /// The kernel's log names a process that was killed when the job ended.
    Logged(KilledProcess),
    /// The kernel counted processes that it killed in the job's control group while the job ran.
    CountedInCgroup,
    /// The kernel counted processes that it killed on the host while the job ran. They may belong to
    /// something else.
    CountedOnHost,
}

/// Signals with which the kernel reports a fault in a program.
const FAULTS: [&str; 6] = ["SEGV", "ABRT", "FPE", "ILL", "BUS", "SYS"];
/// Maximum time between the death of a process and the end of its job that is known here.
const SAME_MOMENT: Duration = Duration::from_secs(5);

impl EndCause {
    /// Decides why a job ended.
    ///
    /// `ended_ago` is the time since its end, at the time of the host's report.
    pub fn decide(
        outcome: &Outcome,
        evidence: &EndEvidence,
        report: Option<&PostMortem>,
        ended_ago: Duration,
    ) -> Self {
        let exit = match outcome {
            Outcome::TimedOut(_) => return Self::TimeLimit,
            Outcome::Ended(_) if evidence.exceeded_quota => return Self::OutputLimit,
            Outcome::Ended(exit) => exit,
            Outcome::Lost(..) | Outcome::Closed | Outcome::Refused | Outcome::NotStarted(_) => {
                return Self::Outcome(outcome.clone());
            }
        };
        let Some(signal) = exit.signal_in_shell() else {
            return match exit {
                Exit::Status(status) => Self::Exited(*status),
                Exit::Signal(signal) => Self::of_signal(signal, false),
            };
        };
        if evidence.explains(signal) {
            return Self::SentSignal(evidence.sent_signal.clone().unwrap_or_default());
        }
        if signal != Signal::KILL {
            return Self::of_signal(signal.name(), false);
        }
        let kills = evidence.used.memory_kills;
        if let Some(process) = report.and_then(|report| report.killed_at(ended_ago)) {
            return Self::OutOfMemory(MemoryProof::Logged(process.clone()));
        }
        match kills {
            MemoryKills {
                in_cgroup: Some(1..),
                ..
            } => Self::OutOfMemory(MemoryProof::CountedInCgroup),
            MemoryKills {
                on_host: Some(1..), ..
            } => Self::OutOfMemory(MemoryProof::CountedOnHost),
            MemoryKills { .. } => {
                let never_killed = report.is_some_and(|report| report.kills_since_boot == Some(0));
                Self::of_signal(signal.name(), kills.on_host == Some(0) || never_killed)
            }
        }
    }

    fn of_signal(signal: &str, had_memory: bool) -> Self {
        let signal = signal.to_owned();
        if FAULTS.contains(&signal.as_str()) {
            Self::Crashed(signal)
        } else {
            Self::UnknownSender { signal, had_memory }
        }
    }

    /// Whether a report of the host may explain the end further.
    pub fn wants_post_mortem(&self) -> bool {
        match self {
            Self::OutOfMemory(_) => true,
            Self::UnknownSender { signal, .. } => signal == Signal::KILL.name(),
            Self::Exited(_)
            | Self::SentSignal(_)
            | Self::TimeLimit
            | Self::OutputLimit
            | Self::Crashed(_)
            | Self::Outcome(_) => false,
        }
    }

    /// The name on the wire.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Exited(_) => "exited",
            Self::SentSignal(_) => "sent_signal",
            Self::TimeLimit => "time_limit",
            Self::OutputLimit => "output_limit",
            Self::OutOfMemory(_) => "out_of_memory",
            Self::Crashed(_) => "crashed",
            Self::UnknownSender { .. } => "unknown_sender",
            Self::Outcome(_) => "outcome",
        }
    }
}

impl EndEvidence {
    /// Whether a signal that was sent through sshjobs explains an end by `signal`. A grace may end with
    /// KILL.
    fn explains(&self, signal: Signal) -> bool {
        self.sent_signal.as_deref().is_some_and(|sent| {
            let ends = sent.parse().is_ok_and(Signal::ends);
            sent == signal.name() || (ends && signal == Signal::KILL)
        })
    }
}

impl PostMortem {
    /// The last process that was killed when a job ended, which is `ended_ago`.
    fn killed_at(&self, ended_ago: Duration) -> Option<&KilledProcess> {
        let logged = self.logged.as_deref().unwrap_or_default();
        logged
            .iter()
            .rev()
            .find(|process| process.ago.abs_diff(ended_ago) <= SAME_MOMENT)
    }
}

impl Exit {
    /// The signal that ended the command, or that its shell reports by a status of 128 or more.
    fn signal_in_shell(&self) -> Option<Signal> {
        match self {
            Self::Signal(name) => name.parse().ok(),
            Self::Status(status) => Signal::of_status(*status),
        }
    }
}

impl fmt::Display for EndCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exited(status) => write!(f, "exited by itself, with status {status}"),
            Self::SentSignal(signal) => {
                write!(f, "was ended by SIG{signal}, which was sent through sshjobs")
            }
            Self::TimeLimit => f.write_str("was ended by its time limit"),
            Self::OutputLimit => f.write_str(
                "was ended because it had printed more than its host stores for a job",
            ),
            Self::OutOfMemory(MemoryProof::Logged(KilledProcess { pid, name, .. })) => write!(
                f,
                "ended when the kernel killed process {pid} ({name}) because memory ran out"
            ),
            Self::OutOfMemory(MemoryProof::CountedInCgroup) => f.write_str(
                "was killed while the kernel killed a process of its control group because memory ran out",
            ),
            Self::OutOfMemory(MemoryProof::CountedOnHost) => f.write_str(
                "was killed while the kernel killed a process of its host because memory ran out: \
                 probably one of the job",
            ),
            Self::Crashed(signal) => write!(f, "crashed: its program was ended by SIG{signal}"),
            Self::UnknownSender { signal, had_memory } => {
                write!(f, "was ended by SIG{signal}, which was not sent through sshjobs: its sender is unknown")?;
                if *had_memory {
                    f.write_str(", and its host did not run out of memory")?;
                }
                Ok(())
            }
            Self::Outcome(outcome) => outcome.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::ResourceUse;

    fn decide(exit: Exit, evidence: &EndEvidence, report: Option<&PostMortem>) -> EndCause {
        EndCause::decide(
            &Outcome::Ended(exit),
            evidence,
            report,
            Duration::from_secs(60),
        )
    }

    fn killed() -> Exit {
        Exit::Signal("KILL".to_owned())
    }

    fn counted(in_cgroup: Option<u64>, on_host: Option<u64>) -> EndEvidence {
        EndEvidence {
            used: ResourceUse {
                memory_kills: MemoryKills { in_cgroup, on_host },
                ..ResourceUse::default()
            },
            ..EndEvidence::default()
        }
    }

    fn report(killed_ago: u64) -> PostMortem {
        PostMortem {
            kills_since_boot: Some(1),
            logged: Some(vec![KilledProcess {
                pid: 7,
                name: "perl".to_owned(),
                ago: Duration::from_secs(killed_ago),
            }]),
        }
    }

    #[test]
    fn a_process_that_was_killed_at_the_jobs_end_is_the_cause() {
        let cause = decide(killed(), &EndEvidence::default(), Some(&report(61)));
        assert_eq!(
            cause.to_string(),
            "ended when the kernel killed process 7 (perl) because memory ran out"
        );

        let earlier = decide(killed(), &EndEvidence::default(), Some(&report(90)));
        assert_eq!(earlier.name(), "unknown_sender");
    }

    #[test]
    fn the_kernels_counts_are_evidence_of_different_weight() {
        let in_cgroup = decide(killed(), &counted(Some(1), Some(1)), None);
        assert_eq!(
            in_cgroup,
            EndCause::OutOfMemory(MemoryProof::CountedInCgroup)
        );

        let on_host = decide(Exit::Status(137), &counted(Some(0), Some(2)), None);
        assert_eq!(on_host, EndCause::OutOfMemory(MemoryProof::CountedOnHost));

        let nowhere = decide(killed(), &counted(None, Some(0)), None);
        assert_eq!(
            nowhere,
            EndCause::UnknownSender {
                signal: "KILL".to_owned(),
                had_memory: true
            }
        );
    }

    #[test]
    fn a_signal_that_was_sent_through_sshjobs_is_the_cause() {
        let mut evidence = counted(Some(1), Some(1));
        evidence.note_sent(Signal::TERM);
        for exit in [killed(), Exit::Status(143), Exit::Signal("TERM".to_owned())] {
            let cause = decide(exit, &evidence, Some(&report(60)));
            assert_eq!(cause, EndCause::SentSignal("TERM".to_owned()));
        }

        // A signal that does not end a job explains no other one.
        evidence.note_sent("USR1".parse().unwrap());
        assert_eq!(decide(killed(), &evidence, None).name(), "out_of_memory");
    }

    #[test]
    fn a_command_that_exits_is_not_looked_into() {
        let cause = decide(Exit::Status(3), &counted(Some(1), Some(1)), None);
        assert_eq!(cause, EndCause::Exited(3));
        assert!(!cause.wants_post_mortem());
    }

    #[test]
    fn limits_and_crashes_are_told_apart() {
        let none = EndEvidence::default();
        let timed_out = Outcome::TimedOut(Some(killed()));
        let cause = EndCause::decide(&timed_out, &none, None, Duration::ZERO);
        assert_eq!(cause, EndCause::TimeLimit);

        let full = EndEvidence {
            exceeded_quota: true,
            ..EndEvidence::default()
        };
        assert_eq!(decide(killed(), &full, None), EndCause::OutputLimit);

        let crashed = decide(Exit::Status(139), &none, None);
        assert_eq!(crashed, EndCause::Crashed("SEGV".to_owned()));
    }
}
