//! Reads files of a host: into memory, in pieces, or into a file of this machine.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::future::try_join;
use futures_util::stream::BoxStream;
use tokio::task::JoinSet;

use super::error::FilesError;
use super::host_files::HostFiles;
use super::path::RemotePath;
use super::progress::TransferProgress;
use super::remote_file::RemoteFile;
use super::sftp::{Attributes, FileKind};
use super::{Digest, Hasher, Verified};

/// Received bytes after which the file is synchronized in the background.
const FLUSHED_AT_ONCE: u64 = 64 << 20;

/// A part of a file, in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilePiece {
    /// Its bytes.
    pub bytes: Bytes,
    /// Position of the first one.
    pub offset: u64,
    /// Whether the file has more after it.
    pub has_more: bool,
}

/// Result of a download to a file of this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Got {
    /// Size of the content.
    pub size: u64,
    /// Its digest.
    pub digest: Digest,
    /// How the content was verified.
    pub verified: Verified,
    /// Bytes of an earlier, broken transfer that were not requested again.
    pub resumed_from: u64,
    /// The file here had this content, and was not written.
    pub is_unchanged: bool,
}

/// How a file is written on this machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct GetOptions {
    /// Keeps permissions and times.
    pub preserve: bool,
    /// Does not compare the content with that of an existing file first.
    pub skip_comparison: bool,
    /// Does not wait for the disk: for many files, which are synchronized together.
    pub skip_sync: bool,
    /// Does not ask the host for the digest: for many files, which are verified together.
    pub skip_digest: bool,
}

impl HostFiles {
    /// Reads at most `most` bytes from a position on.
    ///
    /// # Errors
    /// [`FilesError::IsDirectory`], [`FilesError::NotAFile`].
    pub async fn read_piece(
        &self,
        path: &RemotePath,
        offset: u64,
        most: u64,
    ) -> Result<FilePiece, FilesError> {
        let file = self.open_regular(path).await?;
        let mut bytes = Vec::new();
        // One more, to learn whether there is more.
        let mut pieces = self.arriving(path, &file, offset, Some(most.saturating_add(1)));
        while let Some(piece) = pieces.next().await {
            bytes.extend_from_slice(&piece?);
        }
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        let has_more = bytes.len() > most;
        bytes.truncate(most);
        Ok(FilePiece {
            bytes: bytes.into(),
            offset,
            has_more,
        })
    }

    /// The whole content of a file, at most `most` bytes.
    ///
    /// # Errors
    /// [`FilesError::TooLong`].
    pub async fn read_whole(&self, path: &RemotePath, most: u64) -> Result<Bytes, FilesError> {
        let piece = self.read_piece(path, 0, most).await?;
        if !piece.has_more {
            return Ok(piece.bytes);
        }
        let size = self.stat(path).await?.size.unwrap_or(0).max(most + 1);
        Err(FilesError::TooLong {
            path: path.clone(),
            size,
            most,
        })
    }

    /// The bytes of a file from a position on, at most `length` of them, in order. The stream must
    /// not outlive this.
    ///
    /// # Errors
    /// [`FilesError::IsDirectory`], [`FilesError::NotAFile`].
    pub async fn pieces(
        &self,
        path: &RemotePath,
        offset: u64,
        length: Option<u64>,
    ) -> Result<BoxStream<'static, Result<Bytes, FilesError>>, FilesError> {
        let file = self.open_regular(path).await?;
        Ok(self.arriving(path, &file, offset, length))
    }

    /// Bytes of an open file as they arrive. Ends with an error where they go over the limit of the
    /// policy: a host may announce another size than it sends.
    fn arriving(
        &self,
        path: &RemotePath,
        file: &Arc<RemoteFile>,
        offset: u64,
        length: Option<u64>,
    ) -> BoxStream<'static, Result<Bytes, FilesError>> {
        let most = self.most_bytes();
        let path = path.clone();
        let mut position = offset;
        let pieces = file.read(offset, length).map(move |piece| {
            let piece = piece.map_err(FilesError::on("read", &path))?;
            position += piece.len() as u64;
            match most {
                Some(most) if position > most => {
                    let path = path.clone();
                    Err(FilesError::OverLimit { path, most })
                }
                Some(_) | None => Ok(piece),
            }
        });
        pieces.boxed()
    }

    /// Copies a file to this machine, at once: readers see the old content or the new one. If the
    /// transfer breaks, the old file stays, and the same transfer continues where it broke.
    pub async fn get(
        &self,
        path: &RemotePath,
        local: &Path,
        options: GetOptions,
        progress: &TransferProgress,
    ) -> Result<Got, FilesError> {
        let path = &self.expand(path).await?;
        let file = self.open_regular(path).await?;
        let attributes = file.stat().await.map_err(FilesError::on("read", path))?;
        let copying = Copying {
            files: self,
            path,
            file,
            attributes,
            local,
            options,
            progress,
        };
        let got = copying.run().await?;
        progress.complete();
        Ok(got)
    }

    async fn open_regular(&self, path: &RemotePath) -> Result<Arc<RemoteFile>, FilesError> {
        // Before it is opened: to open a pipe would wait for a writer.
        let attributes = self.stat(path).await?;
        match attributes.kind() {
            FileKind::File => {
                self.check_size(path, attributes.size)?;
                self.open_file(path).await
            }
            FileKind::Directory => Err(FilesError::IsDirectory(path.clone())),
            FileKind::Symlink | FileKind::Other => Err(FilesError::NotAFile(path.clone())),
        }
    }
}

/// One copy to this machine.
struct Copying<'a> {
    files: &'a HostFiles,
    path: &'a RemotePath,
    file: Arc<RemoteFile>,
    attributes: Attributes,
    local: &'a Path,
    options: GetOptions,
    progress: &'a TransferProgress,
}

/// A local part file, and how much of it is already right.
struct LocalPart {
    path: PathBuf,
    file: Arc<File>,
    hasher: Hasher,
    resumed_from: u64,
}

impl Copying<'_> {
    async fn run(&self) -> Result<Got, FilesError> {
        if let Some(unchanged) = self.compare().await? {
            return Ok(unchanged);
        }
        let mut part = self.open_part().await?;
        let written = self.write_part(&mut part).await;
        if let Err(error) = &written
            && !error.is_lost_connection()
        {
            fs::remove_file(&part.path).ok();
        }
        written
    }

    /// Compares the file here with that of the host. `Some` if both are equal.
    async fn compare(&self) -> Result<Option<Got>, FilesError> {
        let size = self.attributes.size.unwrap_or(0);
        // A link is replaced, and not compared: an earlier copy may have brought it.
        let Ok(existing) = fs::symlink_metadata(self.local) else { return Ok(None) };
        let kind = existing.file_type();
        if !kind.is_file() && !kind.is_symlink() {
            let error = io::Error::other("there is something else than a file");
            return Err(FilesError::local(self.local)(error));
        }
        if self.options.skip_comparison
            || !existing.is_file()
            || existing.len() != size
            || size == 0
        {
            return Ok(None);
        }
        let Some(digest) = self.files.digest_on_host(self.path, size).await else {
            return Ok(None);
        };
        let local = self.local.to_owned();
        let hashed = blocking(self.local, move || hash(&File::open(local)?, u64::MAX)).await?;
        if hashed.digest() != digest {
            return Ok(None);
        }
        self.progress.add(size);
        self.keep_attributes(self.local).map_err(FilesError::local(self.local))?;
        Ok(Some(Got {
            size,
            digest,
            verified: Verified::BySha256,
            resumed_from: 0,
            is_unchanged: true,
        }))
    }

    /// The name of the part file: the same in each attempt to transfer this content.
    fn part_path(&self) -> PathBuf {
        let mut hasher = Hasher::default();
        let host = &self.files.link().connection.host().name;
        let size = self.attributes.size.unwrap_or(0);
        let modified = self.attributes.times.map_or(0, |times| times.modified);
        hasher.update(format!("{host} {size} {modified} ").as_bytes());
        hasher.update(self.path.as_bytes());
        let id: String = hasher.digest().to_string().chars().take(12).collect();
        let name = self.local.file_name().unwrap_or_default();
        let mut part = std::ffi::OsString::from(".");
        // Long names are cut, so that the result is a name that file systems accept.
        let name = name.as_encoded_bytes();
        let name = &name[..name.len().min(220)];
        part.push(<std::ffi::OsStr as std::os::unix::ffi::OsStrExt>::from_bytes(name));
        part.push(format!(".sshjobs-{id}.part"));
        self.local.with_file_name(part)
    }

    /// Opens the part file. One that an earlier attempt has left is continued if it has the first
    /// bytes of the host's file.
    async fn open_part(&self) -> Result<LocalPart, FilesError> {
        let mut path = self.part_path();
        if is_locked(&path) {
            // Another process receives the same file.
            path.as_mut_os_string().push(format!(".{:08x}", rand::random::<u32>()));
        } else if let Some(part) = self.continued(&path).await? {
            return Ok(part);
        }
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(FilesError::local(&path)(error));
            }
            Ok(()) | Err(_) => {}
        }
        let mode = self.attributes.permissions().unwrap_or(0o644) & 0o777;
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            // The umask removes permissions from a new file, as for cp.
            .mode(if self.options.preserve {
                0o600
            } else {
                mode | 0o200
            })
            .open(&path)
            .map_err(FilesError::local(self.local))?;
        // So that other processes leave it alone. Not every file system has locks.
        file.try_lock().ok();
        Ok(LocalPart {
            path,
            file: Arc::new(file),
            hasher: Hasher::default(),
            resumed_from: 0,
        })
    }

    async fn continued(&self, path: &Path) -> Result<Option<LocalPart>, FilesError> {
        let Ok(found) = fs::symlink_metadata(path) else { return Ok(None) };
        let size = found.len();
        let is_ours = found.is_file() && found.uid() == rustix::process::geteuid().as_raw();
        if !is_ours || size == 0 || size > self.attributes.size.unwrap_or(0) {
            return Ok(None);
        }
        let file = open_without_links(path).map_err(FilesError::local(path))?;
        file.try_lock().ok();
        let file = Arc::new(file);
        let reading = Arc::clone(&file);
        let hasher = blocking(path, move || hash(&reading, size)).await?;
        let prefix = self.files.digest(self.path, size).await?;
        if prefix != Some(hasher.digest()) {
            return Ok(None);
        }
        self.progress.add(size);
        Ok(Some(LocalPart {
            path: path.to_owned(),
            file,
            hasher,
            resumed_from: size,
        }))
    }

    async fn write_part(&self, part: &mut LocalPart) -> Result<Got, FilesError> {
        let size = self.attributes.size.unwrap_or(0);
        // The host computes its digest meanwhile.
        let skip_digest = self.options.skip_digest;
        let digest = async {
            Ok(if skip_digest {
                None
            } else {
                self.files.digest_on_host(self.path, size).await
            })
        };
        let (position, on_host) = try_join(self.receive(part), digest).await?;
        let digest = part.hasher.digest();
        // A file that has become longer or shorter meanwhile has another digest.
        let on_host = if position == size || skip_digest {
            on_host
        } else {
            self.files.digest_on_host(self.path, position).await
        };
        let verified = self.verify(on_host, digest)?;
        self.put_into_place(part, position).await?;
        Ok(Got {
            size: position,
            digest,
            verified,
            resumed_from: part.resumed_from,
            is_unchanged: false,
        })
    }

    /// Receives the content from where the part file ends. Returns the size of the whole.
    async fn receive(&self, part: &mut LocalPart) -> Result<u64, FilesError> {
        let mut position = part.resumed_from;
        let mut flushed = position;
        let mut flushing = JoinSet::new();
        let mut pieces = self.files.arriving(self.path, &self.file, position, None);
        while let Some(piece) = pieces.next().await {
            let piece = piece?;
            let bytes = piece.len() as u64;
            let file = Arc::clone(&part.file);
            let mut hasher = std::mem::take(&mut part.hasher);
            part.hasher = blocking(self.local, move || {
                // Zeros become a hole, as in a sparse file.
                if piece.iter().any(|byte| *byte != 0) {
                    file.write_all_at(&piece, position)?;
                }
                hasher.update(&piece);
                Ok(hasher)
            })
            .await?;
            position += bytes;
            self.progress.add(bytes);

            // Beside the transfer, so that the wait for the disk at the end is short. An error shows
            // there, too.
            let is_flushed = flushing.try_join_next().is_some() || flushing.is_empty();
            if is_flushed && !self.options.skip_sync && position - flushed >= FLUSHED_AT_ONCE {
                flushed = position;
                let file = Arc::clone(&part.file);
                flushing.spawn_blocking(move || file.sync_data().ok());
            }
        }
        Ok(position)
    }

    /// Waits for the disk, then gives the part file its name.
    async fn put_into_place(&self, part: &LocalPart, size: u64) -> Result<(), FilesError> {
        let file = Arc::clone(&part.file);
        let skip_sync = self.options.skip_sync;
        blocking(self.local, move || {
            // Ends a hole at the end, and cuts what an earlier attempt wrote beyond it.
            file.set_len(size)?;
            if skip_sync { Ok(()) } else { file.sync_all() }
        })
        .await?;
        // Not the part file of another process, which may have taken its place.
        let here = FilesError::local(self.local);
        let is_own = same_file(&part.file, &part.path).map_err(here)?;
        if !is_own {
            return Err(FilesError::Contested(self.path.clone()));
        }
        self.keep_attributes(&part.path).map_err(FilesError::local(self.local))?;
        fs::rename(&part.path, self.local).map_err(FilesError::local(self.local))
    }

    fn verify(&self, on_host: Option<Digest>, found: Digest) -> Result<Verified, FilesError> {
        match on_host {
            Some(wanted) if wanted == found => Ok(Verified::BySha256),
            Some(wanted) => Err(FilesError::Corrupt {
                path: self.path.clone(),
                found,
                wanted,
            }),
            None => Ok(Verified::Not),
        }
    }

    fn keep_attributes(&self, path: &Path) -> io::Result<()> {
        if !self.options.preserve {
            return Ok(());
        }
        keep_attributes(path, &self.attributes)
    }
}

/// Whether another process has locked a part file.
fn is_locked(part: &Path) -> bool {
    let opened = open_without_links(part);
    opened.is_ok_and(|file| matches!(file.try_lock(), Err(fs::TryLockError::WouldBlock)))
}

/// Opens a file to read and write it, unless it is a link: it could lead anywhere.
fn open_without_links(path: &Path) -> io::Result<File> {
    let no_links = rustix::fs::OFlags::NOFOLLOW.bits().cast_signed();
    OpenOptions::new().read(true).write(true).custom_flags(no_links).open(path)
}

/// Whether a path leads to an open file.
fn same_file(file: &File, path: &Path) -> io::Result<bool> {
    let (open, named) = (file.metadata()?, fs::symlink_metadata(path)?);
    Ok((open.dev(), open.ino()) == (named.dev(), named.ino()))
}

/// Gives a local file the permissions and times that a file of a host has.
pub(super) fn keep_attributes(path: &Path, attributes: &Attributes) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt;

    if let Some(times) = attributes.times {
        let accessed = Duration::from_secs(times.accessed.into());
        let modified = Duration::from_secs(times.modified.into());
        let times = fs::FileTimes::new()
            .set_accessed(SystemTime::UNIX_EPOCH + accessed)
            .set_modified(SystemTime::UNIX_EPOCH + modified);
        File::open(path)?.set_times(times)?;
    }
    if let Some(mode) = attributes.permissions() {
        // Without setuid and setgid: the host must not make a file that gives our rights away.
        fs::set_permissions(path, fs::Permissions::from_mode(mode & 0o777))?;
    }
    Ok(())
}

/// Runs file operations off the runtime. `path` is named in an error.
async fn blocking<T: Send + 'static>(
    path: &Path,
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> Result<T, FilesError> {
    let done = tokio::task::spawn_blocking(work).await.map_err(io::Error::other);
    done.and_then(|done| done).map_err(FilesError::local(path))
}

/// Hashes at most `length` bytes of a file.
fn hash(file: &File, length: u64) -> io::Result<Hasher> {
    let mut hasher = Hasher::default();
    let mut buffer = vec![0; 1 << 20];
    let mut position = 0;
    while position < length {
        let left = usize::try_from(length - position).unwrap_or(usize::MAX);
        let wanted = left.min(buffer.len());
        let read = file.read_at(&mut buffer[..wanted], position)?;
        if read == 0 {
            break;
        }
        hasher.update(&buffer[..read]);
        position += read as u64;
    }
    Ok(hasher)
}
