//! Asks the policy about a call.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::runtime::Handle;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::approvals::Approvals;
use super::auditor::{Auditor, Grounds, RecordedDecision};
use super::call::CallToDecide;
use super::machines::{CallPlace, Machines};
use super::policy_in_force::{LoadedPolicy, PolicyFileError, PolicyInForce, PolicyState};
use super::refusal::{PolicyLimit, PolicyRefusal, PolicyWhy};
use super::rights::Rights;
use super::ruling::{Allowance, EarlierStart, Ruling, Used};
use super::usage::{LimitReservation, RuleUsage, UsageKey};
use crate::hosts::Hosts;
use sshjobs_base::lock::lock;
use sshjobs_base::nearest::nearest;
use sshjobs_job::{Caller, JobId, TemplateCall};
use sshjobs_policy::audit::AuditFiles;
use sshjobs_policy::{
    AllowingRule, CommandSource, MachineAccount, PolicyCaller, PolicyDecision, PolicyRequest,
    Template, Verb, WeekMinute,
};
use sshjobs_store::{Store, StoreError};

/// Time limit for giving back what cancelled starts have reserved, at the end of the process.
const GIVE_BACK_TIME: Duration = Duration::from_secs(2);

/// Decides on calls by the policy. Without one it allows everything.
pub(crate) struct Judge {
    pub(super) hosts: Arc<Hosts>,
    policy: Option<PolicyInForce>,
    machines: Arc<Machines>,
    usage: Arc<RuleUsage>,
    pub(super) auditor: Arc<Auditor>,
    pub(super) approvals: Approvals,
    /// Locked by the one call at a time that reads the audit log.
    audit_reading: tokio::sync::Mutex<()>,
    /// Tasks that give back what cancelled starts have reserved.
    given_back: Mutex<JoinSet<()>>,
}

/// A call that the policy allows.
#[derive(Clone, Debug, Default)]
pub(crate) struct Permission {
    /// Maximum bytes of a file.
    pub(crate) most_bytes: Option<u64>,
}

/// A start that the policy allows. Room for its job is reserved until it is dropped.
#[derive(Default)]
pub(crate) struct StartClaim {
    /// The time limit of the job, if the rule or the caller sets one.
    pub(crate) timeout: Option<Duration>,
    reservation: Option<LimitReservation>,
    /// Its line in the audit log.
    recorded: Option<RecordedDecision>,
    /// The approval by which it goes through.
    approval: Option<Used>,
}

/// A start, and the rule that allows it.
struct StartBy {
    allowance: Allowance,
    claim: StartClaim,
}

impl Judge {
    pub(crate) fn new(
        hosts: Arc<Hosts>,
        file: Option<std::path::PathBuf>,
        auditor: Arc<Auditor>,
        store: Option<Result<Arc<dyn Store>, StoreError>>,
    ) -> Self {
        Self {
            auditor,
            approvals: Approvals::new(store),
            machines: Arc::new(Machines::new(Arc::clone(&hosts))),
            hosts,
            policy: file.map(PolicyInForce::new),
            usage: Arc::default(),
            audit_reading: tokio::sync::Mutex::default(),
            given_back: Mutex::default(),
        }
    }

    /// Number of approvals that wait for a vote.
    pub(crate) async fn approvals_waiting(&self) -> usize {
        self.approvals.waiting().await
    }

    /// State of the policy. `None` without one.
    pub(crate) async fn state(&self) -> Option<PolicyState> {
        let policy = self.policy.as_ref()?;
        // The log begins with the process, and not with its first call.
        let mut is_log_failing = false;
        if let Ok(loaded) = policy.policy(self.hosts.book()).await {
            is_log_failing = match self.auditor.open(&loaded) {
                Ok(_) => self.auditor.is_failing(),
                Err(error) => {
                    tracing::error!(error, "calls are not recorded");
                    true
                }
            };
        }
        Some(PolicyState {
            is_log_failing,
            ..policy.state(self.hosts.book()).await
        })
    }

    /// Reads the policy file now.
    pub(crate) async fn reload(&self) {
        if let Some(policy) = &self.policy {
            policy.reload(self.hosts.book()).await;
        }
    }

    /// Decides on a call that starts no job, and records the decision.
    ///
    /// # Errors
    /// Why it is refused.
    pub(crate) async fn decide(
        &self,
        call: CallToDecide<'_>,
    ) -> Result<Permission, Box<PolicyRefusal>> {
        let Some(policy) = &self.policy else { return Ok(Permission::default()) };
        let ruling = self.decide_or_ask(policy, call).await?;
        self.record(call, &ruling).await?;
        // Any of the rules is enough, so the most generous one counts.
        let allowances = ruling.verdict?;
        let bytes = allowances.iter().map(|allowance| allowance.limits.bytes.unwrap_or(u64::MAX));
        Ok(Permission {
            most_bytes: bytes.max().filter(|most| *most != u64::MAX),
        })
    }

    /// Records a decision. A call that can't be recorded has not used its approval.
    async fn record(
        &self,
        call: CallToDecide<'_>,
        ruling: &Ruling,
    ) -> Result<Option<RecordedDecision>, Box<PolicyRefusal>> {
        if ruling.is_recorded {
            return Ok(None);
        }
        let rules = ruling.rules();
        let grounds = Grounds {
            endpoint: ruling.endpoint.as_ref(),
            decision: match &ruling.verdict {
                Ok(_) => Ok(rules.as_slice()),
                Err(refusal) => Err(refusal),
            },
            approval: ruling.approval.as_ref().map(Used::as_str),
        };
        let recorded = self.auditor.record(&ruling.loaded, call, grounds).await;
        if recorded.is_err() {
            self.give_back(ruling.approval.as_ref()).await;
        }
        recorded
    }

    async fn give_back(&self, used: Option<&Used>) {
        if let Some(Used::ByApprovers { id, used_at }) = used {
            self.approvals.give_back(id, *used_at).await;
        }
    }

    /// Records that starts were cancelled before anything ran, and gives their approvals back. In the
    /// background, because the caller is gone.
    pub(super) fn give_back_later(self: &Arc<Self>, claims: Vec<StartClaim>) {
        let Ok(runtime) = Handle::try_current() else { return };
        let judge = Arc::clone(self);
        let mut tasks = lock(&self.given_back);
        while tasks.try_join_next().is_some() {}
        let giving_back = async move {
            for claim in claims {
                claim.note_failure("the call was cancelled".to_owned()).await;
                judge.give_back_approval(&claim).await;
            }
        };
        tasks.spawn_on(giving_back, &runtime);
    }

    /// Gives the approval of a start back that has started nothing.
    pub(super) async fn give_back_approval(&self, claim: &StartClaim) {
        self.give_back(claim.approval.as_ref()).await;
    }

    /// Decides on a start with this time limit, and reserves room for its job.
    ///
    /// # Errors
    /// Why it is refused.
    pub(crate) async fn decide_start(
        &self,
        call: CallToDecide<'_>,
        timeout: Option<Duration>,
    ) -> Result<StartClaim, Box<PolicyRefusal>> {
        let Some(policy) = &self.policy else {
            return Ok(StartClaim {
                timeout,
                ..StartClaim::default()
            });
        };
        let mut ruling = self.decide_or_ask(policy, call).await?;
        if let Some(Used::Repetition(_)) = &ruling.approval {
            // Nothing is started, so no limit counts it, and the log has its first call.
            let allowances = ruling.verdict?;
            let most = allowances.first().and_then(|allowance| allowance.limits.timeout);
            return Ok(StartClaim {
                // As it was for the first call, whose order may have to be sent again.
                timeout: timeout.into_iter().chain(most).min(),
                approval: ruling.approval,
                ..StartClaim::default()
            });
        }
        let mut started = None;
        let allowances = ruling.verdict.clone();
        if let Ok(allowances) = &allowances {
            match self.start_by_any(call, allowances, timeout) {
                Ok(by) => {
                    ruling.verdict = Ok(vec![by.allowance]);
                    started = Some(by.claim);
                }
                Err(refusal) => {
                    self.give_back(ruling.approval.take().as_ref()).await;
                    ruling = ruling.refused(refusal);
                }
            }
        }
        let recorded = self.record(call, &ruling).await?;
        ruling.verdict?;
        Ok(StartClaim {
            recorded,
            approval: ruling.approval,
            ..started.unwrap_or_default()
        })
    }

    /// Notes that an approved start has led to another job than the one it asked for, so that a repetition
    /// with the same idempotency key finds it.
    pub(crate) async fn note_job_of_approval(&self, claim: &StartClaim, job: &JobId) {
        if let Some(Used::ByApprovers { id, .. }) = &claim.approval {
            self.approvals.note_job(id, job).await;
        }
    }

    /// Notes that an approved start has no job: a repetition needs another approval.
    ///
    /// # Errors
    /// If the approvals can't be used.
    pub(crate) async fn note_no_job(
        &self,
        call: CallToDecide<'_>,
        earlier: &EarlierStart,
    ) -> Result<(), Box<PolicyRefusal>> {
        self.approvals.note_no_job(&earlier.approval).await.map_err(|error| {
            tracing::error!(%error, "approvals can't be used");
            call.refused(PolicyWhy::ApprovalsUnusable)
        })
    }

    /// Decides on a call that was not made yet: nothing is recorded, and no person is asked.
    ///
    /// # Errors
    /// Why it would be refused.
    pub(crate) async fn ask(&self, call: CallToDecide<'_>) -> Result<(), Box<PolicyRefusal>> {
        let Some(policy) = &self.policy else { return Ok(()) };
        let loaded = self.loaded(policy, call).await?;
        let endpoint = self.endpoint(&loaded, call).await?;
        permits(&loaded, call, endpoint.as_ref()).map(drop)
    }

    /// Records a call that was refused before the policy was asked.
    pub(crate) async fn note_refusal(&self, refusal: &PolicyRefusal, call: CallToDecide<'_>) {
        let Some(policy) = &self.policy else { return };
        let Ok(loaded) = policy.policy(self.hosts.book()).await else { return };
        let grounds = Grounds {
            endpoint: None,
            decision: Err(refusal),
            approval: None,
        };
        // The caller gets its own refusal, whether or not it could be recorded.
        self.auditor.record(&loaded, call, grounds).await.ok();
    }

    /// A start by the first rule whose limits allow it.
    fn start_by_any(
        &self,
        call: CallToDecide<'_>,
        allowances: &[Allowance],
        timeout: Option<Duration>,
    ) -> Result<StartBy, Box<PolicyRefusal>> {
        let mut exceeded = None;
        // Any of the rules is enough.
        for allowance in allowances {
            match self.start(call, allowance, timeout) {
                Ok(claim) => {
                    let allowance = allowance.clone();
                    return Ok(StartBy { allowance, claim });
                }
                Err(limit) => {
                    exceeded.get_or_insert(PolicyWhy::Limit {
                        rule: allowance.rule.clone(),
                        limit,
                    });
                }
            }
        }
        Err(call.refused(exceeded.unwrap_or(PolicyWhy::NotAllowed)))
    }

    fn start(
        &self,
        call: CallToDecide<'_>,
        allowance: &Allowance,
        timeout: Option<Duration>,
    ) -> Result<StartClaim, PolicyLimit> {
        let limits = &allowance.limits;
        if let (Some(wanted), Some(most)) = (timeout, limits.timeout)
            && wanted > most
            // The time limit of a template may be longer: the caller has not chosen it.
            && call.template().is_none()
            // Nor that of a look.
            && call.verb != Verb::Look
        {
            return Err(PolicyLimit::Timeout(most.as_secs()));
        }
        let key = UsageKey {
            rule: allowance.rule.clone(),
            caller: call.caller.clone(),
        };
        let reservation = self.usage.reserve(key, call.idempotency_key(), limits)?;
        Ok(StartClaim {
            timeout: timeout.into_iter().chain(limits.timeout).min(),
            reservation: Some(reservation),
            ..StartClaim::default()
        })
    }

    /// Whether a caller may use a verb on every host. If not, each host has to be asked about.
    pub(crate) async fn allows_everywhere(&self, call: CallToDecide<'_>) -> bool {
        let Some(policy) = &self.policy else { return true };
        let Ok(loaded) = policy.policy(self.hosts.book()).await else { return false };
        let identity = identity(call.caller, call.rights);
        loaded.policy.allows_everywhere(&request(call, &identity, None))
    }

    /// The template that a call names, with accepted values of its parameters.
    ///
    /// # Errors
    /// If there is no such template, or it does not accept the values.
    pub(crate) async fn template(
        &self,
        call: CallToDecide<'_>,
        wanted: &TemplateCall,
    ) -> Result<(Template, BTreeMap<String, String>), Box<PolicyRefusal>> {
        let Some(policy) = &self.policy else {
            return Err(call.refused(PolicyWhy::UnknownTemplate { nearest: None }));
        };
        let loaded = self.loaded(policy, call).await?;
        // Those that the caller may not run here are as unknown as those that do not exist.
        let endpoint = match call.place() {
            Some(place) => self.machines.endpoint(place).await.endpoint,
            None => MachineAccount::default(),
        };
        let identity = identity(call.caller, call.rights);
        let offered: Vec<&Template> = if call.verb == Verb::Look {
            loaded.policy.read_only_templates().collect()
        } else {
            loaded.policy.templates_for(&identity, &endpoint, this_minute()).collect()
        };
        let offered: BTreeMap<&str, &Template> =
            offered.into_iter().map(|template| (template.name.as_str(), template)).collect();
        if offered.is_empty() {
            return Err(call.refused(PolicyWhy::NotAllowed));
        }
        let Some(template) = offered.get(wanted.name.as_str()).copied() else {
            let nearest = nearest(&wanted.name, offered.keys().copied());
            return Err(call.refused(PolicyWhy::UnknownTemplate {
                nearest: nearest.map(str::to_owned),
            }));
        };
        let values = template
            .accept(&wanted.params)
            .map_err(|error| call.refused(PolicyWhy::Values(error)))?;
        Ok((template.clone(), values))
    }

    /// The templates that a caller may run on a host.
    pub(crate) async fn templates(
        &self,
        caller: &Caller,
        rights: &Rights,
        host: &str,
    ) -> Vec<Template> {
        let Some(policy) = &self.policy else { return Vec::new() };
        let Ok(loaded) = policy.policy(self.hosts.book()).await else {
            return Vec::new();
        };
        let place = CallPlace {
            host,
            becomes: None,
        };
        let endpoint = self.machines.endpoint(place).await.endpoint;
        let identity = identity(caller, rights);
        loaded
            .policy
            .templates_for(&identity, &endpoint, this_minute())
            .cloned()
            .collect()
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
    pub(crate) async fn finish_audit(&self) {
        // First: these tasks write to the log.
        let mut tasks = std::mem::take(&mut *lock(&self.given_back));
        let giving_back = async { while tasks.join_next().await.is_some() {} };
        drop(timeout(GIVE_BACK_TIME, giving_back).await);
        self.auditor.finish().await;
    }

    /// Waits for the turn to read the audit log, so that many calls can't keep a disk busy.
    pub(crate) async fn audit_reading(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.audit_reading.lock().await
    }

    /// The files of the audit log that the policy names. `None` if it names none.
    ///
    /// # Errors
    /// Why they are not known, in words.
    pub(crate) async fn audit_files(&self) -> Option<Result<AuditFiles, String>> {
        match self.policy_in_force().await? {
            Ok(loaded) => Some(self.auditor.files(loaded.policy.audit()?)),
            Err(error) => Some(Err(error.to_string())),
        }
    }

    /// The account and machine at a place.
    pub(super) async fn endpoint_of(&self, place: CallPlace<'_>) -> MachineAccount {
        self.machines.endpoint(place).await.endpoint
    }

    /// The account and machine at a place, for a call that must not reach another one.
    ///
    /// # Errors
    /// If it can't be resolved.
    pub(super) async fn certain_endpoint(
        &self,
        place: CallPlace<'_>,
    ) -> Result<MachineAccount, PolicyWhy> {
        let located = self.machines.endpoint(place).await;
        if located.is_resolved {
            Ok(located.endpoint)
        } else {
            Err(PolicyWhy::Unresolved)
        }
    }

    pub(super) async fn loaded(
        &self,
        policy: &PolicyInForce,
        call: CallToDecide<'_>,
    ) -> Result<Arc<LoadedPolicy>, Box<PolicyRefusal>> {
        let loaded = policy.policy(self.hosts.book()).await;
        loaded.map_err(|error| call.refused(PolicyWhy::NoPolicy(error.to_string())))
    }

    /// The account and machine of a call, if any rule looks at them, or if they are recorded: to find
    /// them takes time.
    ///
    /// # Errors
    /// If the machine is not certain, and the call would act on it.
    pub(super) async fn endpoint(
        &self,
        loaded: &LoadedPolicy,
        call: CallToDecide<'_>,
    ) -> Result<Option<MachineAccount>, Box<PolicyRefusal>> {
        match call.place() {
            Some(place) if loaded.policy.looks_at_machines() || loaded.policy.audit().is_some() => {
                self.machines.watch_names(loaded.named_hosts.clone());
                let located = self.machines.endpoint(place).await;
                let must_be_certain = loaded.policy.looks_at_machines() && call.verb.connects();
                if !located.is_resolved && must_be_certain {
                    return Err(call.refused(PolicyWhy::Unresolved));
                }
                Ok(Some(located.endpoint))
            }
            Some(_) | None => Ok(None),
        }
    }
}

impl StartClaim {
    /// Records that the job was not started.
    pub(crate) async fn note_failure(&self, why: String) {
        if let Some(recorded) = &self.recorded {
            recorded.note_failure(why).await;
        }
    }

    /// The start that this one repeats. Nothing may be started then.
    pub(crate) fn earlier(&self) -> Option<&EarlierStart> {
        match &self.approval {
            Some(Used::Repetition(earlier)) => Some(earlier),
            Some(Used::ByApprovers { .. } | Used::ByClient) | None => None,
        }
    }

    /// Whether a person has agreed to it.
    pub(crate) fn is_approved(&self) -> bool {
        self.approval.is_some()
    }

    /// Counts the job that was started, for the limits of the rule, and records it.
    pub(crate) fn note_job(&self, job: &Arc<sshjobs_job::Job>) {
        if let Some(recorded) = &self.recorded {
            recorded.note_job(job);
        }
        if let Some(reservation) = &self.reservation {
            reservation.note_job(job);
        }
    }
}

/// The rules that allow a call, perhaps once it is approved. At least one.
pub(super) fn permits<'a>(
    loaded: &'a LoadedPolicy,
    call: CallToDecide<'_>,
    endpoint: Option<&MachineAccount>,
) -> Result<Vec<AllowingRule<'a>>, Box<PolicyRefusal>> {
    let identity = identity(call.caller, call.rights);
    match loaded.policy.decide(&request(call, &identity, endpoint)) {
        PolicyDecision::Allowed(permits) => Ok(permits),
        PolicyDecision::Denied(rules) => {
            let rules = rules.into_iter().map(str::to_owned).collect();
            Err(call.refused(PolicyWhy::Denied(rules)))
        }
        PolicyDecision::NotAllowed => Err(call.refused(PolicyWhy::NotAllowed)),
    }
}

fn request<'a>(
    call: CallToDecide<'a>,
    identity: &'a PolicyCaller,
    endpoint: Option<&'a MachineAccount>,
) -> PolicyRequest<'a> {
    PolicyRequest {
        caller: identity,
        verb: call.verb,
        endpoint,
        command: Some(call.template().map_or(CommandSource::Free, CommandSource::Template)),
        target: call.target(),
        minute: call.minute.unwrap_or_else(this_minute),
    }
}

fn identity(caller: &Caller, rights: &Rights) -> PolicyCaller {
    PolicyCaller {
        name: caller.as_str().to_owned(),
        role: rights.role,
        claims: rights.claims.clone(),
    }
}

fn this_minute() -> WeekMinute {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    WeekMinute::of_unix_time(since.as_secs())
}
