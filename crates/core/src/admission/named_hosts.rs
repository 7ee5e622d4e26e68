//! Hosts as callers name them: those that a caller may use, and the most similar name to one that it
//! may not.

use futures_util::{FutureExt, StreamExt, TryStreamExt, stream};

use super::admission::Admission;
use super::call::{HostAct, JudgedJob};
use super::error::Refusal;
use super::excluded::is_excluded_by_address;
use super::refusal::PolicyWhy;
use crate::hosts::{HostError, HostRef};
use sshjobs_base::nearest::nearest;
use sshjobs_job::{unfold, words};
use sshjobs_policy::Verb;

/// Maximum similar names that are tried for a suggestion.
const MOST_SUGGESTED: usize = 8;
/// Maximum names resolved concurrently.
const AT_A_TIME: usize = 16;

impl Admission {
    /// Checks everything but the policy for a verb on a host that the caller names.
    pub(crate) async fn find_host(&self, verb: Verb, host: &str) -> Result<HostRef, Refusal> {
        match self.check_rights(verb, HostAct::host(host)).await {
            Err(Refusal::DeniedHost { host, .. }) => return Err(self.denied_host(&host).await),
            checked => checked?,
        }
        self.recorded_address(verb, host).await?;
        let checked = self.hosts.book().check(host).await;
        // The book suggests any listed host. This replaces it by one that the caller may use.
        if let Err(HostError::Unknown { name, .. }) = checked {
            return Err(self.unknown_host(verb, name).await);
        }
        checked?;
        tracing::info!(caller = %self.context.caller, ?verb, host, "call");
        Ok(self.reference(host))
    }

    pub(super) fn reference(&self, host: &str) -> HostRef {
        HostRef {
            caller: self.context.caller.clone(),
            name: host.to_owned(),
        }
    }

    /// Checks everything but the policy for a verb on many hosts that the caller names.
    pub(crate) async fn find_hosts(&self, verb: Verb, hosts: &[String]) -> Result<(), Refusal> {
        if let [host] = hosts {
            return self.find_host(verb, host).await.map(drop);
        }
        for host in hosts {
            // Repeated on failure: `find_host` adds the most similar host to the error.
            if self.check(verb, host).is_err() {
                self.find_host(verb, host).await?;
            }
        }
        if self.context.rights.hosts.has_exclusions() {
            let checks = hosts.iter().map(|host| self.recorded_address(verb, host).boxed());
            let checks: Vec<_> = checks.collect();
            stream::iter(checks).buffered(AT_A_TIME).try_collect::<()>().await?;
        }
        match self.hosts.book().check_all(hosts).await {
            Err(HostError::Unknown { name, .. }) => Err(self.unknown_host(verb, name).await),
            checked => Ok(checked?),
        }
    }

    /// Refuses a host that is another name of an excluded one.
    pub(super) async fn checked_address(&self, host: &str) -> Result<(), Refusal> {
        if is_excluded_by_address(&self.context.rights.hosts, self.hosts.book(), host).await {
            return Err(self.denied_host(host).await);
        }
        Ok(())
    }

    /// Like [`checked_address`](Self::checked_address), and records a refusal in the audit log.
    pub(super) async fn recorded_address(&self, verb: Verb, host: &str) -> Result<(), Refusal> {
        match self.checked_address(host).await {
            Ok(()) => Ok(()),
            Err(error) => Err(self.recorded(verb, HostAct::host(host), error).await),
        }
    }

    pub(super) async fn denied_host(&self, host: &str) -> Refusal {
        let nearest = self.nearest(host).await;
        Refusal::DeniedHost {
            caller: self.context.caller.clone(),
            host: host.to_owned(),
            nearest,
        }
    }

    /// The names that the caller may use for a verb, also by their addresses, in the same order.
    pub(crate) async fn usable(&self, verb: Verb, names: Vec<String>) -> Vec<String> {
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

    /// The most similar name among the hosts that the caller may use. Others are not revealed.
    pub(crate) async fn nearest(&self, host: &str) -> Option<String> {
        let listed = self.hosts.book().listed().await.ok()?;
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
    pub(super) async fn unknown_host(&self, verb: Verb, name: String) -> Refusal {
        if !self.is_allowed(verb, &name).await {
            return self.not_allowed(verb, &name).await;
        }
        let nearest = self.nearest(&name).await;
        HostError::Unknown { name, nearest }.into()
    }

    /// The refusal for a host on which no rule allows the verb, listed or not. It is in the audit log.
    pub(crate) async fn not_allowed(&self, verb: Verb, host: &str) -> Refusal {
        let call = self.call(verb, HostAct::host(host));
        let refusal = call.refused(PolicyWhy::NotAllowed);
        self.judge.note_refusal(&refusal, call).await;
        refusal.into()
    }

    /// Whether the caller may see a job in its scope. A caller always sees its own jobs. An admin
    /// with limited hosts sees jobs of others only on these.
    pub(crate) async fn may_see(&self, job: JudgedJob<'_>) -> bool {
        if *job.caller == self.context.caller {
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
    pub(crate) async fn may_reach_all(&self, folded: &str) -> bool {
        for word in words(folded) {
            let hosts = unfold(word).unwrap_or_else(|_| vec![word.to_owned()]);
            for host in hosts {
                if !self.may_reach(&host).await {
                    return false;
                }
            }
        }
        true
    }

    /// Whether the caller has rights on a host, also by its address.
    pub(crate) async fn may_reach(&self, host: &str) -> bool {
        self.has_host(host)
            && !is_excluded_by_address(&self.context.rights.hosts, self.hosts.book(), host).await
    }

    /// The most similar name that the caller may use. `None` if `host` itself is listed.
    pub(crate) async fn nearest_unlisted(&self, host: &str) -> Option<String> {
        let listed = self.hosts.book().listed().await.ok()?;
        if listed.contains_key(host) {
            None
        } else {
            self.nearest(host).await
        }
    }
}
