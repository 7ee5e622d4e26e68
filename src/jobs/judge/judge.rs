//! Asks the policy about a call.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::auditor::{Auditor, Grounds, RecordedDecision};
use super::call::Call;
use super::machines::{Machines, Place};
use super::policy_in_force::{LoadedPolicy, PolicyFileError, PolicyInForce, PolicyState};
use super::refusal::{Limit, PolicyRefusal, Why};
use super::usage::{Key, Reservation, Usage};
use crate::audit::AuditFiles;
use crate::hosts::Hosts;
use crate::job::{Caller, TemplateCall};
use crate::jobs::rights::Rights;
use crate::nearest::nearest;
use crate::policy::{
    Approval, CommandSource, Decision, Endpoint, Identity, Permit, Request, Template, WeekMinute,
};
use crate::runner::{SpawnError, chain};

/// Decides on calls by the policy. Without one it allows everything.
pub(in crate::jobs) struct Judge {
    hosts: Arc<Hosts>,
    policy: Option<PolicyInForce>,
    machines: Arc<Machines>,
    usage: Arc<Usage>,
    auditor: Arc<Auditor>,
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
    /// Its line in the audit log.
    recorded: Option<RecordedDecision>,
}

impl Judge {
    pub(in crate::jobs) fn new(
        hosts: Arc<Hosts>,
        file: Option<std::path::PathBuf>,
        auditor: Arc<Auditor>,
    ) -> Self {
        Self {
            auditor,
            machines: Arc::new(Machines::new(Arc::clone(&hosts))),
            hosts,
            policy: file.map(PolicyInForce::new),
            usage: Arc::default(),
        }
    }

    /// State of the policy. `None` without one.
    pub(in crate::jobs) async fn state(&self) -> Option<PolicyState> {
        let policy = self.policy.as_ref()?;
        // The log begins with the process, and not with its first call.
        if let Ok(loaded) = policy.policy(self.hosts.book()).await
            && let Err(error) = self.auditor.open(&loaded)
        {
            tracing::error!(error, "calls are not recorded");
        }
        Some(policy.state(self.hosts.book()).await)
    }

    /// Reads the policy file now.
    pub(in crate::jobs) async fn reload(&self) {
        if let Some(policy) = &self.policy {
            policy.reload(self.hosts.book()).await;
        }
    }

    /// Decides on a call that starts no job, and records the decision.
    ///
    /// # Errors
    /// Why it is refused.
    pub(in crate::jobs) async fn decide(
        &self,
        call: Call<'_>,
    ) -> Result<Permission, Box<PolicyRefusal>> {
        let Some(policy) = &self.policy else { return Ok(Permission::default()) };
        let loaded = self.loaded(policy, call).await?;
        let endpoint = self.endpoint(&loaded, call).await;
        let permits = permits_at(&loaded, call, &endpoint);
        let rules = permits.as_ref().map(|permits| names(permits));
        let grounds = Grounds {
            endpoint: endpoint.as_ref().ok().and_then(Option::as_ref),
            decision: rules.as_deref().map_err(|refusal| &***refusal),
        };
        self.auditor.record(&loaded, call, grounds).await?;
        let permits = permits?;
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
                ..Start::default()
            });
        };
        let loaded = self.loaded(policy, call).await?;
        let endpoint = self.endpoint(&loaded, call).await;
        let permits = permits_at(&loaded, call, &endpoint);
        let started = permits.and_then(|permits| self.start_by_any(call, &permits, timeout));
        let rules = started.as_ref().map(|(rule, _)| [rule.clone()]);
        let grounds = Grounds {
            endpoint: endpoint.as_ref().ok().and_then(Option::as_ref),
            decision: rules.as_ref().map(<[_; 1]>::as_slice).map_err(|refusal| &***refusal),
        };
        let recorded = self.auditor.record(&loaded, call, grounds).await?;
        let (_, start) = started?;
        Ok(Start { recorded, ..start })
    }

    /// Decides on a call that nobody has made yet: nothing is recorded.
    ///
    /// # Errors
    /// Why it would be refused.
    pub(in crate::jobs) async fn ask(&self, call: Call<'_>) -> Result<(), Box<PolicyRefusal>> {
        let Some(policy) = &self.policy else { return Ok(()) };
        let loaded = self.loaded(policy, call).await?;
        let endpoint = self.endpoint(&loaded, call).await?;
        permits(&loaded, call, endpoint.as_ref()).map(drop)
    }

    /// Records a call that was refused before the policy was asked.
    pub(in crate::jobs) async fn note_refusal(&self, refusal: &PolicyRefusal, call: Call<'_>) {
        let Some(policy) = &self.policy else { return };
        let Ok(loaded) = policy.policy(self.hosts.book()).await else { return };
        let grounds = Grounds {
            endpoint: None,
            decision: Err(refusal),
        };
        // The caller gets its own refusal, whether or not it could be recorded.
        self.auditor.record(&loaded, call, grounds).await.ok();
    }

    /// A start by the first rule whose limits allow it, and the name of that rule.
    fn start_by_any(
        &self,
        call: Call<'_>,
        permits: &[Permit<'_>],
        timeout: Option<Duration>,
    ) -> Result<(String, Start), Box<PolicyRefusal>> {
        let mut exceeded = None;
        // Any of the rules is enough.
        for permit in permits {
            match self.start(call, permit, timeout) {
                Ok(start) => return Ok((permit.rule.to_owned(), start)),
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
            recorded: None,
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

    /// Completes the audit log, for the shutdown of the process.
    pub(in crate::jobs) async fn finish_audit(&self) {
        self.auditor.finish().await;
    }

    /// The files of the audit log that the policy names. `None` if it names none.
    ///
    /// # Errors
    /// Why they are not known, in words.
    pub(in crate::jobs) async fn audit_files(&self) -> Option<Result<AuditFiles, String>> {
        match self.policy_in_force().await? {
            Ok(loaded) => Some(self.auditor.files(loaded.policy.audit()?)),
            Err(error) => Some(Err(error.to_string())),
        }
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

    /// The account and machine of a call, if any rule looks at them, or if they are recorded: to find
    /// them takes time.
    ///
    /// # Errors
    /// If the machine is not certain, and the call would act on it.
    async fn endpoint(
        &self,
        loaded: &LoadedPolicy,
        call: Call<'_>,
    ) -> Result<Option<Endpoint>, Box<PolicyRefusal>> {
        match call.place {
            Some(place) if loaded.policy.looks_at_machines() || loaded.policy.audit().is_some() => {
                self.machines.watch_names(loaded.named_hosts.clone());
                let located = self.machines.endpoint(place).await;
                let must_be_certain = loaded.policy.looks_at_machines() && call.verb.connects();
                if !located.is_resolved && must_be_certain {
                    return Err(call.refused(Why::Unresolved));
                }
                Ok(Some(located.endpoint))
            }
            Some(_) | None => Ok(None),
        }
    }
}

impl Start {
    /// Records that the job was not started.
    pub(in crate::jobs) async fn note_failure(&self, why: &SpawnError) {
        if let Some(recorded) = &self.recorded {
            recorded.note_failure(chain(why)).await;
        }
    }

    /// Counts the job that was started, for the limits of the rule, and records it.
    pub(in crate::jobs) fn note_job(&self, job: &Arc<crate::job::Job>) {
        if let Some(recorded) = &self.recorded {
            recorded.note_job(job);
        }
        if let Some(reservation) = &self.reservation {
            reservation.note_job(job);
        }
    }
}

/// The rules that allow a call at an account and machine that were found out, or not. At least one.
fn permits_at<'a>(
    loaded: &'a LoadedPolicy,
    call: Call<'_>,
    endpoint: &Result<Option<Endpoint>, Box<PolicyRefusal>>,
) -> Result<Vec<Permit<'a>>, Box<PolicyRefusal>> {
    match endpoint {
        Ok(endpoint) => permits(loaded, call, endpoint.as_ref()),
        Err(refusal) => Err(refusal.clone()),
    }
}

fn names(permits: &[Permit<'_>]) -> Vec<String> {
    permits.iter().map(|permit| permit.rule.to_owned()).collect()
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
