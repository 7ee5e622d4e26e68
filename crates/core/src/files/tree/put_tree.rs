//! Copies a directory of this machine to a host.

use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures_util::{FutureExt, StreamExt, stream};
use tokio_util::io::SyncIoBridge;

use super::archive::{OWNER_RWX, Packed, pack};
use super::local::{LocalEntry, LocalKind, Walked, open_below, read_link_below, walk};
use super::{TreeOptions, TreeReport};
use crate::files::host_files::HostFiles;
use crate::files::progress::TransferProgress;
use crate::files::sftp::{Attributes, FileKind, SftpError, SftpRequest, SftpStatus, Times};
use crate::files::shell_command::directory_variable;
use crate::files::upload::{FileChange, LinkInPlace, PutOptions};
use crate::files::{Digest, FileSource, FilesError, Hasher, LocalFile, RemotePath};

/// Files that are transferred at the same time.
pub(super) const AT_A_TIME: usize = 32;
/// Size from which a file is compared with an existing one before it is sent. Smaller ones are sent
/// faster than they are compared.
const COMPARED_FROM: u64 = 64 << 10;
/// Bytes between the thread that packs and the channel.
const PIPE_BYTES: usize = 1 << 20;
/// Exit status of our script on a host without tar, as for a shell that finds no command.
pub(super) const NO_TAR: u32 = 127;

impl HostFiles {
    /// Copies a directory of this machine, with all that is in it, to `target` on the host. Links
    /// are copied as links. A new target appears at once, when all of it is there; an existing one
    /// is filled file by file.
    ///
    /// Entries that fail are in the report, and the others are copied all the same.
    pub async fn put_tree(
        &self,
        local: &Path,
        target: &RemotePath,
        options: TreeOptions,
        progress: &Arc<TransferProgress>,
    ) -> Result<TreeReport, FilesError> {
        let root = local.to_owned();
        let walked = tokio::task::spawn_blocking(move || walk(&root)).await;
        let walked = walked.map_err(io::Error::other).and_then(|walked| walked);
        let Walked {
            entries,
            unreadable,
        } = walked.map_err(FilesError::local(local))?;
        progress.expect(entries.iter().filter(|e| e.kind == LocalKind::File).map(|e| e.size).sum());

        let target = self.expand(target).await?;
        let putting = PutTree {
            files: self,
            local,
            target: &target,
            entries: Arc::new(entries),
            options,
            progress,
        };
        let mut report = putting.run().await?;
        for (below, error) in unreadable {
            let path = local.join(below);
            let error = FilesError::local(&path)(error);
            report.failed.push((path.display().to_string(), error));
        }
        Ok(report)
    }
}

/// One copy of a directory.
struct PutTree<'a> {
    files: &'a HostFiles,
    local: &'a Path,
    target: &'a RemotePath,
    entries: Arc<Vec<LocalEntry>>,
    options: TreeOptions,
    progress: &'a Arc<TransferProgress>,
}

impl PutTree<'_> {
    async fn run(&self) -> Result<TreeReport, FilesError> {
        // An archive has files of any size.
        let may_use_tar = !self.options.without_tar && self.files.most_bytes().is_none();
        match self.files.find(self.target).await? {
            Some(found) if found.kind() != FileKind::Directory => {
                let source = SftpError::Refused {
                    status: SftpStatus::Failure,
                    message: "it exists and is not a directory".to_owned(),
                };
                Err(FilesError::on("make the directory", self.target)(source))
            }
            None if self.files.find(&self.target.parent()).await?.is_none() => {
                let source = SftpError::Refused {
                    status: SftpStatus::NoSuchFile,
                    message: "the directory that it would be in does not exist".to_owned(),
                };
                Err(FilesError::on("make the directory", self.target)(source))
            }
            None if may_use_tar => match self.as_archive().await? {
                Some(report) => Ok(report),
                None => self.file_by_file().await,
            },
            Some(_) | None => self.file_by_file().await,
        }
    }

    fn of_kind(&self, kind: LocalKind) -> impl DoubleEndedIterator<Item = &LocalEntry> {
        self.entries.iter().filter(move |entry| entry.kind == kind)
    }

    fn new_report(&self) -> TreeReport {
        TreeReport {
            skipped: self
                .of_kind(LocalKind::Other)
                .map(|entry| entry.below.display().to_string())
                .collect(),
            ..TreeReport::default()
        }
    }

    /// Sends one tar stream into a directory beside the target, which then gets its name. `None` if
    /// the files have to be sent one by one: the host has no tar, or a file has changed meanwhile.
    async fn as_archive(&self) -> Result<Option<TreeReport>, FilesError> {
        let mut hasher = Hasher::default();
        hasher.update(self.target.as_bytes());
        let id: String = hasher.digest().to_string().chars().take(12).collect();
        let part = self.target.beside(".", &format!(".sshjobs-{id}.part"));
        let sent = self.send_archive(&part).await;
        let done = match sent {
            Ok(true) => self.finish_archive(&part).await,
            Ok(false) => Ok(None),
            Err(error) => Err(error),
        };
        if !matches!(done, Ok(Some(_))) {
            self.discard(&part).await;
        }
        done
    }

    /// Returns false if the host has no shell or no tar that works, or the size of a file has changed while it was sent.
    async fn send_archive(&self, part: &RemotePath) -> Result<bool, FilesError> {
        let (near, far) = tokio::io::duplex(PIPE_BYTES);
        let root = self.local.to_owned();
        let entries = Arc::clone(&self.entries);
        let progress = Arc::clone(self.progress);
        let packing = tokio::task::spawn_blocking(move || {
            let mut stream = SyncIoBridge::new(near);
            let packed = pack(&root, &entries, &progress, &mut stream)?;
            if packed == Packed::All {
                stream.shutdown()?;
            }
            Ok(packed)
        });
        let directory = directory_variable(part);
        // -o: files belong to us, not to a user with the same number as here.
        let flags = if self.options.preserve {
            "-xopf"
        } else {
            "-xomf"
        };
        let script = format!(
            "tar -cf - /dev/null >/dev/null 2>&1 || exit {NO_TAR}; \
             {directory} rm -rf \"$d\" && mkdir \"$d\" && exec tar {flags} - -C \"$d\""
        );
        let mut nowhere = tokio::io::sink();
        // The other end of the pipe is dropped with this, so the thread ends, too.
        let ended = self.files.run_script(script, far, &mut nowhere).await?;
        let packed = packing.await.map_err(io::Error::other).and_then(|packed| packed);
        if !ended.has_begun {
            return Ok(false);
        }
        // A broken pipe only says that the command on the host ended first.
        let is_local_error =
            packed.as_ref().is_err_and(|error| error.kind() != io::ErrorKind::BrokenPipe);
        if is_local_error {
            return packed.map(|_| true).map_err(FilesError::local(self.local));
        }
        let has_changed_file = matches!(packed, Ok(Packed::UpToChangedFile));
        if ended.status == Some(NO_TAR) || has_changed_file {
            return Ok(false);
        }
        if ended.status != Some(0) {
            let source = SftpError::Refused {
                status: SftpStatus::Failure,
                message: ended.stderr.trim().to_owned(),
            };
            return Err(FilesError::on("unpack", self.target)(source));
        }
        packed.map_err(FilesError::local(self.local))?;
        Ok(true)
    }

    /// Verifies the unpacked directory, and gives it its name. `None` if a file has changed since it was sent.
    async fn finish_archive(&self, part: &RemotePath) -> Result<Option<TreeReport>, FilesError> {
        let mut report = self.new_report();
        let files: Vec<PathBuf> =
            self.of_kind(LocalKind::File).map(|entry| entry.below.clone()).collect();
        report.written = files.len() as u64;
        report.bytes = self.of_kind(LocalKind::File).map(|entry| entry.size).sum();
        if let Some(found) = self.files.digests_below(part, &files).await {
            let wanted = local_digests(self.local, &files).await?;
            let sent = self.of_kind(LocalKind::File);
            for (file, (found, wanted)) in sent.zip(found.into_iter().zip(wanted)) {
                if found != wanted {
                    if file.has_changed(self.local) {
                        return Ok(None);
                    }
                    let path = self.target.join(file.below.as_os_str().as_bytes());
                    return Err(FilesError::Corrupt {
                        path,
                        found,
                        wanted,
                    });
                }
            }
            report.verified = report.written;
        }
        // tar has set those of all directories below it.
        let mut attributes = attributes_of(self.local).map_err(FilesError::local(self.local))?;
        if !self.options.preserve {
            attributes = Attributes::of_mode(attributes.permissions().unwrap_or(0o755) & 0o755);
        }
        let set = self.files.session.status(SftpRequest::Setstat(part.bytes(), attributes)).await;
        set.map_err(FilesError::on("change the mode of", part))?;
        let request = SftpRequest::Rename {
            from: part.bytes(),
            to: self.target.bytes(),
        };
        let renamed = self.files.session.status(request).await;
        renamed.map_err(FilesError::on("make the directory", self.target))?;
        self.restrict_directories(&mut report).await;
        Ok(Some(report))
    }

    /// Removes permissions of the owner from directories where the local ones lack them. The archive granted them, so that
    /// tar could unpack.
    async fn restrict_directories(&self, report: &mut TreeReport) {
        let mut changes = Vec::new();
        // The deepest first: the mode of a directory may forbid to enter it.
        for entry in self.of_kind(LocalKind::Directory).rev() {
            let local = self.local.join(&entry.below);
            let attributes = match attributes_of(&local) {
                Ok(attributes) => attributes,
                // Removed meanwhile.
                Err(error) => {
                    let error = FilesError::local(&local)(error);
                    report.failed.push((self.path_of(entry).to_string(), error));
                    continue;
                }
            };
            let mode = attributes.permissions().unwrap_or(OWNER_RWX);
            if mode & OWNER_RWX == OWNER_RWX {
                continue;
            }
            let attributes = if self.options.preserve {
                attributes
            } else {
                Attributes::of_mode(mode & 0o755)
            };
            changes.push((self.path_of(entry), attributes));
        }
        let changes = changes.into_iter().map(|(path, attributes)| async move {
            let request = SftpRequest::Setstat(path.bytes(), attributes);
            let set = self.files.session.status(request).await;
            (
                path.clone(),
                set.map_err(FilesError::on("change the mode of", &path)),
            )
        });
        // Many in flight. The server performs them in this order.
        let mut changes = stream::iter(changes).buffered(AT_A_TIME);
        while let Some((path, changed)) = changes.next().await {
            if let Err(error) = changed {
                report.failed.push((path.to_string(), error));
            }
        }
    }

    /// Removes what a failed transfer has unpacked.
    async fn discard(&self, part: &RemotePath) {
        let directory = directory_variable(part);
        let script = format!("{directory} rm -rf \"$d\"");
        // Without a connection it stays, and the next attempt removes it.
        let mut nowhere = tokio::io::sink();
        let removed = self.files.run_script(script, tokio::io::empty(), &mut nowhere).await;
        if let Err(error) = removed {
            tracing::debug!(%error, "an unfinished directory could not be removed");
        }
    }

    async fn file_by_file(&self) -> Result<TreeReport, FilesError> {
        let mut report = self.new_report();
        self.files.make_directories(self.target).await?;
        // Nothing is written below a directory that could not be made: a link in its place may lead anywhere.
        let mut blocked: Vec<&Path> = Vec::new();
        let is_below = |entry: &LocalEntry, blocked: &[&Path]| {
            blocked.iter().any(|directory| entry.below.starts_with(directory))
        };
        // Parents come first, so one after the other.
        for entry in self.of_kind(LocalKind::Directory) {
            if is_below(entry, &blocked) {
                continue;
            }
            let path = self.path_of(entry);
            if let Err(error) = self.files.make_directory_without_link(&path).await {
                report.failed.push((path.to_string(), error));
                blocked.push(&entry.below);
            }
        }
        for entry in self.of_kind(LocalKind::Symlink).filter(|entry| !is_below(entry, &blocked)) {
            if let Err(error) = self.put_link(entry).await {
                report.failed.push((self.path_of(entry).to_string(), error));
            }
        }
        let puts: Vec<_> = self
            .of_kind(LocalKind::File)
            .filter(|entry| !is_below(entry, &blocked))
            .map(|entry| async move { (entry, self.put_file(entry).await) }.boxed())
            .collect();
        let mut puts = stream::iter(puts).buffer_unordered(AT_A_TIME);
        let mut written: Vec<Written> = Vec::new();
        while let Some((entry, put)) = puts.next().await {
            match put {
                Ok(put) if put.change == FileChange::Unchanged => {
                    report.unchanged += 1;
                    report.bytes += put.size;
                }
                Ok(put) => {
                    report.written += 1;
                    report.bytes += put.size;
                    written.push(Written {
                        file: entry.below.clone(),
                        digest: put.digest,
                    });
                }
                // Every other file would fail, too.
                Err(error) if error.is_lost_connection() => return Err(error),
                Err(error) => report.failed.push((self.path_of(entry).to_string(), error)),
            }
            self.progress.complete();
        }
        self.verify(&written, &mut report).await;
        if self.options.preserve {
            self.keep_directories(&blocked, &mut report).await;
        }
        Ok(report)
    }

    async fn verify(&self, written: &[Written], report: &mut TreeReport) {
        let files: Vec<PathBuf> = written.iter().map(|written| written.file.clone()).collect();
        let Some(found) = self.files.digests_below(self.target, &files).await else {
            return;
        };
        for (written, found) in written.iter().zip(found) {
            if found == written.digest {
                report.verified += 1;
                continue;
            }
            let path = self.target.join(written.file.as_os_str().as_bytes());
            let error = FilesError::Corrupt {
                path: path.clone(),
                found,
                wanted: written.digest,
            };
            report.failed.push((path.to_string(), error));
        }
    }

    /// Sets permissions and times of directories, the deepest first, because writing into one
    /// changes its time.
    async fn keep_directories(&self, blocked: &[&Path], report: &mut TreeReport) {
        let is_made =
            |entry: &&LocalEntry| !blocked.iter().any(|path| entry.below.starts_with(path));
        let directories: Vec<&LocalEntry> =
            self.of_kind(LocalKind::Directory).filter(is_made).collect();
        for entry in directories.into_iter().rev() {
            let path = self.path_of(entry);
            let local = self.local.join(&entry.below);
            let kept = match attributes_of(&local) {
                Ok(attributes) => {
                    let request = SftpRequest::Setstat(path.bytes(), attributes);
                    let set = self.files.session.status(request).await;
                    set.map_err(FilesError::on("change the mode of", &path))
                }
                Err(error) => Err(FilesError::local(&local)(error)),
            };
            if let Err(error) = kept {
                report.failed.push((path.to_string(), error));
            }
        }
    }

    fn path_of(&self, entry: &LocalEntry) -> RemotePath {
        self.target.join(entry.below.as_os_str().as_bytes())
    }

    async fn put_file(&self, entry: &LocalEntry) -> Result<crate::files::Put, FilesError> {
        let local = self.local.join(&entry.below);
        let opened = open_local(self.local, &entry.below);
        let (source, attributes) = opened.map_err(FilesError::local(&local))?;
        let options = PutOptions {
            new_mode: attributes.permissions(),
            mode: if self.options.preserve {
                attributes.permissions()
            } else {
                None
            },
            times: if self.options.preserve {
                attributes.times
            } else {
                None
            },
            links: LinkInPlace::Replaced,
            skip_comparison: entry.size < COMPARED_FROM,
            // All files together, at the end.
            skip_verification: true,
            ..PutOptions::default()
        };
        self.files.put(&self.path_of(entry), source, &options, self.progress).await
    }

    async fn put_link(&self, entry: &LocalEntry) -> Result<(), FilesError> {
        let target = read_link_below(self.local, &entry.below);
        let target = target.map_err(FilesError::local(&self.local.join(&entry.below)))?;
        self.files.put_link(&target, &self.path_of(entry)).await
    }
}

impl HostFiles {
    /// Makes a symbolic link, in the place of an existing file or link.
    pub(super) async fn put_link(
        &self,
        target: &Path,
        path: &RemotePath,
    ) -> Result<(), FilesError> {
        let failed = FilesError::on("make the link", path);
        match self.session.status(symlink(path, target)).await {
            // There is something: a link in another place replaces it at once.
            Err(SftpError::Refused { .. }) if self.lstat(path).await.is_ok() => {
                let beside = path.beside(".", ".sshjobs-link.part");
                self.session.status(symlink(&beside, target)).await.map_err(&failed)?;
                let replaced = self.replace(&beside, path).await;
                if replaced.is_err() {
                    self.remove(&beside).await.ok();
                }
                replaced
            }
            made => made.map_err(failed),
        }
    }
}

/// The request for a link at `link` that leads to `target`.
fn symlink(link: &RemotePath, target: &Path) -> SftpRequest {
    SftpRequest::Symlink {
        link: link.bytes(),
        target: target.as_os_str().as_bytes().to_vec().into(),
    }
}

/// A file that was written, and its content.
struct Written {
    file: PathBuf,
    digest: Digest,
}

/// Opens a regular file below a directory of this machine, to send it.
fn open_local(root: &Path, below: &Path) -> io::Result<(FileSource, Attributes)> {
    let file = open_below(root, below)?;
    let attributes = attributes_from(&file.metadata()?);
    let local = LocalFile::open(&root.join(below), file)?;
    Ok((FileSource::File(local), attributes))
}

fn attributes_of(path: &Path) -> io::Result<Attributes> {
    Ok(attributes_from(&std::fs::metadata(path)?))
}

/// Permissions and times, as SFTP has them.
fn attributes_from(metadata: &std::fs::Metadata) -> Attributes {
    Attributes {
        mode: Some(metadata.mode() & 0o777),
        times: Some(Times::nearest(metadata.atime(), metadata.mtime())),
        ..Attributes::default()
    }
}

/// The digests of files below a directory of this machine.
pub(super) async fn local_digests(
    root: &Path,
    files: &[PathBuf],
) -> Result<Vec<Digest>, FilesError> {
    let files = files.to_vec();
    let directory = root.to_owned();
    let hashing = tokio::task::spawn_blocking(move || {
        files
            .iter()
            .map(|below| digest_of(&directory, below))
            .collect::<io::Result<Vec<_>>>()
    });
    let hashed = hashing.await.map_err(io::Error::other).and_then(|hashed| hashed);
    hashed.map_err(FilesError::local(root))
}

fn digest_of(root: &Path, below: &Path) -> io::Result<Digest> {
    use std::io::Read;

    let mut file = open_below(root, below)?;
    let mut hasher = Hasher::default();
    let mut buffer = vec![0; 64 << 10];
    loop {
        let read = file.read(&mut buffer)?;
        if read == 0 {
            return Ok(hasher.digest());
        }
        hasher.update(&buffer[..read]);
    }
}
