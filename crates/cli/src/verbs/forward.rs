//! `sshjobs forward`: ports and sockets forwarded through a host, until it is interrupted.

use std::time::Duration;

use futures_util::future::join_all;

use super::jobs::finish;
use crate::args::ForwardArgs;
use crate::exit::print;
use crate::json::json;
use crate::terminal::Signals;
use crate::{ProgramExit, note};
use sshjobs_core::jobs::{BadForward, ForwardOptions, ForwardSpec, ForwardState, ForwardStatus};
use sshjobs_wire::remote::Api;
use sshjobs_wire::{Error, ForwardEntry, Service};

/// How often the states of forwards are looked at, to tell people.
const INTERVAL: Duration = Duration::from_millis(500);

/// Opens forwards and keeps them open.
pub async fn forward(service: &Service, args: ForwardArgs) -> ProgramExit {
    let api = Api::Here(service.clone());
    finish(&api, async {
        let options = ForwardOptions {
            idle: args.idle.map(Duration::from_secs),
        };
        let jobs = service.library();
        let mut signals = Signals::catch()?;
        let stop = signals.next();
        let opening = async {
            let mut opened = Vec::new();
            for spec in specs(&args)? {
                opened
                    .push(jobs.open_forward(&args.host, spec, options).await.map_err(Error::from)?);
            }
            Ok::<_, Error>(opened)
        };
        tokio::pin!(stop);
        let opened = tokio::select! {
            opened = opening => opened?,
            signal = &mut stop => return Ok(ProgramExit::signaled(signal)),
        };
        for status in &opened {
            let line = if args.json {
                json(&ForwardEntry::from(status))
            } else {
                status.spec.to_string()
            };
            match print(&line) {
                ProgramExit::SUCCESS => {}
                exit => return Ok(exit),
            }
        }
        let all_closed = join_all(opened.iter().map(|status| jobs.forward_closed(&status.id)));
        tokio::select! {
            _ = all_closed => {
                note("all forwards are closed");
                Ok(ProgramExit::SUCCESS)
            }
            () = report_states(service, &opened) => Ok(ProgramExit::SUCCESS),
            signal = stop => Ok(ProgramExit::signaled(signal)),
        }
    })
    .await
}

/// The forwards of the command line.
fn specs(args: &ForwardArgs) -> Result<Vec<ForwardSpec>, Error> {
    let local = args.local.iter().map(|text| ForwardSpec::local(text));
    let remote = args.remote.iter().map(|text| ForwardSpec::remote(text));
    let dynamic = args.dynamic.iter().map(|text| ForwardSpec::dynamic(text));
    let all: Result<_, BadForward> = local.chain(remote).chain(dynamic).collect();
    all.map_err(|error| {
        let hint = "write 8080:localhost:80 for -L and -R, 1080 for -D; `sshjobs forward --help`";
        Error::invalid(error.to_string(), hint)
    })
}

/// State and errors of a forward, as last reported.
struct Reported {
    state: ForwardState,
    errors: u64,
}

/// Notes when a forward loses its connection, when it has one again, and why streams fail.
async fn report_states(service: &Service, opened: &[ForwardStatus]) {
    let mut reported: Vec<Reported> = Vec::new();
    reported.resize_with(opened.len(), || Reported {
        state: ForwardState::Open,
        errors: 0,
    });
    loop {
        tokio::time::sleep(INTERVAL).await;
        let now = service.library().forwards();
        for (status, reported) in opened.iter().zip(&mut reported) {
            let Some(found) = now.iter().find(|found| found.id == status.id) else {
                continue;
            };
            if found.state != reported.state {
                reported.state = found.state;
                let event = match found.state {
                    ForwardState::Open => "connected again",
                    ForwardState::Reconnecting => "the connection was lost; connecting again",
                };
                note(&format!("{}: {event}", found.spec));
            }
            if found.errors > reported.errors {
                let failed = found.errors - reported.errors;
                reported.errors = found.errors;
                let why = found.last_error.as_deref().unwrap_or_default();
                let times = if failed == 1 {
                    String::new()
                } else {
                    format!(" ({failed} streams)")
                };
                note(&format!("{}: {why}{times}", found.spec));
            }
        }
    }
}
