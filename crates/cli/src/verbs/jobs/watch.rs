//! `sshjobs watch`: a line for each event of jobs, for programs that wake an agent or a person.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::finish::finish;
use super::pick;
use crate::args::{AwaitedEvent, WatchArgs};
use crate::exit::print;
use crate::json::json;
use crate::{ProgramExit, note};
use sshjobs_core::jobs::printable;
use sshjobs_wire::remote::{Api, EventWatch, WatchedEvents};
use sshjobs_wire::{Error, EventKind, JobEvent};

/// Time for which a server that does not answer is asked again.
const RETRY_TIME: Duration = Duration::from_secs(60);
const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// Prints events until all jobs have ended.
pub async fn watch(api: &Api, args: WatchArgs) -> ProgramExit {
    finish(api, async {
        let awaited = awaited(args.on());
        let since = args.since.as_deref();
        let mut watch = match &args.jobs[..] {
            [] => EventWatch::of_own_jobs(api, awaited, since).await?,
            words => EventWatch::of_jobs(awaited, &pick::resolve_all(api, words).await?, since)?,
        };
        while let Some(events) = next(&mut watch, api).await? {
            for event in events {
                let printed = print(&if args.jsonl {
                    json(&event)
                } else {
                    in_words(&event)
                });
                if printed != ProgramExit::SUCCESS || args.once {
                    return Ok(printed);
                }
            }
        }
        Ok(ProgramExit::SUCCESS)
    })
    .await
}

fn awaited(events: &[AwaitedEvent]) -> WatchedEvents {
    let mut awaited = WatchedEvents {
        on: Vec::new(),
        until: None,
        quiet_ms: None,
    };
    for event in events {
        awaited.on.push(match event {
            AwaitedEvent::End => EventKind::End,
            AwaitedEvent::Prompt => EventKind::Prompt,
            AwaitedEvent::Silence(limit) => {
                awaited.quiet_ms = limit.and_then(|limit| i64::try_from(limit.as_millis()).ok());
                EventKind::Silence
            }
            AwaitedEvent::Match(pattern) => {
                awaited.until = Some(pattern.clone());
                EventKind::Match
            }
        });
    }
    awaited
}

/// The next events. Asks again while a server is being restarted.
async fn next(watch: &mut EventWatch, api: &Api) -> Result<Option<Vec<JobEvent>>, Error> {
    let give_up_at = Instant::now() + RETRY_TIME;
    let mut is_told = false;
    loop {
        match watch.next(api).await {
            Err(error) if error.retryable && Instant::now() < give_up_at => {
                if !is_told {
                    note(&format!("{}; trying again", printable(&error.message)));
                    is_told = true;
                }
                sleep(RETRY_PAUSE).await;
            }
            answer => return answer,
        }
    }
}

/// An event as a line for a person.
fn in_words(event: &JobEvent) -> String {
    let text = event.text.as_deref().unwrap_or_default();
    let what = match event.event {
        EventKind::End => event.standing.to_string(),
        EventKind::Prompt => format!("waits for input: {text}"),
        EventKind::Silence => format!("has printed nothing for {} s", event.silent_ms / 1000),
        EventKind::Match => format!("line {}: {text}", event.line_no.unwrap_or_default()),
    };
    printable(&format!("{} {what}", event.job_id))
}
