//! Builds the request for `run` and `spawn` from their options. Values of variables stay in
//! `secrecy` types.

use std::collections::BTreeMap;
use std::env::VarError;
use std::path::{Path, PathBuf};

use secrecy::SecretString;

use crate::args::{BecomeArgs, RunArgs, StartArgs};
use crate::terminal::keyboard;
use sshjobs_base::bounded_file::{read_text, read_text_from};
use sshjobs_wire::{CommandRequest, Error};

/// A start by `run` or `spawn`.
pub(super) struct CommandStart {
    pub(super) host: String,
    pub(super) command: Vec<String>,
    pub(super) args: StartArgs,
    pub(super) becomes: BecomeArgs,
    /// On a terminal with our type and size.
    pub(super) pty: bool,
    pub(super) durable: bool,
}

/// The request for `run`.
pub(super) fn of_run(args: RunArgs) -> Result<CommandRequest, Error> {
    let is_login = args.command.is_empty() && !args.start.has_other_command();
    let command = if is_login {
        // As in ssh. Every shell understands this.
        vec!["exec $SHELL -l".to_owned()]
    } else {
        args.command
    };
    let label = args.label;
    let start = CommandStart {
        host: args.host,
        command,
        args: args.start,
        becomes: args.becomes,
        pty: args.pty || args.tty > 0,
        durable: args.durable,
    };
    Ok(CommandRequest {
        label,
        ..start.into_request()?
    })
}

impl CommandStart {
    pub(super) fn into_request(self) -> Result<CommandRequest, Error> {
        let args = self.args;
        let mut env = args.known_env;
        env.extend(variables(&args.env_file, args.env)?);
        let writing = args.writing;
        let script = writing.script.as_deref().map(read_script).transpose()?;
        let (command, argv) = if writing.argv || script.is_some() {
            (String::new(), self.command)
        } else {
            (self.command.join(" "), Vec::new())
        };
        let mut request = CommandRequest {
            argv,
            script,
            interpreter: writing.interpreter,
            template: args.template.template,
            params: args.template.params.into_iter().collect(),
            cwd: args.cwd,
            env,
            secret_env: by_variable(args.secrets.secret_env)?,
            secret_stdin: args.secrets.secret_stdin,
            timeout_s: args.timeout.map(|limit| limit.as_secs_f64()),
            durable: Some(self.durable),
            notify: args.notify,
            after: args.turn.after,
            after_ok: args.turn.after_ok,
            queue: args.turn.queue,
            env_setup: args.env_setup,
            sync: args.tree.sync,
            exclude: args.tree.exclude,
            fetch: args.tree.fetch,
            restart: args.restart.restart,
            retry_if: args.restart.retry_if,
            restart_after_reboot: args.restart.restart_after_reboot,
            warn: args.restart.warn,
            pack: args.restart.pack,
            gpus: args.restart.gpus,
            reason: args.reason,
            becomes: self.becomes.user(),
            become_method: self.becomes.become_method.map(|method| method.as_str().to_owned()),
            ..CommandRequest::new(self.host, command)
        };
        if self.pty {
            on_terminal(&mut request);
        }
        Ok(request)
    }
}

/// The text of a script. `-` is stdin.
fn read_script(file: &Path) -> Result<SecretString, Error> {
    let text = if file == "-" {
        read_text_from(std::io::stdin())
    } else {
        read_text(file)
    };
    text.map(SecretString::from).map_err(|error| {
        Error::invalid(
            format!("the script {} can't be read: {error}", file.display()),
            "name a text file, or - for stdin",
        )
    })
}

/// The secret of each variable.
fn by_variable(secrets: Vec<(String, String)>) -> Result<BTreeMap<String, String>, Error> {
    let mut by_variable = BTreeMap::new();
    for (name, secret) in secrets {
        if by_variable.insert(name.clone(), secret).is_some() {
            let message = format!("--secret-env gives {name} two secrets");
            return Err(Error::invalid(message, "use one of them"));
        }
    }
    Ok(by_variable)
}

/// Variables from files and from the command line, which takes precedence.
fn variables(
    files: &[PathBuf],
    options: Vec<String>,
) -> Result<BTreeMap<String, SecretString>, Error> {
    let mut variables = BTreeMap::new();
    for file in files {
        let text = read_text(file).map_err(|error| {
            let message = format!("can't read {}: {error}", file.display());
            Error::invalid(message, ENV_FILE_HINT)
        })?;
        let lines = (1..).zip(text.lines().map(str::trim_start));
        for (number, line) in lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#')) {
            let place = format!("{}:{number}", file.display());
            let name = line.split_once('=').map_or(line, |(name, _)| name);
            if !is_name(name) {
                // Without the line, which may be a secret.
                let message = format!("{place}: the line does not begin with a variable name");
                return Err(Error::invalid(message, ENV_FILE_HINT));
            }
            let (name, value) = name_and_value(line.to_owned(), &place)?;
            variables.insert(name, value);
        }
    }
    for option in options {
        let place = format!("--env {}", option.split('=').next().unwrap_or_default());
        let (name, value) = name_and_value(option, &place)?;
        variables.insert(name, value);
    }
    Ok(variables)
}

const ENV_FILE_HINT: &str =
    "--env-file takes a line NAME=VALUE, without quotes, or NAME for each variable";

/// Whether a shell accepts it as a variable name (POSIX, 3.216).
fn is_name(word: &str) -> bool {
    word.chars().all(|c: char| c.is_ascii_alphanumeric() || c == '_')
        && word.starts_with(|c: char| !c.is_ascii_digit())
}

/// Parses `NAME=VALUE`, or the name of a variable in our environment. `place` is where it is written.
fn name_and_value(variable: String, place: &str) -> Result<(String, SecretString), Error> {
    if let Some((name, value)) = variable.split_once('=') {
        return Ok((name.to_owned(), value.into()));
    }
    // Described here, because the error's own text contains the value, which may be a secret.
    let why = match std::env::var(&variable) {
        Ok(value) => return Ok((variable, value.into())),
        Err(VarError::NotPresent) => "is not set here",
        Err(VarError::NotUnicode(_)) => "has a value that is not UTF-8",
    };
    Err(Error::invalid(
        format!("{place}: the variable {variable} {why}"),
        "NAME copies a variable that is set here, in UTF-8; NAME=VALUE sets one",
    ))
}

/// Requests a terminal with our type and size, as far as they are known.
fn on_terminal(request: &mut CommandRequest) {
    request.pty = true;
    if let Some(size) = keyboard::size() {
        request.cols = Some(size.cols.into());
        request.rows = Some(size.rows.into());
    }
    request.term = std::env::var("TERM").ok().filter(|term| !term.is_empty());
}
