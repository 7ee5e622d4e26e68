use std::collections::BTreeMap;
use std::time::Duration;

use secrecy::SecretString;

use super::keyboard;
use crate::wire::{Code, CommandRequest, Error};

/// What `run` and `spawn` say of a command alike.
pub(super) struct Words {
    pub(super) host: String,
    pub(super) command: String,
    pub(super) cwd: Option<String>,
    pub(super) env: Vec<String>,
    pub(super) timeout: Option<Duration>,
    /// On a terminal like ours.
    pub(super) pty: bool,
    pub(super) durable: bool,
}

impl Words {
    pub(super) fn into_request(self) -> Result<CommandRequest, Error> {
        let env: BTreeMap<String, SecretString> =
            self.env.into_iter().map(name_and_value).collect::<Result<_, _>>()?;
        let mut request = CommandRequest {
            cwd: self.cwd,
            env,
            timeout_s: self.timeout.map(|limit| limit.as_secs_f64()),
            durable: Some(self.durable),
            ..CommandRequest::new(self.host, self.command)
        };
        if self.pty {
            on_terminal(&mut request);
        }
        Ok(request)
    }
}

/// `NAME=VALUE`, or the name of a variable of our own.
fn name_and_value(variable: String) -> Result<(String, SecretString), Error> {
    if let Some((name, value)) = variable.split_once('=') {
        return Ok((name.to_owned(), value.into()));
    }
    let value = std::env::var(&variable).map_err(|error| {
        let hint = "--env NAME passes a variable on that is set here, in UTF-8; --env NAME=VALUE sets one";
        Error::new(Code::InvalidArgument, format!("--env {variable}: {error}"), hint)
    })?;
    Ok((variable, value.into()))
}

/// A terminal like ours; what we don't know is not said.
fn on_terminal(request: &mut CommandRequest) {
    let (cols, rows) = keyboard::size().unwrap_or((80, 24));
    (request.pty, request.cols, request.rows) = (true, Some(cols.into()), Some(rows.into()));
    request.term = std::env::var("TERM").ok().filter(|term| !term.is_empty());
}
