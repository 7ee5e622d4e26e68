//! `sshjobs trust`: shows the keys of hosts and adds them to known_hosts after a person has confirmed
//! them.

use std::collections::BTreeSet;
use std::io::{self, BufRead, IsTerminal, Write};

use futures_util::{StreamExt, stream};

use crate::args::TrustArgs;
use crate::fleet::{named, split};
use crate::{ProgramExit, note, report};
use sshjobs_core::jobs::{HostKey, Jobs, printable};
use sshjobs_wire::remote::Api;
use sshjobs_wire::{Code, Error, Service};

/// Maximum hosts whose keys are fetched at the same time.
const AT_A_TIME: usize = 16;

/// Shows the keys of hosts and, if a person or `--fingerprint` confirms them, writes them to
/// known_hosts.
pub async fn trust(service: Service, args: TrustArgs) -> ProgramExit {
    attempt(service, &args).await.unwrap_or_else(|error| {
        report(&error);
        ProgramExit::of_error(&error)
    })
}

async fn attempt(service: Service, args: &TrustArgs) -> Result<ProgramExit, Error> {
    let jobs = service.library().clone();
    let hosts = hosts(service, args).await?;
    let keys = Keys::fetch(&jobs, hosts).await;
    if let Some(expected) = &args.fingerprint {
        keys.check(expected.trim())?;
    }
    let unknown: Vec<&HostKey> = keys.all.iter().filter(|key| !key.is_known).collect();
    if unknown.is_empty() {
        return Ok(keys.failed);
    }
    if args.fingerprint.is_none() {
        if !io::stdin().is_terminal() {
            return Err(Error::new(
                Code::HostKeyUnknown,
                "no person is available to confirm this key",
                "run it on a terminal, or say which key it must be with --fingerprint SHA256:…",
            ));
        }
        if !is_confirmed(unknown.len()) {
            note("nothing was written");
            return Ok(ProgramExit::DECLINED);
        }
    }
    let mut files = BTreeSet::new();
    for key in unknown {
        files.insert(jobs.trust(key).await?);
    }
    for file in files {
        say(&format!("Written to {}.", file.display()));
    }
    Ok(keys.failed)
}

/// The names of the hosts.
async fn hosts(service: Service, args: &TrustArgs) -> Result<Vec<String>, Error> {
    let mut words = Vec::new();
    for word in &args.hosts {
        words.extend(split(word)?);
    }
    let hosts = named(&Api::Here(service), &words).await?;
    if hosts.is_empty() {
        return Err(Error::invalid(
            "the pattern matches no host",
            "`sshjobs hosts` lists all hosts",
        ));
    }
    let Some(expected) = &args.fingerprint else { return Ok(hosts) };
    if !is_fingerprint(expected.trim()) {
        return Err(Error::invalid(
            "--fingerprint is not a SHA-256 fingerprint",
            "it is SHA256: and 43 characters, as `ssh-keygen -lf` prints it",
        ));
    }
    if hosts.len() > 1 {
        return Err(Error::invalid(
            "--fingerprint is for one host",
            "call it once for each host, each with its own fingerprint",
        ));
    }
    Ok(hosts)
}

/// The keys that hosts present.
struct Keys {
    all: Vec<HostKey>,
    /// The exit code for hosts that failed.
    failed: ProgramExit,
}

impl Keys {
    /// Fetches the keys, and shows each, in the order of the hosts.
    async fn fetch(jobs: &Jobs, hosts: Vec<String>) -> Self {
        let is_alone = hosts.len() == 1;
        let fetching = hosts.into_iter().map(async |host| {
            let key = jobs.host_key(&host).await.map_err(Error::from);
            (host, key)
        });
        let mut fetched = stream::iter(fetching).buffered(AT_A_TIME);
        let mut keys = Self {
            all: Vec::new(),
            failed: ProgramExit::SUCCESS,
        };
        while let Some((host, key)) = fetched.next().await {
            match key {
                Ok(key) => {
                    show(&host, &key, is_alone);
                    keys.all.push(key);
                }
                Err(error) => {
                    keys.failed = ProgramExit::of_error(&error);
                    report(&error);
                }
            }
        }
        keys
    }

    /// Refuses a key other than the expected one, also if it is known.
    fn check(&self, fingerprint: &str) -> Result<(), Error> {
        // `fingerprint` of a key is its type and then its hash.
        let hash_of = |key: &HostKey| key.fingerprint.split(' ').next_back().map(str::to_owned);
        let is_expected = |key: &HostKey| hash_of(key).as_deref() == Some(fingerprint);
        if self.all.iter().all(is_expected) {
            return Ok(());
        }
        Err(Error::new(
            Code::HostKeyUnknown,
            "the host presents another key than expected",
            "someone may be in the middle; ask the host's administrator for its fingerprint",
        ))
    }
}

/// Shows a key. One of many is shown without its picture.
fn show(host: &str, key: &HostKey, is_alone: bool) {
    let address = printable(&key.address);
    let fingerprint = printable(&key.fingerprint);
    let host = printable(host);
    if !is_alone {
        let known = if key.is_known {
            "  (known already)"
        } else {
            ""
        };
        say(&format!("{host} at {address}\n  {fingerprint}{known}"));
        return;
    }
    say(&format!(
        "{host} at {address} presents the key\n{fingerprint}\n{}",
        key.randomart
    ));
    if key.is_known {
        say("known_hosts vouches for this key already.");
    }
}

fn is_fingerprint(text: &str) -> bool {
    text.strip_prefix("SHA256:").is_some_and(|hash| {
        hash.len() == 43
            && hash.chars().all(|c: char| c.is_ascii_alphanumeric() || c == '+' || c == '/')
    })
}

/// Asks the person at the terminal, again until the answer is yes or no. The end of input is a no.
fn is_confirmed(keys: usize) -> bool {
    let mut question = if keys == 1 {
        "Is this the host's own fingerprint? Then type yes: ".to_owned()
    } else {
        format!("Are these {keys} the hosts' own fingerprints? Then type yes: ")
    };
    loop {
        write!(io::stderr(), "{question}").ok();
        let mut answer = String::new();
        match io::stdin().lock().read_line(&mut answer) {
            Ok(0) | Err(_) => return false,
            Ok(_) => {}
        }
        match answer.trim() {
            "yes" => return true,
            "no" => return false,
            _ => "Please type yes, or no: ".clone_into(&mut question),
        }
    }
}

fn say(text: &str) {
    // Ignored: a closed stdout can't show it.
    writeln!(io::stdout(), "{text}").ok();
}
