//! `sshjobs edit`: a file of a host in an editor of this machine.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, Command};

use super::host_path::PathOnHosts;
use super::put::jobs_error;
use super::result::Copied;
use crate::cli::args::EditArgs;
use crate::cli::terminal::Signals;
use crate::cli::verbs::jobs::finish;
use crate::cli::{Exit, note, report};
use crate::jobs::{
    Digest, Expected, FileSource, FilesError, HostPath, Progress, PutOptions, printable,
};
use crate::remote::Api;
use crate::wire::{Code, Error, Service};

/// Maximum bytes of a file that is edited.
const MOST_BYTES: u64 = 64 << 20;

/// Edits a file of a host.
pub async fn edit(service: &Service, args: EditArgs) -> Exit {
    let api = Api::Here(service.clone());
    finish(&api, async {
        let file = PathOnHosts::parse(&args.file)?;
        let jobs = service.library().becoming(args.becomes.becomes()?).editing();
        let host = &file.hosts;
        let at = HostPath {
            host,
            path: &file.path,
        };
        let files = jobs.files_to_change_at(at).await?;
        let path = files.expand(&file.path).await.map_err(jobs_error)?;
        let old = match files.read_whole(&path, MOST_BYTES).await {
            Ok(old) => Some(old),
            Err(error) if error.is_no_such_file() => None,
            Err(error) => return Err(jobs_error(error)),
        };
        // An editor may run for hours, so no connection waits for it.
        drop(files);

        let directory = tempfile::Builder::new()
            .prefix("sshjobs-edit-")
            // The editor may make files that all may read, such as backups.
            .permissions(std::fs::Permissions::from_mode(0o700))
            .tempdir()
            .map_err(local(Path::new("a temporary directory")))?;
        let copy = directory.path().join(OsStr::from_bytes(path.name()));
        std::fs::write(&copy, old.as_deref().unwrap_or_default()).map_err(local(&copy))?;
        std::fs::set_permissions(&copy, std::fs::Permissions::from_mode(0o600))
            .map_err(local(&copy))?;
        let edited = run_editor(&copy).await;
        let old_text = old.as_deref().unwrap_or_default();
        let new = std::fs::read(&copy).map_err(local(&copy));
        if let Err(NotEdited { error, exit }) = edited {
            let is_changed = new.is_ok_and(|new| new != old_text);
            let error = if is_changed {
                keep(directory, &copy, error)
            } else {
                error
            };
            report(&error);
            return Ok(exit);
        }
        let new = new?;
        if new == old_text {
            note(&format!("{} is unchanged", printable(&file.shown(host))));
            return Ok(Exit::SUCCESS);
        }
        let options = PutOptions {
            expected: old
                .as_deref()
                .map_or(Expected::NoFile, |old| Expected::Digest(Digest::of(old))),
            backup: args.backup,
            ..PutOptions::default()
        };
        let content = FileSource::Memory(new.into());
        let progress = Progress::default();
        match jobs
            .put_file(HostPath { host, path: &path }, content, &options, &progress)
            .await
        {
            Ok(put) => Ok(Copied::of_put(host, &put).print(false)),
            Err(error) => Err(keep(directory, &copy, error.into())),
        }
    })
    .await
}

/// Keeps the edited text, and says where.
fn keep(directory: tempfile::TempDir, copy: &Path, error: Error) -> Error {
    let kept = directory.keep().join(copy.file_name().unwrap_or_default());
    Error {
        hint: format!("your text is kept in {}; {}", kept.display(), error.hint).into(),
        ..error
    }
}

fn local(path: &Path) -> impl FnOnce(std::io::Error) -> Error {
    let path = path.to_owned();
    move |error| jobs_error(FilesError::local(&path)(error))
}

/// The editor that a variable names.
fn editor_in(variable: &str) -> Option<String> {
    std::env::var(variable).ok().filter(|editor| !editor.trim().is_empty())
}

/// Why the text that an editor leaves is not written to the host.
struct NotEdited {
    error: Error,
    exit: Exit,
}

impl From<Error> for NotEdited {
    fn from(error: Error) -> Self {
        let exit = Exit::DECLINED;
        Self { error, exit }
    }
}

/// Runs the editor, which may have arguments, as `code --wait`.
async fn run_editor(file: &Path) -> Result<(), NotEdited> {
    let editor = editor_in("VISUAL").or_else(|| editor_in("EDITOR"));
    let editor = editor.unwrap_or_else(|| "vi".to_owned());
    let mut signals = Signals::catch()?;
    // As git and sudoedit do: the shell splits the words, and the file is one word whatever its
    // name.
    let mut child = Command::new("/bin/sh")
        .args(["-c", &format!("{editor} \"$1\""), "sh"])
        .arg(file)
        .spawn()
        .map_err(local(Path::new("/bin/sh")))?;
    loop {
        tokio::select! {
            ended = child.wait() => {
                let status = ended.map_err(local(Path::new("/bin/sh")))?;
                if status.success() {
                    return Ok(());
                }
                let message = format!("the editor {editor:?} has failed ({status}), so nothing was saved");
                let hint = "set VISUAL or EDITOR to an editor that waits until the file is closed";
                return Err(Error::new(Code::Io, message, hint).into());
            }
            number = signals.next() => {
                // A terminal also sends INT and QUIT to the editor, which decides what to do.
                if number != Signals::INTERRUPT && number != Signals::QUIT {
                    terminate(&child);
                    let message = "interrupted, so nothing was saved";
                    let error = Error::new(Code::ShuttingDown, message, "run the same command again");
                    return Err(NotEdited {
                        error,
                        exit: Exit::signaled(number),
                    });
                }
            }
        }
    }
}

fn terminate(child: &Child) {
    let pid = child.id().and_then(|id| Pid::from_raw(id.try_into().ok()?));
    if let Some(pid) = pid {
        // It may have ended by itself.
        kill_process(pid, Signal::TERM).ok();
    }
}
