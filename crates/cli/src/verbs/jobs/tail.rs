//! `sshjobs tail`: the last lines, and with `-f` those that come until the job ends.

use std::io;

use super::finish::finish;
use super::lines::{LinePrinter, LineStyle, PrintStart};
use super::pick;
use crate::ProgramExit;
use crate::args::TailArgs;
use crate::terminal::colours_are_wanted;
use sshjobs_wire::remote::Api;

/// Shows a job's lines, and follows them if requested.
pub async fn tail(api: &Api, args: TailArgs) -> ProgramExit {
    finish(api, async {
        let start = match (args.since, &args.until) {
            (Some(since), _) => PrintStart::After(since),
            // The first match may be anywhere.
            (None, Some(_)) => PrintStart::Beginning,
            (None, None) => PrintStart::Last(args.lines),
        };
        let lines = LinePrinter {
            job: pick::resolve(api, &args.job).await?,
            start,
            stream: args.stream.into(),
            filter: None,
            until: args.until,
            follow: args.follow,
            style: LineStyle {
                json: args.json,
                timestamps: args.timestamps,
                is_coloured: !args.json && colours_are_wanted(&io::stdout()),
            },
        };
        lines.show(api).await
    })
    .await
}
