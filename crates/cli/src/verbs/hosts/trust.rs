//! `sshjobs trust`: shows a host's key and adds it to known_hosts after a person has confirmed
//! it.

use std::io::{self, BufRead, IsTerminal, Write};

use crate::args::TrustArgs;
use crate::{ProgramExit, note, report};
use sshjobs_core::jobs::{HostKey, Jobs, printable};
use sshjobs_wire::{Code, Error};

/// Shows a host's key and, if a person or `--fingerprint` confirms it, writes it to known_hosts.
pub async fn trust(jobs: &Jobs, args: TrustArgs) -> ProgramExit {
    attempt(jobs, &args).await.unwrap_or_else(|error| {
        report(&error);
        ProgramExit::of_error(&error)
    })
}

async fn attempt(jobs: &Jobs, args: &TrustArgs) -> Result<ProgramExit, Error> {
    if let Some(expected) = &args.fingerprint
        && !is_fingerprint(expected.trim())
    {
        let hint = "it is SHA256: and 43 characters, as `ssh-keygen -lf` prints it";
        return Err(Error::new(
            Code::InvalidArgument,
            "--fingerprint is not a SHA-256 fingerprint",
            hint,
        ));
    }
    let key = jobs.host_key(&args.host).await?;
    show(&args.host, &key);
    // `fingerprint` is the type of the key and then its hash.
    let hash = key.fingerprint.split(' ').next_back();
    let is_expected = args.fingerprint.as_ref().map(|expected| hash == Some(expected.trim()));
    // A known key that is not the expected one is refused below.
    if key.is_known && is_expected != Some(false) {
        say("known_hosts vouches for this key already.");
        return Ok(ProgramExit::SUCCESS);
    }
    match is_expected {
        Some(true) => {}
        Some(false) => {
            let hint =
                "someone may be in the middle; ask the host's administrator for its fingerprint";
            return Err(Error::new(
                Code::HostKeyUnknown,
                "the host presents another key than expected",
                hint,
            ));
        }
        None if !io::stdin().is_terminal() => {
            let hint =
                "run it on a terminal, or say which key it must be with --fingerprint SHA256:…";
            return Err(Error::new(
                Code::HostKeyUnknown,
                "no person is available to confirm this key",
                hint,
            ));
        }
        None if !confirmed() => {
            note("nothing was written: only the whole word yes means yes");
            return Ok(ProgramExit::DECLINED);
        }
        None => {}
    }
    let file = jobs.trust(&key).await?;
    say(&format!("Written to {}.", file.display()));
    Ok(ProgramExit::SUCCESS)
}

fn show(host: &str, key: &HostKey) {
    let address = printable(&key.address);
    let fingerprint = printable(&key.fingerprint);
    say(&format!(
        "{} at {address} presents the key\n{fingerprint}\n{}",
        printable(host),
        key.randomart
    ));
}

fn is_fingerprint(text: &str) -> bool {
    text.strip_prefix("SHA256:").is_some_and(|hash| {
        hash.len() == 43
            && hash.chars().all(|c: char| c.is_ascii_alphanumeric() || c == '+' || c == '/')
    })
}

/// Asks the person at the terminal. Only "yes" confirms.
fn confirmed() -> bool {
    write!(
        io::stderr(),
        "Is this the host's own fingerprint? Then type yes: "
    )
    .ok();
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer).is_ok() && answer.trim() == "yes"
}

fn say(text: &str) {
    // Ignored: a closed stdout can't show it.
    writeln!(io::stdout(), "{text}").ok();
}
