//! The entry of the library: `Jobs`, the jobs of one caller.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use super::attention::Attention;
use super::config::Config;
use super::door::{Door, Inside};
use super::error::Error;
use super::health::Health;
use super::job::Job;
#[cfg(feature = "files")]
use super::jobs_to_fetch::JobsToFetch;
use super::last_errors::LastErrors;
use super::notify::Notifier;
use super::observer::JobObserver;
use super::secrets::ConfiguredSecrets;
use crate::admission::{
    Admission, CallContext, CaseResult, Explanation, HostPatterns, Judge, NewVote, PolicyFileError,
    PolicyState, Refusal, Rights,
};
use crate::forward::Forwards;
use crate::hosts::{HostBook, Hosts, Prompters};
use crate::jobs::{Access, Filter, ReadableJob, Summary};
use crate::runner::{Runner, Stats, Surroundings};
use sshjobs_job::{Caller, JobId, Scope};
use sshjobs_policy::approval::Approval;
use sshjobs_policy::audit::{AuditFiles, StoredLine, lines_about};
use sshjobs_policy::{PolicyCase, Role, Template, Verb};
use sshjobs_ssh::{HostConfig, Prompter, Resolver};
use sshjobs_store::{HostPlace, Peers, SharedValue, Store, StoreError};

/// Whether a list asks hosts for current states.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Freshness {
    /// Ask the hosts of durable jobs that no process follows, at most for two seconds.
    AskHosts,
    /// Use the last recorded states.
    Recorded,
}

/// Time limit for hosts to report the state of durable jobs that no process follows.
pub(super) const ORPHANS_TIME: Duration = Duration::from_secs(2);

/// Hosts whose jobs are not listed.
#[derive(Default)]
struct HiddenHosts {
    /// The policy does not let the caller list jobs there.
    denied: BTreeSet<String>,
    /// The caller has no rights there, and sees only its own jobs.
    unreachable: BTreeSet<String>,
}

/// Maximum jobs examined for a caller who sees only those on some hosts.
const MOST_LISTED: usize = 100_000;

/// Jobs on remote hosts, as one caller sees them: start, find and end them.
///
/// A cheap handle: clones share jobs and connections. Dropping the last clone and the last [`Job`]
/// closes the connections and leaves remote processes running; [`shutdown`](Self::shutdown) ends
/// them first.
#[derive(Clone)]
pub struct Jobs {
    pub(super) door: Door,
    /// The verb that the policy decides on when files are written: `put` or `edit`.
    pub(super) changing: Verb,
    /// Progress of trees that are sent for jobs.
    #[cfg(feature = "files")]
    pub(super) tree_progress: Arc<crate::files::TransferProgress>,
}

impl Jobs {
    /// Jobs of the user who started the process. Records and output are in the state directory,
    /// shared with the user's other sshjobs processes. If it can't be used, jobs run anyway and
    /// report it ([`Status::unstored`](crate::jobs::Status)). Must be called within a tokio
    /// runtime.
    pub fn new(config: Config, access: Access) -> Self {
        Self::asking_callers(config, access, nobody())
    }

    /// Like [`new`](Self::new), with a prompter for passphrases, passwords and codes in logins of
    /// [`Caller::local`].
    pub fn asking(config: Config, access: Access, prompter: Arc<dyn Prompter>) -> Self {
        Self::asking_callers(config, access, for_the_local_caller(prompter))
    }

    /// Like [`new`](Self::new), with a prompter for each caller that has one.
    pub fn asking_callers(config: Config, access: Access, prompters: Prompters) -> Self {
        let book = book(&config, access);
        Self::with(config, book, prompters)
    }

    /// Jobs with one more host than their configuration has.
    pub(super) fn with_host(config: Config, host: HostConfig) -> Self {
        let book = book(&config, Access::Listed).with_given(host);
        Self::with(config, book, nobody())
    }

    /// Jobs over a store that is open already.
    pub(super) fn with_store(
        config: Config,
        access: Access,
        prompters: Prompters,
        store: Option<Arc<dyn Store>>,
    ) -> Self {
        let book = book(&config, access);
        Self::over(config, book, prompters, store.map(Ok))
    }

    /// Opens the store that the configuration names, then builds the handle.
    fn with(config: Config, book: HostBook, prompters: Prompters) -> Self {
        let store = config.open_store();
        Self::over(config, book, prompters, store)
    }

    /// Builds the handle. All constructors end here.
    fn over(
        config: Config,
        book: HostBook,
        prompters: Prompters,
        store: Option<Result<Arc<dyn Store>, StoreError>>,
    ) -> Self {
        let hosts = Arc::new(Hosts::new(book, config.limits.pool(), prompters));
        let cluster = store.iter().flatten().find(|store| store.peers().is_some());
        let auditor = Arc::new(config.auditor(cluster.cloned()));
        let notifier = Notifier::new(
            config.notify.clone(),
            SharedValue::new("notifications", store.clone()),
        );
        #[cfg(feature = "files")]
        let to_fetch: Arc<JobsToFetch> = Arc::default();
        let observer = JobObserver {
            auditor: Arc::clone(&auditor),
            notifier: notifier.clone(),
            #[cfg(feature = "files")]
            to_fetch: Arc::clone(&to_fetch),
        };
        let shared = store.clone();
        let own_state = store.clone();
        let attention = Attention::new(config.defaults.abandoned, store.clone());
        let secrets = Arc::new(ConfiguredSecrets::new(config.secrets.clone()));
        let surroundings = Surroundings {
            secrets: Arc::clone(&secrets) as _,
            observer: Box::new(observer),
        };
        let runner = Runner::new(
            Arc::clone(&hosts),
            config.limits,
            store,
            surroundings,
            config.queues.clone(),
        );
        let judge = Judge::new(
            Arc::clone(&hosts),
            config.policy.file.clone(),
            auditor,
            shared,
        );
        let context = CallContext::new(Caller::local(), Rights::everywhere(Role::Run));
        let admission = Admission::new(context, Arc::clone(&hosts), judge);
        let inside = Arc::new(Inside {
            runner,
            hosts,
            secrets,
            notifier,
            #[cfg(feature = "files")]
            to_fetch,
            attention: Arc::new(attention),
            config,
            last_errors: LastErrors::default(),
            forwards: Forwards::default(),
            store: own_state,
        });
        Self {
            door: Door { admission, inside },
            changing: Verb::Put,
            #[cfg(feature = "files")]
            tree_progress: Arc::default(),
        }
    }

    /// A value that all processes with the same state share, for faces of this crate.
    pub fn shared_value<T>(&self, name: &'static str) -> SharedValue<T>
    where
        T: Clone + Default + PartialEq + serde::Serialize + serde::de::DeserializeOwned + 'static,
    {
        SharedValue::new(name, self.door.inside.store.clone())
    }

    /// The same hosts and limits for another call: `change` says what differs. Another caller sees no
    /// keys, cursors or secrets of this handle's caller, and this caller's jobs only as
    /// [`Role::Admin`].
    #[must_use]
    pub fn with_context(&self, change: impl FnOnce(&mut CallContext)) -> Self {
        let mut context = self.context().clone();
        change(&mut context);
        Self {
            door: self.door.in_context(context),
            ..self.clone()
        }
    }

    /// The same hosts and limits for another caller, who uses the account that logs in.
    #[must_use]
    pub fn of(&self, caller: Caller, rights: Rights) -> Self {
        let of_caller = self.with_context(|context| {
            *context = CallContext {
                approval_wait: context.approval_wait,
                ..CallContext::new(caller, rights)
            };
        });
        Self {
            changing: Verb::Put,
            ..of_caller
        }
    }

    /// The caller and the circumstances of this handle's calls.
    pub fn context(&self) -> &CallContext {
        self.door.context()
    }

    /// Records a call that was refused before it came here.
    pub async fn note_refusal(&self, verb: Verb, error: &Refusal) {
        self.door.admission.note_refusal(verb, error).await;
    }

    /// The same, for callers that edit files and don't replace them.
    #[must_use]
    pub fn editing(&self) -> Self {
        Self {
            changing: Verb::Edit,
            ..self.clone()
        }
    }

    /// The caller of this handle.
    pub fn caller(&self) -> &Caller {
        self.door.caller()
    }

    /// Rights of the caller.
    pub fn rights(&self) -> &Rights {
        &self.context().rights
    }

    /// A job by its id. A member of a fleet has the fleet's id, a slash and the member's host.
    ///
    /// # Errors
    /// [`Error::UnknownJob`] if the caller sees no such job, [`Error::Expired`] if it is no longer
    /// kept, [`Error::Refused`] if the policy does not allow the caller to wait for it.
    pub async fn job(&self, id: &str) -> Result<Job, Error> {
        self.job_for(Verb::Wait, id).await
    }

    /// The handle of a job about which the policy was not asked.
    async fn find(&self, id: &str) -> Result<Job, Error> {
        let (id, member) = id.split_once('/').map_or((id, None), |(id, member)| (id, Some(member)));
        let job = Job::listed(self.door.clone(), self.door.find(&JobId::from(id)).await?);
        match member {
            Some(name) => job.member(name).await,
            None => Ok(job),
        }
    }

    /// Like [`job`](Self::job), for a verb that shows none of its output.
    ///
    /// # Errors
    /// As [`job`](Self::job), and [`Error::Refused`].
    pub async fn job_for(&self, verb: Verb, id: &str) -> Result<Job, Error> {
        let job = self.find(id).await?;
        job.ask(verb).await?;
        // A list asks for many jobs at once.
        if verb == Verb::Jobs {
            return Ok(job);
        }
        Ok(job.named().await)
    }

    /// A job whose output the caller may read by a verb.
    ///
    /// # Errors
    /// As [`job`](Self::job), and [`Error::Refused`].
    pub async fn readable(&self, verb: Verb, id: &str) -> Result<ReadableJob, Error> {
        self.find(id).await?.named().await.readable(verb).await
    }

    /// Approvals that the caller asked for, in order. An approver also sees those on the hosts of its
    /// token.
    ///
    /// # Errors
    /// [`Error::Refused`] if the policy or the approvals can't be used.
    pub async fn approvals(&self) -> Result<Vec<Approval>, Error> {
        Ok(self.door.admission.approvals().await?)
    }

    /// Answers an approval of another caller, and returns it. One caller that refuses is enough to refuse
    /// the call.
    ///
    /// # Errors
    /// [`Error::Refused`]: why the answer does not count.
    pub async fn vote(&self, ballot: &NewVote) -> Result<Approval, Error> {
        Ok(self.door.admission.vote(ballot).await?)
    }

    /// The templates of the policy that the caller may run on a host.
    pub async fn templates(&self, host: &str) -> Vec<Template> {
        self.door.admission.templates(host).await
    }

    /// The decision of the policy on a hypothetical call. `None` without a policy.
    ///
    /// # Errors
    /// If the policy file can't be used.
    pub async fn explain(
        &self,
        case: &PolicyCase,
    ) -> Option<Result<Explanation, Arc<PolicyFileError>>> {
        self.door.admission.judge().explain(case).await
    }

    /// The decisions of the policy on its test cases. `None` without a policy.
    ///
    /// # Errors
    /// If the policy file can't be used.
    pub async fn test_policy(&self) -> Option<Result<Vec<CaseResult>, Arc<PolicyFileError>>> {
        self.door.admission.judge().test().await
    }

    /// State of the policy. `None` without one.
    pub async fn policy_state(&self) -> Option<PolicyState> {
        self.door.admission.judge().state().await
    }

    /// The files of the audit log that the policy names. `None` if it names none.
    ///
    /// # Errors
    /// Why they are not known, in words.
    pub async fn audit_files(&self) -> Option<Result<AuditFiles, String>> {
        self.door.admission.judge().audit_files().await
    }

    /// The newest lines of the audit log about a job, at most `most`. `None` if the policy names no log.
    /// Reads the whole log; one call at a time does so.
    ///
    /// # Errors
    /// Why the log can't be read, in words.
    pub async fn audit_lines(
        &self,
        job: &Job,
        most: usize,
    ) -> Option<Result<Vec<StoredLine>, String>> {
        let files = match self.audit_files().await? {
            Ok(files) => files,
            Err(why) => return Some(Err(why)),
        };
        let _turn = self.door.admission.judge().audit_reading().await;
        let id = job.id().to_owned();
        let read = tokio::task::spawn_blocking(move || lines_about(&files.log, &id, most)).await;
        Some(match read {
            Ok(read) => read.map_err(|error| error.to_string()),
            Err(error) => Err(error.to_string()),
        })
    }

    /// Notifications of what happens to jobs.
    pub fn notifier(&self) -> &Notifier {
        &self.door.inside.notifier
    }

    /// Reads the policy file now, whether or not it seems changed.
    pub async fn reload_policy(&self) {
        self.door.admission.judge().reload().await;
    }

    /// Lists the jobs that the caller sees and that match a filter: jobs of this process, and of
    /// other processes in the state directory. Returns the newest ones, and the number of all
    /// matches.
    ///
    /// # Errors
    /// [`Error::Store`] if the state directory can't be read.
    pub async fn list(
        &self,
        filter: Filter,
        freshness: Freshness,
    ) -> Result<(Vec<Summary>, usize), Error> {
        let inside = &self.door.inside;
        let patience = match freshness {
            Freshness::AskHosts => Some(ORPHANS_TIME),
            Freshness::Recorded => None,
        };
        let scope = self.context().scope();
        let sees_all_hosts = scope != Scope::All || self.rights().hosts == HostPatterns::default();
        let may_list_all = self.door.admission.is_allowed_everywhere(Verb::Jobs).await;
        if sees_all_hosts && may_list_all {
            return Ok(inside.runner.list(&scope, filter, patience).await?);
        }

        // The store can evaluate neither host patterns nor the policy.
        let limit = filter.limit;
        // Not limited yet: the caller's limit applies to the jobs that the checks leave.
        let filter = Filter {
            limit: MOST_LISTED,
            ..filter
        };
        let (mut found, _) = inside.runner.list(&scope, filter, patience).await?;
        let hidden = self.hidden_hosts(&found, may_list_all).await;
        found.retain(|job| {
            let is_own = job.caller == *self.caller();
            let is_reached = |host: &String| is_own || !hidden.unreachable.contains(host);
            job.facts
                .hosts()
                .iter()
                .all(|host| !hidden.denied.contains(host) && is_reached(host))
        });
        let total = found.len();
        found.truncate(limit);
        Ok((found, total))
    }

    /// The hosts of a list that hide jobs. Each host is checked once: a check may run `ssh -G` and ask
    /// DNS.
    async fn hidden_hosts(&self, listed: &[Summary], may_list_all: bool) -> HiddenHosts {
        let all: BTreeSet<&String> = listed.iter().flat_map(|job| job.facts.hosts()).collect();
        let of_others = listed.iter().filter(|job| job.caller != *self.caller());
        let of_others: BTreeSet<&String> = of_others.flat_map(|job| job.facts.hosts()).collect();
        let mut hidden = HiddenHosts::default();
        for host in all {
            if !may_list_all && !self.door.admission.is_allowed(Verb::Jobs, host).await {
                hidden.denied.insert(host.clone());
            }
            if of_others.contains(host) && !self.door.admission.may_reach(host).await {
                hidden.unreachable.insert(host.clone());
            }
        }
        hidden
    }

    /// The configuration.
    pub fn config(&self) -> &Config {
        &self.door.inside.config
    }

    /// Waits until the counter of changes differs from `known`, and returns it. Among the jobs of
    /// this process that the caller sees, each addition, end and removal changes it. `None` returns
    /// at once. Cancel safe.
    pub async fn changes(&self, known: Option<u64>) -> u64 {
        self.door.runner().changes(&self.context().scope(), known).await
    }

    /// The replica of a cluster that has a host. This process without a cluster.
    ///
    /// # Errors
    /// [`Error::Store`] if NATS can't be asked.
    pub async fn place_of_host(&self, host: &str) -> Result<HostPlace, Error> {
        match self.peers() {
            Some(peers) => Ok(peers.place_of_host(host).await?),
            None => Ok(HostPlace::Here),
        }
    }

    /// The replica of a cluster that runs a job, if it is another one that is alive.
    pub async fn replica_of_job(&self, id: &str) -> Option<String> {
        self.door.runner().replica_of(&JobId::from(id)).await
    }

    /// The other replicas of the cluster, if there is one.
    pub fn peers(&self) -> Option<Arc<dyn Peers>> {
        self.door.runner().peers()
    }

    /// Why nothing can be stored, in words. Does not wait.
    pub fn store_trouble(&self) -> Option<String> {
        self.door.runner().store_trouble()
    }

    /// State of the store, the policy, approvals, notifications and hosts, for operators.
    pub async fn health(&self) -> Health {
        self.door.health().await
    }

    /// Activity of this process, in numbers, for all callers.
    pub fn stats(&self) -> Stats {
        self.door.runner().stats()
    }

    /// In a cluster, hands all hosts over to other replicas, so that their durable jobs continue to
    /// be followed. Then waits for attached jobs to end, at most for `drain`. Call it before
    /// [`shutdown`](Self::shutdown).
    pub async fn hand_over(&self, drain: Duration) {
        self.door.runner().hand_over(drain).await;
    }

    /// Ends every caller's jobs that still run (TERM, a grace, KILL) and closes all forwards and
    /// connections. Takes some seconds at most.
    pub async fn shutdown(&self) {
        self.door.inside.forwards.shut_down().await;
        self.door.runner().shutdown().await;
        // Last, with the ends of all jobs.
        self.door.inside.notifier.flush().await;
        self.door.admission.judge().finish_audit().await;
    }
}

/// A prompter for [`Caller::local`] only.
pub(super) fn for_the_local_caller(prompter: Arc<dyn Prompter>) -> Prompters {
    Box::new(move |caller: &Caller| (*caller == Caller::local()).then(|| Arc::clone(&prompter)))
}

fn nobody() -> Prompters {
    Box::new(|_| None)
}

fn book(config: &Config, access: Access) -> HostBook {
    let access = if config.allow_any_host {
        Access::Any
    } else {
        access
    };
    let resolver = Resolver {
        ssh_config: config.ssh_config.clone(),
        settings: config.hosts.clone(),
        proxy_commands: config.allow_proxy_command,
        arguments: config.ssh_arguments.clone(),
        ..Resolver::default()
    };
    let setups = config.tags.iter().filter_map(|(tag, of_tag)| {
        let setup = of_tag.env_setup.clone()?;
        Some((tag.clone(), setup))
    });
    HostBook::new(resolver, access).with_setups(setups.collect())
}
