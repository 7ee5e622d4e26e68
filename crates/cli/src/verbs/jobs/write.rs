//! `sshjobs write`: text or our stdin for a job's stdin.

use std::io::{IsTerminal, Read};

use super::finish::finish;
use super::pick;
use crate::ProgramExit;
use crate::args::WriteArgs;
use crate::exit::print;
use sshjobs_wire::remote::Api;
use sshjobs_wire::{Code, Error, WriteRequest};

/// Maximum bytes of one write.
const WRITE_BYTES: usize = 1 << 20;

/// Writes to a job's stdin.
pub async fn write(api: &Api, mut args: WriteArgs) -> ProgramExit {
    finish(api, async {
        args.job = pick::resolve(api, &args.job).await?;
        let is_given = args.text.is_some() || args.secret.is_some();
        if !is_given && std::io::stdin().is_terminal() && !args.close {
            return Err(Error::invalid(
                "there is nothing to write",
                "give the text as an argument, or redirect stdin: sshjobs write ID < FILE",
            ));
        }
        let from_stdin = !is_given && !std::io::stdin().is_terminal();
        let mut written = 0;
        if let Some(text) = &args.text {
            let end = if args.no_newline { "" } else { "\n" };
            let data = format!("{text}{end}");
            api.write_bytes(&args.job, data.as_bytes(), args.patience).await?;
            written = data.len();
        }
        if args.secret.is_some() {
            let request = WriteRequest {
                secret_name: args.secret.clone(),
                newline: !args.no_newline,
                ..WriteRequest::new(&args.job)
            };
            written = api.write(request).await?.bytes_written;
        }
        if from_stdin {
            written = write_stdin(api, &args).await?;
        }
        let mut reply = None;
        if args.close {
            let request = WriteRequest {
                close_after: true,
                ..WriteRequest::new(&args.job)
            };
            reply = Some(api.write(request).await?);
        }
        if !args.json {
            return Ok(ProgramExit::SUCCESS);
        }
        let closed = reply.is_some();
        Ok(print(
            &serde_json::json!({"bytes_written": written, "stdin_closed": closed}).to_string(),
        ))
    })
    .await
}

async fn write_stdin(api: &Api, args: &WriteArgs) -> Result<usize, Error> {
    let mut written = 0;
    loop {
        let reading = tokio::task::spawn_blocking(|| {
            let mut data = Vec::new();
            std::io::stdin()
                .lock()
                // Reads until this size or the end, so slow input is held back until then.
                .take(WRITE_BYTES as u64)
                .read_to_end(&mut data)
                .map(|_| data)
        });
        let data = reading.await.map_err(|error| stdin_failed(error.to_string()))?;
        let data = data.map_err(|error| stdin_failed(format!("stdin can't be read: {error}")))?;
        if data.is_empty() {
            return Ok(written);
        }
        api.write_bytes(&args.job, &data, args.patience).await?;
        written += data.len();
    }
}

fn stdin_failed(message: String) -> Error {
    Error::new(Code::Io, message, "check where stdin comes from")
}
