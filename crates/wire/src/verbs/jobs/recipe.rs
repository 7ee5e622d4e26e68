//! The verb recipe: how a job was started, to start it again.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Service;
use crate::error::{Code, Error};
use crate::verbs::command::CommandRequest;
use sshjobs_core::jobs::{CommandShell, JobFacts, JobTree, Receiver, Recipe, Verb, unquote_words};

/// Get the arguments of a job's start.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RecipeRequest {
    /// The job.
    pub job_id: String,
}

/// How a job was started.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct RecipeReply {
    /// Arguments of `spawn` for the same start, without the values of variables and without text for
    /// stdin, which are not stored, and without `after` and `after_ok`.
    pub start: CommandRequest,
    /// Names of variables that need a value.
    #[serde(default)]
    pub env: Vec<String>,
}

impl Service {
    /// Returns the arguments of a job's start, as far as they are stored.
    pub async fn recipe(&self, request: RecipeRequest) -> Result<RecipeReply, Error> {
        let job = self.job(Verb::Jobs, &request.job_id).await?;
        let recipe = job.recipe();
        if recipe.has_script {
            return Err(Error::new(
                Code::Unsupported,
                format!(
                    "{} has run a script, whose text is not stored",
                    request.job_id
                ),
                "start it with the script: `sshjobs run --script FILE HOST`",
            ));
        }
        let is_own = job.caller() == job.seen_by();
        let mut start = start_of(&recipe);
        // The path of a URL and the text of a command may be secrets of that caller.
        start.notify = recipe
            .facts
            .notify
            .iter()
            .filter_map(|receiver| name_of(receiver, is_own))
            .collect();
        Ok(RecipeReply {
            start,
            env: recipe.env,
        })
    }
}

/// The request for the same start.
fn start_of(recipe: &Recipe) -> CommandRequest {
    let facts = &recipe.facts;
    let fleet = facts.fleet.as_ref();
    let template = facts.template.as_ref();
    let terminal = facts.terminal.as_ref();
    // The command of a template is made again, from its parameters.
    let command = if template.is_some() {
        String::new()
    } else {
        facts.command.clone()
    };
    let (command, argv) = match facts.shell {
        CommandShell::Login => (command, Vec::new()),
        CommandShell::Posix => {
            let in_a_shell = || ["/bin/sh", "-c", &command].map(str::to_owned).to_vec();
            (
                String::new(),
                unquote_words(&command).unwrap_or_else(in_a_shell),
            )
        }
    };
    CommandRequest {
        host: match &facts.chosen_from {
            _ if fleet.is_some() => String::new(),
            Some(words) => words.clone(),
            None => facts.host.clone(),
        },
        hosts: fleet.map(|plan| plan.members.to_vec()).unwrap_or_default(),
        max_parallel: fleet.map(|plan| plan.max_parallel),
        canary: fleet.map_or(0, |plan| plan.canary),
        stop_after_failures: fleet.and_then(|plan| plan.stop_after).map(String::from),
        retry: fleet.map_or(0, |plan| plan.retries),
        command,
        argv,
        template: template.map(|template| template.name.clone()),
        params: template.map(|template| template.params.clone()).unwrap_or_default(),
        cwd: directory_of(facts),
        sync: facts.tree.as_ref().map(source_of),
        exclude: facts.tree.as_ref().map(|tree| tree.excluded.clone()).unwrap_or_default(),
        tree: facts.tree.clone(),
        secret_env: recipe.secret_env.clone(),
        secret_stdin: recipe.secret_stdin.clone(),
        becomes: facts.becomes.as_ref().map(|becomes| becomes.user().to_owned()),
        become_method: facts.becomes.as_ref().map(|becomes| becomes.method().as_str().to_owned()),
        stdin: (!recipe.has_open_stdin).then(|| String::new().into()),
        pty: terminal.is_some(),
        cols: terminal.map(|terminal| terminal.cols.into()),
        rows: terminal.map(|terminal| terminal.rows.into()),
        term: terminal.map(|terminal| terminal.term.clone()),
        answer_queries: terminal.is_some_and(|terminal| terminal.answers_queries),
        durable: Some(facts.durable),
        label: facts.label.clone(),
        timeout_s: facts.timeout.map(|limit| limit.as_secs_f64()),
        queue: facts.turn.queue.clone(),
        restart: facts.restart.as_ref().map(ToString::to_string),
        retry_if: facts
            .restart
            .as_ref()
            .map(|restart| restart.retry_if.iter().map(ToString::to_string).collect())
            .unwrap_or_default(),
        restart_after_reboot: facts.restart.as_ref().is_some_and(|restart| restart.after_reboot),
        warn: facts
            .warn
            .as_ref()
            .map(|warn| format!("{}@{}", warn.signal, warn.before.as_secs_f64())),
        env_setup: facts.asked_setup().map(str::to_owned),
        gpus: facts.gpus.as_ref().map(ToString::to_string),
        fetch: facts.fetch.iter().map(ToString::to_string).collect(),
        ..CommandRequest::default()
    }
}

/// The working directory, below its tree if it has one.
fn directory_of(facts: &JobFacts) -> Option<String> {
    let cwd = facts.cwd.clone()?;
    let Some(tree) = &facts.tree else { return Some(cwd) };
    match cwd.strip_prefix(&tree.path) {
        Some(below) => {
            let below = below.trim_start_matches('/');
            (!below.is_empty()).then(|| below.to_owned())
        }
        None => Some(cwd),
    }
}

/// The tree as it is sent again: to the same directory, if the caller has chosen it.
fn source_of(tree: &JobTree) -> String {
    if tree.is_shared {
        tree.source.clone()
    } else {
        format!("{}:{}", tree.source, tree.path)
    }
}

/// A receiver, as `notify` names it. `None` if only its own caller may know it.
fn name_of(receiver: &Receiver, is_own: bool) -> Option<String> {
    match receiver {
        Receiver::Target(text) => Some(text.clone()),
        Receiver::Url(text) | Receiver::Command(text) => is_own.then(|| text.clone()),
    }
}
