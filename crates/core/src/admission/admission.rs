//! The door that every verb passes: it knows the caller's rights, asks the policy, and hands out the
//! runner and the hosts only after these checks.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{FutureExt, StreamExt, TryStreamExt, stream};
use secrecy::ExposeSecret;

use super::config::Config;
use super::error::Error;
use super::excluded::is_excluded_by_address;
use super::judge::{
    Ballot, Call, Content, EarlierStart, Judge, On, Permission, Place, PolicyState, Start, Voter,
    Why,
};
use super::last_errors::LastErrors;
use super::notify::Notifier;
use super::rights::Rights;
use super::secrets::Secrets;
use crate::forward::Forwards;
use crate::hosts::{HostBook, HostError, HostRef, Hosts};
use crate::runner::{Lookup, Runner};
use sshjobs_base::nearest::nearest;
use sshjobs_job::{Caller, Draft, JobId, Scope, StdinPlan, TemplateCall};
use sshjobs_policy::approval::Approval;
use sshjobs_policy::{Role, Template, Verb};
use sshjobs_store::{Store, StoreError};

/// The only way to the runner and the hosts. Every verb of every caller passes it. It refuses jobs
/// of other callers, hosts that may not be used, and verbs that the caller's role does not allow.
#[derive(Clone)]
pub(super) struct Door {
    visitor: Arc<Visitor>,
    inside: Arc<Inside>,
}

/// The caller at the door.
#[derive(Clone)]
struct Visitor {
    caller: Caller,
    /// The address from which the caller has called, for the audit log. `None` for one of this machine.
    address: Option<IpAddr>,
    rights: Rights,
    /// Time that a call waits for approvers.
    approval_wait: Duration,
}

/// A host that a caller may use for a verb.
pub(super) struct AllowedHost<'a> {
    pub(super) inside: &'a Inside,
    pub(super) host: HostRef,
    pub(super) permission: Permission,
}

/// Time that a call waits for approvers. Less than clients wait for a call.
const APPROVAL_WAIT: Duration = Duration::from_secs(20);
/// Maximum similar names that are tried for a suggestion.
const MOST_SUGGESTED: usize = 8;
/// Maximum names resolved concurrently.
const AT_A_TIME: usize = 16;

/// State shared by all callers.
pub(super) struct Inside {
    pub(super) runner: Runner,
    pub(super) hosts: Arc<Hosts>,
    pub(super) config: Config,
    pub(super) last_errors: LastErrors,
    pub(super) forwards: Forwards,
    pub(super) judge: Judge,
    pub(super) secrets: Arc<Secrets>,
    pub(super) notifier: Notifier,
    /// The store of a face's own state.
    pub(super) store: Option<Result<Arc<dyn Store>, StoreError>>,
}

impl Door {
    pub(super) fn new(caller: Caller, rights: Rights, inside: Inside) -> Self {
        let visitor = Visitor {
            caller,
            address: None,
            rights,
            approval_wait: APPROVAL_WAIT,
        };
        Self {
            visitor: Arc::new(visitor),
            inside: Arc::new(inside),
        }
    }

    fn with(&self, visitor: Visitor) -> Self {
        Self {
            visitor: Arc::new(visitor),
            inside: Arc::clone(&self.inside),
        }
    }

    /// The same door for another caller.
    pub(super) fn of(&self, caller: Caller, rights: Rights) -> Self {
        self.with(Visitor {
            caller,
            address: None,
            rights,
            approval_wait: self.visitor.approval_wait,
        })
    }

    /// The address from which the caller has called. `None` for one of this machine.
    pub(super) fn address(&self) -> Option<IpAddr> {
        self.visitor.address
    }

    /// The same door for a caller at an address.
    pub(super) fn called_from(&self, address: IpAddr) -> Self {
        self.with(Visitor {
            address: Some(address),
            ..Visitor::clone(&self.visitor)
        })
    }

    /// The same door for calls that wait this long for approvers, at most 20 seconds.
    pub(super) fn waiting_for_approval(&self, approval_wait: Duration) -> Self {
        self.with(Visitor {
            approval_wait: approval_wait.min(APPROVAL_WAIT),
            ..Visitor::clone(&self.visitor)
        })
    }

    pub(super) fn approval_wait(&self) -> Duration {
        self.visitor.approval_wait
    }

    pub(super) fn caller(&self) -> &Caller {
        &self.visitor.caller
    }

    pub(super) fn rights(&self) -> &Rights {
        &self.visitor.rights
    }

    /// The callers whose jobs this caller sees.
    pub(super) fn scope(&self) -> Scope {
        if self.visitor.rights.role == Role::Admin {
            Scope::All
        } else {
            Scope::Of(self.visitor.caller.clone())
        }
    }

    pub(super) fn config(&self) -> &Config {
        &self.inside.config
    }

    /// Access for the shutdown of the process, which is not a caller's verb.
    pub(super) fn runner(&self) -> &Runner {
        &self.inside.runner
    }

    /// All forwards, for the shutdown of the process.
    pub(super) fn forwards(&self) -> &Forwards {
        &self.inside.forwards
    }

    /// Whether the caller has rights on a host.
    pub(super) fn has_host(&self, host: &str) -> bool {
        self.visitor.rights.hosts.contain(host, self.inside.hosts.book().tags(host))
    }

    /// Access for a verb that reads. The policy has decided when the caller got the job.
    pub(super) fn look(&self, verb: Verb, subject: &dyn fmt::Display) -> &Inside {
        tracing::trace!(caller = %self.visitor.caller, ?verb, subject = ?subject.to_string(), "call");
        &self.inside
    }

    /// Access for a verb on a host.
    ///
    /// # Errors
    /// [`Error::Denied`], [`Error::DeniedHost`], [`Error::Policy`].
    pub(super) async fn act(&self, verb: Verb, on: On<'_>) -> Result<&Inside, Error> {
        self.check_rights(verb, on).await?;
        self.judge(verb, on).await?;
        tracing::info!(caller = %self.visitor.caller, ?verb, host = on.place.host, "call");
        Ok(&self.inside)
    }

    /// Asks the policy about a verb on a host, and records the decision.
    ///
    /// # Errors
    /// [`Error::Policy`].
    pub(super) async fn judge(&self, verb: Verb, on: On<'_>) -> Result<Permission, Error> {
        Ok(self.inside.judge.decide(self.call(verb, on)).await?)
    }

    /// Asks the policy about the start of a job, and reserves room for it.
    ///
    /// # Errors
    /// [`Error::Policy`].
    pub(super) async fn judge_start(
        &self,
        verb: Verb,
        on: On<'_>,
        timeout: Option<Duration>,
    ) -> Result<Start, Error> {
        Ok(self.inside.judge.decide_start(self.call(verb, on), timeout).await?)
    }

    /// Whether the policy allows a verb on a host.
    pub(super) async fn is_allowed(&self, verb: Verb, host: &str) -> bool {
        self.ask(verb, On::host(host)).await.is_ok()
    }

    /// Asks the policy about a verb that is not performed yet.
    ///
    /// # Errors
    /// [`Error::Policy`].
    pub(super) async fn ask(&self, verb: Verb, on: On<'_>) -> Result<(), Error> {
        Ok(self.inside.judge.ask(self.call(verb, on)).await?)
    }

    /// Whether the policy allows a verb on every host.
    pub(super) async fn is_allowed_everywhere(&self, verb: Verb) -> bool {
        self.inside.judge.allows_everywhere(self.call_without_host(verb)).await
    }

    /// Records a call that was refused because of the caller's role.
    pub(super) async fn note_refusal(&self, verb: Verb, error: &Error) {
        let call = self.call_without_host(verb);
        let refusal = call.refused(Why::Rights(error.to_string()));
        self.inside.judge.note_refusal(&refusal, call).await;
    }

    fn call_without_host(&self, verb: Verb) -> Call<'_> {
        Call {
            caller: &self.visitor.caller,
            address: self.visitor.address,
            rights: &self.visitor.rights,
            verb,
            approval_wait: self.visitor.approval_wait,
            on: None,
        }
    }

    /// The template that a call names, with accepted values of its parameters.
    ///
    /// # Errors
    /// [`Error::Policy`].
    pub(super) async fn template(
        &self,
        verb: Verb,
        host: &str,
        wanted: &TemplateCall,
    ) -> Result<(Template, BTreeMap<String, String>), Error> {
        let on = On {
            template: Some(&wanted.name),
            ..On::host(host)
        };
        let call = self.call(verb, on);
        let template = self.inside.judge.template(call, wanted).await;
        if let Err(refusal) = &template {
            self.inside.judge.note_refusal(refusal, call).await;
        }
        Ok(template?)
    }

    /// Refuses settings of a call that its template does not let it set.
    ///
    /// # Errors
    /// [`Error::Policy`].
    pub(super) async fn check_options(
        &self,
        verb: Verb,
        draft: &Draft,
        template: &Template,
    ) -> Result<(), Error> {
        // An open stdin is a default; `Command` closes it.
        let has_text =
            matches!(&draft.stdin, StdinPlan::Text(text) if !text.expose_secret().is_empty());
        let has_stdin = has_text || draft.secrets.stdin.is_some();
        let has_other_env = draft.env_names().iter().any(|name| !template.allows_env(name));
        let options = [
            ("command", !draft.command.is_empty()),
            ("cwd", draft.cwd.is_some()),
            ("become", draft.becomes.is_some()),
            ("stdin", has_stdin && !template.allows_stdin),
            ("pty", draft.terminal.is_some() && !template.allows_pty),
            ("env", has_other_env),
        ];
        match options.into_iter().find(|(_, is_refused)| *is_refused) {
            Some((option, _)) => {
                let on = On {
                    template: Some(&template.name),
                    ..On::host(&draft.host)
                };
                let call = self.call(verb, on);
                let refusal = call.refused(Why::TemplateOption(option));
                self.inside.judge.note_refusal(&refusal, call).await;
                Err(refusal.into())
            }
            None => Ok(()),
        }
    }

    fn call<'a>(&'a self, verb: Verb, on: On<'a>) -> Call<'a> {
        Call {
            caller: &self.visitor.caller,
            address: self.visitor.address,
            rights: &self.visitor.rights,
            verb,
            approval_wait: self.visitor.approval_wait,
            on: Some(on),
        }
    }

    /// Checks the caller's role and host patterns, and records a refusal.
    pub(super) async fn check_rights(&self, verb: Verb, on: On<'_>) -> Result<(), Error> {
        match self.check(verb, on.place.host) {
            Err(error) => Err(self.recorded(verb, on, error).await),
            checked => checked,
        }
    }

    /// Records a refusal that no rule has made, and returns it.
    pub(super) async fn recorded(&self, verb: Verb, on: On<'_>, error: Error) -> Error {
        let call = self.call(verb, on);
        let refusal = call.refused(Why::Rights(error.to_string()));
        self.inside.judge.note_refusal(&refusal, call).await;
        error
    }

    /// Checks the caller's role and host patterns.
    fn check(&self, verb: Verb, host: &str) -> Result<(), Error> {
        let needed = verb.needed_role();
        if self.visitor.rights.role < needed {
            return Err(Error::Denied {
                caller: self.visitor.caller.clone(),
                role: self.visitor.rights.role,
                needed,
            });
        }
        if !self.has_host(host) {
            let caller = self.visitor.caller.clone();
            let host = host.to_owned();
            return Err(Error::DeniedHost {
                caller,
                host,
                nearest: None,
            });
        }
        Ok(())
    }

    /// Refuses another user of a host unless the caller might also log in as that user.
    ///
    /// # Errors
    /// [`Error::DeniedHost`].
    pub(super) async fn check_user(&self, verb: Verb, on: On<'_>) -> Result<(), Error> {
        let Some(becomes) = on.place.becomes else { return Ok(()) };
        let host = on.place.host;
        let place = host.rsplit_once('@').map_or(host, |(_, place)| place);
        let login = format!("{}@{place}", becomes.user());
        if self.has_host(&login) {
            tracing::info!(caller = %self.visitor.caller, host, becomes = %becomes, "as another user");
            return Ok(());
        }
        let denied = Error::DeniedHost {
            caller: self.visitor.caller.clone(),
            host: login,
            nearest: None,
        };
        Err(self.recorded(verb, on, denied).await)
    }

    /// Access for a verb on a job: needs rights on each of its hosts.
    ///
    /// # Errors
    /// [`Error::Denied`], [`Error::DeniedHost`], [`Error::Policy`].
    pub(super) async fn act_on_job(
        &self,
        verb: Verb,
        job: &sshjobs_job::Job,
        content: Option<Content<'_>>,
    ) -> Result<&Inside, Error> {
        for host in job.spec.hosts() {
            let on = On {
                job: Some(&job.id),
                ..On::host(host)
            };
            self.check_rights(verb, on).await?;
        }
        for on in on_job(job, content) {
            self.judge(verb, on).await?;
        }
        tracing::info!(caller = %self.visitor.caller, ?verb, job = %job.id, "call");
        Ok(&self.inside)
    }

    /// Asks the policy about a verb on a job: each of its hosts must be allowed. A verb that acts is
    /// recorded when it does ([`act_on_job`](Self::act_on_job)), and here only if it is refused.
    ///
    /// # Errors
    /// [`Error::Policy`].
    pub(super) async fn judge_job(&self, verb: Verb, job: &sshjobs_job::Job) -> Result<(), Error> {
        let is_read = verb.needed_role() == Role::Read;
        for on in on_job(job, None) {
            if is_read || self.ask(verb, on).await.is_err() {
                self.judge(verb, on).await?;
            }
        }
        Ok(())
    }

    /// Whether the policy allows the caller lines of a job's output: by tail, or by read. Nothing is recorded.
    pub(super) async fn may_show_lines(&self, job: &sshjobs_job::Job) -> bool {
        for verb in [Verb::Tail, Verb::Read] {
            let mut is_allowed = true;
            for on in on_job(job, None) {
                is_allowed &= self.ask(verb, on).await.is_ok();
            }
            if is_allowed {
                return true;
            }
        }
        false
    }

    /// Access for a verb on a host that the caller names.
    pub(super) async fn act_on_host(
        &self,
        verb: Verb,
        on: On<'_>,
    ) -> Result<AllowedHost<'_>, Error> {
        let host = self.find_host(verb, on.place.host).await?;
        self.check_user(verb, on).await?;
        let permission = self.judge(verb, on).await?;
        Ok(AllowedHost {
            inside: &self.inside,
            host,
            permission,
        })
    }

    /// Checks everything but the policy for a verb on a host that the caller names.
    pub(super) async fn find_host(&self, verb: Verb, host: &str) -> Result<HostRef, Error> {
        match self.check_rights(verb, On::host(host)).await {
            Err(Error::DeniedHost { host, .. }) => return Err(self.denied_host(&host).await),
            checked => checked?,
        }
        self.recorded_address(verb, host).await?;
        let checked = self.inside.hosts.book().check(host).await;
        // The book suggests any listed host. This replaces it by one that the caller may use.
        if let Err(HostError::Unknown { name, .. }) = checked {
            return Err(self.unknown_host(verb, name).await);
        }
        checked?;
        tracing::info!(caller = %self.visitor.caller, ?verb, host, "call");
        Ok(HostRef {
            caller: self.visitor.caller.clone(),
            name: host.to_owned(),
        })
    }

    /// Checks everything but the policy for a verb on many hosts that the caller names.
    pub(super) async fn find_hosts(&self, verb: Verb, hosts: &[String]) -> Result<&Inside, Error> {
        for host in hosts {
            // Repeated on failure: `find_host` adds the most similar host to the error.
            if self.check(verb, host).is_err() {
                self.find_host(verb, host).await?;
            }
        }
        if self.visitor.rights.hosts.has_exclusions() {
            let checks = hosts.iter().map(|host| self.recorded_address(verb, host).boxed());
            let checks: Vec<_> = checks.collect();
            stream::iter(checks).buffered(AT_A_TIME).try_collect::<()>().await?;
        }
        match self.inside.hosts.book().check_all(hosts).await {
            Err(HostError::Unknown { name, .. }) => Err(self.unknown_host(verb, name).await),
            checked => checked.map(|()| &*self.inside).map_err(Error::from),
        }
    }

    /// Refuses a host that is another name of an excluded one.
    async fn checked_address(&self, host: &str) -> Result<(), Error> {
        if is_excluded_by_address(&self.visitor.rights.hosts, self.inside.hosts.book(), host).await
        {
            return Err(self.denied_host(host).await);
        }
        Ok(())
    }

    /// Like [`checked_address`](Self::checked_address), and records a refusal in the audit log.
    async fn recorded_address(&self, verb: Verb, host: &str) -> Result<(), Error> {
        match self.checked_address(host).await {
            Ok(()) => Ok(()),
            Err(error) => Err(self.recorded(verb, On::host(host), error).await),
        }
    }

    async fn denied_host(&self, host: &str) -> Error {
        let nearest = self.nearest(host).await;
        Error::DeniedHost {
            caller: self.visitor.caller.clone(),
            host: host.to_owned(),
            nearest,
        }
    }

    /// The names that the caller may use for a verb, also by their addresses, in the same order.
    pub(super) async fn usable(&self, verb: Verb, names: Vec<String>) -> Vec<String> {
        let checks: Vec<_> =
            names.into_iter().map(|name| self.if_usable(verb, name).boxed()).collect();
        stream::iter(checks)
            .buffered(AT_A_TIME)
            .filter_map(async |name| name)
            .collect()
            .await
    }

    async fn if_usable(&self, verb: Verb, name: String) -> Option<String> {
        let is_usable = self.may_reach(&name).await && self.is_allowed(verb, &name).await;
        is_usable.then_some(name)
    }

    /// Notes why the last connection to a host failed, for the list of hosts. `None` if it did not.
    pub(super) fn note_connection(&self, host: &HostRef, error: Option<&Error>) {
        self.inside.last_errors.note(host, error);
    }

    /// The templates of the policy that the caller may run on a host.
    pub(super) async fn templates(&self, host: &str) -> Vec<Template> {
        if self.visitor.rights.role < Role::Run || !self.may_reach(host).await {
            return Vec::new();
        }
        self.inside
            .judge
            .templates(&self.visitor.caller, &self.visitor.rights, host)
            .await
    }

    /// The approvals that the caller may see.
    ///
    /// # Errors
    /// [`Error::Vote`].
    pub(super) async fn approvals(&self) -> Result<Vec<Approval>, Error> {
        Ok(self.inside.judge.approvals_seen_by(self.voter()).await?)
    }

    /// Answers an approval. It lets a command through, so it takes the role that starts commands.
    ///
    /// # Errors
    /// [`Error::Vote`], [`Error::Denied`].
    pub(super) async fn vote(&self, ballot: &Ballot) -> Result<Approval, Error> {
        if self.visitor.rights.role < Role::Run {
            return Err(Error::Denied {
                caller: self.visitor.caller.clone(),
                role: self.visitor.rights.role,
                needed: Role::Run,
            });
        }
        Ok(self.inside.judge.vote(self.voter(), ballot).await?)
    }

    fn voter(&self) -> Voter<'_> {
        Voter {
            caller: &self.visitor.caller,
            address: self.visitor.address,
            rights: &self.visitor.rights,
        }
    }

    /// Notes the job that an approved start has led to.
    pub(super) async fn note_job_of_approval(&self, start: &Start, job: &JobId) {
        self.inside.judge.note_job_of_approval(start, job).await;
    }

    /// Notes that the start which a call repeats has no job: it needs another approval.
    ///
    /// # Errors
    /// [`Error::Policy`].
    pub(super) async fn note_no_job(
        &self,
        verb: Verb,
        on: On<'_>,
        earlier: &EarlierStart,
    ) -> Result<(), Error> {
        Ok(self.inside.judge.note_no_job(self.call(verb, on), earlier).await?)
    }

    /// Gives the approval of a start back that has started nothing.
    pub(super) async fn give_back_approval(&self, start: &Start) {
        self.inside.judge.give_back_approval(start).await;
    }

    /// The judge, for explanations to operators.
    pub(super) fn notifier(&self) -> &Notifier {
        &self.inside.notifier
    }

    /// The state of all callers, for questions of the operator.
    pub(super) fn everything(&self) -> &Inside {
        &self.inside
    }

    pub(super) fn store(&self) -> Option<Result<Arc<dyn Store>, StoreError>> {
        self.inside.store.clone()
    }

    pub(super) fn judge_itself(&self) -> &Judge {
        &self.inside.judge
    }

    /// State of the policy, for operators.
    pub(super) async fn judge_state(&self) -> Option<PolicyState> {
        self.inside.judge.state().await
    }

    /// Reads the policy file now.
    pub(super) async fn reload_policy(&self) {
        self.inside.judge.reload().await;
    }

    /// The secrets of the configuration.
    pub(super) fn secrets(&self) -> &Secrets {
        &self.inside.secrets
    }

    /// The known hosts.
    pub(super) fn book(&self) -> &HostBook {
        self.inside.hosts.book()
    }

    /// The most similar name among the hosts that the caller may use. Others are not revealed.
    pub(super) async fn nearest(&self, host: &str) -> Option<String> {
        let listed = self.inside.hosts.book().listed().await.ok()?;
        let may_use = |name: &String| name != host && self.has_host(name);
        let mut names: Vec<String> = listed.into_keys().filter(may_use).collect();
        for _ in 0..MOST_SUGGESTED {
            let best = nearest(host, names.iter().map(String::as_str))?.to_owned();
            if self.is_allowed(Verb::Hosts, &best).await {
                return Some(best);
            }
            names.retain(|name| *name != best);
        }
        None
    }

    /// The error for an unlisted host. A caller whom the policy refuses gets the same error as for a listed host, so
    /// that names are not revealed.
    async fn unknown_host(&self, verb: Verb, name: String) -> Error {
        if !self.is_allowed(verb, &name).await {
            return self.not_allowed(verb, &name).await;
        }
        let nearest = self.nearest(&name).await;
        HostError::Unknown { name, nearest }.into()
    }

    /// The refusal for a host on which no rule allows the verb, listed or not. It is in the audit log.
    pub(super) async fn not_allowed(&self, verb: Verb, host: &str) -> Error {
        let call = self.call(verb, On::host(host));
        let refusal = call.refused(Why::NotAllowed);
        self.inside.judge.note_refusal(&refusal, call).await;
        refusal.into()
    }

    /// Whether the caller may see a job in its scope. A caller always sees its own jobs. An admin
    /// with limited hosts sees jobs of others only on these.
    async fn may_see(&self, job: &sshjobs_job::Job) -> bool {
        if job.caller == self.visitor.caller {
            return true;
        }
        for host in job.spec.hosts() {
            if !self.may_reach(host).await {
                return false;
            }
        }
        true
    }

    /// Whether the caller has rights on a host, or on each host of a fleet by its folded name.
    async fn may_reach_all(&self, folded: &str) -> bool {
        for word in sshjobs_job::words(folded) {
            let hosts = sshjobs_job::unfold(word).unwrap_or_else(|_| vec![word.to_owned()]);
            for host in hosts {
                if !self.may_reach(&host).await {
                    return false;
                }
            }
        }
        true
    }

    /// Whether the caller has rights on a host, also by its address.
    pub(super) async fn may_reach(&self, host: &str) -> bool {
        self.has_host(host)
            && !is_excluded_by_address(&self.visitor.rights.hosts, self.inside.hosts.book(), host)
                .await
    }

    /// The most similar name that the caller may use. `None` if `host` itself is listed.
    pub(super) async fn nearest_unlisted(&self, host: &str) -> Option<String> {
        let listed = self.inside.hosts.book().listed().await.ok()?;
        if listed.contains_key(host) {
            None
        } else {
            self.nearest(host).await
        }
    }

    /// Finds a job by its id.
    pub(super) async fn find(&self, id: &JobId) -> Result<Arc<sshjobs_job::Job>, Error> {
        // Cut, because the caller chose the id and may have sent any text.
        let unknown = Error::UnknownJob(id.as_str().chars().take(64).collect());
        match self.look(Verb::Jobs, id).runner.lookup(&self.scope(), id).await {
            Lookup::Found(job) if self.may_see(&job).await => Ok(job),
            // The same error as for an unknown id, so that ids of hidden jobs can't be found out.
            Lookup::Found(_) => Err(unknown),
            Lookup::Expired(tombstone) => {
                let is_visible = tombstone.caller == self.visitor.caller
                    || self.may_reach_all(&tombstone.host).await;
                Err(if is_visible {
                    Error::Expired(tombstone)
                } else {
                    unknown
                })
            }
            Lookup::Unknown => Err(unknown),
            Lookup::Unreadable(error) => Err(Error::Store(error)),
        }
    }
}

/// Where a verb on a job takes effect: on each of its hosts.
fn on_job<'a>(
    job: &'a sshjobs_job::Job,
    content: Option<Content<'a>>,
) -> impl Iterator<Item = On<'a>> {
    let template = job.spec.template.as_ref().map(|template| template.name.as_str());
    job.spec.hosts().iter().map(move |host| On {
        template,
        job: Some(&job.id),
        content,
        is_one_of_many: job.spec.fleet.is_some(),
        ..On::place(Place {
            host,
            becomes: job.spec.becomes.as_ref(),
        })
    })
}
