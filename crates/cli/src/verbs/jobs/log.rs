//! `sshjobs log`: the whole output of jobs, in a pager on a terminal.

use std::collections::BTreeMap;
use std::io;

use super::finish::finish;
use super::lines::{LinePrinter, LineStyle, PrintStart};
use super::pick;
use crate::args::LogArgs;
use crate::exit::print;
use crate::terminal::{DIM, Pager, PagerEnds, colours_are_wanted, paint};
use crate::{ProgramExit, note};
use sshjobs_core::jobs::printable;
use sshjobs_wire::remote::Api;
use sshjobs_wire::{Code, Error, StreamArg, TailRequest};

/// Length of one wait, before the next.
const WAIT_MS: u64 = 50_000;
/// Maximum jobs that are followed at once.
const MOST_FOLLOWED: usize = 50;

/// Shows the output of jobs.
pub async fn log(api: &Api, args: LogArgs) -> ProgramExit {
    finish(api, async {
        let ids = pick::selected(api, &args.jobs, &args.filter, |_| true).await?;
        if ids.is_empty() {
            let hint = "`sshjobs jobs` with the same filter shows which jobs there are";
            return Err(Error::new(
                Code::UnknownJob,
                "no job passes this filter",
                hint,
            ));
        }
        let style = LineStyle {
            json: args.json,
            timestamps: args.timestamps,
            is_coloured: !args.json && colours_are_wanted(&io::stdout()),
        };
        if args.follow && ids.len() > 1 {
            return follow_many(api, &ids, &args, style).await;
        }
        let pager = if args.follow || args.json || args.no_pager {
            None
        } else {
            Pager::start(PagerEnds::IfItFits)
        };
        let exit = show_each(api, &ids, &args, style).await?;
        // A person who leaves the pager early has seen enough.
        Ok(if pager.is_some() && exit == ProgramExit::BROKEN_PIPE {
            ProgramExit::SUCCESS
        } else {
            exit
        })
    })
    .await
}

/// Shows the whole output of a job in the pager.
pub(crate) async fn page_log(api: &Api, id: &str) -> Result<ProgramExit, Error> {
    let is_coloured = colours_are_wanted(&io::stdout());
    // Until the person leaves the pager.
    let _pager = Pager::start(PagerEnds::ByPerson);
    let lines = LinePrinter {
        job: id.to_owned(),
        start: PrintStart::Beginning,
        stream: StreamArg::Both,
        filter: None,
        until: None,
        follow: false,
        style: LineStyle {
            json: false,
            timestamps: false,
            is_coloured,
        },
    };
    lines.show(api).await
}

async fn show_each(
    api: &Api,
    ids: &[String],
    args: &LogArgs,
    style: LineStyle,
) -> Result<ProgramExit, Error> {
    for (index, id) in ids.iter().enumerate() {
        if ids.len() > 1 && !style.json {
            let line = format!("==> {id} <==");
            let gap = if index == 0 { "" } else { "\n" };
            match print(&format!("{gap}{}", paint(&line, DIM, style.is_coloured))) {
                ProgramExit::SUCCESS => {}
                exit => return Ok(exit),
            }
        }
        let start = match (args.since, args.lines) {
            (Some(since), _) => PrintStart::After(since),
            (None, Some(lines)) => PrintStart::Last(lines),
            (None, None) => PrintStart::Beginning,
        };
        let lines = LinePrinter {
            job: id.clone(),
            start,
            stream: args.stream.into(),
            filter: args.grep.clone(),
            until: None,
            follow: args.follow,
            style,
        };
        match lines.show(api).await? {
            ProgramExit::SUCCESS => {}
            exit => return Ok(exit),
        }
    }
    Ok(ProgramExit::SUCCESS)
}

/// Follows several jobs. Each line comes after the id of its job.
async fn follow_many(
    api: &Api,
    ids: &[String],
    args: &LogArgs,
    style: LineStyle,
) -> Result<ProgramExit, Error> {
    if style.json || style.timestamps || args.since.is_some() || args.lines.is_some() {
        let hint = "omit --json, --timestamps, --since and -n, or follow one job";
        return Err(Error::invalid(
            "several jobs are followed as text, from their start",
            hint,
        ));
    }
    if ids.len() > MOST_FOLLOWED {
        let message = format!("{} jobs are too many to follow", ids.len());
        return Err(Error::invalid(
            message,
            "name at most 50, or use a narrower filter",
        ));
    }
    let mut cursors = BTreeMap::new();
    let mut ended = Vec::new();
    loop {
        let request = TailRequest {
            job_ids: ids.to_vec(),
            cursors,
            filter: args.grep.clone(),
            stream: args.stream.into(),
            ..TailRequest::new("", 0, WAIT_MS)
        };
        let reply = api.tail(request).await?;
        for job in &reply.jobs {
            if job.dropped_lines > 0 {
                note(&format!(
                    "{}: {} lines were evicted",
                    job.job_id, job.dropped_lines
                ));
            }
            let name = paint(&format!("{}:", job.job_id), DIM, style.is_coloured);
            for line in &job.lines {
                match print(&format!("{name} {}", printable(line))) {
                    ProgramExit::SUCCESS => {}
                    exit => return Ok(exit),
                }
            }
            if !job.still_running && !ended.contains(&job.job_id) {
                note(&format!("{}: {}", job.job_id, job.standing));
                ended.push(job.job_id.clone());
            }
        }
        if !reply.still_running {
            return Ok(ProgramExit::SUCCESS);
        }
        cursors = reply.cursors;
    }
}
