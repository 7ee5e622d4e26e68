//! `sshjobs spawn`: starts a job and prints its id. It stays while the job needs this process.

use std::time::Duration;

use tokio::time::sleep;

use super::keeper::{is_keeper, let_spawn_return, run_in_background};
use crate::args::SpawnArgs;
use crate::command::CommandStart;
use crate::exit::print;
use crate::terminal::Signals;
use crate::verbs::tree::{note_changes, while_sending};
use crate::verbs::{once_approved, resolve_turn};
use crate::{ProgramExit, fleet, note, report};
use sshjobs_core::jobs::{Verb, printable};
use sshjobs_wire::remote::Api;
use sshjobs_wire::{Code, CommandRequest, Error, JobEntry, JobState, Service};

/// Interval at which a fleet's start is checked.
const CHECK_INTERVAL: Duration = Duration::from_millis(200);

/// The same in a process in the background, which may wait for days.
const KEEPER_INTERVAL: Duration = Duration::from_secs(1);

/// Which event came first.
enum SpawnBegin {
    Job(Box<Started>, Signals),
    Signal(u8),
}

/// A job that was started.
struct Started {
    id: String,
    /// `None` if it could not be looked at: the connection was lost, or the policy does not allow it.
    entry: Option<JobEntry>,
}

/// Starts a job and prints its id. Stays with an attached job of this process until it ends.
pub async fn spawn(api: &Api, args: SpawnArgs) -> ProgramExit {
    let waits = may_wait(&args) && !args.attached;
    if !waits || matches!(api, Api::There(_)) || is_keeper() {
        return spawn_here(api, args).await;
    }
    api.shutdown().await;
    match Signals::catch() {
        Ok(signals) => run_in_background(&signals),
        Err(error) => {
            report(&error);
            ProgramExit::of_error(&error)
        }
    }
}

/// Whether the job may have to wait: for others, for its place in a queue, or for GPUs.
fn may_wait(args: &SpawnArgs) -> bool {
    args.start.turn.is_given() || args.start.restart.gpus.is_some()
}

/// Starts a job in this process, and stays with one that is queued until it has started.
pub(super) async fn spawn_here(api: &Api, args: SpawnArgs) -> ProgramExit {
    let json = args.json;
    let attached = args.attached;
    let has_turn = may_wait(&args);
    // Before anything is started, so that a signal during the start ends it.
    let begun = async {
        let mut signals = Signals::catch()?;
        tokio::select! {
            started = start(api, args) => Ok(SpawnBegin::Job(Box::new(started?), signals)),
            number = signals.next() => Ok(SpawnBegin::Signal(number)),
        }
    };
    let (started, mut signals) = match begun.await {
        Ok(SpawnBegin::Job(started, signals)) => (*started, signals),
        Ok(SpawnBegin::Signal(number)) => {
            note("interrupted; if the job was started already, `sshjobs jobs` shows it");
            api.shutdown().await;
            return ProgramExit::signaled(number);
        }
        Err(error) => {
            report(&error);
            api.shutdown().await;
            return ProgramExit::of_error(&error);
        }
    };
    let Started { id, entry } = started;
    let Some(mut entry) = entry else {
        let printed = print_id(&id, json);
        let exit = match api {
            Api::Here(service) if attached => stay(service, &id, signals).await,
            Api::Here(_) | Api::There(_) => printed,
        };
        api.shutdown().await;
        return exit;
    };
    if let Some(why) = &entry.standing.unstored {
        note(&format!("its output is not stored: {why}"));
    }
    // Now, because staying with an attached job may take as long as the job.
    let printed = if json {
        print(&crate::json::json(&entry))
    } else {
        print_id(&id, json)
    };
    if matches!(api, Api::Here(_)) && has_turn {
        match until_its_turn(api, &entry, &mut signals).await {
            Ok(started) => entry = started,
            Err(exit) => {
                api.shutdown().await;
                return exit;
            }
        }
    }
    let exit = match api {
        Api::Here(service) if attached => stay(service, &entry.job_id, signals).await,
        Api::Here(_) if entry.members.is_some() => {
            let_spawn_return();
            until_begun(api, &entry.job_id, signals).await.unwrap_or(printed)
        }
        Api::Here(_) | Api::There(_) => printed,
    };
    api.shutdown().await;
    exit
}

/// Stays with a queued job until it has started, because only a running process starts it.
async fn until_its_turn(
    api: &Api,
    entry: &JobEntry,
    signals: &mut Signals,
) -> Result<JobEntry, ProgramExit> {
    let id = printable(&entry.job_id);
    let mut told = String::new();
    let starting = async {
        let mut entry = entry.clone();
        while matches!(entry.standing.state, JobState::Queued | JobState::Starting) {
            let reason = entry.standing.reason.clone().unwrap_or_default();
            if !reason.is_empty() && reason != told {
                note(&format!("{id} {}", printable(&reason)));
                told = reason;
            }
            // After the note that says why the job waits.
            if entry.standing.state == JobState::Queued && !told.is_empty() {
                let_spawn_return();
            }
            if is_keeper() && !has_state(api) {
                return Err(no_state());
            }
            sleep(if is_keeper() {
                KEEPER_INTERVAL
            } else {
                CHECK_INTERVAL
            })
            .await;
            entry = api.entry(&entry.job_id).await?;
        }
        Ok::<_, Error>(entry)
    };
    let started = tokio::select! {
        started = starting => started,
        number = signals.next() => {
            if entry.durable {
                note(&format!(
                    "{id} stays queued: a server with the same state directory starts it, and \
                     `sshjobs signal {id}` cancels it"
                ));
            } else {
                note(&format!("{id} is cancelled: it is not durable"));
            }
            return Err(ProgramExit::signaled(number));
        }
    };
    let entry = started.map_err(|error| {
        report(&error);
        ProgramExit::of_error(&error)
    })?;
    if entry.standing.state == JobState::Refused {
        let why = entry.standing.reason.clone().unwrap_or_default();
        let error = Error::new(Code::JobEnded, why, "the command was not started");
        report(&error);
        return Err(ProgramExit::of_error(&error));
    }
    Ok(entry)
}

/// Whether the state directory, which has the queues and the job, is still there.
fn has_state(api: &Api) -> bool {
    match api {
        Api::Here(service) => service
            .library()
            .config()
            .state_dir()
            .is_none_or(|directory| directory.exists()),
        Api::There(_) => true,
    }
}

fn no_state() -> Error {
    Error::new(
        Code::Io,
        "the state directory was deleted",
        "start the job again",
    )
}

/// Stays with a fleet until all of its members have started or never will, because only a running
/// process starts them.
async fn until_begun(api: &Api, id: &str, mut signals: Signals) -> Option<ProgramExit> {
    let begun = async {
        loop {
            let entry = api.entry(id).await?;
            let left = fleet::members(api, id).await?;
            if entry.standing.state.is_final()
                || !left.iter().any(|member: &JobEntry| member.standing.state == JobState::Starting)
            {
                return Ok::<_, Error>(());
            }
            sleep(CHECK_INTERVAL).await;
        }
    };
    tokio::select! {
        begun = begun => begun.err().map(|error| {
            report(&error);
            ProgramExit::of_error(&error)
        }),
        number = signals.next() => Some(ProgramExit::signaled(number)),
    }
}

/// Stays with an attached job until it ends, or until a signal: then the job is ended.
async fn stay(service: &Service, id: &str, mut signals: Signals) -> ProgramExit {
    let staying = async {
        let job = service.library().job_for(Verb::Jobs, id).await?;
        Ok::<_, Error>(tokio::select! {
            outcome = job.wait() => ProgramExit::of(&outcome),
            number = signals.next() => ProgramExit::signaled(number),
        })
    };
    staying.await.unwrap_or_else(|error| {
        report(&error);
        ProgramExit::of_error(&error)
    })
}

async fn start(api: &Api, mut args: SpawnArgs) -> Result<Started, Error> {
    resolve_turn(api, &mut args.start.turn).await?;
    let earlier = args.start.tree.earlier.take();
    let request = request(args)?;
    let spawning = once_approved(async || api.spawn(request.clone()).await);
    let reply = while_sending(api, request.sync.is_some(), spawning).await?;
    let entry = api.entry(&reply.job_id).await;
    if let Ok(entry) = &entry {
        note_changes(earlier.as_ref(), entry.tree.as_ref());
    }
    if let Err(error) = &entry {
        // Not an error of this verb, whose caller needs the id of the job that runs now.
        note(&format!(
            "the job was accepted, and can't be looked at: {error}"
        ));
    }
    Ok(Started {
        id: reply.job_id,
        entry: entry.ok(),
    })
}

fn print_id(id: &str, json: bool) -> ProgramExit {
    if json {
        print(&crate::json::json(&serde_json::json!({ "job_id": id })))
    } else {
        // A server's reply may contain anything.
        print(&printable(id))
    }
}

fn request(args: SpawnArgs) -> Result<CommandRequest, Error> {
    let rollout = args.rollout;
    let words = args
        .command
        .iter()
        .skip_while(|word| *word == "--")
        .cloned()
        .collect::<Vec<_>>();
    // Empty and not `None`, with which a spawned job's stdin stays open.
    // A terminal without input would be at its end at once.
    let is_open = args.stdin || (args.pty && args.start.secrets.secret_stdin.is_none());
    let stdin = (!is_open).then(|| String::new().into());
    let start = CommandStart {
        host: args.host,
        command: words,
        args: args.start,
        becomes: args.becomes,
        pty: args.pty,
        durable: !args.attached,
    };
    let request = start.into_request()?;
    let request = fleet::on_hosts(request, &rollout)?;
    Ok(CommandRequest {
        stdin,
        label: args.label,
        idempotency_key: args.key,
        ..request
    })
}
