//! `sshjobs rerun`: starts the command of an earlier job again, with the same host and surroundings.

use std::collections::BTreeMap;
use std::time::Duration;

use secrecy::SecretString;
use sshjobs_core::jobs::{BecomeMethod, Prompter, Question, StopAfter};
use sshjobs_wire::remote::Api;
use sshjobs_wire::{CommandRequest, Error, RecipeReply, RecipeRequest};

use super::jobs::resolve;
use super::run;
use super::spawn::spawn_here;
use crate::args::{
    BecomeArgs, FleetArgs, RerunArgs, RestartArgs, RolloutArgs, RunArgs, SecretArgs, SpawnArgs,
    StartArgs, StreamChoice, TemplateArgs, TreeArgs, TurnArgs, WritingArgs,
};
use crate::terminal::{TerminalPrompter, keyboard};
use crate::{ProgramExit, report};

/// Starts a job again and follows it as `run` does.
pub async fn rerun(api: &Api, args: RerunArgs) -> ProgramExit {
    let detach = args.detach;
    match run_args(api, args).await {
        // Not `run -d`: that would repeat the questions in another process if the job has to wait.
        Ok(again) if detach => {
            let has_open_stdin = !again.no_stdin;
            let spawn = SpawnArgs {
                stdin: has_open_stdin
                    && again.durable
                    && again.start.secrets.secret_stdin.is_none(),
                ..again.into_spawn()
            };
            spawn_here(api, spawn).await
        }
        Ok(again) => run(api, again).await,
        Err(error) => {
            report(&error);
            api.shutdown().await;
            ProgramExit::of_error(&error)
        }
    }
}

/// The arguments of `run` for the same start.
async fn run_args(api: &Api, args: RerunArgs) -> Result<RunArgs, Error> {
    let job_id = resolve(api, &args.job).await?;
    let RecipeReply { start, env } = api.recipe(RecipeRequest { job_id }).await?;
    let given: Vec<&str> = args
        .env
        .iter()
        .map(|option| option.split('=').next().unwrap_or_default())
        .collect();
    let missing: Vec<String> =
        env.into_iter().filter(|name| !given.contains(&name.as_str())).collect();
    let known_env = ask_for(missing).await?;
    let has_keyboard = keyboard::is_there() && !args.detach;
    let hosts = if start.hosts.is_empty() {
        start.host.clone()
    } else {
        start.hosts.join(",")
    };
    Ok(RunArgs {
        host: hosts,
        command: command(&start),
        no_stdin: start.stdin.is_some(),
        pty: start.pty && !has_keyboard,
        tty: u8::from(start.pty && has_keyboard),
        durable: start.durable == Some(true),
        detach: args.detach,
        label: start.label.clone(),
        timestamps: false,
        stream: StreamChoice::Both,
        raw: false,
        json: args.json,
        fleet: FleetArgs {
            rollout: rollout(&start)?,
            ..FleetArgs::default()
        },
        becomes: BecomeArgs {
            root: false,
            user: start.becomes.clone(),
            become_method: become_method(&start)?,
        },
        start: StartArgs {
            env: args.env,
            known_env,
            ..start_args(start)?
        },
        ssh: args.ssh,
    })
}

/// The words of the command.
fn command(start: &CommandRequest) -> Vec<String> {
    if start.argv.is_empty() && !start.command.is_empty() {
        vec![start.command.clone()]
    } else {
        start.argv.clone()
    }
}

fn rollout(start: &CommandRequest) -> Result<RolloutArgs, Error> {
    let stop_after = start.stop_after_failures.as_deref().map(str::parse::<StopAfter>).transpose();
    Ok(RolloutArgs {
        max_parallel: start.max_parallel,
        canary: start.canary,
        stop_after_failures: stop_after
            .map_err(|why| Error::invalid("the job's roll-out can't be repeated", why))?,
        retries: start.retry,
    })
}

fn become_method(start: &CommandRequest) -> Result<Option<BecomeMethod>, Error> {
    let method = start.become_method.as_deref().map(str::parse::<BecomeMethod>).transpose();
    method
        .map_err(|error| Error::invalid(error.to_string(), "start the command with `sshjobs run`"))
}

fn start_args(start: CommandRequest) -> Result<StartArgs, Error> {
    let timeout = start.timeout_s.map(Duration::try_from_secs_f64).transpose();
    let timeout = timeout.map_err(|error| {
        Error::invalid(
            format!("the server's time limit can't be read: {error}"),
            "check --server",
        )
    })?;
    Ok(StartArgs {
        cwd: start.cwd,
        secrets: SecretArgs {
            secret_env: start.secret_env.into_iter().collect(),
            secret_stdin: start.secret_stdin,
        },
        timeout,
        notify: start.notify,
        env_setup: start.env_setup,
        tree: TreeArgs {
            sync: start.sync,
            exclude: start.exclude,
            fetch: start.fetch,
            earlier: start.tree,
        },
        restart: RestartArgs {
            restart: start.restart,
            retry_if: start.retry_if,
            restart_after_reboot: start.restart_after_reboot,
            warn: start.warn,
            gpus: start.gpus,
            pack: false,
        },
        turn: TurnArgs {
            queue: start.queue,
            ..TurnArgs::default()
        },
        template: TemplateArgs {
            template: start.template,
            params: start.params.into_iter().collect(),
        },
        writing: WritingArgs {
            argv: !start.argv.is_empty(),
            ..WritingArgs::default()
        },
        ..StartArgs::default()
    })
}

/// Asks the person at the terminal for the values of variables, which are not stored. This environment is not
/// searched for them: another caller may have chosen the names, and would get the values.
async fn ask_for(names: Vec<String>) -> Result<BTreeMap<String, SecretString>, Error> {
    let mut values = BTreeMap::new();
    for name in names {
        let value = ask_for_one(&name).await?;
        values.insert(name, value);
    }
    Ok(values)
}

async fn ask_for_one(name: &str) -> Result<SecretString, Error> {
    let missing = || {
        Error::invalid(
            format!("the job had the variable {name}, whose value is not stored"),
            format!(
                "give it with --env {name}=VALUE, or --env {name} for that of this environment"
            ),
        )
    };
    let prompter = TerminalPrompter::new().ok_or_else(missing)?;
    let question = Question {
        host: "rerun".to_owned(),
        text: format!("value of the variable {name}: "),
        echo: false,
    };
    prompter.ask(&question).await.ok_or_else(missing)
}
