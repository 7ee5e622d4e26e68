//! `sshjobs tail`: the last lines, and with `-f` those that come until the job ends.

use std::io;

use super::finish::finish;
use super::lines::{Lines, Start, Style};
use super::pick;
use crate::Exit;
use crate::args::TailArgs;
use crate::terminal::are_wanted;
use sshjobs_wire::remote::Api;

/// Shows a job's lines, and follows them if requested.
pub async fn tail(api: &Api, args: TailArgs) -> Exit {
    finish(api, async {
        let start = match (args.since, &args.until) {
            (Some(since), _) => Start::After(since),
            // The first match may be anywhere.
            (None, Some(_)) => Start::Beginning,
            (None, None) => Start::Last(args.lines),
        };
        let lines = Lines {
            job: pick::resolve(api, &args.job).await?,
            start,
            stream: args.stream.into(),
            filter: None,
            until: args.until,
            follow: args.follow,
            style: Style {
                json: args.json,
                timestamps: args.timestamps,
                is_coloured: !args.json && are_wanted(&io::stdout()),
            },
        };
        lines.show(api).await
    })
    .await
}
