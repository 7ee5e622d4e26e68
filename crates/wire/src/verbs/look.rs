//! The verb look: a command that is known to change nothing.

use std::collections::BTreeMap;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::command::texts;
use super::run::{after_start, budget};
use crate::clamp::Clamps;
use crate::error::{Code, Error};
use crate::{RunReply, Service};
use sshjobs_core::jobs::{Look, NotReadOnly, TemplateCall, Verb};

/// Run a command that only looks, and wait for its end.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LookRequest {
    /// Host name from ssh_hosts.
    pub host: String,
    /// Program and arguments; no shell.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub argv: Vec<String>,
    /// Name of a read-only template, instead of argv.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template: Option<String>,
    /// Values of the template's parameters.
    #[serde(
        default,
        skip_serializing_if = "BTreeMap::is_empty",
        deserialize_with = "texts"
    )]
    #[schemars(extend("additionalProperties" = true))]
    pub params: BTreeMap<String, String>,
    /// Working directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// Maximum bytes of output. Default: 8192, or 1536 of longer output.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub max_bytes: Option<i64>,
}

/// Longest wait for the start and the end: the command's own time limit, and a login before.
const WAIT: Duration = Duration::from_secs(40);

impl Service {
    /// Runs a command that only looks: a program, options and names of a table, or a template of the policy
    /// with `read_only`. Ends it after half a minute. Cancelling ends the wait, not the job.
    ///
    /// # Errors
    /// `not_read_only` for a word that is not in the table.
    pub async fn look(&self, request: LookRequest) -> Result<RunReply, Error> {
        if let Some(replica) = self.replica_of_host(&request.host).await? {
            return self.perform_at(&replica, "look", &request).await;
        }
        let mut clamps = Clamps::default();
        let budget = budget(request.max_bytes, &mut clamps)?;
        let look = request.command()?;
        let job = Box::pin(self.jobs.look(&request.host, look)).await?;
        self.unless_closed(
            job.wait_within(WAIT.min(Duration::from_millis(self.longest_wait_ms()))),
        )
        .await;
        let id = job.id().to_owned();
        let job = job.readable(Verb::Look).await;
        let job = job.map_err(|error| after_start(&id, error.into()))?;
        Ok(Box::pin(RunReply::of(&job, budget, clamps.0)).await)
    }
}

impl LookRequest {
    fn command(&self) -> Result<Look, Error> {
        match (&self.template, self.argv.is_empty()) {
            (Some(name), true) if self.cwd.is_none() => Ok(Look::of_template(TemplateCall {
                name: name.clone(),
                params: self.params.clone(),
            })),
            (Some(_), _) => Err(Error::invalid(
                "a template has its own words and directory",
                "omit argv and cwd, or omit template",
            )),
            (None, _) if !self.params.is_empty() => Err(Error::invalid(
                "params are the values of a template, and none is named",
                "name a template, or omit params",
            )),
            (None, _) => Look::new(&self.argv, self.cwd.as_deref()).map_err(not_read_only),
        }
    }
}

pub(super) fn not_read_only(error: NotReadOnly) -> Error {
    Error::new(Code::NotReadOnly, error.why, error.instead)
}
