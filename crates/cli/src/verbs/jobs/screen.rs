//! `sshjobs screen`: what a job's terminal shows.

use std::io::{IsTerminal, stdout};
use std::time::Duration;

use tokio::time::sleep;

use super::finish::finish;
use super::pick;
use crate::args::ScreenArgs;
use crate::exit::print;
use crate::json::json;
use crate::{ProgramExit, note};
use sshjobs_core::jobs::printable;
use sshjobs_wire::remote::Api;
use sshjobs_wire::{ReadReply, ReadRequest, Screen, UnitArg};

/// Length of one wait, before the next.
const WAIT_MS: i64 = 50_000;
/// Pause between two screens: more are not seen.
const FRAME: Duration = Duration::from_millis(50);
/// Cursor to the first column and row, and erase all (CUP and ED, ECMA-48).
const CLEAR: &str = "\x1b[H\x1b[2J";

/// Shows a job's screen, and each new one if requested.
pub async fn screen(api: &Api, mut args: ScreenArgs) -> ProgramExit {
    finish(api, async {
        args.job = pick::resolve(api, &args.job).await?;
        let mut request = ReadRequest {
            unit: UnitArg::Screen,
            ..ReadRequest::new(&args.job)
        };
        loop {
            let reply = api.read(request.clone()).await?;
            let Some(screen) = &reply.screen else { return Ok(ProgramExit::SUCCESS) };
            // `changed_rows` is empty if the wait has ended without a newer screen.
            let is_new = request.since_version.is_none_or(|version| screen.version > version);
            if is_new {
                let screen = whole(api, &args.job, screen).await?;
                match show(&screen, &args) {
                    ProgramExit::SUCCESS => {}
                    exit => return Ok(exit),
                }
                request.since_version = Some(screen.version);
                request.wait_ms = WAIT_MS;
            }
            if !args.follow {
                return Ok(ProgramExit::SUCCESS);
            }
            if !reply.still_running && !is_new {
                note(&format!("{}: {}", args.job, reply.standing));
                return Ok(ProgramExit::SUCCESS);
            }
            sleep(FRAME).await;
        }
    })
    .await
}

/// The screen with all of its rows.
async fn whole(api: &Api, job: &str, screen: &Screen) -> Result<Screen, sshjobs_wire::Error> {
    if screen.rows.is_some() {
        return Ok(screen.clone());
    }
    let request = ReadRequest {
        unit: UnitArg::Screen,
        ..ReadRequest::new(job)
    };
    let reply: ReadReply = api.read(request).await?;
    Ok(reply.screen.unwrap_or_else(|| screen.clone()))
}

fn show(screen: &Screen, args: &ScreenArgs) -> ProgramExit {
    if args.json {
        return print(&json(screen));
    }
    if !screen.from_start {
        note("the start of the output is gone, so some of the screen may be missing");
    }
    let rows: Vec<String> = screen.rows.iter().flatten().map(|row| printable(row)).collect();
    let clear = if args.follow && stdout().is_terminal() {
        CLEAR
    } else {
        ""
    };
    print(&format!("{clear}{}", rows.join("\n")))
}
