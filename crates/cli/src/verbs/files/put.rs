//! `sshjobs put`: files of this machine to a host, or to many.

use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::many::{Copies, check_ci_files, hosts_of, on_each, write_ci_files};
use super::progress::shown;
use super::result::CopyResult;
use crate::args::{CopyArgs, PutArgs};
use crate::terminal::Signals;
use crate::verbs::jobs::finish;
use crate::{ProgramExit, report};
use sshjobs_core::jobs::{
    FileKind, FileSource, FilesError, HostPath, Jobs, LocalFile, PutOptions, RemotePath, Times,
    TransferProgress, TreeOptions,
};
use sshjobs_wire::remote::Api;
use sshjobs_wire::{Error, PathOnHosts, Service, shown_at};

/// One word of the command line.
enum PutSource {
    Stdin,
    File { path: PathBuf, size: u64 },
    Directory(PathBuf),
}

impl PutSource {
    /// Whether a transfer of it that broke can be continued.
    fn is_resumable(&self) -> bool {
        match self {
            Self::Stdin | Self::Directory(_) => false,
            // A pipe of the shell, as <(command), is read once.
            Self::File { path, .. } => path.is_file(),
        }
    }
}

/// Copies files to hosts.
pub async fn put(service: &Service, mut args: PutArgs) -> ProgramExit {
    let api = Api::Here(service.clone());
    finish(&api, async {
        at_least_two(&args.paths, "put LOCAL… HOST:PATH")?;
        let last = args.paths.pop().unwrap_or_default();
        let target = PathOnHosts::parse(&last)?;
        let sources: Vec<PutSource> = args
            .paths
            .iter()
            .map(|path| source(path, &args.copy))
            .collect::<Result<_, _>>()?;
        let has_directory = sources.iter().any(|source| matches!(source, PutSource::Directory(_)));
        if has_directory && (args.mode.is_some() || args.backup || args.in_place) {
            return Err(Error::invalid(
                "--mode, --backup and --in-place are for files, and a source is a directory",
                "copy the directory without them (-p keeps modes and times), or its files one by one",
            ));
        }
        let hosts = hosts_of(&api, &target.hosts).await?;
        let uses_stdin = sources.iter().any(|source| matches!(source, PutSource::Stdin));
        if uses_stdin && (hosts.len() > 1 || sources.len() > 1) {
            return Err(Error::invalid(
                "stdin is read once, so it can only go to one file",
                "write it to a file first, and put that",
            ));
        }
        let becomes = args.copy.each.becomes.becomes()?;
        let jobs = service.library().with_context(|context| context.becomes = becomes);
        let progress = Arc::new(TransferProgress::default());
        for source in &sources {
            if let PutSource::File { size, .. } = source {
                progress.expect(size * hosts.len() as u64);
            }
        }
        let putting = Putting {
            jobs: &jobs,
            sources: &sources,
            target: &target,
            args: &args,
            progress: &progress,
        };
        check_ci_files(&args.copy.each)?;
        let command = format!("put {}", target.shown(&target.hosts));
        let mut signals = Signals::catch()?;
        let copies = async {
            let copies = on_each(&hosts, &args.copy.each, &command, async |host, copied| {
                putting.on(host, copied).await
            });
            let Copies { exit, results } = copies.await;
            write_ci_files(&args.copy.each, &command, &results)?;
            Ok(exit)
        };
        tokio::select! {
            exit = shown(&progress, copies) => exit,
            signal = signals.next() => Ok(interrupted(signal, sources.iter().all(PutSource::is_resumable))),
        }
    })
    .await
}

/// Whether a word is `-`: stdin or stdout.
pub(super) fn is_stream(word: &Path) -> bool {
    word.as_os_str() == "-"
}

/// Refuses a command line with one path: what would be copied, or where to?
pub(super) fn at_least_two(paths: &[std::path::PathBuf], usage: &str) -> Result<(), Error> {
    if paths.len() >= 2 {
        return Ok(());
    }
    let hint = format!("the command is `sshjobs {usage}`");
    Err(Error::invalid("a source or the target is missing", hint))
}

/// Reports that a signal has ended the transfer. `is_resumable`: the next one continues from the part files.
pub(super) fn interrupted(signal: u8, is_resumable: bool) -> ProgramExit {
    let code = sshjobs_wire::Code::ShuttingDown;
    report(&if is_resumable {
        let message = "interrupted; what was copied so far is kept in part files";
        Error::new(code, message, "run the same command again to continue")
    } else {
        let hint =
            "run the same command again; a stream or a new directory starts from the beginning";
        Error::new(code, "interrupted", hint)
    });
    ProgramExit::signaled(signal)
}

fn source(path: &Path, copy: &CopyArgs) -> Result<PutSource, Error> {
    if is_stream(path) {
        return Ok(PutSource::Stdin);
    }
    let found = std::fs::metadata(path).map_err(|error| {
        let message = format!("can't read {}: {error}", path.display());
        Error::new(
            sshjobs_wire::Code::NoSuchFile,
            message,
            "check the path on this machine",
        )
    })?;
    // Opening a pipe without a writer would take forever. Those of a shell are open already.
    if found.file_type().is_fifo() && !path.starts_with("/dev/fd") {
        return Err(Error::invalid(
            format!("{} is a pipe", path.display()),
            "pass its content on stdin: `sshjobs put - HOST:PATH < PIPE`",
        ));
    }
    if !found.is_dir() {
        return Ok(PutSource::File {
            path: path.to_owned(),
            size: found.len(),
        });
    }
    if !copy.recursive {
        return Err(Error::invalid(
            format!("{} is a directory", path.display()),
            "add -r to copy it with all that is in it",
        ));
    }
    Ok(PutSource::Directory(path.to_owned()))
}

/// The copies to each host.
struct Putting<'a> {
    jobs: &'a Jobs,
    sources: &'a [PutSource],
    target: &'a PathOnHosts,
    args: &'a PutArgs,
    progress: &'a Arc<TransferProgress>,
}

impl Putting<'_> {
    /// Copies all sources to a host, up to the first that fails.
    async fn on(&self, host: &str, copied: &mut Vec<CopyResult>) -> Result<(), Error> {
        let into = self.directory_on(host).await?;
        for source in self.sources {
            copied.push(self.copy(host, source, into.as_ref()).await?);
        }
        Ok(())
    }

    /// The target on a host, if it is a directory.
    async fn directory_on(&self, host: &str) -> Result<Option<RemotePath>, Error> {
        let files = self.jobs.files_to_change(host).await?;
        let path = files.expand(&self.target.path).await.map_err(jobs_error)?;
        let found = files.find(&path).await.map_err(jobs_error)?;
        let is_directory = found.is_some_and(|found| found.kind() == FileKind::Directory);
        if is_directory {
            return Ok(Some(path));
        }
        if path.is_marked_directory() || self.sources.len() > 1 {
            if !self.args.parents {
                return Err(Error::new(
                    sshjobs_wire::Code::NoSuchFile,
                    format!("{} is not a directory", self.target.shown(host)),
                    "make it first, or add --parents",
                ));
            }
            files.make_directories(&path).await.map_err(jobs_error)?;
            return Ok(Some(path));
        }
        if self.args.parents {
            files.make_directories(&path.parent()).await.map_err(jobs_error)?;
        }
        Ok(None)
    }

    async fn copy(
        &self,
        host: &str,
        source: &PutSource,
        into: Option<&RemotePath>,
    ) -> Result<CopyResult, Error> {
        let path = match into {
            Some(directory) => directory.join(name_of(source)?),
            None => self.target.path.clone(),
        };
        if let PutSource::Directory(local) = source {
            let options = TreeOptions {
                preserve: self.args.copy.preserve,
                ..TreeOptions::default()
            };
            let tree = self
                .jobs
                .put_tree(
                    local,
                    HostPath { host, path: &path },
                    options,
                    self.progress,
                )
                .await?;
            return Ok(CopyResult::of_tree(host, shown_at(host, &path), &tree));
        }
        let (content, options) = self.content(source)?;
        let put = self
            .jobs
            .put_file(
                HostPath { host, path: &path },
                content,
                &options,
                self.progress,
            )
            .await?;
        Ok(CopyResult::of_put(host, &put))
    }

    /// The content of a file or of stdin, and how it is written.
    fn content(&self, source: &PutSource) -> Result<(FileSource, PutOptions), Error> {
        let mut options = PutOptions {
            mode: self.args.mode,
            parents: self.args.parents,
            backup: self.args.backup,
            in_place: self.args.in_place,
            ..PutOptions::default()
        };
        let PutSource::File { path, .. } = source else {
            return Ok((FileSource::Stream(Box::pin(tokio::io::stdin())), options));
        };
        let failed = |error| jobs_error(FilesError::local(path)(error));
        let file = File::open(path).map_err(failed)?;
        let metadata = file.metadata().map_err(failed)?;
        options.new_mode = Some(metadata.mode() & 0o777);
        if self.args.copy.preserve {
            options.mode = options.mode.or(options.new_mode);
            options.times = Some(Times::nearest(metadata.atime(), metadata.mtime()));
        }
        // A pipe, such as <(command), is read once.
        if !metadata.is_file() {
            let stream = tokio::fs::File::from_std(file);
            return Ok((FileSource::Stream(Box::pin(stream)), options));
        }
        let local = LocalFile::open(path, file).map_err(failed)?;
        Ok((FileSource::File(local), options))
    }
}

fn name_of(source: &PutSource) -> Result<&[u8], Error> {
    let path = match source {
        PutSource::Stdin => None,
        PutSource::File { path, .. } | PutSource::Directory(path) => path.file_name(),
    };
    path.map(|name| name.as_bytes()).ok_or_else(|| {
        Error::invalid(
            "the source has no name for a file in that directory",
            "give the full path of the target, with its name",
        )
    })
}

pub(super) fn jobs_error(error: FilesError) -> Error {
    sshjobs_core::jobs::Error::from(error).into()
}
