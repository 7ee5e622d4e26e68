//! `sshjobs sync`: brings a directory of a host, or of many, to the state of one of this machine.

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

/// Syncs a directory.
pub async fn sync(service: &Service, args: SyncArgs) -> ProgramExit {
    let api = Api::Here(service.clone());
    finish(&api, async {
        let target = PathOnHosts::parse(&args.target)?;
        if !args.source.is_dir() {
            return Err(Error::invalid(
                format!(
                    "{} is not a directory of this machine",
                    args.source.display()
                ),
                "sync takes a directory; `sshjobs put` copies files",
            ));
        }
        let exclusions = Exclusions::new(args.exclude)
            .map_err(|error| Error::invalid(error.to_string(), "write it as in a .gitignore"))?;
        let options = SyncOptions {
            exclusions,
            dry_run: args.dry_run,
        };
        let hosts = hosts_of(&api, &target.hosts).await?;
        let becomes = args.each.becomes.becomes()?;
        let jobs = service.library().with_context(|context| context.becomes = becomes);
        let progress = Arc::new(TransferProgress::default());
        check_ci_files(&args.each)?;
        let command = format!("sync {}", target.shown(&target.hosts));
        let mut signals = Signals::catch()?;
        let syncs = async {
            let syncs = on_each(&hosts, &args.each, &command, async |host, synced| {
                let path = &target.path;
                let at = HostPath { host, path };
                let report = jobs.sync_to(&args.source, at, &options, &progress).await?;
                let named = target.shown(host);
                synced.push(CopyResult::of_sync(host, named, &report, options.dry_run));
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
