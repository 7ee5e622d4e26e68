//! `sshjobs edit`: a file of a host in an editor of this machine.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, Command};
use tokio::time::timeout;

use super::put::jobs_error;
use super::result::CopyResult;
use crate::args::EditArgs;
use crate::terminal::Signals;
use crate::verbs::jobs::finish;
use crate::{ProgramExit, note, report};
use sshjobs_core::jobs::{
    Digest, ExpectedContent, FileSource, FilesError, HostPath, PutOptions, TransferProgress,
    printable,
};
use sshjobs_wire::remote::Api;
use sshjobs_wire::{Code, Error, PathOnHosts, Service};

/// Maximum bytes of a file that is edited.
const MOST_BYTES: u64 = 64 << 20;
/// Time limit for an editor to end after TERM.
const EDITOR_END: Duration = Duration::from_secs(2);

/// Edits a file of a host.
pub async fn edit(service: &Service, args: EditArgs) -> ProgramExit {
    let api = Api::Here(service.clone());
    finish(&api, async {
        let file = PathOnHosts::parse(&args.file)?;
        let becomes = args.becomes.becomes()?;
        let jobs = service.library().editing().with_context(|context| context.becomes = becomes);
        let host = &file.hosts;
        let at = HostPath {
            host,
            path: &file.path,
        };
        // The editor shows the content, so it takes the right to read it, too.
        if !jobs.may_read_files(host).await {
            drop(jobs.files_at(at).await?);
        }
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
        let old_text = old.as_deref().unwrap_or_default();
        let mut signals = Signals::catch()?;
        if let Err(failed) = run_editor(&copy, &mut signals).await {
            let is_needed = failed.is_editor_running || is_work_left(&copy, old_text);
            let error = if is_needed {
                keep_directory(directory, failed.error)
            } else {
                failed.error
            };
            report(&error);
            return Ok(failed.exit);
        }
        let new = std::fs::read(&copy).map_err(local(&copy))?;
        if new == old_text {
            note(&format!("{} is unchanged", printable(&file.shown(host))));
            return Ok(ProgramExit::SUCCESS);
        }
        let options = PutOptions {
            expected: old.as_deref().map_or(ExpectedContent::NoFile, |old| {
                ExpectedContent::Digest(Digest::of(old))
            }),
            backup: args.backup,
            in_place: args.in_place,
            ..PutOptions::default()
        };
        let content = FileSource::Memory(new.into());
        let progress = TransferProgress::default();
        let target = HostPath { host, path: &path };
        tokio::select! {
            put = jobs.put_file(target, content, &options, &progress) => match put {
                // The file itself may be behind a link.
                Ok(put) => Ok(CopyResult::of_put(host, &put).named(file.shown(host)).print(false)),
                Err(error) => Err(keep_text(directory, &copy, error.into())),
            },
            signal = signals.next() => {
                let message = "interrupted while the text was being saved";
                let hint = "the file on the host is the old or the new one; compare them";
                let error = Error::new(Code::ShuttingDown, message, hint);
                report(&keep_text(directory, &copy, error));
                Ok(ProgramExit::signaled(signal))
            }
        }
    })
    .await
}

/// Whether there is something to keep: a changed copy, or files that the editor has made beside it, such as a swap file.
fn is_work_left(copy: &Path, old: &[u8]) -> bool {
    let is_changed = std::fs::read(copy).is_ok_and(|text| text != old);
    let beside = copy.parent().and_then(|directory| std::fs::read_dir(directory).ok());
    let has_others = beside.is_some_and(|entries| {
        entries.flatten().any(|entry| Some(&*entry.file_name()) != copy.file_name())
    });
    is_changed || has_others
}

/// Keeps the files that an editor has left, and says where.
fn keep_directory(directory: tempfile::TempDir, error: Error) -> Error {
    let kept = directory.keep();
    Error {
        hint: format!(
            "the editor's files are kept in {}; {}",
            kept.display(),
            error.hint
        )
        .into(),
        ..error
    }
}

/// Keeps the edited text, and says where.
fn keep_text(directory: tempfile::TempDir, copy: &Path, error: Error) -> Error {
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

/// An edit whose editor failed or was interrupted.
struct EditFailed {
    error: Error,
    exit: ProgramExit,
    is_editor_running: bool,
}

impl From<Error> for EditFailed {
    fn from(error: Error) -> Self {
        Self {
            error,
            exit: ProgramExit::DECLINED,
            is_editor_running: false,
        }
    }
}

/// Runs the editor, which may have arguments, as `code --wait`.
async fn run_editor(file: &Path, signals: &mut Signals) -> Result<(), EditFailed> {
    let editor = editor_in("VISUAL").or_else(|| editor_in("EDITOR"));
    let editor = editor.unwrap_or_else(|| "vi".to_owned());
    // One command with arguments. The shell splits the words, and the file is one word whatever its name. The editor replaces the
    // shell, so that it gets our signals; `env` accepts variables before its name.
    let mut child = Command::new("/bin/sh")
        .args(["-c", &format!("exec env {editor} \"$1\""), "sh"])
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
                    let is_editor_running = !ends_after_term(&mut child).await;
                    let message = "interrupted, so nothing was saved";
                    let error = Error::new(Code::ShuttingDown, message, "run the same command again");
                    return Err(EditFailed {
                        error,
                        exit: ProgramExit::signaled(number),
                        is_editor_running,
                    });
                }
            }
        }
    }
}

/// Sends TERM to an editor, and waits for its end. False if it has not ended in time.
async fn ends_after_term(child: &mut Child) -> bool {
    let pid = child.id().and_then(|id| Pid::from_raw(id.try_into().ok()?));
    if let Some(pid) = pid {
        // It may have ended by itself.
        kill_process(pid, Signal::TERM).ok();
    }
    timeout(EDITOR_END, child.wait()).await.is_ok()
}
