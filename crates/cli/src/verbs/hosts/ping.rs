//! `sshjobs ping`: connects to many hosts at once and prints each result as it arrives. Without hosts,
//! tests the server.

use std::time::Duration;

use futures_util::{StreamExt, stream};
use tokio::time::Instant;
use unicode_width::UnicodeWidthStr;

use crate::args::PingArgs;
use crate::exit::{print, tell};
use crate::fleet::{named, split};
use crate::json::json;
use crate::terminal::padded;
use crate::{ProgramExit, report};
use sshjobs_core::jobs::printable;
use sshjobs_wire::remote::Api;
use sshjobs_wire::{Code, Error, HostEntry, HostsRequest};

/// Maximum hosts tested at the same time.
const AT_A_TIME: usize = 64;

/// Connects to hosts, and prints each result as it arrives. Without hosts, tests the server.
pub async fn ping(api: &Api, args: PingArgs) -> ProgramExit {
    let pinged = attempt(api, &args).await;
    api.shutdown().await;
    pinged.unwrap_or_else(|error| {
        report(&error);
        ProgramExit::of_error(&error)
    })
}

async fn attempt(api: &Api, args: &PingArgs) -> Result<ProgramExit, Error> {
    if args.hosts.is_empty() {
        return ping_server(api, args.json).await;
    }
    let names = named(api, &split(&args.hosts.join(","))?).await?;
    if names.is_empty() {
        return Err(Error::invalid(
            "the pattern matches no host",
            "`sshjobs hosts` lists all hosts",
        ));
    }
    let count = names.len();
    let width = names.iter().map(|name| name.width()).max().unwrap_or(0);
    let pings = names.into_iter().map(|name| one(api, name));
    let mut pings = stream::iter(pings).buffer_unordered(AT_A_TIME);
    let mut unreached = 0;
    while let Some((name, host, took)) = pings.next().await {
        let is_reached = host.as_ref().is_ok_and(|host| host.connected);
        unreached += usize::from(!is_reached);
        let line = if args.json {
            as_json(&name, host, took)
        } else {
            line(&name, width, host, took)
        };
        match print(&line) {
            ProgramExit::SUCCESS => {}
            failed => return Ok(failed),
        }
    }
    if count > 1 && !args.json {
        tell(&format!(
            "{count} hosts: {} reached, {unreached} not reached",
            count - unreached
        ));
    }
    Ok(if unreached == 0 {
        ProgramExit::SUCCESS
    } else {
        ProgramExit::CONNECTION
    })
}

/// Tests whether the server accepts work.
async fn ping_server(api: &Api, as_json: bool) -> Result<ProgramExit, Error> {
    let Api::There(server) = api else {
        let hint = "name a host, as in `sshjobs ping web1`, or a server with --server";
        return Err(Error::invalid("ping needs a host or a server", hint));
    };
    let began = Instant::now();
    let answer = server.ready().await;
    let took = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
    if !as_json {
        return Ok(print(&format!("{}  {took} ms", printable(&answer?))));
    }
    let described = match &answer {
        Ok(answer) => serde_json::json!({"ready": true, "answer": answer, "connect_ms": took}),
        Err(error) => serde_json::json!({"ready": false, "error": error, "connect_ms": took}),
    };
    match (print(&json(&described)), answer) {
        (ProgramExit::SUCCESS, Err(_)) => Ok(ProgramExit::CONNECTION),
        (printed, _) => Ok(printed),
    }
}

type Pinged = (String, Result<HostEntry, Error>, Duration);

async fn one(api: &Api, name: String) -> Pinged {
    let began = Instant::now();
    let reply = api
        .hosts(HostsRequest {
            host: Some(name.clone()),
            ..HostsRequest::default()
        })
        .await;
    let host = reply.and_then(|mut reply| {
        let hint = "check --server, and the versions of both";
        reply
            .hosts
            .pop()
            .ok_or_else(|| Error::new(Code::Unsupported, "the answer has no host", hint))
    });
    (name, host, began.elapsed())
}

fn as_json(name: &str, host: Result<HostEntry, Error>, took: Duration) -> String {
    let mut value = match host {
        Ok(host) => serde_json::to_value(host).expect("a host is plain data"),
        Err(error) => serde_json::json!({"name": name, "connected": false, "error": error}),
    };
    value["connect_ms"] = u64::try_from(took.as_millis()).unwrap_or(u64::MAX).into();
    json(&value)
}

fn line(name: &str, width: usize, host: Result<HostEntry, Error>, took: Duration) -> String {
    let told = match host {
        Ok(HostEntry {
            connected: true,
            server,
            login_shell,
            ..
        }) => {
            let server = server.unwrap_or_default();
            let server = server.trim_start_matches("SSH-2.0-");
            format!(
                "{:>5} ms  {}  {}",
                took.as_millis(),
                printable(server),
                login_shell.unwrap_or_default()
            )
        }
        Ok(host) => printable(&host.last_error.unwrap_or_else(|| "not reachable".to_owned())),
        Err(error) => printable(&error.message),
    };
    format!(
        "{}  {told}",
        padded(&printable(name).replace('\n', " "), width)
    )
}
