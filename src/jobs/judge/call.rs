//! What the policy is asked about.

use std::net::IpAddr;

use super::machines::Place;
use super::refusal::{PolicyRefusal, Why};
use crate::files::RemotePath;
use crate::job::{Caller, JobId, JobSpec};
use crate::jobs::rights::Rights;
use crate::policy::Verb;

/// A call to decide on.
#[derive(Clone, Copy, Debug)]
pub(in crate::jobs) struct Call<'a> {
    pub(in crate::jobs) caller: &'a Caller,
    /// The address from which it was called. `None` for a caller on this machine.
    pub(in crate::jobs) address: Option<IpAddr>,
    pub(in crate::jobs) rights: &'a Rights,
    pub(in crate::jobs) verb: Verb,
    /// Where it takes effect. `None` for a call about no host.
    pub(in crate::jobs) place: Option<Place<'a>>,
    /// The template of the command that it starts or feeds.
    pub(in crate::jobs) template: Option<&'a str>,
    /// Where a forward leads to.
    pub(in crate::jobs) target: Option<&'a str>,
    /// The job that the call is about.
    pub(in crate::jobs) job: Option<&'a JobId>,
    /// The job that it starts.
    pub(in crate::jobs) start: Option<&'a JobSpec>,
    /// The file or directory that it reads or writes.
    pub(in crate::jobs) path: Option<&'a RemotePath>,
}

impl Call<'_> {
    pub(in crate::jobs) fn refused(&self, why: Why) -> Box<PolicyRefusal> {
        Box::new(PolicyRefusal {
            caller: self.caller.clone(),
            verb: self.verb,
            host: self.place.map(|place| place.host.to_owned()),
            template: self.template.map(str::to_owned),
            why,
        })
    }
}
