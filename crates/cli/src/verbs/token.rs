//! `sshjobs token`: creates, lists and revokes tokens.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::args::{ListTokensArgs, NewTokenArgs, RoleChoice, TokenArgs, TokenVerb};
use crate::exit::print;
use crate::json::json;
use crate::terminal::in_columns;
use crate::{ProgramExit, note, report};
use sshjobs_core::jobs::{Rights, Role};
use sshjobs_wire::tokens::{TokenEntry, Tokens, TokensError};
use sshjobs_wire::{Code, Error};

/// Creates, lists and revokes the tokens of a state directory or a cluster.
pub fn token(tokens: &Tokens, args: &TokenArgs) -> ProgramExit {
    let done = match &args.verb {
        TokenVerb::New(args) => new(tokens, args),
        TokenVerb::List(args) => list(tokens, args),
        TokenVerb::Revoke { name } => {
            tokens.revoke(name).map(|()| ProgramExit::SUCCESS).map_err(explained)
        }
    };
    done.unwrap_or_else(|error| {
        report(&error);
        ProgramExit::of_error(&error)
    })
}

fn new(tokens: &Tokens, args: &NewTokenArgs) -> Result<ProgramExit, Error> {
    let rights = Rights {
        hosts: args.hosts.clone().unwrap_or_default().into(),
        ..Rights::everywhere(args.role.into())
    };
    let token = tokens.add(&args.name, rights, args.expires).map_err(explained)?;
    if !args.json {
        note(
            "this is the only time that the token is shown; callers send it as \
             `Authorization: Bearer TOKEN`",
        );
        return Ok(print(token.reveal()));
    }
    let entry = tokens
        .list()
        .map_err(explained)?
        .iter()
        .find(|entry| entry.name == args.name)
        .map(shown);
    // Null if another process has revoked it already; indexing makes it an object.
    let mut line = entry.unwrap_or_default();
    line["token"] = token.reveal().into();
    Ok(print(&line.to_string()))
}

fn list(tokens: &Tokens, args: &ListTokensArgs) -> Result<ProgramExit, Error> {
    let entries = tokens.list().map_err(explained)?;
    if entries.is_empty() {
        if !args.json {
            note("no tokens exist; `sshjobs token new NAME` creates one");
        }
        return Ok(ProgramExit::SUCCESS);
    }
    let lines: Vec<String> = if args.json {
        entries.iter().map(|entry| json(&shown(entry))).collect()
    } else {
        let head = ["NAME", "ROLE", "HOSTS", "MADE", "EXPIRES"].map(str::to_owned);
        in_columns(&std::iter::once(head).chain(entries.iter().map(row)).collect::<Vec<_>>())
    };
    Ok(print(&lines.join("\n")))
}

/// A token without the secret part.
fn shown(entry: &TokenEntry) -> serde_json::Value {
    serde_json::json!({
        "name": entry.name,
        "role": entry.role,
        "hosts": entry.hosts,
        "created_at": entry.created_at,
        "expires_at": entry.expires_at,
        "expired": entry.has_expired(now()),
    })
}

fn row(entry: &TokenEntry) -> [String; 5] {
    let hosts = entry.hosts.to_string();
    let expires = match entry.expires_at {
        None => "never".to_owned(),
        Some(_) if entry.has_expired(now()) => "has expired".to_owned(),
        Some(expires_at) => time(expires_at),
    };
    let hosts = if hosts.is_empty() {
        "all".to_owned()
    } else {
        hosts
    };
    [
        entry.name.clone(),
        entry.role.to_string(),
        hosts,
        time(entry.created_at),
        expires,
    ]
}

fn time(seconds: u64) -> String {
    humantime::format_rfc3339_seconds(UNIX_EPOCH + Duration::from_secs(seconds)).to_string()
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// An error of the tokens with a hint.
pub(super) fn explained(error: TokensError) -> Error {
    let message = error.to_string();
    match error {
        TokensError::Io { .. } => {
            Error::new(Code::Io, message, "check the state directory and the disk")
        }
        TokensError::Damaged { .. } => Error::new(
            Code::Io,
            message,
            "correct the file, or remove it and make new tokens",
        ),
        TokensError::Cluster(_) => Error::new(Code::Io, message, "check that NATS is running"),
        TokensError::DamagedInCluster(_) => Error::new(
            Code::Io,
            message,
            "delete the key `tokens` from the bucket of settings, and make new tokens",
        ),
        TokensError::Exposed(file) => Error::new(
            Code::Io,
            message,
            format!("check its contents, then: chmod 600 {}", file.display()),
        ),
        TokensError::Name(_) => Error::invalid(
            message,
            "use 1 to 64 letters, digits, dots, dashes, underscores or @; \"local\" is the user \
                who starts the server",
        ),
        TokensError::Exists(name) => Error::invalid(
            message,
            format!("to replace it, first run: sshjobs token revoke {name}"),
        ),
        TokensError::Unknown(_) => Error::invalid(message, "`sshjobs token list` lists all tokens"),
    }
}

impl From<RoleChoice> for Role {
    fn from(choice: RoleChoice) -> Self {
        match choice {
            RoleChoice::Read => Self::Read,
            RoleChoice::Observe => Self::Observe,
            RoleChoice::ObserveOutput => Self::ObserveOutput,
            RoleChoice::Run => Self::Run,
            RoleChoice::Admin => Self::Admin,
        }
    }
}
