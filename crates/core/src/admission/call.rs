//! Calls, as the policy is asked about them.

use std::net::IpAddr;
use std::time::Duration;

use super::machines::CallPlace;
use super::refusal::{PolicyRefusal, PolicyWhy};
use super::rights::Rights;
use sshjobs_job::{Caller, Job, JobId, JobSpec};
use sshjobs_policy::{Verb, WeekMinute};

/// The facts of an existing job that a decision depends on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct JudgedJob<'a> {
    pub(crate) id: &'a JobId,
    pub(crate) caller: &'a Caller,
    pub(crate) spec: &'a JobSpec,
}

impl<'a> JudgedJob<'a> {
    pub(crate) fn of(job: &'a Job) -> Self {
        Self {
            id: &job.id,
            caller: &job.caller,
            spec: &job.spec,
        }
    }
}

/// A call to decide on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CallToDecide<'a> {
    pub(crate) caller: &'a Caller,
    /// The address from which it was called. `None` for a caller on this machine.
    pub(crate) address: Option<IpAddr>,
    pub(crate) rights: &'a Rights,
    pub(crate) verb: Verb,
    /// Maximum time to wait for approvers.
    pub(crate) approval_wait: Duration,
    /// The time that a test case of the policy asks about. `None` is now.
    pub(crate) minute: Option<WeekMinute>,
    /// Where it takes effect, and how. `None` for a call about no host.
    pub(crate) on: Option<HostAct<'a>>,
}

/// The host that a verb acts on, and how.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HostAct<'a> {
    pub(crate) place: CallPlace<'a>,
    /// The template of the command that it starts or feeds. `None` for a free command.
    pub(crate) template: Option<&'a str>,
    /// Where a forward leads to, as `HOST:PORT`.
    pub(crate) target: Option<&'a str>,
    /// The job that it is about.
    pub(crate) job: Option<&'a JobId>,
    /// The job that it starts.
    pub(crate) start: Option<StartToDecide<'a>>,
    /// Input for a job, or both ends of a forward.
    pub(crate) content: Option<CallContent<'a>>,
    /// Whether it acts on several hosts, of which this is one.
    pub(crate) is_one_of_many: bool,
    /// The file or directory that it reads or writes there, in words.
    pub(crate) path: Option<&'a str>,
}

/// A job that a call starts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StartToDecide<'a> {
    pub(crate) spec: &'a JobSpec,
    /// The id that the job has. `None` for a member of a fleet, whose start no person can approve.
    pub(crate) job: Option<&'a JobId>,
    /// A repetition with the same key returns the first call's job.
    pub(crate) idempotency_key: Option<&'a str>,
    /// Why it is needed, in the caller's words, for those who have to agree.
    pub(crate) reason: Option<&'a str>,
}

/// Content of a call, besides its arguments.
#[derive(Clone, Copy)]
pub(crate) enum CallContent<'a> {
    /// Bytes for the stdin of a job, which an approver may see.
    Stdin(&'a [u8]),
    /// Bytes for the stdin of a job that may be a secret.
    SecretStdin(&'a [u8]),
    /// A secret of the configuration for the stdin of a job, by its name, and other input of the write.
    NamedSecret {
        /// The secret.
        name: &'a str,
        /// The other input.
        others: &'a [u8],
        /// Whether an approver may see the other input.
        is_shown: bool,
    },
    /// Both ends of a forward, in words.
    ForwardEnds(&'a str),
}

impl std::fmt::Debug for CallContent<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Stdin(bytes) | Self::SecretStdin(bytes) => {
                write!(f, "Stdin({} bytes)", bytes.len())
            }
            Self::NamedSecret { name, .. } => write!(f, "NamedSecret({name})"),
            Self::ForwardEnds(ends) => write!(f, "ForwardEnds({ends})"),
        }
    }
}

impl<'a> HostAct<'a> {
    /// A host, with the account that logs in.
    pub(crate) fn host(host: &'a str) -> Self {
        Self::place(CallPlace {
            host,
            becomes: None,
        })
    }

    /// A host, perhaps as another user.
    pub(crate) fn place(place: CallPlace<'a>) -> Self {
        Self {
            place,
            template: None,
            target: None,
            job: None,
            start: None,
            content: None,
            is_one_of_many: false,
            path: None,
        }
    }
}

impl<'a> CallToDecide<'a> {
    /// Where it takes effect.
    pub(super) fn place(&self) -> Option<CallPlace<'a>> {
        self.on.map(|on| on.place)
    }

    /// The template of the command that it starts or feeds.
    pub(super) fn template(&self) -> Option<&'a str> {
        self.on.and_then(|on| on.template)
    }

    /// The idempotency key of the job that it starts.
    pub(super) fn idempotency_key(&self) -> Option<&'a str> {
        self.on.and_then(|on| on.start)?.idempotency_key
    }

    /// Where a forward leads to.
    pub(super) fn target(&self) -> Option<&'a str> {
        self.on.and_then(|on| on.target)
    }

    pub(crate) fn refused(&self, why: PolicyWhy) -> Box<PolicyRefusal> {
        Box::new(PolicyRefusal {
            caller: self.caller.clone(),
            verb: self.verb,
            host: self.place().map(|place| place.host.to_owned()),
            template: self.template().map(str::to_owned),
            why,
        })
    }
}
