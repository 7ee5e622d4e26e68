//! The one way to act: it knows the caller's rights, asks the policy, and hands out permits.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

use secrecy::ExposeSecret;

use super::call::{CallContent, CallToDecide, HostAct, JudgedJob, StartToDecide};
use super::context::{APPROVAL_WAIT, CallContext};
use super::error::Refusal;
use super::judge::{Judge, StartClaim};
use super::machines::CallPlace;
use super::permit::{
    Act, Connect, FilesOfHost, ForgetJob, HoldQueue, OpenForward, Permit, ReadOutput, SignalJob,
    Start, Starts, UseFiles, WriteInput,
};
use super::refusal::PolicyWhy;
use super::rights::{HostPatterns, Rights};
use super::ruling::EarlierStart;
use super::voting::{NewVote, Voter};
use crate::hosts::{HostRef, Hosts};
use sshjobs_job::{Draft, JobFacts, JobId, JobSpec, Stdin, TemplateCall};
use sshjobs_policy::approval::Approval;
use sshjobs_policy::{Role, Template, Verb};

/// Admits the calls of one caller. It refuses hosts that may not be used, verbs that the caller's
/// role does not allow, and calls that the policy does not allow. A cheap handle.
#[derive(Clone)]
pub struct Admission {
    pub(super) context: Arc<CallContext>,
    pub(super) hosts: Arc<Hosts>,
    pub(super) judge: Arc<Judge>,
}

/// A start, as its caller describes it.
pub(crate) struct StartCall<'a> {
    pub(crate) verb: Verb,
    pub(crate) spec: &'a JobSpec,
    /// The id that the job gets.
    pub(crate) id: &'a JobId,
    pub(crate) idempotency_key: Option<&'a str>,
    /// Why it is needed, for those who have to agree.
    pub(crate) reason: Option<&'a str>,
    /// Whether the caller gets the output as well, and needs the verb run.
    pub(crate) shows_output: bool,
}

/// The answer to a start.
pub(crate) enum StartAnswer {
    /// It may start.
    Permitted(Permit<Start>),
    /// It repeats a start that was approved. Nothing may be started.
    Repeats(RepeatedStart),
}

/// A start that repeats an approved one.
pub(crate) struct RepeatedStart {
    pub(crate) earlier: EarlierStart,
    /// The time limit of the earlier job.
    pub(crate) timeout: Option<Duration>,
}

impl Admission {
    pub(crate) fn new(context: CallContext, hosts: Arc<Hosts>, judge: Judge) -> Self {
        Self {
            context: Arc::new(context),
            hosts,
            judge: Arc::new(judge),
        }
    }

    /// The same for another call.
    pub(crate) fn in_context(&self, context: CallContext) -> Self {
        let context = CallContext {
            approval_wait: context.approval_wait.min(APPROVAL_WAIT),
            ..context
        };
        Self {
            context: Arc::new(context),
            ..self.clone()
        }
    }

    /// The caller and the circumstances of the call.
    pub(crate) fn context(&self) -> &CallContext {
        &self.context
    }

    /// Decides for all callers.
    pub(crate) fn judge(&self) -> &Judge {
        &self.judge
    }

    /// Whether the caller has rights on a host.
    pub(crate) fn has_host(&self, host: &str) -> bool {
        self.context.rights.hosts.contain(host, self.hosts.book().tags(host))
    }

    /// Admits the start of a job, on each of its hosts, and reserves room for it.
    ///
    /// # Errors
    /// [`Refusal`]. Then nothing is reserved.
    pub(crate) async fn admit_start(&self, start: &StartCall<'_>) -> Result<StartAnswer, Refusal> {
        let spec = start.spec;
        let mut starts = Starts {
            judge: Arc::clone(&self.judge),
            claims: Vec::new(),
            timeout: spec.timeout,
            id: start.id.clone(),
        };
        for host in spec.hosts() {
            let claim = match self.claim_start(start, start.on(host)).await {
                Ok(claim) => claim,
                Err(refusal) => {
                    fail(starts, start.verb, &self.context, &refusal).await;
                    return Err(refusal);
                }
            };
            if let Some(earlier) = claim.earlier() {
                let earlier = earlier.clone();
                let timeout = claim.timeout;
                return Ok(StartAnswer::Repeats(RepeatedStart { earlier, timeout }));
            }
            // The strictest rule sets the time limit of a whole fleet.
            starts.timeout = starts.timeout.into_iter().chain(claim.timeout).min();
            starts.claims.push(claim);
        }
        Ok(StartAnswer::Permitted(Permit::new(
            &self.context.caller,
            start.verb,
            starts,
        )))
    }

    /// Decides on the start on one host, and reserves room for it.
    async fn claim_start(
        &self,
        start: &StartCall<'_>,
        on: HostAct<'_>,
    ) -> Result<StartClaim, Refusal> {
        self.check_user(start.verb, on).await?;
        // Where the caller may not even start, the start itself is refused, as on an unlisted host.
        if start.shows_output && self.ask(start.verb, on).await.is_ok() {
            let run = self.call(Verb::Run, on);
            if let Err(refusal) = self.judge.ask(run).await {
                self.judge.note_refusal(&refusal, run).await;
                return Err(refusal.into());
            }
        }
        Ok(self.judge.decide_start(self.call(start.verb, on), start.spec.timeout).await?)
    }

    /// Notes that the start which a call repeats has no job: it needs another approval.
    ///
    /// # Errors
    /// [`Refusal::Policy`].
    pub(crate) async fn note_no_job(
        &self,
        start: &StartCall<'_>,
        earlier: &EarlierStart,
    ) -> Result<(), Refusal> {
        let call = self.call(start.verb, start.on(&start.spec.host));
        Ok(self.judge.note_no_job(call, earlier).await?)
    }

    /// Admits a verb that shows output of a job. The verb is tail, read, search or run.
    ///
    /// # Errors
    /// [`Refusal::Policy`].
    pub(crate) async fn admit_reading(
        &self,
        verb: Verb,
        job: JudgedJob<'_>,
    ) -> Result<Permit<ReadOutput>, Refusal> {
        if let Err(refusal) = self.check_output(job) {
            self.note_refusal(verb, &refusal).await;
            return Err(refusal);
        }
        self.judge_job(verb, job).await?;
        Ok(Permit::new(&self.context.caller, verb, job.id.clone()))
    }

    /// Refuses output of other callers to a caller that may only know how their jobs stand.
    fn check_output(&self, job: JudgedJob<'_>) -> Result<(), Refusal> {
        let role = self.context.rights.role;
        let is_own = *job.caller == self.context.caller;
        // A caller that does not see all jobs has found only its own.
        if is_own || !role.sees_all_jobs() || role.reads_output_of_others() {
            return Ok(());
        }
        Err(Refusal::Denied {
            caller: self.context.caller.clone(),
            role,
            needed: Role::ObserveOutput,
        })
    }

    /// Admits input for a job. An approver sees its content; `None` if the input needs no approval.
    ///
    /// # Errors
    /// [`Refusal`].
    pub(crate) async fn admit_input(
        &self,
        job: JudgedJob<'_>,
        content: Option<CallContent<'_>>,
    ) -> Result<Permit<WriteInput>, Refusal> {
        self.admit_on_job(Verb::Write, job, content).await
    }

    /// Admits a signal to a job.
    ///
    /// # Errors
    /// [`Refusal`].
    pub(crate) async fn admit_signal(
        &self,
        job: JudgedJob<'_>,
    ) -> Result<Permit<SignalJob>, Refusal> {
        self.admit_on_job(Verb::Signal, job, None).await
    }

    /// Admits that a whole queue is held or released, with jobs of all callers on any host.
    ///
    /// # Errors
    /// [`Refusal`].
    pub(crate) async fn admit_queue(&self, name: &str) -> Result<Permit<HoldQueue>, Refusal> {
        let Rights { role, hosts, .. } = &self.context.rights;
        if *role < Role::Admin || *hosts != HostPatterns::default() {
            let refusal = Refusal::Denied {
                caller: self.context.caller.clone(),
                role: *role,
                needed: Role::Admin,
            };
            self.note_refusal(Verb::Signal, &refusal).await;
            return Err(refusal);
        }
        let call = self.call_without_host(Verb::Signal);
        if !self.judge.allows_everywhere(call).await {
            let refusal = call.refused(PolicyWhy::NotAllowed);
            self.judge.note_refusal(&refusal, call).await;
            return Err(refusal.into());
        }
        self.judge.decide(call).await?;
        tracing::info!(caller = %self.context.caller, queue = name, "call");
        Ok(Permit::new(
            &self.context.caller,
            Verb::Signal,
            name.to_owned(),
        ))
    }

    /// Admits the deletion of a job or its output.
    ///
    /// # Errors
    /// [`Refusal`].
    pub(crate) async fn admit_forgetting(
        &self,
        job: JudgedJob<'_>,
    ) -> Result<Permit<ForgetJob>, Refusal> {
        self.admit_on_job(Verb::Forget, job, None).await
    }

    /// Admits a verb that reads or writes files of a host.
    ///
    /// # Errors
    /// [`Refusal`].
    pub(crate) async fn admit_files(
        &self,
        verb: Verb,
        on: HostAct<'_>,
    ) -> Result<Permit<UseFiles>, Refusal> {
        let host = self.find_host(verb, on.place.host).await?;
        self.check_user(verb, on).await?;
        let permission = self.judge.decide(self.call(verb, on)).await?;
        let subject = FilesOfHost {
            host,
            most_bytes: permission.most_bytes,
        };
        Ok(Permit::new(&self.context.caller, verb, subject))
    }

    /// Admits a forward through a host.
    ///
    /// # Errors
    /// [`Refusal`].
    pub(crate) async fn admit_forward(
        &self,
        on: HostAct<'_>,
    ) -> Result<Permit<OpenForward>, Refusal> {
        self.admit_on_host(Verb::Forward, on).await
    }

    /// Admits a connection to a host without a command. The verb is probe or trust.
    ///
    /// # Errors
    /// [`Refusal`].
    pub(crate) async fn admit_connection(
        &self,
        verb: Verb,
        host: &str,
    ) -> Result<Permit<Connect>, Refusal> {
        self.admit_on_host(verb, HostAct::host(host)).await
    }

    /// Admits writing a host's key to known_hosts.
    ///
    /// # Errors
    /// [`Refusal`].
    pub(crate) async fn admit_trust(&self, host: &str) -> Result<Permit<Connect>, Refusal> {
        let on = HostAct::host(host);
        self.check_rights(Verb::Trust, on).await?;
        self.judge.decide(self.call(Verb::Trust, on)).await?;
        tracing::info!(caller = %self.context.caller, host, "trust");
        let host = self.reference(host);
        Ok(Permit::new(&self.context.caller, Verb::Trust, host))
    }

    async fn admit_on_host<A>(&self, verb: Verb, on: HostAct<'_>) -> Result<Permit<A>, Refusal>
    where
        A: Act<Subject = HostRef>,
    {
        let host = self.find_host(verb, on.place.host).await?;
        self.check_user(verb, on).await?;
        self.judge.decide(self.call(verb, on)).await?;
        Ok(Permit::new(&self.context.caller, verb, host))
    }

    /// Admits a verb on a job: it needs rights on each of its hosts.
    async fn admit_on_job<A>(
        &self,
        verb: Verb,
        job: JudgedJob<'_>,
        content: Option<CallContent<'_>>,
    ) -> Result<Permit<A>, Refusal>
    where
        A: Act<Subject = JobId>,
    {
        for host in job.spec.hosts() {
            let on = HostAct {
                job: Some(job.id),
                ..HostAct::host(host)
            };
            self.check_rights(verb, on).await?;
        }
        for on in on_job(job, content) {
            self.judge.decide(self.call(verb, on)).await?;
        }
        tracing::info!(caller = %self.context.caller, ?verb, job = %job.id, "call");
        Ok(Permit::new(&self.context.caller, verb, job.id.clone()))
    }

    /// Whether the policy allows a verb on a host.
    pub(crate) async fn is_allowed(&self, verb: Verb, host: &str) -> bool {
        self.ask(verb, HostAct::host(host)).await.is_ok()
    }

    /// Asks the policy about a verb that is not performed yet.
    ///
    /// # Errors
    /// [`Refusal::Policy`].
    pub(crate) async fn ask(&self, verb: Verb, on: HostAct<'_>) -> Result<(), Refusal> {
        Ok(self.judge.ask(self.call(verb, on)).await?)
    }

    /// Whether the policy allows a verb on every host.
    pub(crate) async fn is_allowed_everywhere(&self, verb: Verb) -> bool {
        self.judge.allows_everywhere(self.call_without_host(verb)).await
    }

    /// Records a call that was refused because of the caller's role.
    pub(crate) async fn note_refusal(&self, verb: Verb, error: &Refusal) {
        let call = self.call_without_host(verb);
        let refusal = call.refused(PolicyWhy::Rights(error.to_string()));
        self.judge.note_refusal(&refusal, call).await;
    }

    fn call_without_host(&self, verb: Verb) -> CallToDecide<'_> {
        CallToDecide {
            caller: &self.context.caller,
            address: self.context.address,
            rights: &self.context.rights,
            verb,
            approval_wait: self.context.approval_wait,
            minute: None,
            on: None,
        }
    }

    /// The template that a call names, with accepted values of its parameters.
    ///
    /// # Errors
    /// [`Refusal::Policy`].
    pub(crate) async fn template(
        &self,
        verb: Verb,
        host: &str,
        wanted: &TemplateCall,
    ) -> Result<(Template, BTreeMap<String, String>), Refusal> {
        let on = HostAct {
            template: Some(&wanted.name),
            ..HostAct::host(host)
        };
        let call = self.call(verb, on);
        let template = self.judge.template(call, wanted).await;
        if let Err(refusal) = &template {
            self.judge.note_refusal(refusal, call).await;
        }
        Ok(template?)
    }

    /// Refuses settings of a call that its template does not let it set.
    ///
    /// # Errors
    /// [`Refusal::Policy`].
    pub(crate) async fn check_options(
        &self,
        verb: Verb,
        draft: &Draft,
        template: &Template,
    ) -> Result<(), Refusal> {
        // Every field by name, so that the compiler reports one that is not looked at.
        let JobFacts {
            command,
            cwd,
            becomes,
            terminal,
            env_setup,
            has_default_setup: _,
            restart,
            warn,
            tree,
            // Where it runs, when, for how long and for whom: the caller's, as for any command.
            host: _,
            shell: _,
            label: _,
            timeout: _,
            template: _,
            notify: _,
            turn: _,
            durable: _,
            gpus: _,
            // Checked as `get` when the files are copied.
            fetch: _,
            chosen_from: _,
            fleet: _,
            member_of: _,
        } = &draft.facts;
        // An open stdin is a default; `Command` closes it.
        let has_text =
            matches!(&draft.stdin, Stdin::Text(text) if !text.expose_secret().is_empty());
        let has_stdin = has_text || draft.secrets.stdin.is_some();
        let has_other_env = draft.env_names().iter().any(|name| !template.allows_env(name));
        let options = [
            ("command", !command.is_empty()),
            ("cwd", cwd.is_some()),
            ("become", becomes.is_some()),
            ("stdin", has_stdin && !template.allows_stdin),
            ("pty", terminal.is_some() && !template.allows_pty),
            ("env", has_other_env),
            ("env_setup", env_setup.is_some()),
            ("restart", restart.is_some()),
            ("warn", warn.is_some()),
            ("sync", tree.is_some()),
        ];
        match options.into_iter().find(|(_, is_refused)| *is_refused) {
            Some((option, _)) => {
                let on = HostAct {
                    template: Some(&template.name),
                    ..HostAct::host(&draft.host)
                };
                let call = self.call(verb, on);
                let refusal = call.refused(PolicyWhy::TemplateOption(option));
                self.judge.note_refusal(&refusal, call).await;
                Err(refusal.into())
            }
            None => Ok(()),
        }
    }

    pub(super) fn call<'a>(&'a self, verb: Verb, on: HostAct<'a>) -> CallToDecide<'a> {
        CallToDecide {
            caller: &self.context.caller,
            address: self.context.address,
            rights: &self.context.rights,
            verb,
            approval_wait: self.context.approval_wait,
            minute: None,
            on: Some(on),
        }
    }

    /// Checks the caller's role and host patterns, and records a refusal.
    pub(crate) async fn check_rights(&self, verb: Verb, on: HostAct<'_>) -> Result<(), Refusal> {
        match self.check(verb, on.place.host) {
            Err(error) => Err(self.recorded(verb, on, error).await),
            checked => checked,
        }
    }

    /// Records a refusal that no rule has made, and returns it.
    pub(crate) async fn recorded<E: Display>(&self, verb: Verb, on: HostAct<'_>, error: E) -> E {
        let call = self.call(verb, on);
        let refusal = call.refused(PolicyWhy::Rights(error.to_string()));
        self.judge.note_refusal(&refusal, call).await;
        error
    }

    /// Checks the caller's role and host patterns.
    pub(super) fn check(&self, verb: Verb, host: &str) -> Result<(), Refusal> {
        let needed = verb.needed_role();
        if self.context.rights.role < needed {
            return Err(Refusal::Denied {
                caller: self.context.caller.clone(),
                role: self.context.rights.role,
                needed,
            });
        }
        if !self.has_host(host) {
            let caller = self.context.caller.clone();
            let host = host.to_owned();
            return Err(Refusal::DeniedHost {
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
    /// [`Refusal::DeniedHost`].
    pub(crate) async fn check_user(&self, verb: Verb, on: HostAct<'_>) -> Result<(), Refusal> {
        let Some(becomes) = on.place.becomes else { return Ok(()) };
        let host = on.place.host;
        let place = host.rsplit_once('@').map_or(host, |(_, place)| place);
        let login = format!("{}@{place}", becomes.user());
        if self.has_host(&login) {
            tracing::info!(caller = %self.context.caller, host, becomes = %becomes, "as another user");
            return Ok(());
        }
        let denied = Refusal::DeniedHost {
            caller: self.context.caller.clone(),
            host: login,
            nearest: None,
        };
        Err(self.recorded(verb, on, denied).await)
    }

    /// Asks the policy about a verb on a job: each of its hosts must be allowed. A verb that acts is
    /// recorded when it is admitted, and here only if it is refused.
    ///
    /// # Errors
    /// [`Refusal::Policy`].
    pub(crate) async fn judge_job(&self, verb: Verb, job: JudgedJob<'_>) -> Result<(), Refusal> {
        let is_read = verb.needed_role() == Role::Read;
        for on in on_job(job, None) {
            if is_read || self.ask(verb, on).await.is_err() {
                self.judge.decide(self.call(verb, on)).await?;
            }
        }
        Ok(())
    }

    /// Leave to read a job's output, if the policy allows it by tail or by read. Nothing is recorded: it
    /// is for replies that may contain some lines.
    pub(crate) async fn reading_if_allowed(
        &self,
        job: JudgedJob<'_>,
    ) -> Option<Permit<ReadOutput>> {
        self.check_output(job).ok()?;
        for verb in [Verb::Tail, Verb::Read] {
            let mut is_allowed = true;
            for on in on_job(job, None) {
                is_allowed &= self.ask(verb, on).await.is_ok();
            }
            if is_allowed {
                return Some(Permit::new(&self.context.caller, verb, job.id.clone()));
            }
        }
        None
    }

    /// The templates of the policy that the caller may run on a host.
    pub(crate) async fn templates(&self, host: &str) -> Vec<Template> {
        if self.context.rights.role < Role::Run || !self.may_reach(host).await {
            return Vec::new();
        }
        self.judge.templates(&self.context.caller, &self.context.rights, host).await
    }

    /// The approvals that the caller may see.
    ///
    /// # Errors
    /// [`Refusal::Vote`].
    pub(crate) async fn approvals(&self) -> Result<Vec<Approval>, Refusal> {
        Ok(self.judge.approvals_seen_by(self.voter()).await?)
    }

    /// Answers an approval. It lets a command through, so it takes the role that starts commands.
    ///
    /// # Errors
    /// [`Refusal::Vote`], [`Refusal::Denied`].
    pub(crate) async fn vote(&self, ballot: &NewVote) -> Result<Approval, Refusal> {
        if self.context.rights.role < Role::Run {
            return Err(Refusal::Denied {
                caller: self.context.caller.clone(),
                role: self.context.rights.role,
                needed: Role::Run,
            });
        }
        Ok(self.judge.vote(self.voter(), ballot).await?)
    }

    fn voter(&self) -> Voter<'_> {
        Voter {
            caller: &self.context.caller,
            address: self.context.address,
            rights: &self.context.rights,
        }
    }
}

impl<'a> StartCall<'a> {
    /// The start on one of its hosts.
    fn on(&self, host: &'a str) -> HostAct<'a> {
        let is_fleet = self.spec.fleet.is_some();
        HostAct {
            template: self.spec.template.as_ref().map(|template| template.name.as_str()),
            start: Some(StartToDecide {
                spec: self.spec,
                // No person can approve the start of a fleet's member.
                job: (!is_fleet).then_some(self.id),
                idempotency_key: self.idempotency_key,
                reason: self.reason,
            }),
            ..HostAct::place(CallPlace {
                host,
                becomes: self.spec.becomes.as_ref(),
            })
        }
    }
}

/// Records that the starts which were already allowed have failed, and gives them back.
async fn fail(starts: Starts, verb: Verb, context: &CallContext, refusal: &Refusal) {
    let permit = Permit::<Start>::new(&context.caller, verb, starts);
    permit.fail(&refusal.to_string()).await;
}

/// Where a verb on a job takes effect: on each of its hosts.
fn on_job<'a>(
    job: JudgedJob<'a>,
    content: Option<CallContent<'a>>,
) -> impl Iterator<Item = HostAct<'a>> {
    let template = job.spec.template.as_ref().map(|template| template.name.as_str());
    job.spec.hosts().iter().map(move |host| HostAct {
        template,
        job: Some(job.id),
        content,
        is_one_of_many: job.spec.fleet.is_some(),
        ..HostAct::place(CallPlace {
            host,
            becomes: job.spec.becomes.as_ref(),
        })
    })
}
