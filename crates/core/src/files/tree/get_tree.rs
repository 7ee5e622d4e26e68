//! Copies a directory of a host to this machine.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures_util::{FutureExt, StreamExt, stream};
use tokio_util::io::SyncIoBridge;

use super::archive::{
    HostDirectory, KeptAttributes, Merged, NotMoved, OWNER_RWX, Unpacked, is_real_directory, merge,
    open_directory, remove_link, set_mode, set_mode_below, unpack,
};
use super::put_tree::{AT_A_TIME, NO_TAR, local_digests};
use super::{TreeOptions, TreeReport};
use crate::files::download::{GetOptions, keep_attributes};
use crate::files::host_files::HostFiles;
use crate::files::progress::TransferProgress;
use crate::files::sftp::{Attributes, FileKind, SftpError, SftpStatus};
use crate::files::shell_command::directory_variable;
use crate::files::{FilesError, Hasher, RemotePath};

/// Bytes between the channel and the thread that unpacks.
const PIPE_BYTES: usize = 1 << 20;
/// Maximum entries of a directory with all that is in it.
const MOST_ENTRIES: usize = 1_000_000;

impl HostFiles {
    /// Copies a directory of the host, with all that is in it, to `local` on this machine. Links
    /// are copied as links. Nothing that the host sends is written outside of `local`.
    ///
    /// Entries that fail are in the report, and the others are copied all the same.
    pub async fn get_tree(
        &self,
        path: &RemotePath,
        local: &Path,
        options: TreeOptions,
        progress: &Arc<TransferProgress>,
    ) -> Result<TreeReport, FilesError> {
        let path = self.expand(path).await?;
        let getting = GetTree {
            files: self,
            path: &path,
            local,
            options,
            progress,
        };
        // An archive has files of any size.
        let may_use_tar = !options.without_tar && self.most_bytes().is_none();
        if may_use_tar && let Some(report) = getting.as_archive().await? {
            return Ok(report);
        }
        getting.file_by_file().await
    }

    /// Copies a symbolic link of the host as a link, in the place of an existing file or link.
    ///
    /// # Errors
    /// If it is not a link, or `local` can't be made.
    pub async fn get_link(&self, path: &RemotePath, local: &Path) -> Result<(), FilesError> {
        let target = self.read_link(path).await?;
        make_link(&target, local).map_err(FilesError::local(local))
    }
}

/// One copy of a directory.
struct GetTree<'a> {
    files: &'a HostFiles,
    path: &'a RemotePath,
    local: &'a Path,
    options: TreeOptions,
    progress: &'a Arc<TransferProgress>,
}

/// A directory that is removed when it is dropped, unless it was moved.
struct PartDirectory(PathBuf);

impl Drop for PartDirectory {
    fn drop(&mut self) {
        match fs::remove_dir_all(&self.0) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::debug!(%error, path = ?self.0, "an unfinished directory stays");
            }
            Ok(()) | Err(_) => {}
        }
    }
}

impl GetTree<'_> {
    /// Unpacks one tar stream beside the target, and moves it there. `None` if the host has no shell or
    /// no tar that works.
    async fn as_archive(&self) -> Result<Option<TreeReport>, FilesError> {
        let here = FilesError::local;
        let part = self.make_part().map_err(here(self.local))?;
        let (near, mut far) = tokio::io::duplex(PIPE_BYTES);
        let into = part.0.clone();
        let kept = self.kept(&into).map_err(here(self.local))?;
        // Files may be more private than they are while they are unpacked.
        set_mode(&into, OWNER_RWX).map_err(here(self.local))?;
        let progress = Arc::clone(self.progress);
        let unpacking = tokio::task::spawn_blocking(move || {
            let mut stream = SyncIoBridge::new(near);
            let unpacked = unpack(&mut stream, &into, kept, &progress)?;
            // Reads the padding behind the archive's end, which would block the host's tar.
            io::copy(&mut stream, &mut io::sink())?;
            Ok::<_, io::Error>(unpacked)
        });
        let directory = directory_variable(self.path);
        // The tar crate reads the format in which GNU tar sends holes (-S). Other programs send zeros.
        let script = format!(
            "tar -cf - /dev/null >/dev/null 2>&1 || exit {NO_TAR}; \
             {directory} case $(tar --version 2>/dev/null) in *GNU*) o='--format=gnu -S' ;; *) o= ;; esac; \
             cd \"$d\" && exec tar $o -cf - ."
        );
        let ended = self.files.run_script(script, tokio::io::empty(), &mut far).await?;
        drop(far);
        let unpacked = unpacking.await.map_err(io::Error::other).and_then(|unpacked| unpacked);
        if !ended.has_begun {
            return Ok(None);
        }
        if ended.status == Some(NO_TAR) {
            return Ok(None);
        }
        let unpacked = match unpacked {
            Ok(unpacked) => unpacked,
            // The host's tar has failed at once, and says why.
            Err(_)
                if ended.status.is_some_and(|status| status != 0) && !ended.stderr.is_empty() =>
            {
                return Err(self.refused(&ended.stderr));
            }
            Err(error) => return Err(here(self.local)(error)),
        };
        // Not even the directory itself.
        if ended.status != Some(0) && unpacked.entries == 0 {
            return Err(self.refused(&ended.stderr));
        }
        let mut report = self.verified(&part.0, &unpacked).await?;
        // GNU tar ends with 1 or 2 when it could not read some of the files.
        if ended.status != Some(0) {
            report.failed.push((self.path.to_string(), self.refused(&ended.stderr)));
        }
        self.move_into_place(&part.0, unpacked.directories, &mut report)
            .map_err(here(self.local))?;
        Ok(Some(report))
    }

    /// The failure that the host's tar reports.
    fn refused(&self, stderr: &str) -> FilesError {
        let source = SftpError::Refused {
            status: SftpStatus::Failure,
            message: stderr.trim().to_owned(),
        };
        FilesError::on("pack", self.path)(source)
    }

    /// Makes an empty directory beside the target.
    fn make_part(&self) -> io::Result<PartDirectory> {
        let mut hasher = Hasher::default();
        hasher.update(self.path.as_bytes());
        hasher.update(self.local.as_os_str().as_bytes());
        let id: String = hasher.digest().to_string().chars().take(12).collect();
        let mut name = std::ffi::OsString::from(".");
        name.push(self.local.file_name().unwrap_or_default());
        name.push(format!(".sshjobs-{id}.part"));
        let part = self.local.with_file_name(name);
        // An earlier attempt may have left one.
        match fs::remove_dir_all(&part) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {}
        }
        fs::create_dir(&part)?;
        Ok(PartDirectory(part))
    }

    /// Attributes that entries keep, given the new directory into which they go.
    fn kept(&self, part: &Path) -> io::Result<KeptAttributes> {
        let preserve = self.options.preserve;
        let umask = if preserve {
            0
        } else {
            // The process's umask can only be asked for by changing it. A new directory shows it, too.
            0o777 & !fs::metadata(part)?.permissions().mode()
        };
        Ok(KeptAttributes {
            umask,
            times: preserve,
        })
    }

    async fn verified(&self, part: &Path, unpacked: &Unpacked) -> Result<TreeReport, FilesError> {
        let mut report = TreeReport {
            written: unpacked.files.len() as u64,
            bytes: unpacked.bytes,
            skipped: unpacked.skipped.clone(),
            ..TreeReport::default()
        };
        let Some(wanted) = self.files.digests_below(self.path, &unpacked.files).await else {
            return Ok(report);
        };
        let found = local_digests(part, &unpacked.files).await?;
        for (file, (wanted, found)) in unpacked.files.iter().zip(wanted.into_iter().zip(found)) {
            if wanted == found {
                report.verified += 1;
                continue;
            }
            let path = self.path.join(file.as_os_str().as_bytes());
            let error = FilesError::Corrupt {
                path: path.clone(),
                found,
                wanted,
            };
            report.failed.push((path.to_string(), error));
        }
        Ok(report)
    }

    /// Moves the unpacked directory to the target, or its entries if the target exists. Then sets the modes of new
    /// directories, or with `preserve` of all.
    fn move_into_place(
        &self,
        part: &Path,
        directories: Vec<HostDirectory>,
        report: &mut TreeReport,
    ) -> io::Result<()> {
        let mut merged = Merged::default();
        if is_real_directory(self.local) {
            merged = merge(part, self.local)?;
        } else {
            remove_link(self.local)?;
            fs::rename(part, self.local)?;
        }
        let root = open_directory(self.local)?;
        // The deepest first: the mode of a directory may forbid to enter it.
        for directory in directories.into_iter().rev() {
            if merged.existing.contains(&directory.below) && !self.options.preserve {
                continue;
            }
            let local = self.local.join(&directory.below);
            // There may be a link, which leads to a directory elsewhere.
            if merged.not_moved.iter().any(|entry| local.starts_with(&entry.target)) {
                continue;
            }
            if let Err(error) = set_mode_below(&root, &directory.below, directory.mode) {
                let error = FilesError::local(&local)(error);
                report.failed.push((local.display().to_string(), error));
            }
        }
        for NotMoved { target, error } in merged.not_moved {
            let error = FilesError::local(&target)(error);
            report.failed.push((target.display().to_string(), error));
        }
        Ok(())
    }

    async fn file_by_file(&self) -> Result<TreeReport, FilesError> {
        let mut report = TreeReport::default();
        let entries = self.walk(&mut report).await?;
        let files = entries.iter().filter(|entry| entry.kind() == FileKind::File);
        self.progress
            .expect(files.map(|entry| entry.attributes.size.unwrap_or(0)).sum());
        remove_link(self.local).map_err(FilesError::local(self.local))?;
        fs::create_dir_all(self.local).map_err(FilesError::local(self.local))?;
        let entries = self.make_directories(entries, &mut report);
        let gets: Vec<_> = entries
            .iter()
            .filter(|entry| entry.kind() == FileKind::File)
            .map(|entry| async move { (entry, self.get_file(entry).await) }.boxed())
            .collect();
        let mut gets = stream::iter(gets).buffer_unordered(AT_A_TIME);
        while let Some((entry, got)) = gets.next().await {
            match got {
                Ok(got) => {
                    report.bytes += got.size;
                    report.written += u64::from(!got.is_unchanged);
                    report.unchanged += u64::from(got.is_unchanged);
                    let is_verified = got.verified != crate::files::Verified::Not;
                    report.verified += u64::from(is_verified);
                }
                Err(error) if error.is_lost_connection() => return Err(error),
                Err(error) => report.failed.push((entry.shown(), error)),
            }
        }
        self.finish(&entries, &mut report).await;
        Ok(report)
    }

    /// Makes the directories. Returns the entries that can be copied: not those below a directory
    /// that can't be made.
    fn make_directories(
        &self,
        entries: Vec<RemoteEntry>,
        report: &mut TreeReport,
    ) -> Vec<RemoteEntry> {
        let mut missing: Vec<PathBuf> = Vec::new();
        let mut possible = Vec::new();
        // Each directory is before its entries.
        for entry in entries {
            if missing.iter().any(|directory| entry.below.starts_with(directory)) {
                continue;
            }
            if entry.kind() == FileKind::Directory {
                let local = self.local.join(&entry.below);
                if let Err(error) = make_directory(&local) {
                    report.failed.push((entry.shown(), FilesError::local(&local)(error)));
                    missing.push(entry.below);
                    continue;
                }
            }
            possible.push(entry);
        }
        possible
    }

    /// Makes the links, and sets permissions and times of directories. Last, so that no file is
    /// written through a link that the host has sent.
    async fn finish(&self, entries: &[RemoteEntry], report: &mut TreeReport) {
        for entry in entries.iter().rev() {
            let local = self.local.join(&entry.below);
            match entry.kind() {
                FileKind::Symlink => {
                    if let Err(error) = self.files.get_link(&entry.path, &local).await {
                        report.failed.push((entry.shown(), error));
                    }
                }
                FileKind::Directory if self.options.preserve => {
                    if let Err(error) = keep_attributes(&local, &entry.attributes) {
                        report.failed.push((entry.shown(), FilesError::local(&local)(error)));
                    }
                }
                FileKind::Other => report.skipped.push(entry.shown()),
                FileKind::File | FileKind::Directory => {}
            }
        }
    }

    async fn get_file(&self, entry: &RemoteEntry) -> Result<crate::files::Got, FilesError> {
        let options = GetOptions {
            preserve: self.options.preserve,
            ..GetOptions::default()
        };
        let local = self.local.join(&entry.below);
        self.files.get(&entry.path, &local, options, self.progress).await
    }

    /// All entries, each directory before its entries. Directories that can't be listed are
    /// reported.
    async fn walk(&self, report: &mut TreeReport) -> Result<Vec<RemoteEntry>, FilesError> {
        let mut found: Vec<RemoteEntry> = Vec::new();
        let mut directories = vec![(self.path.clone(), PathBuf::new())];
        while let Some((directory, below)) = directories.pop() {
            let entries = match self.files.list(&directory).await {
                Ok(entries) => entries,
                Err(error) if directory == *self.path || error.is_lost_connection() => {
                    return Err(error);
                }
                Err(error) => {
                    report.failed.push((directory.to_string(), error));
                    continue;
                }
            };
            for entry in entries {
                let path = directory.join(&entry.name);
                // A server could list directories in directories without end.
                RemotePath::new(path.bytes())?;
                let entry = RemoteEntry {
                    path,
                    below: below.join(OsStr::from_bytes(&entry.name)),
                    attributes: entry.attributes,
                };
                if entry.kind() == FileKind::Directory {
                    directories.push((entry.path.clone(), entry.below.clone()));
                }
                found.push(entry);
            }
            if found.len() > MOST_ENTRIES {
                let source = SftpError::Protocol("there are more than a million entries");
                return Err(FilesError::on("list", self.path)(source));
            }
        }
        Ok(found)
    }
}

/// An entry below the directory.
struct RemoteEntry {
    path: RemotePath,
    below: PathBuf,
    attributes: Attributes,
}

impl RemoteEntry {
    fn kind(&self) -> FileKind {
        self.attributes.kind()
    }

    fn shown(&self) -> String {
        self.path.to_string()
    }
}

/// Makes a directory, unless there is one. A link is replaced.
fn make_directory(path: &Path) -> io::Result<()> {
    remove_link(path)?;
    match fs::create_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && is_real_directory(path) => {
            Ok(())
        }
        made => made,
    }
}

/// Makes a link, in the place of an existing link or file.
fn make_link(target: &[u8], link: &Path) -> io::Result<()> {
    let target = OsStr::from_bytes(target);
    match std::os::unix::fs::symlink(target, link) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            fs::remove_file(link)?;
            std::os::unix::fs::symlink(target, link)
        }
        made => made,
    }
}
