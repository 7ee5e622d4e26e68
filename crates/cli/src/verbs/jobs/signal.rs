//! `sshjobs signal`: a signal for all processes of jobs.

use super::finish::finish;
use super::pick;
use crate::args::{SignalArgs, SignalTarget};
use crate::exit::print;
use crate::json::json;
use crate::{ProgramExit, note, report};
use sshjobs_wire::remote::Api;
use sshjobs_wire::{Code, Error, SignalReply, SignalRequest};

/// Signals jobs, one after the other, also after an error.
pub async fn signal(api: &Api, args: SignalArgs) -> ProgramExit {
    finish(api, async {
        let SignalTarget { jobs, signal } = args.target();
        let ids = pick::selected(api, &jobs, &args.filter, pick::runs).await?;
        // Jobs that a filter selects are known from the list.
        let checked = if args.filter.is_set() {
            Ok(())
        } else {
            pick::check_all(api, &ids).await
        };
        if let Err(error) = checked {
            let word = jobs.last().map(String::as_str).unwrap_or_default();
            return Err(
                if error.code == Code::UnknownJob && error.message.contains(word) {
                    let hint =
                        "nothing was sent; the last word may be a signal: INT, TERM, KILL, …";
                    Error::invalid(format!("{word:?} is neither a job nor a signal"), hint)
                } else {
                    error
                },
            );
        }
        if !pick::confirm(&format!("send {signal} to"), &ids, &args.filter)? {
            return Ok(ProgramExit::DECLINED);
        }
        let mut exit = ProgramExit::SUCCESS;
        for id in &ids {
            match signal_one(api, id, &signal, &args).await {
                Ok(reply) => {
                    let printed = tell(id, &reply, ids.len() > 1, args.json);
                    if exit == ProgramExit::SUCCESS {
                        exit = printed;
                    }
                }
                Err(error) => {
                    let error = pick::named(error, id, ids.len() > 1);
                    report(&error);
                    exit = ProgramExit::of_error(&error);
                }
            }
        }
        Ok(exit)
    })
    .await
}

async fn signal_one(
    api: &Api,
    id: &str,
    signal: &str,
    args: &SignalArgs,
) -> Result<SignalReply, Error> {
    let grace_ms = args.grace.map(|grace| i64::try_from(grace.as_millis()).unwrap_or(i64::MAX));
    let request = SignalRequest {
        signal: Some(signal.to_owned()),
        grace_ms,
        ..SignalRequest::new(id)
    };
    api.signal(request).await
}

fn tell(id: &str, reply: &SignalReply, is_one_of_several: bool, is_json: bool) -> ProgramExit {
    if is_json {
        return print(&json(reply));
    }
    let result = match (&reply.unverified, reply.confirmed_dead) {
        (Some(why), _) => why.as_str(),
        (None, true) => "no process of the job is left",
        (None, false) => "the signal was sent; the job still runs",
    };
    if is_one_of_several {
        note(&format!("{id}: {result}"));
    } else {
        note(result);
    }
    ProgramExit::SUCCESS
}
