//! Decides why a job ended.

use std::fmt;
use std::time::Duration;

use super::evidence::EndEvidence;
use super::post_mortem::{KilledProcess, PostMortem};
use crate::{Exit, LostWhy, Outcome, Signal};

/// Why a job ended. `Display` is a phrase that follows the job's id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EndCause {
    /// The command exited.
    Exited {
        /// Its status.
        status: u32,
        /// The signal that was sent to it through sshjobs before, named without `SIG`.
        after: Option<String>,
    },
    /// A signal that was sent through sshjobs ended it.
    SentSignal {
        /// The signal, named without `SIG`.
        signal: String,
        /// Whether it took KILL, which followed after a grace.
        needed_kill: bool,
    },
    /// Its time limit ended it.
    TimeLimit,
    /// It was ended because it had printed more than its host stores for a job.
    OutputLimit,
    /// It was ended because no caller had asked for it in a long time.
    Abandoned,
    /// The kernel killed a process because memory ran out, probably one of the job.
    OutOfMemory(MemoryEvidence),
    /// A signal that reports a fault in a program, such as SEGV, ended it.
    Crashed(String),
    /// A signal from an unknown sender ended it.
    UnknownSender {
        /// The signal, named without `SIG`.
        signal: String,
        /// Whether the kernel killed no process of the host because memory ran out.
        kernel_killed_none: bool,
    },
    /// The outcome says all that is known: the job was lost, refused or not started.
    Outcome(Outcome),
}

/// Why a lack of memory is taken for the cause.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MemoryEvidence {
    /// The kernel's log names a process that was killed when the job ended.
    Logged(KilledProcess),
    /// The kernel counted processes that it killed in the job's control group while the job ran.
    CountedInCgroup,
    /// The kernel counted processes that it killed on the host while the job ran, and does not count them
    /// for the job's control group.
    CountedOnHost,
}

/// Signals with which the kernel reports a fault in a program.
const FAULTS: [&str; 7] = ["SEGV", "ABRT", "FPE", "ILL", "BUS", "SYS", "TRAP"];
/// Maximum difference between the kernel's time of a kill and the time of the job's end. Asking the host takes
/// some of it.
const SAME_MOMENT: Duration = Duration::from_secs(10);

/// Facts from which the cause of an end is decided, beside the job's outcome.
#[derive(Clone, Copy, Debug)]
pub struct EndFacts<'a> {
    /// Facts that are kept with the job's record.
    pub evidence: &'a EndEvidence,
    /// The host's report, if it was asked.
    pub report: Option<&'a PostMortem>,
    /// Time since the end by our clock. It is used if the host has not noted the end.
    pub ended_ago: Option<Duration>,
}

impl EndFacts<'_> {
    /// Time since the end: by the host's own clock if it has noted the end.
    fn ended_ago(&self) -> Option<Duration> {
        let by_host = self.report.and_then(|report| {
            let ended = self.evidence.ended_on_host?;
            Some(Duration::from_secs(report.now?.saturating_sub(ended)))
        });
        by_host.or(self.ended_ago)
    }

    /// The strongest evidence that a job that was killed lacked memory, if there is any.
    fn lack_of_memory(&self) -> Option<MemoryEvidence> {
        let kills = self.evidence.used.memory_kills;
        // A count of zero proves that the kill in the kernel's log was not one of the job's processes.
        if kills.on_host != Some(0)
            && let Some(process) =
                self.report.and_then(|report| report.killed_near(self.ended_ago()?))
        {
            return Some(MemoryEvidence::Logged(process.clone()));
        }
        if kills.in_cgroup > Some(0) {
            return Some(MemoryEvidence::CountedInCgroup);
        }
        let is_counted_only_on_host = kills.in_cgroup.is_none() && kills.on_host > Some(0);
        is_counted_only_on_host.then_some(MemoryEvidence::CountedOnHost)
    }

    /// Whether the kernel certainly killed no process of the host for a lack of memory when the job ended.
    fn kernel_killed_none(&self) -> bool {
        if self.evidence.used.memory_kills.on_host == Some(0) {
            return true;
        }
        let Some(report) = self.report else { return false };
        let Some((up, ended_ago)) = report.up.zip(self.ended_ago()) else {
            return false;
        };
        // Counts begin at the boot.
        report.kills_since_boot == Some(0) && up > ended_ago
    }
}

impl EndCause {
    /// Decides why a job ended.
    pub fn decide(outcome: &Outcome, facts: EndFacts<'_>) -> Self {
        let evidence = facts.evidence;
        let exit = match outcome {
            Outcome::TimedOut(_) => return Self::TimeLimit,
            Outcome::Ended(_) if evidence.exceeded_quota => return Self::OutputLimit,
            Outcome::Ended(_) if evidence.abandoned => return Self::Abandoned,
            Outcome::Ended(exit) => exit,
            Outcome::Lost(..) | Outcome::Closed | Outcome::Refused | Outcome::NotStarted(_) => {
                return Self::Outcome(outcome.clone());
            }
        };
        let reported = exit.reported_signal();
        if let (Some(signal), Some(sent)) = (reported, &evidence.sent)
            && sent.explains(signal)
        {
            return Self::SentSignal {
                signal: sent.signal.clone(),
                needed_kill: sent.signal != signal.name(),
            };
        }
        if reported == Some(Signal::KILL)
            && let Some(lack) = facts.lack_of_memory()
        {
            return Self::OutOfMemory(lack);
        }

        match exit {
            Exit::Signal(signal) => Self::of_signal(signal, facts),
            Exit::Status(status) => {
                // A status above 128 may be a signal that a shell reports, or the program's own. It counts as a signal
                // only if the command's parent saw one.
                if evidence.by_signal == Some(true)
                    && let Some(signal) = reported
                {
                    return Self::of_signal(signal.name(), facts);
                }
                Self::Exited {
                    status: *status,
                    after: evidence.sent.as_ref().map(|sent| sent.signal.clone()),
                }
            }
        }
    }

    fn of_signal(signal: &str, facts: EndFacts<'_>) -> Self {
        let signal = signal.to_owned();
        if FAULTS.contains(&signal.as_str()) {
            return Self::Crashed(signal);
        }
        Self::UnknownSender {
            signal,
            kernel_killed_none: facts.kernel_killed_none(),
        }
    }

    /// Whether a report of the host may explain the end further.
    pub fn wants_post_mortem(&self) -> bool {
        match self {
            Self::OutOfMemory(_) => true,
            Self::UnknownSender { signal, .. } => signal == Signal::KILL.name(),
            Self::Exited { status, .. } => Signal::of_status(*status) == Some(Signal::KILL),
            Self::SentSignal { .. }
            | Self::TimeLimit
            | Self::OutputLimit
            | Self::Abandoned
            | Self::Crashed(_)
            | Self::Outcome(_) => false,
        }
    }

    /// The name on the wire.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Exited { .. } => "exited",
            Self::SentSignal { .. } => "sent_signal",
            Self::TimeLimit => "time_limit",
            Self::OutputLimit => "output_limit",
            Self::Abandoned => "abandoned",
            Self::OutOfMemory(_) => "out_of_memory",
            Self::Crashed(_) => "crashed",
            Self::UnknownSender { .. } => "unknown_sender",
            Self::Outcome(_) => "see_state",
        }
    }
}

impl PostMortem {
    /// The last process that was killed at about the time when a job ended, which is `ended_ago`.
    fn killed_near(&self, ended_ago: Duration) -> Option<&KilledProcess> {
        let logged = self.logged.as_deref().unwrap_or_default();
        logged
            .iter()
            .rev()
            .find(|process| process.ago.abs_diff(ended_ago) <= SAME_MOMENT)
    }
}

impl Exit {
    /// The signal that ended the command, or that its shell may report by a status of 128 or more.
    fn reported_signal(&self) -> Option<Signal> {
        match self {
            Self::Signal(name) => name.parse().ok(),
            Self::Status(status) => Signal::of_status(*status),
        }
    }
}

/// The usual sender of a signal that a terminal or the kernel sends.
fn usual_sender(signal: &str) -> Option<&'static str> {
    match signal {
        "INT" | "QUIT" => Some("a terminal sends it for a key"),
        "HUP" => Some("a terminal sends it when it is closed"),
        "PIPE" => Some("the kernel sends it to a program that writes to a closed pipe"),
        _ => None,
    }
}

impl fmt::Display for EndCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exited { status, after } => {
                write!(f, "exited with status {status}")?;
                if let Some(signal) = after {
                    write!(f, ", after SIG{signal} was sent to it through sshjobs")?;
                } else if let Some(signal) = Signal::of_status(*status) {
                    write!(f, ", by which a shell reports SIG{signal}")?;
                }
                Ok(())
            }
            Self::SentSignal {
                signal,
                needed_kill: false,
            } => write!(
                f,
                "was ended by SIG{signal}, which was sent through sshjobs"
            ),
            Self::SentSignal {
                signal,
                needed_kill: true,
            } => write!(
                f,
                "was ended by SIGKILL, which followed because it had not ended after SIG{signal}; both were sent through \
                 sshjobs"
            ),
            Self::TimeLimit => f.write_str("was ended by its time limit"),
            Self::OutputLimit => f.write_str(
                "was ended because it had printed more than its host stores for a job \
                 (spool_bytes_per_job)",
            ),
            Self::Abandoned => f.write_str(
                "was ended because no call had named it for the time that `abandoned` in [defaults] sets",
            ),
            Self::OutOfMemory(MemoryEvidence::Logged(KilledProcess { pid, name, .. })) => write!(
                f,
                "ended when the kernel killed process {pid} ({name}) because memory ran out"
            ),
            Self::OutOfMemory(MemoryEvidence::CountedInCgroup) => f.write_str(
                "was killed while the kernel killed a process of its control group, which other \
                 jobs may share, because memory ran out: probably its own",
            ),
            Self::OutOfMemory(MemoryEvidence::CountedOnHost) => f.write_str(
                "was killed while the kernel killed a process of its host because memory ran out: \
                 probably its own",
            ),
            Self::Crashed(signal) => write!(f, "crashed: SIG{signal} ended its program"),
            Self::UnknownSender {
                signal,
                kernel_killed_none,
            } => {
                write!(
                    f,
                    "was ended by SIG{signal}, which was not sent through sshjobs"
                )?;
                match usual_sender(signal) {
                    Some(sender) => write!(f, ": {sender}")?,
                    None => f.write_str(": its sender is unknown")?,
                }
                if *kernel_killed_none && signal == Signal::KILL.name() {
                    f.write_str(", and not the kernel for a lack of memory")?;
                }
                Ok(())
            }
            Self::Outcome(outcome @ Outcome::Lost(LostWhy::SupervisorDied, _)) => write!(
                f,
                "{outcome}; processes of it may still run: `sshjobs signal ID KILL` ends them"
            ),
            Self::Outcome(outcome) => outcome.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Kill, MemoryKills, ResourceUse, SentSignal};

    fn decide(exit: Exit, evidence: &EndEvidence, report: Option<&PostMortem>) -> EndCause {
        let facts = EndFacts {
            evidence,
            report,
            ended_ago: Some(Duration::from_secs(60)),
        };
        EndCause::decide(&Outcome::Ended(exit), facts)
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

    fn after(signal: &str, grace: Option<Duration>) -> EndEvidence {
        EndEvidence {
            sent: SentSignal::of(Kill::new(signal.parse().unwrap(), grace)),
            ..EndEvidence::default()
        }
    }

    fn report(killed_ago: u64) -> PostMortem {
        PostMortem {
            now: Some(1_000),
            up: Some(Duration::from_secs(600)),
            kills_since_boot: Some(1),
            logged: Some(vec![KilledProcess {
                pid: 7,
                name: "perl".to_owned(),
                ago: Duration::from_secs(killed_ago),
            }]),
        }
    }

    fn exited(status: u32) -> EndCause {
        EndCause::Exited {
            status,
            after: None,
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
        let contradicted = decide(killed(), &counted(None, Some(0)), Some(&report(61)));
        assert_eq!(contradicted.name(), "unknown_sender");
    }

    #[test]
    fn the_end_that_the_host_has_noted_counts_and_not_when_we_learned_of_it() {
        let evidence = EndEvidence {
            ended_on_host: Some(700),
            ..EndEvidence::default()
        };
        let then = decide(killed(), &evidence, Some(&report(299)));
        assert_eq!(then.name(), "out_of_memory");
        let now = decide(killed(), &evidence, Some(&report(61)));
        assert_eq!(now.name(), "unknown_sender");
    }

    #[test]
    fn the_kernels_counts_are_evidence_of_different_weight() {
        let in_cgroup = decide(killed(), &counted(Some(1), Some(1)), None);
        assert_eq!(
            in_cgroup,
            EndCause::OutOfMemory(MemoryEvidence::CountedInCgroup)
        );
        let on_host = decide(Exit::Status(137), &counted(None, Some(2)), None);
        assert_eq!(
            on_host,
            EndCause::OutOfMemory(MemoryEvidence::CountedOnHost)
        );
        // The victim was in another group.
        let elsewhere = decide(killed(), &counted(Some(0), Some(2)), None);
        assert_eq!(elsewhere.name(), "unknown_sender");
    }

    #[test]
    fn a_kernel_that_killed_nothing_since_the_boot_is_ruled_out_unless_it_booted_later() {
        let rules_out = |up| {
            let quiet = PostMortem {
                up: Some(Duration::from_secs(up)),
                kills_since_boot: Some(0),
                ..PostMortem::default()
            };
            let cause = decide(killed(), &EndEvidence::default(), Some(&quiet));
            cause.to_string().contains("not the kernel")
        };
        assert!(rules_out(61));
        assert!(!rules_out(59));

        let quiet = PostMortem {
            up: Some(Duration::from_secs(600)),
            kills_since_boot: Some(0),
            ..PostMortem::default()
        };
        let facts = EndFacts {
            evidence: &EndEvidence::default(),
            report: Some(&quiet),
            ended_ago: None,
        };
        assert!(
            !facts.kernel_killed_none(),
            "the time of the end is not known"
        );
    }

    #[test]
    fn a_signal_that_was_sent_through_sshjobs_is_the_cause() {
        let grace = Some(Duration::from_secs(1));
        for (exit, needed_kill) in [
            (killed(), true),
            (Exit::Status(143), false),
            (Exit::Signal("TERM".to_owned()), false),
        ] {
            let cause = decide(exit, &after("TERM", grace), Some(&report(60)));
            let signal = "TERM".to_owned();
            assert_eq!(
                cause,
                EndCause::SentSignal {
                    signal,
                    needed_kill
                }
            );
        }

        // No KILL was to follow.
        let cause = decide(killed(), &after("TERM", None), None);
        assert_eq!(cause.name(), "unknown_sender");
        let cause = decide(killed(), &after("USR1", grace), None);
        assert_eq!(cause.name(), "unknown_sender");
    }

    #[test]
    fn a_command_that_exits_after_a_signal_says_so() {
        let cause = decide(Exit::Status(0), &after("TERM", None), None);
        assert_eq!(
            cause.to_string(),
            "exited with status 0, after SIGTERM was sent to it through sshjobs"
        );
    }

    #[test]
    fn a_status_is_no_signal_unless_its_parent_says_so() {
        let cause = decide(Exit::Status(129), &EndEvidence::default(), None);
        assert_eq!(cause, exited(129));
        assert_eq!(
            cause.to_string(),
            "exited with status 129, by which a shell reports SIGHUP"
        );
        let by_signal = EndEvidence {
            by_signal: Some(true),
            ..EndEvidence::default()
        };
        assert_eq!(
            decide(Exit::Status(139), &by_signal, None),
            EndCause::Crashed("SEGV".to_owned())
        );
        let plain = decide(Exit::Status(3), &counted(Some(1), Some(1)), None);
        assert_eq!(plain, exited(3));
        assert!(!plain.wants_post_mortem());
    }

    #[test]
    fn limits_are_told_apart() {
        let none = EndEvidence::default();
        let timed_out = Outcome::TimedOut(Some(killed()));
        let facts = EndFacts {
            evidence: &none,
            report: None,
            ended_ago: None,
        };
        let cause = EndCause::decide(&timed_out, facts);
        assert_eq!(cause, EndCause::TimeLimit);

        let full = EndEvidence {
            exceeded_quota: true,
            ..EndEvidence::default()
        };
        assert_eq!(decide(killed(), &full, None), EndCause::OutputLimit);
    }

    #[test]
    fn of_several_signals_the_last_that_usually_ends_a_command_is_kept() {
        let mut evidence = after("TERM", None);
        evidence.note_sent(SentSignal::of(Kill::new("USR1".parse().unwrap(), None)).unwrap());
        assert_eq!(evidence.sent, after("TERM", None).sent);

        // The host has noted the same with less.
        evidence.note_sent(SentSignal {
            signal: "TERM".to_owned(),
            then_kill: None,
        });
        assert_eq!(evidence.sent, after("TERM", None).sent);
        evidence.note_sent(SentSignal::of(Kill::new(Signal::KILL, None)).unwrap());
        assert_eq!(evidence.sent, after("KILL", None).sent);
    }
}
