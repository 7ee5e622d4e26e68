//! Explains errors of starting, signalling and writing.

use super::connect::connect;
use super::expired;
use crate::error::{Code, Error, Hint};
use sshjobs_core::jobs::{
    BecomeError, BecomeMethod, BecomeRefusal, ChannelError, FarEndError, PlanError, SignalError,
    SpawnError, TooSlow, WriteError, chain,
};

/// Explains why a job was not started.
pub(super) fn spawn(error: SpawnError) -> Error {
    let message = chain(&error);
    match error {
        SpawnError::Capacity { .. } => Error::new(
            Code::Capacity,
            message,
            either(
                "wait for a job to end, or end one with ssh_signal",
                "wait for a job to end",
            ),
        )
        .retryable(),
        SpawnError::Connect(error) => connect(&error, message),
        SpawnError::ConnectionsFull(_) => {
            let hint = "wait for a job on this host to end";
            Error::new(Code::ChannelLimit, message, hint).retryable()
        }
        SpawnError::Channel { source, .. } => channel(&source, message),
        SpawnError::ExecRefused(_) => Error::new(
            Code::ExecRefused,
            message,
            "the account may be restricted; try the command with ssh on a terminal",
        ),
        SpawnError::Plan(PlanError::BareHost(_)) => Error::new(
            Code::Unsupported,
            message,
            either(
                "omit cwd, env and become for this host",
                "omit --cwd, --env and --become for this host",
            ),
        ),
        SpawnError::Become(error) => explain_refusal(&error, message),
        SpawnError::TooFewGpus { .. } => too_few_gpus(message),
        SpawnError::GpusUnknown { .. } => gpus_unknown(message),
        SpawnError::NotDurable { .. } => not_durable(Code::Unsupported, message),
        SpawnError::Unstored(_) | SpawnError::Queue(_) => unstored(message),
        SpawnError::Unregistered(_) => {
            let hint = "try again when NATS can be reached; nothing was started";
            Error::new(Code::Unreachable, message, hint).retryable()
        }
        SpawnError::HeldElsewhere { .. } => held_elsewhere(message),
        SpawnError::Order(_) => not_durable(Code::InvalidArgument, message),
        SpawnError::Spool { .. } => not_durable(Code::Io, message),
        SpawnError::Plan(PlanError::TooLong(_)) => Error::new(
            Code::InvalidArgument,
            message,
            either(
                "send it as stdin, to `sh -s` for example",
                "send it as stdin: sshjobs run HOST -- sh -s < script",
            ),
        ),
        SpawnError::Expired(tombstone) => {
            expired(&tombstone, "use a new idempotency_key to run it again")
        }
        SpawnError::SecretsGone => {
            Error::new(Code::JobEnded, message, "run it again on these hosts")
        }
        SpawnError::EarlierFailed { .. } => earlier_failed(message),
        SpawnError::Abandoned => Error::new(
            Code::JobEnded,
            message,
            "start it again if it is still wanted",
        ),
        SpawnError::KeyReused => Error::new(
            Code::InvalidArgument,
            message,
            "use a new idempotency_key for each new job",
        ),
        SpawnError::ShuttingDown => Error::new(
            Code::ShuttingDown,
            message,
            "start sshjobs again, then retry",
        )
        .retryable(),
    }
}

fn gpus_unknown(message: String) -> Error {
    let hint = "run nvidia-smi on the host to see why";
    Error::new(Code::Unsupported, message, hint)
}

fn too_few_gpus(message: String) -> Error {
    let hint = either(
        "ask for fewer, or choose another host; ssh_hosts with host lists its GPUs",
        "ask for fewer, or choose another host; `sshjobs hosts --gpus` lists them",
    );
    Error::new(Code::Unsupported, message, hint)
}

fn not_durable(code: Code, message: String) -> Error {
    let agent =
        "try again if the host is busy; else start it with durable=false, or on another host";
    Error::new(
        code,
        message,
        either(
            agent,
            "try again if the host is busy; else start it with `sshjobs spawn \
             --attached`, or on another host",
        ),
    )
}

fn channel(error: &ChannelError, message: String) -> Error {
    match error {
        ChannelError::OpenRefused => Error::new(
            Code::ChannelLimit,
            message,
            "wait for a job on this host to end",
        )
        .retryable(),
        ChannelError::PtyRefused => Error::new(
            Code::Unsupported,
            message,
            either("run it without a terminal (pty=false)", "omit -t and --pty"),
        ),
        ChannelError::ConnectionLost => lost(message),
        ChannelError::TimedOut(_) => late(message),
        ChannelError::NoGreeting(_) | ChannelError::Silent => Error::new(
            Code::ExecRefused,
            message,
            "see what `ssh HOST 'echo hi'` prints; let startup files replace or end the shell only if it is \
             interactive: case $- in *i*) exec fish ;; esac",
        ),
    }
}

/// A hint with the names of tools for agents, and of verbs for people.
fn either(agent: &str, person: &str) -> Hint {
    Hint::from(agent).or_for_a_person(person)
}

fn earlier_failed(message: String) -> Error {
    let hint = either(
        "use after to start it whatever the outcome",
        "use --after to start it whatever the outcome",
    );
    Error::new(Code::JobEnded, message, hint)
}

fn lost(message: String) -> Error {
    Error::new(Code::ConnectionLost, message, "try again").retryable()
}

fn late(message: String) -> Error {
    Error::new(Code::Timeout, message, "try again").retryable()
}

/// Explains why a job was not signalled.
pub(super) fn signal(error: SignalError) -> Error {
    let message = chain(&error);
    match error {
        SignalError::JobEnded => Error::new(
            Code::JobEnded,
            message,
            either(
                "no process is left to signal; ssh_tail shows how it ended",
                "nothing is left to signal",
            ),
        ),
        SignalError::Become(error) => explain_refusal(&error, message),
        SignalError::OtherMachine { .. } => Error::new(
            Code::ConnectionLost,
            message,
            "nothing was signalled; look for processes with SSHJOBS_JOB in their \
             environment on the host",
        ),
        SignalError::Unreachable(_) => Error::new(
            Code::ConnectionLost,
            message,
            "the processes may still run; try again",
        )
        .retryable(),
        SignalError::Store(_) => {
            Error::new(Code::Io, message, "try again when the store can be used").retryable()
        }
        SignalError::Fenced => held_elsewhere(message),
        SignalError::TimedOut(_) => Error::new(
            Code::Timeout,
            message,
            either(
                "look with ssh_jobs whether the job has ended",
                "look on the host whether the command has ended",
            ),
        )
        .retryable(),
    }
}

/// Explains why a pattern was abandoned.
pub(super) fn too_slow(error: TooSlow) -> Error {
    let message = error.to_string();
    match error {
        TooSlow::Pattern(_) => {
            let hint = "use a shorter pattern, with fewer or smaller counted repetitions";
            Error::new(Code::Timeout, message, hint)
        }
        TooSlow::Busy => Error::new(Code::Timeout, message, "try again in a moment").retryable(),
    }
}

/// Explains why stdin was not written.
pub(super) fn write(error: WriteError) -> Error {
    let message = chain(&error);
    match error {
        WriteError::StdinClosed => Error::new(
            Code::StdinClosed,
            message,
            "start the job again to write to it",
        ),
        WriteError::Starting => Error::new(
            Code::Backpressure,
            message,
            "write once ssh_tail shows that it runs",
        )
        .retryable(),
        WriteError::JobEnded => Error::new(
            Code::JobEnded,
            message,
            either(
                "ssh_tail shows how it ended",
                "its exit code shows how it ended",
            ),
        ),
        WriteError::Backpressure { written } => Error {
            bytes_written: Some(written),
            ..Error::new(
                Code::Backpressure,
                message,
                "write the rest once the command reads",
            )
            .retryable()
        },
        WriteError::NotOwner(_) => Error::new(
            Code::NotOwner,
            message,
            "write from there, or start a job of your own",
        ),
        WriteError::OwnerGone(_) => lost(message),
        WriteError::NoTerminal => Error::new(
            Code::InvalidArgument,
            message,
            "start the job with pty=true to give it a size",
        ),
        WriteError::FarEnd(FarEndError::StdinEnded) => Error::new(
            Code::StdinClosed,
            message,
            "start the job again to write to it",
        ),
        WriteError::FarEnd(FarEndError::Unsupported(_)) => Error::new(
            Code::Unsupported,
            message,
            "set cols and rows when you start the job",
        ),
        WriteError::FarEnd(FarEndError::ConnectionLost) => lost(message),
        WriteError::FarEnd(_) => late(message),
    }
}

/// Explains why a host did not run a command as another user.
pub(super) fn explain_refusal(error: &BecomeError, message: String) -> Error {
    let becomes = &error.becomes;
    let without_password = match becomes.method() {
        BecomeMethod::Sudo => "or allow NOPASSWD in sudoers there",
        BecomeMethod::Doas => "or permit nopass in doas.conf there",
        BecomeMethod::Su => "or use sudo",
    };
    let whose = becomes.asked_user().unwrap_or("the account");
    let hint = match &error.refusal {
        BecomeRefusal::WrongPassword => Hint::from(format!(
            "give the password of {whose}, by become_password in [hosts.{}] or at the prompt; \
             {without_password}",
            error.host
        )),
        BecomeRefusal::NoPassword(_) => Hint::from(format!(
            "set become_password in [hosts.{}] to the source of the password of {whose}, \
             {without_password}; at a terminal, `sshjobs run` asks for it",
            error.host
        )),
        BecomeRefusal::Missing => either(
            "use another become_method (sudo, doas, su), or install the program",
            "use another --become-method (sudo, doas, su), or install the program",
        ),
        BecomeRefusal::NeedsTerminal(_) => either(
            "run it with pty=true, or allow it without a password or a terminal there",
            "run it with -t, or allow it without a password or a terminal there",
        ),
        BecomeRefusal::Refused(_) => match becomes.method() {
            BecomeMethod::Sudo => {
                Hint::from("check the user's name; `sudo -l` there lists the account's rights")
            }
            BecomeMethod::Doas => {
                Hint::from("check the user's name, and what doas.conf there permits")
            }
            BecomeMethod::Su => Hint::from("check the user's name, and the host's log"),
        },
        BecomeRefusal::TimedOut(_) => Hint::from("see the log of the host's sudo and PAM"),
    };
    Error::new(Code::BecomeFailed, message, hint)
}

/// The job store can't be used, and durable jobs need it.
fn unstored(message: String) -> Error {
    let hint = either(
        "start it with durable=false",
        "try again when the store can be used: a state directory of your own (--state-dir), or the \
         cluster's NATS",
    );
    Error::new(Code::Io, message, hint)
}

/// Another replica of the cluster has the host.
fn held_elsewhere(message: String) -> Error {
    Error::new(
        Code::NotOwner,
        message,
        "try again in some seconds: the call then goes to that replica",
    )
    .retryable()
}
