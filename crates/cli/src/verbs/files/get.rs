//! `sshjobs get`: files of a host, or of many, to this machine.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures_util::StreamExt;

use super::many::{Copies, check_ci_files, hosts_of, on_each, write_ci_files};
use super::progress::shown;
use super::put::{at_least_two, interrupted, is_stream, jobs_error};
use super::result::CopyResult;
use crate::args::GetArgs;
use crate::exit::write_out;
use crate::fleet::HostResult;
use crate::terminal::Signals;
use crate::verbs::jobs::finish;
use crate::{ProgramExit, report};
use sshjobs_core::jobs::{
    FileKind, FilesError, GetOptions, HostPath, Jobs, RemotePath, TransferProgress, TreeOptions,
};
use sshjobs_wire::remote::Api;
use sshjobs_wire::{Code, Error, PathOnHosts, Service, shown_at};

/// Copies files from hosts.
pub async fn get(service: &Service, mut args: GetArgs) -> ProgramExit {
    let api = Api::Here(service.clone());
    finish(&api, async {
        at_least_two(&args.paths, "get HOST:PATH… LOCAL")?;
        let local = args.paths.pop().unwrap_or_default();
        let sources: Vec<PathOnHosts> = args
            .paths
            .iter()
            .map(|word| PathOnHosts::parse(word))
            .collect::<Result<_, _>>()?;
        check_ci_files(&args.copy.each)?;
        let becomes = args.copy.each.becomes.becomes()?;
        let jobs = service.library().with_context(|context| context.becomes = becomes);
        let progress = Arc::new(TransferProgress::default());
        let getting = Getting {
            jobs: &jobs,
            local: &local,
            args: &args,
            progress: &progress,
            is_only: sources.len() == 1,
        };
        let mut signals = Signals::catch()?;
        let copies = getting.all(&api, &sources);
        let is_resumable = !is_stream(&local) && !args.copy.recursive;
        tokio::select! {
            exit = shown(&progress, copies) => exit,
            signal = signals.next() => Ok(interrupted(signal, is_resumable)),
        }
    })
    .await
}

/// The sources that were copied.
#[derive(Default)]
struct CopiedSources {
    commands: Vec<String>,
    results: Vec<HostResult>,
}

/// The copies from each host.
struct Getting<'a> {
    jobs: &'a Jobs,
    local: &'a Path,
    args: &'a GetArgs,
    progress: &'a Arc<TransferProgress>,
    /// There is exactly one source argument.
    is_only: bool,
}

impl Getting<'_> {
    async fn all(&self, api: &Api, sources: &[PathOnHosts]) -> Result<ProgramExit, Error> {
        let mut done = CopiedSources::default();
        let exit = self.copy_all(api, sources, &mut done).await;
        // Also if a later source could not be copied. A copy to stdout has no results.
        if !done.commands.is_empty() {
            let command = done.commands.join("; ");
            write_ci_files(&self.args.copy.each, &command, &done.results)?;
        }
        exit
    }

    /// Copies the sources one after the other, and notes the results of each.
    async fn copy_all(
        &self,
        api: &Api,
        sources: &[PathOnHosts],
        done: &mut CopiedSources,
    ) -> Result<ProgramExit, Error> {
        let mut last = ProgramExit::SUCCESS;
        for source in sources {
            let hosts = hosts_of(api, &source.hosts).await?;
            let is_many = crate::fleet::is_meant(&source.hosts);
            if is_stream(self.local) {
                match self.to_stdout(&hosts, source).await? {
                    ProgramExit::SUCCESS => continue,
                    exit => return Ok(exit),
                }
            }
            let command = format!("get {}", source.shown(&source.hosts));
            let copies = on_each(
                &hosts,
                &self.args.copy.each,
                &command,
                async |host, copied| self.from(host, source, is_many, copied).await,
            );
            let Copies { exit, results } = copies.await;
            if exit != ProgramExit::SUCCESS {
                last = exit;
            }
            done.results.extend(results);
            done.commands.push(command);
        }
        Ok(last)
    }

    /// Copies the matches of a word from a host.
    async fn from(
        &self,
        host: &str,
        source: &PathOnHosts,
        is_many: bool,
        copied: &mut Vec<CopyResult>,
    ) -> Result<(), Error> {
        let files = self.jobs.files(host).await?;
        let matched = files.named(&source.path).await.map_err(jobs_error)?;
        drop(files);
        let is_one = matched.len() == 1 && self.is_only && !is_many;
        for found in &matched {
            self.progress.expect(found.attributes.size.unwrap_or(0));
        }
        let mut first_error = None;
        for found in matched {
            let target = self.target(host, &found.path, is_one, is_many)?;
            let kind = found.attributes.kind();
            match self.copy(host, &found.path, kind, &target).await {
                Ok(one) => copied.push(one),
                // Nothing else can be copied, either.
                Err(error) if matches!(error.code, Code::ConnectionLost | Code::Unreachable) => {
                    return Err(error);
                }
                // A file that can't be read does not keep the other matches back, as with scp.
                Err(error) if first_error.is_none() => first_error = Some(error),
                Err(error) => report(&error),
            }
        }
        first_error.map_or(Ok(()), Err)
    }

    /// Where a file goes on this machine.
    fn target(
        &self,
        host: &str,
        path: &RemotePath,
        is_one: bool,
        is_many: bool,
    ) -> Result<PathBuf, Error> {
        let ends_with_slash = self.local.as_os_str().as_bytes().ends_with(b"/");
        if is_one && !self.local.is_dir() && !ends_with_slash {
            return Ok(self.local.to_owned());
        }
        let mut directory = self.local.to_owned();
        if is_many {
            // A host's name is a name of a directory: it must not lead elsewhere.
            directory.push(match host {
                "." | ".." => "_".to_owned(),
                host => host.replace('/', "_"),
            });
        }
        std::fs::create_dir_all(&directory)
            .map_err(|error| jobs_error(FilesError::local(&directory)(error)))?;
        let name = match path.name() {
            b"" | b"." | b".." => host.as_bytes(),
            name => name,
        };
        Ok(directory.join(OsStr::from_bytes(name)))
    }

    async fn copy(
        &self,
        host: &str,
        path: &RemotePath,
        kind: FileKind,
        target: &Path,
    ) -> Result<CopyResult, Error> {
        if kind == FileKind::Directory {
            if !self.args.copy.recursive {
                return Err(Error::invalid(
                    format!("{} is a directory", shown_at(host, path)),
                    "add -r to copy it with all that is in it",
                ));
            }
            let options = TreeOptions {
                preserve: self.args.copy.preserve,
                ..TreeOptions::default()
            };
            let tree = self
                .jobs
                .get_tree(HostPath { host, path }, target, options, self.progress)
                .await?;
            return Ok(CopyResult::of_tree(
                host,
                target.display().to_string(),
                &tree,
            ));
        }
        // As within a copied directory.
        if kind == FileKind::Symlink && self.args.copy.recursive {
            self.jobs.get_link(HostPath { host, path }, target).await?;
            return Ok(CopyResult::of_link(host, target));
        }
        let options = GetOptions {
            preserve: self.args.copy.preserve,
            ..GetOptions::default()
        };
        let got = self
            .jobs
            .get_file(HostPath { host, path }, target, options, self.progress)
            .await?;
        Ok(CopyResult::of_get(host, target, &got))
    }

    /// Writes the matches of a word to stdout, one after the other.
    async fn to_stdout(
        &self,
        hosts: &[String],
        source: &PathOnHosts,
    ) -> Result<ProgramExit, Error> {
        for host in hosts {
            let at = HostPath {
                host,
                path: &source.path,
            };
            let files = self.jobs.files_at(at).await?;
            for found in files.named(&source.path).await.map_err(jobs_error)? {
                let pieces = files.pieces(&found.path, 0, None).await;
                let mut pieces = pieces.map_err(jobs_error)?;
                while let Some(piece) = pieces.next().await {
                    let piece = piece.map_err(jobs_error)?;
                    // In another thread, so that Ctrl-C works while stdout is blocked.
                    let writing = tokio::task::spawn_blocking(move || write_out(&piece));
                    match writing.await.expect("writing does not panic") {
                        ProgramExit::SUCCESS => {}
                        exit => return Ok(exit),
                    }
                }
            }
        }
        Ok(ProgramExit::SUCCESS)
    }
}
