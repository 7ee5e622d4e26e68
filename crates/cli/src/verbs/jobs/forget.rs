use super::finish::finish;
use super::pick;
use crate::args::ForgetArgs;
use crate::exit::print;
use crate::json::json;
use crate::{ProgramExit, report};
use sshjobs_wire::remote::Api;
use sshjobs_wire::{ForgetRequest, ForgetWhat};

/// Deletes jobs.
pub async fn forget(api: &Api, args: ForgetArgs) -> ProgramExit {
    finish(api, async {
        let ids = pick::selected(api, &args.jobs, &args.filter, |entry| {
            args.force || entry.standing.state.is_final()
        })
        .await?;
        if !args.filter.is_set() {
            pick::check_all(api, &ids).await?;
        }
        let action = if args.output {
            "delete the output of"
        } else {
            "delete"
        };
        if !pick::confirm(action, &ids, &args.filter)? {
            return Ok(ProgramExit::DECLINED);
        }
        let mut exit = ProgramExit::SUCCESS;
        for job in &ids {
            let what = if args.output {
                ForgetWhat::Output
            } else {
                ForgetWhat::Job
            };
            match api
                .forget(ForgetRequest {
                    what,
                    force: args.force,
                    ..ForgetRequest::new(job)
                })
                .await
            {
                Ok(reply) if args.json => {
                    let printed = print(&json(&reply));
                    // A failure of an earlier job stays the exit code.
                    if exit == ProgramExit::SUCCESS {
                        exit = printed;
                    }
                }
                Ok(_) => {}
                Err(error) => {
                    let error = pick::named(error, job, ids.len() > 1);
                    report(&error);
                    exit = ProgramExit::of_error(&error);
                }
            }
        }
        Ok(exit)
    })
    .await
}
