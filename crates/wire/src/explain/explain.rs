//! Explains all other errors of the library.

use super::approvals::vote;
use super::policy::policy;
use super::secrets::secret;
use super::{calls, connect, expired, files, forwards};
use crate::error::{Code, Error, Hint};
use crate::verbs::explain_queue;
use sshjobs_core::jobs::{
    self, BadBecome, HostError, Refusal, SpecError, StoreError, TrustError, chain,
};

impl From<jobs::Error> for Error {
    fn from(error: jobs::Error) -> Self {
        match error {
            jobs::Error::Spawn {
                host,
                nearest,
                source,
            } => {
                let mut error = calls::spawn(source).about(&host);
                // With any other error a server answered, so the name is most likely right.
                if error.code == Code::Unreachable
                    && let Some(known) = nearest
                {
                    error.hint = error.hint.prefixed(&format!("did you mean {known:?}? Else "));
                }
                error
            }
            jobs::Error::Connect { host, source } => {
                connect::connect(&source, chain(&*source)).about(&host)
            }
            jobs::Error::Expired(tombstone) => {
                expired(&tombstone, "run the command again to see its output")
            }
            jobs::Error::Spec(error) => spec(&error),
            jobs::Error::Signal(error) => calls::signal(error),
            jobs::Error::Queue(error) => explain_queue(&error),
            jobs::Error::Write(error) => calls::write(error),
            jobs::Error::TooSlow(error) => calls::too_slow(error),
            jobs::Error::Files(error) => files::files(&error),
            jobs::Error::FilesNotReady(_) => {
                let hint = Hint::from("wait for its end with ssh_wait");
                let person = "wait for its end: `sshjobs wait JOB`";
                Self::new(
                    Code::StillRunning,
                    error.to_string(),
                    hint.or_for_a_person(person),
                )
            }
            jobs::Error::NothingToFetch(_) => {
                let hint = "start it with fetch, or copy a file with get";
                Self::new(Code::InvalidArgument, error.to_string(), hint)
            }
            jobs::Error::TreesInUse(_) => Self::new(
                Code::Capacity,
                error.to_string(),
                "wait for one of these jobs, or name a directory of your own: DIR:PATH",
            ),
            jobs::Error::Forward(error) => forwards::forward(&error),
            jobs::Error::Trust(error) => trust(&error),
            jobs::Error::Secret(refusal) => secret(&refusal),
            jobs::Error::Refused(refusal) => refused(refusal),
            jobs::Error::UnknownJob(_)
            | jobs::Error::NoMember { .. }
            | jobs::Error::MemberNotStarted { .. } => {
                Self::new(Code::UnknownJob, error.to_string(), where_to_look(&error))
            }
            jobs::Error::NoTerminal(_) => {
                let hint = "start the job with pty=true; read the output of this one by lines";
                Self::invalid(error.to_string(), hint)
            }
            jobs::Error::StillRunning(_) => {
                let hint = "end it with ssh_signal first, or use force=true, which kills it";
                Self::new(Code::StillRunning, error.to_string(), hint)
            }
            jobs::Error::TooManyCursors(_) => Self::new(
                Code::Capacity,
                error.to_string(),
                "keep the cursor yourself, with since_line_no",
            ),
            jobs::Error::Store(ref source) => of_store(source, error.to_string()),
            jobs::Error::Settings(_) => Self::invalid(
                error.to_string(),
                "docs/config.md has the range of each setting",
            ),
            jobs::Error::Demo(_) => {
                Self::new(Code::Io, error.to_string(), "check the temporary directory")
            }
        }
    }
}

/// The hint for an unknown job.
fn where_to_look(error: &jobs::Error) -> Hint {
    if let jobs::Error::NoMember { nearest, .. } = error {
        return match nearest {
            Some(name) => format!("did you mean {name:?}?").into(),
            None => "name a host of the fleet after the slash".into(),
        };
    }
    if let jobs::Error::MemberNotStarted { .. } = error {
        return "look at the fleet itself".into();
    }
    let hint = Hint::from("ssh_jobs lists the jobs there are");
    hint.or_for_a_person("`sshjobs jobs` lists the jobs there are")
}

fn refused(refusal: Refusal) -> Error {
    let message = refusal.to_string();
    match refusal {
        Refusal::Host(error) => host(error),
        Refusal::Policy(refusal) => policy(&refusal),
        Refusal::Vote(error) => vote(&error),
        Refusal::Denied { .. } => Error::new(
            Code::PolicyDenied,
            message,
            "ask the operator for a token with that role, or for a server that is not read-only",
        ),
        Refusal::DeniedHost { nearest, .. } => {
            let meant = nearest.map_or_else(String::new, |name| format!("did you mean {name:?}? "));
            let hint = Hint::from(format!("{meant}ssh_hosts lists the hosts that it may use"));
            let hint = hint.or_for_a_person(format!(
                "{meant}`sshjobs hosts` lists the hosts that it may use"
            ));
            Error::new(Code::PolicyDenied, message, hint)
        }
    }
}

fn host(error: HostError) -> Error {
    let message = error.to_string();
    match error {
        HostError::LongName(_) => {
            let person = "`sshjobs hosts` lists the hosts there are";
            Error::invalid(
                message,
                Hint::from("ssh_hosts lists the hosts there are").or_for_a_person(person),
            )
        }
        HostError::Unknown {
            nearest: Some(known),
            ..
        } => {
            let hint = Hint::from(format!("did you mean {known:?}? ssh_hosts lists all"));
            let person = format!("did you mean {known:?}? `sshjobs hosts` lists all");
            Error::new(Code::UnknownHost, message, hint.or_for_a_person(person))
        }
        HostError::Unknown { nearest: None, .. } => {
            const ADD: &str = "the hosts there are; add this one to ssh_config or to [hosts]";
            let hint = Hint::from(format!("ssh_hosts lists {ADD}"));
            Error::new(
                Code::UnknownHost,
                message,
                hint.or_for_a_person(format!("`sshjobs hosts` lists {ADD}")),
            )
        }
        HostError::UnknownTag { .. } => Error::new(
            Code::UnknownHost,
            message,
            "tags are set in the [hosts.NAME] tables",
        ),
        HostError::Range(_) => {
            Error::new(Code::InvalidArgument, message, "write ranges as web[1-3,7]")
        }
        HostError::NoMatch { .. } => {
            let hint = Hint::from("patterns match the names that ssh_hosts lists");
            let person = "patterns match the names that `sshjobs hosts` lists";
            Error::new(Code::UnknownHost, message, hint.or_for_a_person(person))
        }
        HostError::Unreadable(_) => Error::new(Code::Io, message, "make the file readable"),
    }
}

fn spec(error: &SpecError) -> Error {
    let hint = match error {
        SpecError::NoCommand => "give the command line to run",
        SpecError::Timeout(_) => "use 0.001 to 31536000 seconds (a year), or none",
        SpecError::LongWord(_) => "use a shorter one",
        SpecError::EmptyKey => "omit it, or check the variable that was to have it",
        SpecError::Term => "use a name such as xterm-256color or dumb",
        SpecError::TerminalSize { .. } => "use 1 to 1000 for each",
        SpecError::EnvName(_) => {
            "a name has letters, digits and _, and does not begin with a digit"
        }
        SpecError::TwoValues(_) => "use one of them",
        SpecError::Mark => "omit it",
        SpecError::QueueName(_) => "use a name such as deploy",
        SpecError::Earlier(_) => {
            "wait for fewer jobs; a job that waits for them can stand for many"
        }
        SpecError::LongScript(_) => "put it on the host with ssh_put, and run it there",
        SpecError::LongVariable(_) => "send it as stdin, or write it to a file of the host first",
        SpecError::Nul(_) => "take the NUL out",
        SpecError::Become(BadBecome::Method(_)) => "omit it for sudo",
        SpecError::Become(BadBecome::Number(_)) => "use the name of the user, not its number",
        SpecError::Become(_) => "use the name of a user of the host, such as root",
        SpecError::Restart(_) => "use on-failure:3 or always:3, and USR1@2m for a warning",
        SpecError::WarningWithoutLimit => "give the job more time, or warn it later",
        SpecError::RestartAsAnother => "omit become, or put sudo into the command",
        SpecError::DurableBecomeTerminal => "omit one of durable, pty and become",
        SpecError::FleetTerminal => "omit pty, or run it on one host at a time",
        SpecError::Members(_) => "name the hosts to run it on; !NAME only excludes one of them",
        SpecError::Rollout => "correct the number",
        SpecError::MemberName(_) => "name each host by itself; patterns have * and ?",
    };
    Error::invalid(error.to_string(), hint)
}

fn trust(error: &TrustError) -> Error {
    match error {
        TrustError::HostKey(error) => connect::host_key(error, chain(error)),
        TrustError::NoFile(_) | TrustError::Unwritable { .. } => Error::new(
            Code::Io,
            chain(error),
            "set UserKnownHostsFile to a file that you may write",
        ),
    }
}

fn of_store(source: &StoreError, message: String) -> Error {
    let (code, hint) = match source {
        StoreError::Nats(_) | StoreError::NatsAway(_) => {
            let hint = "check that NATS is running; everything continues by itself when it is";
            return Error::new(Code::Unreachable, message, hint).retryable();
        }
        StoreError::UnusedPrefix(_) => (
            Code::InvalidArgument,
            "set `prefix` in [cluster] of the configuration to that of the replicas",
        ),
        StoreError::InUse { .. } => (Code::Io, "end these processes first"),
        StoreError::NotEmpty(_) => (
            Code::InvalidArgument,
            "name a directory that does not exist yet with --state-dir",
        ),
        StoreError::NoCopy => (
            Code::InvalidArgument,
            "name a file that `sshjobs store backup` wrote",
        ),
        StoreError::Copy(_) => (
            Code::Io,
            "check the file, the state directory, and the disks of both",
        ),
        StoreError::Damaged(_) | StoreError::Unreadable { .. } => (
            Code::Io,
            "`sshjobs store check` tells what is damaged, and `sshjobs store repair` mends it",
        ),
        StoreError::Io { .. }
        | StoreError::Records(_)
        | StoreError::Newer { .. }
        | StoreError::Replaced(_)
        | StoreError::HeldElsewhere { .. } => (
            Code::Io,
            "check the state directory (--state-dir, else $XDG_STATE_HOME/sshjobs), and the disk",
        ),
    };
    Error::new(code, message, hint)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use sshjobs_core::jobs::{ChannelError, ConnectError, SpawnError, WriteError};

    fn spawn(source: SpawnError) -> Error {
        jobs::Error::Spawn {
            host: "web1".to_owned(),
            nearest: Some("web2".to_owned()),
            source,
        }
        .into()
    }

    fn unreachable() -> SpawnError {
        let source = std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
        let host = "web1".to_owned();
        let address = "10.0.0.1 port 22".to_owned();
        SpawnError::Connect(Arc::new(ConnectError::Unreachable {
            host,
            address,
            source,
        }))
    }

    #[test]
    fn every_reason_why_a_job_was_not_started_has_its_code() {
        let channel = |source| SpawnError::Channel {
            host: "web1".to_owned(),
            source,
        };
        for (error, code, retryable) in [
            (
                SpawnError::Capacity {
                    running: 1,
                    place: "in all".to_owned(),
                },
                Code::Capacity,
                true,
            ),
            (unreachable(), Code::Unreachable, true),
            (
                SpawnError::ConnectionsFull("full".to_owned()),
                Code::ChannelLimit,
                true,
            ),
            (channel(ChannelError::OpenRefused), Code::ChannelLimit, true),
            (channel(ChannelError::PtyRefused), Code::Unsupported, false),
            (
                channel(ChannelError::ConnectionLost),
                Code::ConnectionLost,
                true,
            ),
            (
                SpawnError::ExecRefused("web1".to_owned()),
                Code::ExecRefused,
                false,
            ),
            (SpawnError::KeyReused, Code::InvalidArgument, false),
            (SpawnError::Abandoned, Code::JobEnded, false),
            (SpawnError::ShuttingDown, Code::ShuttingDown, true),
        ] {
            let error = spawn(error);
            assert_eq!((error.code, error.retryable), (code, retryable), "{error}");
            assert!(!error.hint.is_empty() && !error.message.is_empty());
        }
    }

    #[test]
    fn another_host_is_suggested_only_if_no_server_answers() {
        assert!(spawn(unreachable()).hint.starts_with("did you mean \"web2\"? Else "));
        assert!(!spawn(SpawnError::KeyReused).hint.contains("web2"));
    }

    #[test]
    fn hints_for_people_mention_no_tools() {
        let errors: [Error; 4] = [
            spawn(SpawnError::Capacity {
                running: 1,
                place: "in all".to_owned(),
            }),
            spawn(SpawnError::Channel {
                host: "web1".to_owned(),
                source: ChannelError::PtyRefused,
            }),
            jobs::Error::from(HostError::Unknown {
                name: "x".to_owned(),
                nearest: None,
            })
            .into(),
            jobs::Error::Write(WriteError::JobEnded).into(),
        ];
        for error in errors {
            let person = error.hint.for_a_person();
            let tools = ["ssh_hosts", "ssh_tail", "ssh_signal", "pty="];
            assert!(!tools.iter().any(|tool| person.contains(tool)), "{person}");
            assert_eq!(
                serde_json::to_value(&error).unwrap()["hint"],
                *error.hint,
                "the wire has the agent's"
            );
        }
    }
}
