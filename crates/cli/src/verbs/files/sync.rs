//! `sshjobs sync`: brings a directory of a host, or of many, to the state of one of this machine, or back.

use std::path::PathBuf;
use std::sync::Arc;

use super::many::{Copies, check_ci_files, hosts_of, on_each, write_ci_files};
use super::progress::shown;
use super::put::interrupted;
use super::result::CopyResult;
use crate::ProgramExit;
use crate::args::SyncArgs;
use crate::terminal::Signals;
use crate::verbs::jobs::finish;
use sshjobs_core::jobs::{Exclusions, HostPath, SyncOptions, TransferProgress};
use sshjobs_wire::remote::Api;
use sshjobs_wire::{Error, PathOnHosts, Service};

/// Which way a sync goes.
enum Direction {
    /// To hosts.
    To { here: PathBuf, there: PathOnHosts },
    /// From hosts.
    From { there: PathOnHosts, here: PathBuf },
}

impl Direction {
    fn of(source: PathBuf, target: PathBuf) -> Result<Self, Error> {
        match (PathOnHosts::parse(&source), PathOnHosts::parse(&target)) {
            (Err(_), Ok(there)) if source.is_dir() => Ok(Self::To {
                here: source,
                there,
            }),
            (Err(_), Ok(_)) => Err(Error::invalid(
                format!("{} is not a directory of this machine", source.display()),
                "sync takes a directory; `sshjobs put` copies files",
            )),
            (Ok(there), Err(_)) => Ok(Self::From {
                there,
                here: target,
            }),
            (Ok(_), Ok(_)) => Err(Error::invalid(
                "both directories are on hosts",
                "sync to this machine first, and from here to the other host",
            )),
            (Err(_), Err(error)) => Err(error),
        }
    }

    fn there(&self) -> &PathOnHosts {
        match self {
            Self::To { there, .. } | Self::From { there, .. } => there,
        }
    }
}

/// Syncs a directory.
pub async fn sync(service: &Service, args: SyncArgs) -> ProgramExit {
    let api = Api::Here(service.clone());
    finish(&api, async {
        let direction = Direction::of(args.source, args.target)?;
        let exclusions = Exclusions::new(args.exclude)
            .map_err(|error| Error::invalid(error.to_string(), "write it as in a .gitignore"))?;
        let options = SyncOptions {
            exclusions,
            dry_run: args.dry_run,
        };
        let there = direction.there();
        let hosts = hosts_of(&api, &there.hosts).await?;
        let becomes = args.each.becomes.becomes()?;
        let jobs = service.library().with_context(|context| context.becomes = becomes);
        let progress = Arc::new(TransferProgress::default());
        check_ci_files(&args.each)?;
        let command = format!("sync {}", there.shown(&there.hosts));
        let mut signals = Signals::catch()?;
        let syncs = async {
            let syncs = on_each(&hosts, &args.each, &command, async |host, synced| {
                let path = &there.path;
                let at = HostPath { host, path };
                let (report, target) = match &direction {
                    Direction::To { here, .. } => {
                        let report = jobs.sync_to(here, at, &options, &progress).await?;
                        (report, there.shown(host))
                    }
                    Direction::From { here, .. } => {
                        // As for get: a directory for each of several hosts.
                        let here = if hosts.len() > 1 {
                            here.join(host)
                        } else {
                            here.clone()
                        };
                        let report = jobs.sync_from(at, &here, &options, &progress).await?;
                        (report, here.display().to_string())
                    }
                };
                synced.push(CopyResult::of_sync(host, target, &report, options.dry_run));
                Ok(())
            });
            let Copies { exit, results } = syncs.await;
            write_ci_files(&args.each, &command, &results)?;
            Ok(exit)
        };
        tokio::select! {
            exit = shown(&progress, syncs) => exit,
            signal = signals.next() => Ok(interrupted(signal, true)),
        }
    })
    .await
}
