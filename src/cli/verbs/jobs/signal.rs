use super::finish::finish;
use crate::cli::args::SignalArgs;
use crate::cli::exit::print;
use crate::cli::json::json;
use crate::cli::{Exit, note};
use crate::remote::Api;
use crate::wire::SignalRequest;

/// Signals a job.
pub async fn signal(api: &Api, args: SignalArgs) -> Exit {
    finish(api, async {
        let grace_ms = args.grace.map(|grace| i64::try_from(grace.as_millis()).unwrap_or(i64::MAX));
        let request = SignalRequest {
            signal: Some(args.signal),
            grace_ms,
            ..SignalRequest::new(args.job)
        };
        let reply = api.signal(request).await?;
        if args.json {
            return Ok(print(&json(&reply)));
        }
        match (&reply.unverified, reply.confirmed_dead) {
            (Some(why), _) => note(why),
            (None, true) => note("no process of the job is left"),
            (None, false) => note("the signal was sent; the job still runs"),
        }
        Ok(Exit::SUCCESS)
    })
    .await
}
