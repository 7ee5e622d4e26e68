use std::time::Duration;

use tokio::time::sleep;

use super::command::Words;
use super::exit::print;
use super::signals::Signals;
use super::{Exit, SpawnArgs, fleet, note, report};
use crate::remote::Api;
use crate::wire::{CommandRequest, Error, JobEntry, JobState, Service};

/// Interval at which it is looked whether a fleet has begun.
const LOOK: Duration = Duration::from_millis(200);

/// Starts a job and prints its id. An attached one of this process is stayed with to its end.
pub async fn spawn(api: &Api, args: SpawnArgs) -> Exit {
    let (json, attached) = (args.json, args.attached);
    let entry = match start(api, args).await {
        Ok(entry) => entry,
        Err(error) => {
            report(&error);
            api.shutdown().await;
            return Exit::of_error(&error);
        }
    };
    if let Some(why) = &entry.standing.unstored {
        note(&format!("its output is not stored: {why}"));
    }
    let id = entry.job_id.clone();
    let printed =
        print(&if json { serde_json::to_string(&entry).expect("a job's entry is plain data") } else { id });
    let exit = match api {
        Api::Here(service) if attached => stay(service, &entry.job_id).await,
        Api::Here(_) if entry.members.is_some() => until_begun(api, &entry.job_id).await.unwrap_or(printed),
        Api::Here(_) | Api::There(_) => printed,
    };
    api.shutdown().await;
    exit
}

/// Stays with a fleet until all of its members have begun, or are not to: only a process that is there starts them.
async fn until_begun(api: &Api, id: &str) -> Option<Exit> {
    let begun = async {
        loop {
            let entry = api.entry(id).await?;
            let left = fleet::members(api, id).await?;
            let is_waiting = |member: &JobEntry| member.standing.state == JobState::Starting;
            if entry.standing.state.is_final() || !left.iter().any(is_waiting) {
                return Ok::<_, Error>(());
            }
            sleep(LOOK).await;
        }
    };
    let mut signals = Signals::catch().ok()?;
    tokio::select! {
        begun = begun => begun.err().map(|error| {
            report(&error);
            Exit::of_error(&error)
        }),
        number = signals.next() => Some(Exit::signaled(number)),
    }
}

/// Stays with an attached job to its end, or to ours: then it is ended.
async fn stay(service: &Service, id: &str) -> Exit {
    let staying = async {
        let mut signals = Signals::catch()?;
        let job = service.library().job(id).await?;
        Ok::<_, Error>(tokio::select! {
            outcome = job.wait() => Exit::of(&outcome),
            number = signals.next() => Exit::signaled(number),
        })
    };
    staying.await.unwrap_or_else(|error| {
        report(&error);
        Exit::of_error(&error)
    })
}

async fn start(api: &Api, args: SpawnArgs) -> Result<JobEntry, Error> {
    let reply = api.spawn(request(args)?).await?;
    api.entry(&reply.job_id).await
}

fn request(args: SpawnArgs) -> Result<CommandRequest, Error> {
    let rollout = args.rollout;
    let words = args.command.iter().skip_while(|word| *word == "--").cloned().collect::<Vec<_>>();
    let stdin = (!args.stdin).then(|| String::new().into());
    let words = Words {
        host: args.host,
        command: words.join(" "),
        cwd: args.cwd,
        env: args.env,
        env_files: Vec::new(),
        timeout: args.timeout,
        pty: args.pty,
        durable: !args.attached,
    };
    let request = words.into_request()?;
    let request = fleet::on_hosts(request, &rollout)?;
    Ok(CommandRequest { stdin, label: args.label, idempotency_key: args.key, ..request })
}
