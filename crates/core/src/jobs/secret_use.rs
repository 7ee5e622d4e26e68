//! The use of a secret by a caller.

use secrecy::SecretString;

use super::door::Door;
use super::error::Error;
use super::secrets::{SecretConfig, SecretRefusal, SecretValue};
use crate::admission::{HostAct, WriteInput, is_excluded_by_address};
use crate::runner::Permitted;
use sshjobs_job::{Draft, Stdin};
use sshjobs_policy::{PolicyCaller, Verb};

impl Door {
    /// Refuses a secret that the caller may not use on each of these hosts.
    ///
    /// # Errors
    /// [`Error::Secret`].
    pub(super) async fn check_secret(
        &self,
        verb: Verb,
        name: &str,
        hosts: &[String],
    ) -> Result<(), Error> {
        for host in hosts {
            // First: the error below has names of secrets.
            self.admission.check_rights(verb, HostAct::host(host)).await?;
            let secret = self.inside.secrets.get(name);
            if let Some(secret) = secret
                && self.may_use(secret, host).await
            {
                continue;
            }
            // The error below would reveal that the host is listed.
            if !self.admission.is_allowed(verb, host).await {
                return Err(self.admission.not_allowed(verb, host).await.into());
            }
            let refusal = SecretRefusal::NotAllowed {
                caller: self.caller().clone(),
                name: name.chars().take(64).collect(),
                host: host.clone(),
                usable: self.usable_secrets(host).await,
            };
            return Err(self.admission.recorded(verb, HostAct::host(host), refusal).await.into());
        }
        Ok(())
    }

    /// Refuses a start with a secret that the caller may not use.
    ///
    /// # Errors
    /// [`Error::Secret`]; [`Error::Spec`] if a variable would get two values.
    pub(super) async fn check_secrets(
        &self,
        verb: Verb,
        draft: &Draft,
        hosts: &[String],
    ) -> Result<(), Error> {
        draft.check_secrets()?;
        for name in draft.secrets.names() {
            self.check_secret(verb, name, hosts).await?;
        }
        Ok(())
    }

    /// Reads the secrets of a start that is allowed, and sets its variables and stdin.
    ///
    /// # Errors
    /// [`Error::Secret`].
    pub(super) async fn fill_secrets(&self, draft: &mut Draft) -> Result<(), Error> {
        let uses = draft.secrets.clone();
        for name in uses.names() {
            let SecretValue { value, hidden } = self.inside.secrets.read_value(name).await?;
            let variables = uses.env.iter().filter(|(_, secret)| *secret == name);
            for (variable, _) in variables {
                draft.env.insert(variable.clone(), value.clone());
            }
            if uses.stdin.as_deref() == Some(name) {
                draft.stdin = Stdin::Text(value);
            }
            if let Some(hidden) = hidden {
                draft.secrets.fingerprints.push(self.runner().fingerprint_of(&hidden));
                draft.secrets.hidden.push(hidden);
            }
        }
        Ok(())
    }

    /// Reads a secret that will be written to a job, and hides it in output that arrives later. The write
    /// must be allowed already.
    ///
    /// # Errors
    /// [`Error::Secret`]; [`Error::Write`] if the job does not run.
    pub(super) async fn secret_for_job(
        &self,
        name: &str,
        job: Permitted<'_, WriteInput>,
    ) -> Result<SecretString, Error> {
        let SecretValue { value, hidden } = self.inside.secrets.read_value(name).await?;
        let Some(hidden) = hidden else { return Ok(value) };
        let judged = job.judged();
        if !judged.spec.durable {
            self.runner().hide_secret(job, &hidden).await?;
            return Ok(value);
        }
        // A process that takes the job over hides only the secrets in its record.
        let fingerprint = self.runner().fingerprint_of(&hidden);
        if judged.spec.secrets.fingerprints.contains(&fingerprint) {
            return Ok(value);
        }
        let refusal = SecretRefusal::NotOfDurableJob {
            name: name.to_owned(),
            job: judged.id.clone(),
        };
        Err(refusal.into())
    }

    /// Names of the secrets that the caller may use on a host.
    async fn usable_secrets(&self, host: &str) -> Vec<String> {
        let mut names = Vec::new();
        for (name, secret) in self.inside.secrets.iter() {
            if self.may_use(secret, host).await {
                names.push(name.clone());
            }
        }
        names
    }

    async fn may_use(&self, secret: &SecretConfig, host: &str) -> bool {
        let caller = PolicyCaller {
            name: self.caller().as_str().to_owned(),
            role: self.context().rights.role,
            claims: self.context().rights.claims.clone(),
        };
        let book = self.book();
        secret.is_for_caller(&caller)
            && secret.hosts.contain(host, book.tags(host))
            && !is_excluded_by_address(&secret.hosts, book, host).await
    }
}
