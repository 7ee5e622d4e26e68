//! `sshjobs read`: a part of a job's output, or the raw bytes of one stream.

use base64::Engine;

use super::finish::{finish, warn_if_unreachable};
use super::pick;
use crate::args::{ReadArgs, StreamChoice, UnitChoice};
use crate::exit::{print, write_out};
use crate::json::json;
use crate::{ProgramExit, note};
use sshjobs_core::jobs::printable;
use sshjobs_wire::remote::Api;
use sshjobs_wire::{Encoding, Error, ReadRequest, RenderArg, StreamArg, UnitArg};

/// Maximum bytes of one read.
const MOST_BYTES: i64 = 262_144;

/// Shows a part of a job's output.
pub async fn read(api: &Api, mut args: ReadArgs) -> ProgramExit {
    finish(api, async {
        args.job = pick::resolve(api, &args.job).await?;
        if args.raw {
            return read_raw(api, &args).await;
        }
        let is_json = args.json;
        let reply_of = args.job.clone();
        let reply = api
            .read(ReadRequest {
                unit: args.unit.into(),
                offset: args.offset,
                length: args.length,
                max_bytes: Some(MOST_BYTES),
                stream: args.stream.into(),
                render: RenderArg::Clean,
                ..ReadRequest::new(args.job)
            })
            .await?;
        warn_if_unreachable(api, &reply_of).await;
        if is_json {
            return Ok(print(&json(&reply)));
        }
        let end = reply.offset + reply.returned;
        if end < reply.total {
            let unit = args.unit.name();
            note(&format!(
                "{} of {} {unit}; --offset {end} continues",
                reply.returned, reply.total
            ));
        }
        let lines = reply.lines.as_ref().map(|lines| lines.join("\n"));
        let text = lines.or(reply.content.clone()).unwrap_or_default();
        let shown: Vec<String> = text.split('\n').map(printable).collect();
        Ok(if text.is_empty() {
            ProgramExit::SUCCESS
        } else {
            print(shown.join("\n").trim_end_matches('\n'))
        })
    })
    .await
}

/// Writes the raw bytes of a stream, in pieces.
async fn read_raw(api: &Api, args: &ReadArgs) -> Result<ProgramExit, Error> {
    let stream = args.stream.into();
    if stream == StreamArg::Both {
        return Err(Error::invalid(
            "exact bytes are those of one stream",
            "add --stream stdout or --stream stderr",
        ));
    }
    let mut offset = args.offset;
    let mut left = args.length.unwrap_or(i64::MAX);
    while left > 0 {
        let request = ReadRequest {
            unit: UnitArg::Bytes,
            encoding: Encoding::Base64,
            offset,
            // The server clamps this to fewer bytes; `returned` has the real number.
            length: Some(left.min(MOST_BYTES)),
            stream,
            ..ReadRequest::new(&args.job)
        };
        let reply = api.read(request).await?;
        let gone = i64::try_from(reply.offset).unwrap_or(i64::MAX).saturating_sub(offset);
        if gone > 0 && offset >= 0 {
            note(&format!("{gone} bytes were evicted"));
        }
        let bytes = base64::prelude::BASE64_STANDARD.decode(reply.content.unwrap_or_default());
        match write_out(&bytes.expect("it was encoded here")) {
            ProgramExit::SUCCESS => {}
            exit => return Ok(exit),
        }
        left = left.saturating_sub_unsigned(reply.returned);
        // From the reply, because the requested start may be negative or evicted.
        offset = i64::try_from(reply.offset + reply.returned).unwrap_or(i64::MAX);
        // The end or, of a running job, the end so far.
        if reply.returned == 0 {
            break;
        }
    }
    Ok(ProgramExit::SUCCESS)
}

impl From<StreamChoice> for StreamArg {
    fn from(choice: StreamChoice) -> Self {
        match choice {
            StreamChoice::Both => Self::Both,
            StreamChoice::Stdout => Self::Stdout,
            StreamChoice::Stderr => Self::Stderr,
        }
    }
}

impl From<UnitChoice> for UnitArg {
    fn from(choice: UnitChoice) -> Self {
        match choice {
            UnitChoice::Lines => Self::Lines,
            UnitChoice::Chars => Self::Chars,
            UnitChoice::Bytes => Self::Bytes,
        }
    }
}
