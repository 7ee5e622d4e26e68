use super::finish::finish;
use crate::cli::args::ForgetArgs;
use crate::cli::exit::print;
use crate::cli::json::json;
use crate::cli::{Exit, report};
use crate::remote::Api;
use crate::wire::{ForgetRequest, ForgetWhat};

/// Deletes jobs.
pub async fn forget(api: &Api, args: ForgetArgs) -> Exit {
    finish(api, async {
        let mut exit = Exit::SUCCESS;
        for job in &args.jobs {
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
                    if exit == Exit::SUCCESS {
                        exit = printed;
                    }
                }
                Ok(_) => {}
                Err(error) => {
                    report(&error);
                    exit = Exit::of_error(&error);
                }
            }
        }
        Ok(exit)
    })
    .await
}
