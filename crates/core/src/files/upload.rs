//! Writes a file of a host: to a part file beside it, which replaces the target when it is complete.

use std::pin::pin;

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::future::try_join;
use futures_util::stream::FuturesUnordered;

use super::error::FilesError;
use super::host_files::HostFiles;
use super::lock::{Lock, Removal};
use super::part_name::PartName;
use super::path::RemotePath;
use super::progress::TransferProgress;
use super::remote_file::{IN_FLIGHT, RemoteFile};
use super::sftp::{Attributes, FileKind, Open, SftpError, SftpRequest, SftpStatus, Times};
use super::source::{FileSource, SourceReader};
use super::{Digest, Hasher, Verified};

/// How a file is written.
#[derive(Clone, Debug, Default)]
pub struct PutOptions {
    /// Permissions. By default those of the replaced file; of a new one, `new_mode`.
    pub mode: Option<u32>,
    /// Permissions of a new file, of which the server removes those of its umask.
    pub new_mode: Option<u32>,
    /// Times of the file.
    pub times: Option<Times>,
    /// Makes missing directories.
    pub parents: bool,
    /// What happens to a symbolic link in the file's place.
    pub links: LinkInPlace,
    /// Keeps the replaced file beside it.
    pub backup: bool,
    /// Writes into an existing file, which keeps its owner, links and mounts, in place of replacing it. Readers may see a
    /// part of the content, and a write that breaks leaves one. Not together with `backup`.
    pub in_place: bool,
    /// The content that is replaced.
    pub expected: ExpectedContent,
    /// Does not compare the content with that of an existing file first.
    pub skip_comparison: bool,
    /// Neither verifies the content nor waits for the disk: for many files, which are verified
    /// together.
    pub skip_verification: bool,
    /// An earlier attempt has lost its connection, perhaps after it had replaced the file.
    pub is_repeated: bool,
}

/// What happens to a symbolic link of the host in the place of a file that is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LinkInPlace {
    /// The file behind it is written, and the link stays.
    #[default]
    Followed,
    /// The file takes its place: it may be another user's, and lead anywhere.
    Replaced,
}

/// The content that a write may replace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ExpectedContent {
    /// Any.
    #[default]
    Anything,
    /// Only a content with this digest.
    Digest(Digest),
    /// None: the file must not exist.
    NoFile,
}

/// Result of a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Put {
    /// The path that was written, with symbolic links resolved.
    pub path: RemotePath,
    /// Size of the content.
    pub size: u64,
    /// Its digest.
    pub digest: Digest,
    /// What the write did.
    pub change: FileChange,
    /// How the content was verified.
    pub verified: Verified,
    /// Bytes of an earlier, broken transfer that were not sent again.
    pub resumed_from: u64,
    /// Where the replaced file is kept.
    pub backup: Option<RemotePath>,
}

/// What a write did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileChange {
    /// There was no file.
    Created,
    /// The file had another content.
    Changed,
    /// The file had this content, and was not written.
    Unchanged,
}

/// Permissions of a part file that replaces a file whose permissions are set later.
const PRIVATE: u32 = 0o600;
/// Maximum backups of versions that were changed in the same second.
const MOST_BACKUPS: u32 = 1000;
/// Maximum symbolic links that lead to a file which does not exist.
const MOST_LINKS: usize = 16;

impl HostFiles {
    /// Writes a file at once: readers see the old content or the new one. If the transfer breaks, the old file stays, and the same transfer continues where
    /// it broke.
    ///
    /// # Errors
    /// [`FilesError::ChangedMeanwhile`] if the file is not the expected one. Nothing is changed.
    pub async fn put(
        &self,
        path: &RemotePath,
        source: FileSource,
        options: &PutOptions,
        progress: &TransferProgress,
    ) -> Result<Put, FilesError> {
        let path = self.expand(path).await?;
        self.check_size(&path, source.size())?;
        let source = self.limited(source);
        let target = UploadTarget::look(self, &path, options).await?;
        let writing = WriteInPlace {
            files: self,
            target: &target,
            options,
            progress,
        };
        if options.is_repeated
            && options.expected != ExpectedContent::Anything
            && let Some(put) = writing.compare(source.again()).await?
        {
            // Only the reply was lost: the file has the new content, and not the expected one.
            let change = match options.expected {
                ExpectedContent::NoFile => FileChange::Created,
                ExpectedContent::Anything | ExpectedContent::Digest(_) => FileChange::Changed,
            };
            return Ok(Put { change, ..put });
        }
        match target.check(self, options.expected).await {
            // Changed by the earlier attempt, perhaps, which had emptied it.
            Err(FilesError::ChangedMeanwhile { .. }) if options.in_place && options.is_repeated => {
                return Err(FilesError::Incomplete(target.path));
            }
            checked => checked?,
        }
        writing.run(source).await
    }
}

/// The file that is written, as it was before.
struct UploadTarget {
    path: RemotePath,
    old: Option<Attributes>,
}

impl UploadTarget {
    async fn look(
        files: &HostFiles,
        path: &RemotePath,
        options: &PutOptions,
    ) -> Result<Self, FilesError> {
        if path.is_marked_directory() {
            return Err(FilesError::IsDirectory(path.clone()));
        }
        if options.links == LinkInPlace::Replaced && files.is_link(path).await? {
            return Ok(Self {
                path: path.clone(),
                old: None,
            });
        }
        let Some(old) = files.find(path).await? else {
            let path = &Self::behind_links(files, path).await?;
            if options.parents {
                files.make_directories(&path.parent()).await?;
            }
            return Ok(Self {
                path: path.clone(),
                old: None,
            });
        };
        match old.kind() {
            FileKind::Directory => Err(FilesError::IsDirectory(path.clone())),
            FileKind::File => Ok(Self {
                // The link stays, and the file behind it is replaced.
                path: files.real_path(path).await?,
                old: Some(old),
            }),
            FileKind::Symlink | FileKind::Other => Err(FilesError::NotAFile(path.clone())),
        }
    }

    /// The path at the end of a chain of dangling symbolic links. The file is created there, and the links stay.
    async fn behind_links(files: &HostFiles, path: &RemotePath) -> Result<RemotePath, FilesError> {
        let mut path = path.clone();
        for _ in 0..MOST_LINKS {
            match files.lstat(&path).await {
                Ok(found) if found.kind() == FileKind::Symlink => {
                    let target = RemotePath::new(files.read_link(&path).await?)?;
                    path = if target.as_bytes().starts_with(b"/") {
                        target
                    } else {
                        path.parent().join(target.as_bytes())
                    };
                }
                Ok(_) | Err(_) => break,
            }
        }
        Ok(path)
    }

    /// The digest of its content now. `None` if there is no file.
    async fn digest(&self, files: &HostFiles) -> Result<Option<Digest>, FilesError> {
        let Some(found) = files.find(&self.path).await? else { return Ok(None) };
        let digest = files.digest(&self.path, found.size.unwrap_or(0)).await?;
        digest.map(Some).ok_or_else(|| FilesError::NoDigest(self.path.clone()))
    }

    async fn check(&self, files: &HostFiles, expected: ExpectedContent) -> Result<(), FilesError> {
        let wanted = match expected {
            ExpectedContent::Anything => return Ok(()),
            ExpectedContent::NoFile => {
                return match files.find(&self.path).await? {
                    None => Ok(()),
                    Some(_) => Err(FilesError::Exists(self.path.clone())),
                };
            }
            ExpectedContent::Digest(wanted) => wanted,
        };
        let found = self.digest(files).await?;
        if found == Some(wanted) {
            Ok(())
        } else {
            Err(FilesError::ChangedMeanwhile {
                path: self.path.clone(),
                found: found.into(),
            })
        }
    }
}

/// One write.
struct WriteInPlace<'a> {
    files: &'a HostFiles,
    target: &'a UploadTarget,
    options: &'a PutOptions,
    progress: &'a TransferProgress,
}

/// A part file that is open, and how much of it is already right.
struct UploadPart {
    path: RemotePath,
    file: RemoteFile,
    resumed_from: u64,
    /// Removes it if the write is cancelled, because no other transfer can continue it.
    removal: Option<Removal>,
}

impl WriteInPlace<'_> {
    async fn run(&self, source: FileSource) -> Result<Put, FilesError> {
        if let Some(unchanged) = self.compare(source.again()).await? {
            return Ok(unchanged);
        }
        if self.options.in_place && self.target.old.is_some() {
            return self.write_in_place(source).await;
        }
        let written = match source.again() {
            // A stream: no later attempt could continue its part file.
            None => self.attempt(&PartName::unique(), source).await,
            Some(again) => match self.attempt(&self.resumable_name(&source), source).await {
                // Another process sends the same content to this file, and has taken the part file.
                Err(FilesError::Contested(_) | FilesError::Corrupt { .. }) => {
                    self.attempt(&PartName::unique(), again).await
                }
                written => written,
            },
        };
        match written {
            Err(error) => Err(self.not_replaced(error).await),
            Ok(put) => Ok(put),
        }
    }

    /// Writes the content by a part file with this name.
    async fn attempt(&self, name: &PartName, source: FileSource) -> Result<Put, FilesError> {
        let mut reading = SourceReader::new(source);
        let mut part = self.open_part(name, &mut reading).await?;
        if !name.is_shared {
            part.removal = Some(Removal::new(self.files, &part.path));
        }
        let written = self.write_part(&mut part, name, &mut reading).await;
        // A part file without a connection stays, and the next attempt continues it. A contested
        // part file belongs to another process.
        if let Err(error) = &written
            && !error.is_lost_connection()
            && !matches!(error, FilesError::Contested(_))
        {
            self.discard(&part.path).await;
        }
        written
    }

    /// Writes the content into the existing file.
    async fn write_in_place(&self, source: FileSource) -> Result<Put, FilesError> {
        let path = &self.target.path;
        if self.options.backup {
            return Err(FilesError::BackupInPlace(path.clone()));
        }
        let attributes = Attributes::default();
        let opened = self.files.open_as(path, Open::Write, attributes).await;
        let part = UploadPart {
            path: path.clone(),
            file: opened.map_err(FilesError::on("write", path))?,
            resumed_from: 0,
            removal: None,
        };
        // Emptied first: zeros are not sent, and would leave old bytes.
        let empty = Attributes {
            size: Some(0),
            ..Attributes::default()
        };
        part.file.set(empty).await.map_err(FilesError::on("write", path))?;
        let mut reading = SourceReader::new(source);
        let size = self.send(&part, &mut reading).await?;
        self.finish_content(&part, size).await?;
        let digest = reading.digest();
        let verified = if self.options.skip_verification {
            Verified::Not
        } else {
            let verifying = self.verify(&part, size, digest);
            let (verified, ()) = try_join(verifying, self.synchronize(&part)).await?;
            verified
        };
        if let Some(mode) = self.options.mode {
            let set = part.file.set(Attributes::of_mode(mode)).await;
            set.map_err(FilesError::on("change the mode of", path))?;
        }
        Ok(Put {
            path: path.clone(),
            size,
            digest,
            change: FileChange::Changed,
            verified,
            resumed_from: 0,
            backup: None,
        })
    }

    /// Why the existing file was not replaced. Says if its content could be written in place.
    async fn not_replaced(&self, error: FilesError) -> FilesError {
        if self.target.old.is_none() || !error.is_refusal_to_replace() {
            return error;
        }
        let opened =
            self.files.open_as(&self.target.path, Open::Write, Attributes::default()).await;
        match opened {
            Ok(_) => FilesError::NotReplaceable {
                path: self.target.path.clone(),
                source: Box::new(error),
            },
            Err(_) => error,
        }
    }

    /// Compares the content with that of an existing file of the same size. `Some` if both are
    /// equal.
    async fn compare(&self, content: Option<FileSource>) -> Result<Option<Put>, FilesError> {
        let Some(old) = &self.target.old else { return Ok(None) };
        let Some(content) = content else { return Ok(None) };
        let size = old.size.unwrap_or(0);
        if self.options.skip_comparison || content.size() != Some(size) {
            return Ok(None);
        }
        let Some(digest) = self.files.digest_on_host(&self.target.path, size).await else {
            return Ok(None);
        };
        let mut reading = SourceReader::new(content);
        let is_whole = reading.skip_to(size).await.map_err(|error| self.local(error))?;
        if !is_whole || reading.digest() != digest {
            return Ok(None);
        }
        self.progress.add(size);
        if self.options.mode.is_some() || self.options.times.is_some() {
            let attributes = Attributes {
                mode: self.options.mode,
                times: self.options.times,
                ..Attributes::default()
            };
            let request = SftpRequest::Setstat(self.target.path.bytes(), attributes);
            let set = self.files.session.status(request).await;
            set.map_err(FilesError::on("change the mode of", &self.target.path))?;
        }
        Ok(Some(Put {
            path: self.target.path.clone(),
            size,
            digest,
            change: FileChange::Unchanged,
            verified: Verified::BySha256,
            resumed_from: 0,
            backup: None,
        }))
    }

    /// The part file's name that is the same in each attempt to transfer this content.
    fn resumable_name(&self, source: &FileSource) -> PartName {
        let mut hasher = Hasher::default();
        hasher.update(self.target.path.as_bytes());
        match source {
            FileSource::Memory(bytes) => hasher.update(bytes),
            FileSource::File(file) => hasher.update(file.identity.as_bytes()),
            FileSource::Stream(_) => return PartName::unique(),
        }
        PartName::shared(&hasher)
    }

    /// Opens the part file. One that an earlier attempt has left is continued if it has the first
    /// bytes of this content.
    async fn open_part(
        &self,
        name: &PartName,
        reading: &mut SourceReader,
    ) -> Result<UploadPart, FilesError> {
        let path = self.part_path(&name.id);
        let mode = match (&self.target.old, self.options.mode) {
            (None, None) => self.options.new_mode.unwrap_or(0o666),
            _ => PRIVATE,
        };
        let attributes = Attributes::of_mode(mode);
        let failed = FilesError::on("write", &self.target.path);
        let error = match self.files.open_as(&path, Open::CreateNew, attributes).await {
            Ok(file) => {
                return Ok(UploadPart {
                    path,
                    file,
                    resumed_from: 0,
                    removal: None,
                });
            }
            Err(error) => error,
        };
        let Ok(found) = self.files.lstat(&path).await else {
            // There was a part file, which another process has taken meanwhile. Or there is another
            // reason, such as a disk without room, which the attempt with a unique name will report.
            if name.is_shared && error.is(SftpStatus::Failure) {
                return Err(FilesError::Contested(self.target.path.clone()));
            }
            return Err(self.write_failed(error).await);
        };
        if name.is_shared && self.is_ours(&found).await {
            let size = found.size.unwrap_or(0);
            if let Ok(file) = self.files.open_as(&path, Open::Write, attributes).await
                && size > 0
                && reading.skip_to(size).await.map_err(|error| self.local(error))?
                && self.prefix_digest(&path, size).await? == Some(reading.digest())
            {
                self.progress.add(size);
                return Ok(UploadPart {
                    path,
                    file,
                    resumed_from: size,
                    removal: None,
                });
            }
        }
        // Removed instead of emptied: another process may still write to it.
        match self.files.remove(&path).await {
            Err(error) if !error.is_no_such_file() => return Err(error),
            Ok(()) | Err(_) => {}
        }
        let file = match self.files.open_as(&path, Open::CreateNew, attributes).await {
            Ok(file) => file,
            // Another process was faster.
            Err(error) if name.is_shared && error.is(SftpStatus::Failure) => {
                return Err(FilesError::Contested(self.target.path.clone()));
            }
            Err(error) => return Err(failed(error)),
        };
        reading.restart();
        Ok(UploadPart {
            path,
            file,
            resumed_from: 0,
            removal: None,
        })
    }

    /// The digest of a part file. `None` if another process has taken it meanwhile.
    async fn prefix_digest(
        &self,
        part: &RemotePath,
        size: u64,
    ) -> Result<Option<Digest>, FilesError> {
        match self.files.digest(part, size).await {
            Err(error) if error.is_no_such_file() => Ok(None),
            digest => digest,
        }
    }

    /// Whether a part file may be continued: a regular file of our account. In a directory that
    /// others can write to, it could be a trap.
    async fn is_ours(&self, part: &Attributes) -> bool {
        // The home directory is the account's, and root must not trust a part file of the account.
        if self.files.user.becomes.is_some() {
            return false;
        }
        let home = RemotePath::new(".").expect("a point is a path");
        let ours = self.files.stat(&home).await.ok().and_then(|home| home.owner);
        let uid = part.owner.map(|owner| owner.uid);
        part.kind() == FileKind::File && ours.map(|owner| owner.uid) == uid
    }

    /// Writes the rest of the content, verifies it, and puts the part file in the target's place.
    async fn write_part(
        &self,
        part: &mut UploadPart,
        name: &PartName,
        reading: &mut SourceReader,
    ) -> Result<Put, FilesError> {
        let sent = self.send(part, reading).await?;
        self.finish_attributes(part, sent).await?;
        let digest = reading.digest();
        let verified = if self.options.skip_verification {
            Verified::Not
        } else {
            let verifying = self.verify(part, sent, digest);
            let (verified, ()) = try_join(verifying, self.synchronize(part)).await?;
            verified
        };
        self.set_mode(part).await?;
        let backup = if self.options.expected == ExpectedContent::Anything {
            self.replace(part, name, sent).await?
        } else {
            // Only for this moment: a slow transfer must not keep other writers waiting.
            let lock = Lock::take(self.files, &self.target.path).await?;
            let replaced = lock.hold(self.replace_expected(part, name, sent)).await;
            lock.release().await;
            replaced?
        };
        if let Some(removal) = part.removal.take() {
            removal.cancel();
        }
        let change = if self.target.old.is_some() {
            FileChange::Changed
        } else {
            FileChange::Created
        };
        Ok(Put {
            path: self.target.path.clone(),
            size: sent,
            digest,
            change,
            verified,
            resumed_from: part.resumed_from,
            backup,
        })
    }

    /// Replaces the target, if it has the expected content.
    async fn replace_expected(
        &self,
        part: &mut UploadPart,
        name: &PartName,
        size: u64,
    ) -> Result<Option<RemotePath>, FilesError> {
        self.target.check(self.files, self.options.expected).await?;
        if self.options.expected == ExpectedContent::NoFile {
            self.take(part, name, size).await?;
            // Not the rename that replaces: a program that knows no lock may have made the file.
            let renamed = self.files.rename(&part.path, &self.target.path).await;
            return match renamed {
                Ok(()) => Ok(None),
                Err(SftpError::Refused { .. })
                    if self.files.lstat(&self.target.path).await.is_ok() =>
                {
                    Err(FilesError::Exists(self.target.path.clone()))
                }
                Err(error) => Err(FilesError::on("write", &self.target.path)(error)),
            };
        }
        self.replace(part, name, size).await
    }

    /// Replaces the target. Returns where the old file is kept.
    async fn replace(
        &self,
        part: &mut UploadPart,
        name: &PartName,
        size: u64,
    ) -> Result<Option<RemotePath>, FilesError> {
        let backup = self.back_up().await?;
        self.take(part, name, size).await?;
        self.files.replace(&part.path, &self.target.path).await?;
        Ok(backup)
    }

    /// Gives the part file a name that no other process uses, just before it takes the target's
    /// place. Until then another process that sends the same content may continue it, or remove it
    /// and begin again; such a file is shorter, and is not taken.
    async fn take(
        &self,
        part: &mut UploadPart,
        name: &PartName,
        size: u64,
    ) -> Result<(), FilesError> {
        if !name.is_shared {
            return Ok(());
        }
        let own = self.part_path(&PartName::unique().id);
        match self.files.rename(&part.path, &own).await {
            Ok(()) => {}
            Err(error) if error.is(SftpStatus::NoSuchFile) => return Err(self.contested()),
            Err(error) => return Err(FilesError::on("write", &self.target.path)(error)),
        }
        part.removal = Some(Removal::new(self.files, &own));
        part.path = own;
        let taken = self.files.lstat(&part.path).await?;
        if taken.size.is_some_and(|found| found != size) {
            return Err(self.contested());
        }
        Ok(())
    }

    fn contested(&self) -> FilesError {
        FilesError::Contested(self.target.path.clone())
    }

    fn part_path(&self, id: &str) -> RemotePath {
        self.target.path.beside(".", &format!(".sshjobs-{id}.part"))
    }

    /// Sends the content from where the part file ends. Returns the size of the whole.
    async fn send(&self, part: &UploadPart, reading: &mut SourceReader) -> Result<u64, FilesError> {
        let length = part.file.write_length();
        let mut in_flight = FuturesUnordered::new();
        loop {
            let offset = reading.position;
            let piece = {
                let mut next = pin!(reading.next(length));
                loop {
                    // A slow source must not delay the writes before it.
                    tokio::select! {
                        piece = &mut next => break piece,
                        Some(written) = in_flight.next() => self.note_written(written).await?,
                    }
                }
            };
            let piece = piece.map_err(|error| self.local(error))?;
            if piece.is_empty() {
                break;
            }
            let bytes = piece.len() as u64;
            if is_zero(&piece) {
                // A hole, as in a sparse file: bytes that are never written are zero.
                self.progress.add(bytes);
                continue;
            }
            in_flight.push(async move { part.file.write(offset, piece).await.map(|()| bytes) });
            if in_flight.len() >= IN_FLIGHT
                && let Some(written) = in_flight.next().await
            {
                self.note_written(written).await?;
            }
        }
        while let Some(written) = in_flight.next().await {
            self.note_written(written).await?;
        }
        Ok(reading.position)
    }

    async fn note_written(&self, written: Result<u64, SftpError>) -> Result<(), FilesError> {
        match written {
            Ok(bytes) => {
                self.progress.add(bytes);
                Ok(())
            }
            Err(error) => Err(self.write_failed(error).await),
        }
    }

    /// Sets size, owner and times.
    async fn finish_attributes(&self, part: &UploadPart, size: u64) -> Result<(), FilesError> {
        self.keep_owner(part).await?;
        self.finish_content(part, size).await
    }

    /// Sets size and times.
    async fn finish_content(&self, part: &UploadPart, size: u64) -> Result<(), FilesError> {
        let failed = FilesError::on("write", &self.target.path);
        // Ends a hole at the end, and cuts what an earlier attempt wrote beyond it.
        let sized = Attributes {
            size: Some(size),
            ..Attributes::default()
        };
        if let Err(error) = part.file.set(sized).await {
            return Err(self.write_failed(error).await);
        }
        if let Some(times) = self.options.times {
            let times = Attributes {
                times: Some(times),
                ..Attributes::default()
            };
            part.file.set(times).await.map_err(failed)?;
        }
        Ok(())
    }

    /// Sets the final permissions: after the owner, because a change of it removes the setuid bit,
    /// and after the verification, because they may forbid to read the file.
    async fn set_mode(&self, part: &UploadPart) -> Result<(), FilesError> {
        let old_mode = self.target.old.as_ref().and_then(Attributes::permissions);
        let Some(mode) = self.options.mode.or(old_mode) else { return Ok(()) };
        let set = part.file.set(Attributes::of_mode(mode)).await;
        set.map_err(FilesError::on("write", &self.target.path))
    }

    /// Waits for the disk.
    async fn synchronize(&self, part: &UploadPart) -> Result<(), FilesError> {
        match part.file.sync().await {
            Ok(()) => Ok(()),
            Err(error) => Err(self.write_failed(error).await),
        }
    }

    /// Gives the part file the owner of the file that it replaces.
    async fn keep_owner(&self, part: &UploadPart) -> Result<(), FilesError> {
        let Some(owner) = self.target.old.as_ref().and_then(|old| old.owner) else {
            return Ok(());
        };
        let own = part.file.stat().await.map_err(FilesError::on("look at", &part.path))?;
        if own.owner == Some(owner) {
            return Ok(());
        }
        let wanted = Attributes {
            owner: Some(owner),
            ..Attributes::default()
        };
        match part.file.set(wanted).await {
            Ok(()) => Ok(()),
            Err(SftpError::Refused { .. }) => Err(FilesError::Owner {
                path: self.target.path.clone(),
                uid: owner.uid,
                gid: owner.gid,
            }),
            Err(error) => Err(FilesError::on("write", &part.path)(error)),
        }
    }

    async fn verify(
        &self,
        part: &UploadPart,
        size: u64,
        wanted: Digest,
    ) -> Result<Verified, FilesError> {
        let (found, how) = match self.files.digest_on_host(&part.path, size).await {
            Some(found) => (found, Verified::BySha256),
            None => match self.files.digest(&part.path, size).await {
                Ok(Some(found)) => (found, Verified::ByReadingBack),
                Ok(None) => return Ok(Verified::Not),
                Err(error) if error.is_no_such_file() => {
                    return Err(FilesError::Contested(self.target.path.clone()));
                }
                Err(error) => return Err(error),
            },
        };
        if found == wanted {
            return Ok(how);
        }
        Err(FilesError::Corrupt {
            path: self.target.path.clone(),
            found,
            wanted,
        })
    }

    /// Keeps the old file under another name, if asked. The target exists all the time.
    async fn back_up(&self) -> Result<Option<RemotePath>, FilesError> {
        if !self.options.backup {
            return Ok(None);
        }
        let Some(old) = &self.target.old else { return Ok(None) };
        let modified = old.times.map_or(0, |times| times.modified);
        let mut number = 1;
        loop {
            let end = if number == 1 {
                format!(".{modified}.bak")
            } else {
                format!(".{modified}-{number}.bak")
            };
            let backup = self.target.path.beside("", &end);
            let request = SftpRequest::Hardlink {
                file: self.target.path.bytes(),
                link: backup.bytes(),
            };
            match self.files.session.status(request).await {
                Ok(()) => return Ok(Some(backup)),
                // Of another version of the same second.
                Err(SftpError::Refused { .. })
                    if number < MOST_BACKUPS && self.files.lstat(&backup).await.is_ok() =>
                {
                    number += 1;
                }
                Err(error) => {
                    return Err(FilesError::on("keep a backup of", &self.target.path)(error));
                }
            }
        }
    }

    /// Removes the part file of a write that failed.
    async fn discard(&self, part: &RemotePath) {
        if let Err(error) = self.files.remove(part).await {
            tracing::debug!(%error, "a part file could not be removed");
        }
    }

    async fn write_failed(&self, error: SftpError) -> FilesError {
        // OpenSSH reports a full disk as a failure without a reason.
        if error.is(SftpStatus::Failure) && self.files.is_full(&self.target.path).await {
            return FilesError::DiskFull(self.target.path.clone());
        }
        FilesError::on("write", &self.target.path)(error)
    }

    fn local(&self, source: std::io::Error) -> FilesError {
        // Only a limited stream ends so.
        if source.kind() == std::io::ErrorKind::FileTooLarge
            && let Some(most) = self.files.most_bytes()
        {
            return FilesError::OverLimit {
                path: self.target.path.clone(),
                most,
            };
        }
        FilesError::Local {
            path: format!("the content for {}", self.target.path),
            source: source.into(),
        }
    }
}

fn is_zero(piece: &Bytes) -> bool {
    piece.iter().all(|byte| *byte == 0)
}
