//! `sshjobs queue`: lists queues, and holds, releases and moves their jobs.

use super::finish::finish;
use super::jobs::{age, command_of, state_of};
use super::pick;
use crate::args::{QueueArgs, QueueVerb};
use crate::exit::print;
use crate::json::json;
use crate::terminal::in_columns;
use crate::{ProgramExit, note};
use sshjobs_core::jobs::printable;
use sshjobs_wire::remote::Api;
use sshjobs_wire::{
    Code, Error, QueueAction, QueueEntry, QueueReply, QueueRequest, QueuedJobEntry,
};

/// Lists queues, or changes the order in one.
pub async fn queue(api: &Api, args: QueueArgs) -> ProgramExit {
    finish(api, async {
        let request = match &args.verb {
            None => QueueRequest {
                name: args.name.clone(),
                ..QueueRequest::default()
            },
            Some(QueueVerb::Hold(hold)) => held(api, &hold.target, QueueAction::Hold).await?,
            Some(QueueVerb::Release(hold)) => held(api, &hold.target, QueueAction::Release).await?,
            Some(QueueVerb::Move(moved)) => QueueRequest {
                action: QueueAction::Move,
                job_id: Some(pick::resolve(api, &moved.job).await?),
                place: Some(moved.place),
                ..QueueRequest::default()
            },
        };
        let name = request.name.clone();
        let reply = api.queue(request).await?;
        Ok(show(&reply, name.as_deref(), args.json))
    })
    .await
}

/// The request to hold or release a job, if the word is the whole id of one or `last`, or else a queue, which need
/// not have jobs yet.
async fn held(api: &Api, target: &str, action: QueueAction) -> Result<QueueRequest, Error> {
    let id = match target {
        pick::LAST => Some(pick::resolve(api, target).await?),
        // Every name of a queue may also look like an id.
        _ => match api.entry(target).await {
            Ok(entry) => Some(entry.job_id),
            Err(error) if error.code == Code::UnknownJob => begins_with(api, target).await?,
            Err(error) => return Err(error),
        },
    };
    Ok(QueueRequest {
        action,
        name: id.is_none().then(|| target.to_owned()),
        job_id: id,
        place: None,
    })
}

/// The job whose id begins with a word that is not the name of a known queue.
async fn begins_with(api: &Api, word: &str) -> Result<Option<String>, Error> {
    let queues = api.queue(QueueRequest::default()).await?.queues;
    if queues.iter().any(|queue| queue.name == word) {
        return Ok(None);
    }
    let id = pick::resolve(api, word).await?;
    Ok((id != word).then_some(id))
}

fn show(reply: &QueueReply, name: Option<&str>, as_json: bool) -> ProgramExit {
    if as_json {
        let lines: Vec<String> = reply.queues.iter().map(json).collect();
        return if lines.is_empty() {
            ProgramExit::SUCCESS
        } else {
            print(&lines.join("\n"))
        };
    }
    if reply.queues.is_empty() {
        match name {
            Some(name) => note(&format!("the queue {name} has no jobs, and is not held")),
            None => note(
                "no job is in a queue; `sshjobs spawn --queue NAME HOST -- COMMAND` puts one there",
            ),
        }
        return ProgramExit::SUCCESS;
    }
    for queue in reply.queues.iter().filter(|queue| queue.held && queue.jobs.is_empty()) {
        note(&format!(
            "the queue {} has no jobs; those that join it wait",
            queue.name
        ));
    }
    let texts: Vec<String> = reply.queues.iter().map(in_lines).collect();
    print(&texts.join("\n\n"))
}

/// A queue: a line about it, then one for each job.
fn in_lines(queue: &QueueEntry) -> String {
    let held = if queue.held {
        ", held: nothing starts until `sshjobs queue release`"
    } else {
        ""
    };
    let on = if queue.per_host { " on each host" } else { "" };
    let mut lines = vec![format!(
        "{}: {} at a time{on}{held}",
        printable(&queue.name),
        queue.parallel
    )];
    let rows: Vec<[String; 6]> = queue.jobs.iter().map(row).collect();
    lines.extend(in_columns(&rows));
    match queue.others {
        0 => {}
        1 => lines.push("and 1 job of another caller".to_owned()),
        others => lines.push(format!("and {others} jobs of other callers")),
    }
    lines.join("\n")
}

fn row(queued: &QueuedJobEntry) -> [String; 6] {
    let place = queued.place.map_or_else(|| "-".to_owned(), |place| format!("#{place}"));
    [
        place,
        printable(&queued.job.job_id),
        printable(&queued.job.host),
        state_of(&queued.job),
        age(queued.job.started_at),
        command_of(&queued.job),
    ]
}
