//! Arguments of a command, shared by spawn and run.

use std::collections::BTreeMap;
use std::time::Duration;

use schemars::JsonSchema;
use secrecy::{ExposeSecret, SecretString};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use crate::error::Error;
use crate::leave_out::is_false;
use crate::secret::{reveal, reveal_values};
use sshjobs_core::jobs::{
    BadBecome, BadFetchPattern, BadGpuRequest, BadRestart, Become, BecomeMethod, Command, Draft,
    EarlyWarning, FetchPattern, FleetSpec, GpuRequest, JobFacts, JobId, JobTree, Jobs,
    NotifyConfig, Receiver, Restart, SCRIPT, SecretUses, SpecError, StartTarget, Stdin, StopAfter,
    TemplateCall, Terminal, Turn,
};

/// A command and how to start it: the arguments shared by ssh_spawn and ssh_run.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(inline)]
pub struct CommandRequest {
    /// Host name from ssh_hosts, or any(tag:gpu).
    #[serde(default)]
    pub host: String,
    /// Hosts (names, globs, tag:NAME); members are jobs ID/HOST.
    #[serde(default)]
    pub hosts: Vec<String>,
    /// Maximum hosts at a time. Default 64.
    #[serde(default)]
    #[schemars(with = "i64", range(min = 1))]
    pub max_parallel: Option<usize>,
    /// Hosts to start first; others once these succeeded.
    #[serde(default)]
    #[schemars(with = "i64", range(min = 0))]
    pub canary: usize,
    /// Start no more after this many failures: 3 or 10%.
    #[serde(default)]
    pub stop_after_failures: Option<String>,
    /// Retries of failed starts.
    #[serde(default)]
    #[schemars(with = "i64", range(min = 0, max = 100))]
    pub retry: u32,
    /// Shell command line.
    #[serde(default)]
    pub command: String,
    /// Program and arguments, unquoted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub argv: Vec<String>,
    /// Text of a script.
    #[serde(
        default,
        serialize_with = "reveal",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(with = "String")]
    pub script: Option<SecretString>,
    /// Program for script. Default: its #! line, or sh.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interpreter: Option<String>,
    /// Template, instead of command.
    #[serde(default)]
    pub template: Option<String>,
    /// The template's parameters.
    #[serde(default, deserialize_with = "texts")]
    #[schemars(extend("additionalProperties" = true))]
    pub params: BTreeMap<String, String>,
    /// Working directory.
    #[serde(default)]
    pub cwd: Option<String>,
    /// Variables; not in the process list.
    #[serde(default, serialize_with = "reveal_values")]
    #[schemars(with = "BTreeMap<String, String>")]
    pub env: BTreeMap<String, SecretString>,
    /// Secrets, by variable.
    #[serde(default)]
    #[schemars(with = "BTreeMap<String, String>")]
    pub secret_env: BTreeMap<String, String>,
    /// As this user, such as root.
    #[serde(default, rename = "become")]
    pub becomes: Option<String>,
    /// sudo (default), doas or su.
    #[serde(default)]
    pub become_method: Option<String>,
    /// All of stdin. Default: empty, or open in ssh_spawn.
    #[serde(default, serialize_with = "reveal")]
    #[schemars(with = "String")]
    pub stdin: Option<SecretString>,
    /// Name of a secret as stdin.
    #[serde(default)]
    pub secret_stdin: Option<String>,
    /// Run on a terminal.
    #[serde(default)]
    pub pty: bool,
    /// Terminal width. Default 80.
    #[serde(default)]
    #[schemars(range(min = 1, max = 1000))]
    pub cols: Option<i64>,
    /// Terminal height. Default 24.
    #[serde(default)]
    #[schemars(range(min = 1, max = 1000))]
    pub rows: Option<i64>,
    /// Value of TERM. Default xterm-256color.
    #[serde(default)]
    pub term: Option<String>,
    /// With pty: answer terminal queries.
    #[serde(default)]
    pub answer_queries: bool,
    /// Outlive this server.
    #[serde(default)]
    pub durable: Option<bool>,
    /// Label for ssh_jobs.
    #[serde(default)]
    pub label: Option<String>,
    /// Time limit in seconds.
    #[serde(default)]
    #[schemars(range(min = 0.001, max = 31_536_000))]
    pub timeout_s: Option<f64>,
    /// Restart it: on-failure:3, always.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restart: Option<String>,
    /// With restart: only after these exit statuses, or output with a match.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub retry_if: Vec<String>,
    /// With restart: also after a reboot.
    #[serde(default, skip_serializing_if = "is_false")]
    pub restart_after_reboot: bool,
    /// Signal before timeout_s: USR1@2m.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warn: Option<String>,
    /// Run first in its shell: module load cuda.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub env_setup: Option<String>,
    /// Send this directory, and run there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sync: Option<String>,
    /// With sync: patterns to leave out, as in .gitignore.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub exclude: Vec<String>,
    /// Files to copy back: runs/**.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fetch: Vec<String>,
    /// The tree that was sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(skip)]
    pub tree: Option<JobTree>,
    /// With any(...): the host with the most jobs.
    #[serde(default, skip_serializing_if = "is_false")]
    pub pack: bool,
    /// The words from which the host was chosen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(skip)]
    pub chosen_from: Option<String>,
    /// GPUs to wait for: 2, 2:A100.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpus: Option<String>,
    /// Targets to notify of its end.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notify: Vec<String>,
    /// Wait for the end of these jobs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub after: Vec<String>,
    /// Start once these succeeded.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub after_ok: Vec<String>,
    /// Wait in this queue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
    /// Why, for approvers.
    #[serde(default)]
    pub reason: Option<String>,
    /// The same key returns the first job.
    #[serde(default)]
    #[schemars(length(min = 1, max = 200))]
    pub idempotency_key: Option<String>,
}

/// Maximum targets of one job.
const MOST_TARGETS: usize = 8;

/// The receivers with the names in a request.
fn receivers(names: &[String], config: &NotifyConfig) -> Result<Vec<Receiver>, Error> {
    if names.len() > MOST_TARGETS {
        return Err(Error::invalid(
            format!("notify names more than {MOST_TARGETS} targets"),
            "name fewer; a command can notify many",
        ));
    }
    names.iter().map(|name| receiver(name, config)).collect()
}

fn receiver(name: &str, config: &NotifyConfig) -> Result<Receiver, Error> {
    if config.targets.contains_key(name) {
        return Ok(Receiver::Target(name.to_owned()));
    }
    if config.allows_any_target {
        return Receiver::named_by_a_person(name).map_err(|why| {
            Error::invalid(
                format!("can't notify {name:?}: {why}"),
                "use a URL, a command, or a name of [notify.targets]",
            )
        });
    }
    let known: Vec<&str> = config.targets.keys().map(String::as_str).collect();
    let hint = if known.is_empty() {
        "the configuration lists none; the operator adds them in [notify.targets]".to_owned()
    } else {
        format!("use one of {}", known.join(", "))
    };
    Err(Error::invalid(
        format!("there is no target of notifications with the name {name:?}"),
        hint,
    ))
}

impl CommandRequest {
    /// A request to run `command` on `host`.
    pub fn new(host: impl Into<String>, command: impl Into<String>) -> Self {
        Self {
            host: host.into(),
            command: command.into(),
            ..Self::default()
        }
    }

    /// The command of the request, and where it runs.
    pub(crate) fn into_command(
        self,
        jobs: &Jobs,
        without_stdin: Stdin,
    ) -> Result<(StartTarget, Command), Error> {
        if self.env.contains_key(SCRIPT) || self.secret_env.contains_key(SCRIPT) {
            return Err(Error::invalid(
                format!("{SCRIPT} is set by sshjobs and can't be set"),
                "send a script with script, or name the variable otherwise",
            ));
        }
        let template = self.template_call()?;
        let line = match template {
            None => self.line()?.into_draft(),
            Some(_) => Command::shell("").into_draft(),
        };
        let terminal = self.terminal()?;
        let becomes = parse_become(self.becomes.as_deref(), self.become_method.as_deref())?;
        let notify = receivers(&self.notify, &jobs.config().notify)?;
        let timeout = self.timeout_s.map(time_limit).transpose()?;
        let target = self.fleet()?.map_or(StartTarget::Host(self.host), StartTarget::Fleet);
        let jobs_of = |ids: Vec<String>| ids.iter().map(|id| JobId::from(id.as_str())).collect();
        let restart = restart(
            self.restart.as_deref(),
            &self.retry_if,
            self.restart_after_reboot,
        )?;
        let warn = self.warn.as_deref().map(warning).transpose()?;
        let facts = JobFacts {
            restart,
            warn,
            env_setup: self.env_setup,
            gpus: self.gpus.as_deref().map(gpus).transpose()?,
            tree: self.tree,
            chosen_from: self.chosen_from,
            fetch: self.fetch.iter().map(|text| pattern(text)).collect::<Result<_, _>>()?,
            label: self.label,
            cwd: self.cwd,
            timeout,
            terminal,
            becomes,
            template,
            notify,
            turn: Turn {
                after: jobs_of(self.after),
                after_ok: jobs_of(self.after_ok),
                queue: self.queue,
            },
            durable: self.durable.unwrap_or(jobs.config().defaults.durable),
            ..line.facts
        };
        let mut env = self.env;
        env.extend(line.env);
        let draft = Draft {
            env,
            secrets: SecretUses {
                env: self.secret_env,
                stdin: self.secret_stdin,
                ..SecretUses::default()
            },
            stdin: self.stdin.map_or(without_stdin, Stdin::Text),
            ..Draft::from(facts)
        };
        let mut command = Command::from(draft);
        if let Some(reason) = self.reason {
            command = command.reason(reason);
        }
        if let Some(key) = self.idempotency_key {
            command = command.idempotency_key(key);
        }
        Ok((target, command))
    }

    /// The command line, from the one argument that gives it.
    fn line(&self) -> Result<Command, Error> {
        let has_command = !self.command.trim().is_empty();
        let Some(script) = &self.script else {
            if self.interpreter.is_some() {
                return Err(Error::invalid(
                    "interpreter is the program that runs a script, and none is given",
                    "give script, or put the program into argv",
                ));
            }
            return match (self.argv.split_first(), has_command) {
                (Some(_), true) => Err(two_of("command and argv")),
                (Some((program, _)), false) if program.is_empty() => Err(Error::invalid(
                    "the first word of argv is the program, and it is empty",
                    "name a program",
                )),
                (Some((program, arguments)), false) => Ok(Command::new(program).args(arguments)),
                (None, true) => Ok(Command::shell(self.command.clone())),
                (None, false) => Err(sshjobs_core::jobs::Error::from(SpecError::NoCommand).into()),
            };
        };
        if has_command {
            return Err(two_of("command and script"));
        }
        if script.expose_secret().is_empty() {
            return Err(Error::invalid("the script is empty", "send its text"));
        }
        let interpreter = self.interpreter.as_deref();
        if interpreter.is_some_and(|words| words.trim().is_empty()) {
            return Err(Error::invalid(
                "interpreter is empty",
                "name a program, or omit it",
            ));
        }
        Ok(Command::script(interpreter, script.clone()).args(&self.argv))
    }

    fn template_call(&self) -> Result<Option<TemplateCall>, Error> {
        let Some(name) = &self.template else {
            return if self.params.is_empty() {
                Ok(None)
            } else {
                Err(Error::invalid(
                    "params are the values of a template, and none is named",
                    "name a template, or omit params",
                ))
            };
        };
        let others = [
            ("command", !self.command.is_empty()),
            ("argv", !self.argv.is_empty()),
            ("script", self.script.is_some()),
            ("interpreter", self.interpreter.is_some()),
        ];
        if let Some((other, _)) = others.iter().find(|(_, is_given)| *is_given) {
            return Err(two_of(&format!("{other} and template")));
        }
        Ok(Some(TemplateCall {
            name: name.clone(),
            params: self.params.clone(),
        }))
    }

    /// The hosts, if there may be many.
    fn fleet(&self) -> Result<Option<FleetSpec>, Error> {
        let stop = self.stop_after_failures.as_deref().map(str::parse::<StopAfter>).transpose();
        let stop_after =
            stop.map_err(|hint| Error::invalid("stop_after_failures can't be read", hint))?;
        match (self.host.is_empty(), self.hosts.is_empty()) {
            (true, true) => Err(Error::invalid(
                "no host is named",
                "use host, or hosts for many",
            )),
            (false, false) => Err(Error::invalid(
                "host and hosts are both named",
                "use one of them",
            )),
            (false, true) => {
                let is_fleets = self.max_parallel.is_some() || self.canary > 0 || self.retry > 0;
                if is_fleets || stop_after.is_some() {
                    let hint = "name hosts instead of host, or omit these";
                    let message =
                        "max_parallel, canary, stop_after_failures and retry are for several hosts";
                    return Err(Error::invalid(message, hint));
                }
                Ok(None)
            }
            (true, false) => Ok(Some(FleetSpec {
                hosts: self.hosts.clone(),
                max_parallel: self.max_parallel,
                canary: self.canary,
                stop_after,
                retries: self.retry,
            })),
        }
    }

    fn terminal(&self) -> Result<Option<Terminal>, Error> {
        if !self.pty {
            let is_plain = self.cols.is_none() && self.rows.is_none() && self.term.is_none();
            if is_plain && !self.answer_queries {
                return Ok(None);
            }
            let message = "cols, rows, term and answer_queries need a terminal";
            return Err(Error::invalid(message, "set pty=true"));
        }
        let term = self.term.clone().unwrap_or_else(|| "xterm-256color".to_owned());
        let terminal = Terminal::new(term, self.cols.unwrap_or(80), self.rows.unwrap_or(24));
        let terminal = terminal.map_err(sshjobs_core::jobs::Error::from)?;
        Ok(Some(if self.answer_queries {
            terminal.answering_queries()
        } else {
            terminal
        }))
    }
}

/// The other user of a request, if it names one.
pub fn parse_become(user: Option<&str>, method: Option<&str>) -> Result<Option<Become>, Error> {
    let method = method.map(str::parse::<BecomeMethod>).transpose();
    let method = method.map_err(invalid)?;
    let Some(user) = user else {
        return match method {
            Some(_) => Err(Error::invalid(
                "become_method needs a user",
                "set become, for example to root",
            )),
            None => Ok(None),
        };
    };
    let becomes = Become::new(user, method.unwrap_or_default());
    Ok(Some(becomes.map_err(invalid)?))
}

/// The restarts that a request asks for.
fn restart(
    text: Option<&str>,
    retry_if: &[String],
    after_reboot: bool,
) -> Result<Option<Restart>, Error> {
    let Some(text) = text else {
        return if retry_if.is_empty() && !after_reboot {
            Ok(None)
        } else {
            Err(Error::invalid(
                "retry_if and restart_after_reboot say more about restarts, and none are asked for",
                "add restart, such as on-failure:3",
            ))
        };
    };
    let bad = |error: BadRestart| {
        Error::invalid(
            error.to_string(),
            "use on-failure, on-failure:3, always or always:3; conditions are exit statuses and regular expressions",
        )
    };
    let restart: Restart = text.parse().map_err(bad)?;
    let restart = restart.only_if(retry_if).map_err(bad)?;
    Ok(Some(Restart {
        after_reboot,
        ..restart
    }))
}

/// The GPUs that a request asks for.
pub(super) fn gpus(text: &str) -> Result<GpuRequest, Error> {
    text.parse().map_err(|error: BadGpuRequest| {
        Error::invalid(error.to_string(), "use 2, 2:A100 or 1:40GB")
    })
}

/// A pattern of files to copy back.
fn pattern(text: &str) -> Result<FetchPattern, Error> {
    text.parse().map_err(|error: BadFetchPattern| {
        Error::invalid(
            format!("fetch: {error}"),
            "name files below the working directory: out.csv, runs/**",
        )
    })
}

/// The signal before the time limit.
fn warning(text: &str) -> Result<EarlyWarning, Error> {
    let seconds = |text: &str| Duration::try_from_secs_f64(text.parse().ok()?).ok();
    let time = |text: &str| seconds(text).or_else(|| humantime::parse_duration(text).ok());
    EarlyWarning::parse(text, time).map_err(|error| {
        Error::invalid(
            error.to_string(),
            "name a signal and a time: USR1@120 or TERM@2m",
        )
    })
}

fn two_of(names: &str) -> Error {
    Error::invalid(format!("{names} are both given"), "use one of them")
}

fn invalid(error: BadBecome) -> Error {
    sshjobs_core::jobs::Error::from(SpecError::from(error)).into()
}

/// Reads values that are texts, numbers or booleans as texts.
pub(super) fn texts<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<BTreeMap<String, String>, D::Error> {
    let values = BTreeMap::<String, Value>::deserialize(deserializer)?;
    let read = values.into_iter().map(|(name, value)| match value {
        Value::String(text) => Ok((name, text)),
        Value::Number(number) => Ok((name, number.to_string())),
        Value::Bool(is_true) => Ok((name, is_true.to_string())),
        Value::Null | Value::Array(_) | Value::Object(_) => Err(D::Error::custom(format!(
            "the parameter {name} must be a text or a number"
        ))),
    });
    read.collect()
}

fn time_limit(seconds: f64) -> Result<Duration, Error> {
    // Also false for NaN, which no range contains.
    let is_possible = (0.001..=31_536_000.0).contains(&seconds);
    if is_possible && let Ok(limit) = Duration::try_from_secs_f64(seconds) {
        return Ok(limit);
    }
    Err(Error::invalid(
        format!("timeout_s is out of range: {seconds}"),
        "use 0.001 to 31536000 seconds (a year), or omit it",
    ))
}
