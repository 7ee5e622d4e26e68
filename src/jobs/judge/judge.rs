//! Asks the policy about a call.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::machines::{Machines, Place};
use super::policy_in_force::{LoadedPolicy, PolicyFileError, PolicyInForce, PolicyState};
use super::refusal::{Limit, PolicyRefusal, Why};
use super::usage::{Key, Reservation, Usage};
use crate::hosts::Hosts;
use crate::job::{Caller, TemplateCall};
use crate::jobs::rights::Rights;
use crate::nearest::nearest;
use crate::policy::{
    Approval, CommandSource, Decision, Endpoint, Identity, Permit, Request, Template, Verb,
    WeekMinute,
};

/// Decides on calls by the policy. Without one it allows everything.
pub(in crate::jobs) struct Judge {
    hosts: Arc<Hosts>,
    policy: Option<PolicyInForce>,
    machines: Arc<Machines>,
    usage: Arc<Usage>,
}

/// A call to decide on.
#[derive(Clone, Copy, Debug)]
pub(in crate::jobs) struct Call<'a> {
    pub(in crate::jobs) caller: &'a Caller,
    pub(in crate::jobs) rights: &'a Rights,
    pub(in crate::jobs) verb: Verb,
    /// Where it takes effect. `None` for a call about no host.
    pub(in crate::jobs) place: Option<Place<'a>>,
    /// The template of the command that it starts or feeds.
    pub(in crate::jobs) template: Option<&'a str>,
    /// Where a forward leads to.
    pub(in crate::jobs) target: Option<&'a str>,
}

/// A call that the policy allows.
#[derive(Clone, Debug, Default)]
pub(in crate::jobs) struct Permission {
    /// Maximum bytes of a file.
    pub(in crate::jobs) most_bytes: Option<u64>,
}

/// A start that the policy allows. Room for its job is reserved until it is dropped.
#[derive(Default)]
pub(in crate::jobs) struct Start {
    /// The time limit of the job, if the rule or the caller sets one.
    pub(in crate::jobs) timeout: Option<Duration>,
    reservation: Option<Reservation>,
}

impl Judge {
    pub(in crate::jobs) fn new(hosts: Arc<Hosts>, file: Option<std::path::PathBuf>) -> Self {
        Self {
            machines: Arc::new(Machines::new(Arc::clone(&hosts))),
            hosts,
            policy: file.map(PolicyInForce::new),
            usage: Arc::default(),
        }
    }

    /// State of the policy. `None` without one.
    pub(in crate::jobs) async fn state(&self) -> Option<PolicyState> {
        let policy = self.policy.as_ref()?;
        Some(policy.state(self.hosts.book()).await)
    }

    /// Reads the policy file now.
    pub(in crate::jobs) async fn reload(&self) {
        if let Some(policy) = &self.policy {
            policy.reload(self.hosts.book()).await;
        }
    }

    /// Decides on a call that starts no job.
    ///
    /// # Errors
    /// Why it is refused.
    pub(in crate::jobs) async fn decide(
        &self,
        call: Call<'_>,
    ) -> Result<Permission, Box<PolicyRefusal>> {
        let Some(policy) = &self.policy else { return Ok(Permission::default()) };
        let loaded = self.loaded(policy, call).await?;
        let endpoint = self.endpoint(&loaded, call).await?;
        let permits = permits(&loaded, call, endpoint.as_ref())?;
        // Any of the rules is enough, so the most generous one counts.
        let most_bytes = permits.iter().map(|permit| permit.limits.bytes.unwrap_or(u64::MAX)).max();
        Ok(Permission {
            most_bytes: most_bytes.filter(|most| *most != u64::MAX),
        })
    }

    /// Decides on a start with this time limit, and reserves room for its job.
    ///
    /// # Errors
    /// Why it is refused.
    pub(in crate::jobs) async fn decide_start(
        &self,
        call: Call<'_>,
        timeout: Option<Duration>,
    ) -> Result<Start, Box<PolicyRefusal>> {
        let Some(policy) = &self.policy else {
            return Ok(Start {
                timeout,
                reservation: None,
            });
        };
        let loaded = self.loaded(policy, call).await?;
        let endpoint = self.endpoint(&loaded, call).await?;
        let permits = permits(&loaded, call, endpoint.as_ref())?;
        let mut exceeded = None;
        // Any of the rules is enough.
        for permit in &permits {
            match self.start(call, permit, timeout) {
                Ok(start) => return Ok(start),
                Err(limit) => {
                    exceeded.get_or_insert(Why::Limit {
                        rule: permit.rule.to_owned(),
                        limit,
                    });
                }
            }
        }
        Err(call.refused(exceeded.unwrap_or(Why::NotAllowed)))
    }

    fn start(
        &self,
        call: Call<'_>,
        permit: &Permit<'_>,
        timeout: Option<Duration>,
    ) -> Result<Start, Limit> {
        if let (Some(wanted), Some(most)) = (timeout, permit.limits.timeout)
            && wanted > most
            // The time limit of a template may be longer: the caller has not chosen it.
            && call.template.is_none()
        {
            return Err(Limit::Timeout(most.as_secs()));
        }
        let key = Key {
            rule: permit.rule.to_owned(),
            caller: call.caller.clone(),
        };
        let reservation = self.usage.reserve(key, &permit.limits)?;
        Ok(Start {
            timeout: timeout.into_iter().chain(permit.limits.timeout).min(),
            reservation: Some(reservation),
        })
    }

    /// Whether a caller may use a verb on every host. If not, each host has to be asked about.
    pub(in crate::jobs) async fn allows_everywhere(&self, call: Call<'_>) -> bool {
        let Some(policy) = &self.policy else { return true };
        let Ok(loaded) = policy.policy(self.hosts.book()).await else { return false };
        let identity = identity(call.caller, call.rights);
        loaded.policy.allows_everywhere(&request(call, &identity, None))
    }

    /// The template that a call names, with accepted values of its parameters.
    ///
    /// # Errors
    /// If there is no such template, or it does not accept the values.
    pub(in crate::jobs) async fn template(
        &self,
        call: Call<'_>,
        wanted: &TemplateCall,
    ) -> Result<(Template, BTreeMap<String, String>), Box<PolicyRefusal>> {
        let Some(policy) = &self.policy else {
            return Err(call.refused(Why::UnknownTemplate { nearest: None }));
        };
        let loaded = self.loaded(policy, call).await?;
        let Some(template) = loaded.policy.template(&wanted.name) else {
            let nearest = nearest(&wanted.name, loaded.policy.template_names());
            return Err(call.refused(Why::UnknownTemplate {
                nearest: nearest.map(str::to_owned),
            }));
        };
        if template.approval != Approval::None {
            let asked_by = template.name.clone();
            return Err(call.refused(Why::NeedsApproval { asked_by }));
        }
        let values = template
            .accept(&wanted.params)
            .map_err(|error| call.refused(Why::Values(error)))?;
        Ok((template.clone(), values))
    }

    /// The templates that a caller may run on a host.
    pub(in crate::jobs) async fn templates(
        &self,
        caller: &Caller,
        rights: &Rights,
        host: &str,
    ) -> Vec<Template> {
        let Some(policy) = &self.policy else { return Vec::new() };
        let Ok(loaded) = policy.policy(self.hosts.book()).await else {
            return Vec::new();
        };
        let place = Place {
            host,
            becomes: None,
        };
        let endpoint = self.machines.endpoint(place).await.endpoint;
        let identity = identity(caller, rights);
        let templates = loaded.policy.templates_for(&identity, &endpoint, now());
        let without_approval = templates.filter(|template| template.approval == Approval::None);
        without_approval.cloned().collect()
    }

    /// The policy in force. `None` without one.
    ///
    /// # Errors
    /// If the policy file can't be used.
    pub(super) async fn policy_in_force(
        &self,
    ) -> Option<Result<Arc<LoadedPolicy>, Arc<PolicyFileError>>> {
        let policy = self.policy.as_ref()?;
        Some(policy.policy(self.hosts.book()).await)
    }

    /// The account and machine at a place.
    pub(super) async fn endpoint_of(&self, place: Place<'_>) -> Endpoint {
        self.machines.endpoint(place).await.endpoint
    }

    async fn loaded(
        &self,
        policy: &PolicyInForce,
        call: Call<'_>,
    ) -> Result<Arc<LoadedPolicy>, Box<PolicyRefusal>> {
        let loaded = policy.policy(self.hosts.book()).await;
        loaded.map_err(|error| call.refused(Why::NoPolicy(error.to_string())))
    }

    /// The account and machine of a call, if any rule looks at them: to find them takes time.
    ///
    /// # Errors
    /// If the machine is not certain, and the call would act on it.
    async fn endpoint(
        &self,
        loaded: &LoadedPolicy,
        call: Call<'_>,
    ) -> Result<Option<Endpoint>, Box<PolicyRefusal>> {
        match call.place {
            Some(place) if loaded.policy.looks_at_machines() => {
                self.machines.watch_names(loaded.named_hosts.clone());
                let located = self.machines.endpoint(place).await;
                if !located.is_resolved && call.verb.connects() {
                    return Err(call.refused(Why::Unresolved));
                }
                Ok(Some(located.endpoint))
            }
            Some(_) | None => Ok(None),
        }
    }
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

impl Start {
    /// Counts the job that was started, for the limits of the rule.
    pub(in crate::jobs) fn note_job(&self, job: &Arc<crate::job::Job>) {
        if let Some(reservation) = &self.reservation {
            reservation.note_job(job);
        }
    }
}

/// The rules that allow a call. At least one.
fn permits<'a>(
    loaded: &'a LoadedPolicy,
    call: Call<'_>,
    endpoint: Option<&Endpoint>,
) -> Result<Vec<Permit<'a>>, Box<PolicyRefusal>> {
    let identity = identity(call.caller, call.rights);
    match loaded.policy.decide(&request(call, &identity, endpoint)) {
        Decision::Allowed(mut permits) => {
            let first = permits[0];
            permits.retain(|permit| permit.approval == Approval::None);
            if permits.is_empty() {
                let asked_by = first.rule.to_owned();
                return Err(call.refused(Why::NeedsApproval { asked_by }));
            }
            Ok(permits)
        }
        Decision::Denied(rules) => {
            let rules = rules.into_iter().map(str::to_owned).collect();
            Err(call.refused(Why::Denied(rules)))
        }
        Decision::NotAllowed => Err(call.refused(Why::NotAllowed)),
    }
}

fn request<'a>(
    call: Call<'a>,
    identity: &'a Identity,
    endpoint: Option<&'a Endpoint>,
) -> Request<'a> {
    Request {
        caller: identity,
        verb: call.verb,
        endpoint,
        command: Some(call.template.map_or(CommandSource::Free, CommandSource::Template)),
        target: call.target,
        minute: now(),
    }
}

fn identity(caller: &Caller, rights: &Rights) -> Identity {
    Identity {
        name: caller.as_str().to_owned(),
        role: rights.role,
    }
}

pub(super) fn now() -> WeekMinute {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    WeekMinute::of_unix_time(since.as_secs())
}
