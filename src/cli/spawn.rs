use super::exit::print;
use super::run::{name_and_value, remote_terminal};
use super::signals::Signals;
use super::{Exit, SpawnArgs, note, report};
use crate::jobs::{Command, Job, Jobs, Stdin};
use crate::wire::{Error, JobEntry};

/// Starts a job and prints its id. An attached one is stayed with to its end.
pub async fn spawn(jobs: &Jobs, args: SpawnArgs) -> Exit {
    let (json, attached) = (args.json, args.attached);
    let job = match start(jobs, args).await {
        Ok(job) => job,
        Err(error) => {
            report(&error);
            jobs.shutdown().await;
            return Exit::of_error(&error);
        }
    };
    let entry = JobEntry::of(&job);
    if let Some(why) = &entry.standing.unstored {
        note(&format!("its output is not stored: {why}"));
    }
    let id = entry.job_id.clone();
    let printed =
        print(&if json { serde_json::to_string(&entry).expect("a job's entry is plain data") } else { id });
    let exit = if attached { stay(&job).await } else { printed };
    jobs.shutdown().await;
    exit
}

/// Stays with an attached job to its end, or to ours: then it is ended.
async fn stay(job: &Job) -> Exit {
    let mut signals = match Signals::catch() {
        Ok(signals) => signals,
        Err(error) => {
            report(&error);
            return Exit::of_error(&error);
        }
    };
    tokio::select! {
        outcome = job.wait() => Exit::of(&outcome),
        number = signals.next() => Exit::signaled(number),
    }
}

async fn start(jobs: &Jobs, args: SpawnArgs) -> Result<Job, Error> {
    let command = command(jobs, args)?;
    Ok(command.spawn().await?)
}

fn command(jobs: &Jobs, args: SpawnArgs) -> Result<Command, Error> {
    let words = args.command.iter().skip_while(|word| *word == "--").cloned().collect::<Vec<_>>();
    let mut command = jobs.command(args.host, words.join(" ")).durable(!args.attached);
    command = command.stdin(if args.stdin { Stdin::Open } else { Stdin::Closed });
    for variable in args.env {
        let (name, value) = name_and_value(variable)?;
        command = command.env(name, value);
    }
    if let Some(directory) = args.cwd {
        command = command.cwd(directory);
    }
    if let Some(limit) = args.timeout {
        command = command.timeout(limit);
    }
    if args.pty {
        command = command.terminal(remote_terminal()?);
    }
    if let Some(label) = args.label {
        command = command.label(label);
    }
    if let Some(key) = args.key {
        command = command.idempotency_key(key);
    }
    Ok(command)
}
