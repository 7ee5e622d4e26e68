//! Brings a directory of a host to the state of a working tree here.

use std::collections::BTreeSet;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use sshjobs_tree::{
    EntryKind, FileFacts, FileRecord, Manifest, SYNC_DIRECTORY, SyncPlan, Tree, WorkingTree,
};

use super::blocks::BLOCKS_FROM;
use super::exclusive::{Exclusive, sync_id};
use super::host_copy::{HostCopy, IGNORED, MANIFEST, refused};
use super::staging::Staging;
use super::{SyncOptions, SyncReport};
use crate::files::host_files::HostFiles;
use crate::files::progress::TransferProgress;
use crate::files::sftp::{Attributes, SftpRequest, Times};
use crate::files::tree::local::open_below;
use crate::files::tree::put_tree::{AT_A_TIME, local_digests};
use crate::files::upload::{LinkInPlace, Put, PutOptions};
use crate::files::{Digest, FileSource, FilesError, LocalFile, RemotePath};

/// Size from which a file is sent by itself, so that a cut transfer of it continues.
const LARGE: u64 = 8 << 20;
/// Rounds until no other sync is in the way.
const MOST_ROUNDS: u32 = 3;
/// Stands for the digest of a file that is about to be written.
const UNKNOWN: [u8; 32] = [0; 32];

impl HostFiles {
    /// Brings the directory `target` of the host to the state of the working tree in `local`. Each file is replaced at once,
    /// and only what has changed is sent. Links are sent as links. Only what an earlier sync has written is deleted, if it is
    /// gone here and unchanged there.
    ///
    /// A sync that was cut leaves whole files, and is continued by the next one. Entries that fail are in the report.
    ///
    /// # Errors
    /// [`FilesError`] if the tree can't be read, the directory can't be made or listed, or the connection is lost.
    pub async fn sync_to(
        &self,
        local: &Path,
        target: &RemotePath,
        options: &SyncOptions,
        progress: &Arc<TransferProgress>,
    ) -> Result<SyncReport, FilesError> {
        let root = local.to_owned();
        let exclusions = options.exclusions.clone();
        let reading = tokio::task::spawn_blocking(move || WorkingTree::read(&root, &exclusions));
        let read = reading.await.map_err(io::Error::other).and_then(|read| read);
        let read = read.map_err(FilesError::local(local))?;
        let target = self.expand(target).await?;
        let syncing = SyncTo {
            files: self,
            local,
            target: &target,
            source: &read.tree,
            progress,
        };
        let mut copy = self.look_at_copy(&target).await?;
        let mut plan = syncing.plan(&copy);
        let mut report = syncing.new_report(&plan);
        if options.dry_run {
            report.add_plan(&plan);
            if !report.has_changes() {
                report.hash = syncing.hash(&copy.manifest).await;
            }
        } else if !plan.is_empty() || !copy.exists {
            self.make_directories(&target).await?;
            let own = target.join(SYNC_DIRECTORY.as_bytes());
            self.make_directory_without_link(&own).await?;
            let _exclusive = Exclusive::to_host(self, &target).await?;
            for _ in 0..MOST_ROUNDS {
                // Another sync may have ended meanwhile.
                copy = self.look_at_copy(&target).await?;
                plan = syncing.plan(&copy);
                report = syncing.new_report(&plan).after(report);
                syncing.run(&plan, copy, &mut report).await?;
                // Another machine may have made a directory at the same time: the next round finds it there.
                if !report.failed.iter().any(|(path, _)| plan.make.contains(path)) {
                    break;
                }
            }
        } else {
            report.hash = syncing.hash(&copy.manifest).await;
        }
        report.commit = read.commit;
        for (below, why) in read.unreadable {
            let error = FilesError::local(&local.join(&below))(io::Error::other(why));
            report.failed.push((below, error));
        }
        if !report.failed.is_empty() {
            report.hash = None;
        }
        Ok(report)
    }
}

/// One sync.
struct SyncTo<'a> {
    files: &'a HostFiles,
    local: &'a Path,
    target: &'a RemotePath,
    source: &'a Tree,
    progress: &'a Arc<TransferProgress>,
}

impl SyncTo<'_> {
    fn plan(&self, copy: &HostCopy) -> SyncPlan {
        // An entry that can't be looked at may still be there.
        let is_here = |path: &Path| match self.local.join(path).symlink_metadata() {
            Ok(_) => true,
            Err(error) => !matches!(
                error.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
            ),
        };
        SyncPlan::new(self.source, &copy.tree, &copy.manifest, is_here)
    }

    fn new_report(&self, plan: &SyncPlan) -> SyncReport {
        let blocked = plan.blocked.iter().map(|blocked| {
            let path = self.place(&blocked.path);
            let why = format!("{} that no sync has written is in its place", blocked.by);
            (blocked.path.clone(), refused(&path, &why))
        });
        SyncReport {
            unchanged: plan.unchanged,
            kept: plan.changed_there.clone(),
            skipped: plan.skipped.clone(),
            failed: blocked.collect(),
            ..SyncReport::default()
        }
    }

    async fn run(
        &self,
        plan: &SyncPlan,
        copy: HostCopy,
        report: &mut SyncReport,
    ) -> Result<(), FilesError> {
        let mut written = copy.manifest.clone();
        written.retain_in(&copy.tree);
        let mut send = plan.send.clone();
        send.extend(self.differing(&plan.compare, &mut written, report).await?);

        let mut planned = written.clone();
        self.add_planned(plan, &send, &mut planned);
        if copy.manifest == Manifest::default() {
            self.write_own(".gitignore", IGNORED.into()).await?;
        }
        self.write_own(MANIFEST, planned.encode()).await?;

        self.delete(plan, report).await?;
        send.retain(|path| !report.failed.iter().any(|(failed, _)| path == failed));
        let sending = SyncSending { plan, copy: &copy };
        self.send(&sending, send, &mut written, report).await?;
        let changed: Vec<PathBuf> = plan.set_mode.iter().rev().cloned().collect();
        self.set_modes(&changed, report).await?;

        // Equal entries that were there before belong to the tree, too: they are deleted when they are gone here.
        let failed: Vec<&PathBuf> = report.failed.iter().map(|(path, _)| path).collect();
        let is_written = |path: &Path| !failed.iter().any(|failed| path.starts_with(failed));
        for (path, kind) in self.source.entries.iter().filter(|(path, _)| is_written(path)) {
            self.note(path, kind, &mut written);
        }
        report.hash = self.hash(&written).await;
        let written = self.with_digests(written).await;
        self.write_own(MANIFEST, written.encode()).await
    }

    /// Adds everything that is going to be written.
    fn add_planned(&self, plan: &SyncPlan, send: &[PathBuf], planned: &mut Manifest) {
        for path in plan.make.iter().chain(send) {
            if let Some(kind) = self.source.entries.get(path) {
                planned.files.remove(path);
                self.note(path, kind, planned);
            }
        }
    }

    /// Adds an entry to a manifest. The digest of a file that is there already is kept if the file is the same.
    fn note(&self, path: &Path, kind: &EntryKind, manifest: &mut Manifest) {
        match kind {
            EntryKind::Directory { mode } => {
                manifest.directories.insert(path.to_owned(), *mode);
            }
            EntryKind::Link { target } => {
                manifest.links.insert(path.to_owned(), target.clone());
            }
            EntryKind::File(facts) => {
                let sha256 = manifest.digest(path, facts).unwrap_or(UNKNOWN);
                let record = FileRecord {
                    facts: *facts,
                    sha256,
                };
                manifest.files.insert(path.to_owned(), record);
            }
            EntryKind::Other => {}
        }
    }

    /// Files whose content differs. The others only get the time of the source.
    async fn differing(
        &self,
        compare: &[PathBuf],
        written: &mut Manifest,
        report: &mut SyncReport,
    ) -> Result<Vec<PathBuf>, FilesError> {
        // Blocks of a large file are compared anyway.
        let is_large =
            |path: &&PathBuf| self.source.file(path).is_some_and(|facts| facts.size >= BLOCKS_FROM);
        let (mut differing, small): (Vec<PathBuf>, Vec<PathBuf>) =
            compare.iter().cloned().partition(|path| is_large(&path));
        if small.is_empty() {
            return Ok(differing);
        }
        let here = local_digests(self.local, &small).await;
        let there = self.files.digests_below(self.target, &small).await;
        let (Ok(here), Some(there)) = (here, there) else {
            differing.extend(small);
            return Ok(differing);
        };
        for (path, (here, there)) in small.into_iter().zip(here.into_iter().zip(there)) {
            if here != there {
                differing.push(path);
                continue;
            }
            let Some(facts) = self.source.file(&path) else { continue };
            let place = self.place(&path);
            let attributes = Attributes {
                mode: Some(facts.mode),
                times: Some(Times::nearest(facts.modified, facts.modified)),
                ..Attributes::default()
            };
            let request = SftpRequest::Setstat(place.bytes(), attributes);
            let set = self.files.session.status(request).await;
            set.map_err(FilesError::on("change the time of", &place))?;
            written.files.insert(path, record_of(facts, here));
            report.unchanged += 1;
        }
        Ok(differing)
    }

    /// Deletes entries that are gone here.
    async fn delete(&self, plan: &SyncPlan, report: &mut SyncReport) -> Result<(), FilesError> {
        let removals = plan.delete.iter().map(async |path| {
            let removed = self.files.remove(&self.place(path)).await;
            (path, removed)
        });
        let mut removals = stream::iter(removals.collect::<Vec<_>>()).buffer_unordered(AT_A_TIME);
        while let Some((path, removed)) = removals.next().await {
            match removed {
                Ok(()) => report.deleted.push(path.clone()),
                Err(error) if error.is_lost_connection() => return Err(error),
                Err(error) if error.is_no_such_file() => {}
                Err(error) => report.failed.push((path.clone(), error)),
            }
        }
        for path in &plan.delete_directories {
            let request = SftpRequest::Rmdir(self.place(path).bytes());
            match self.files.session.status(request).await {
                Ok(()) => report.deleted.push(path.clone()),
                Err(error) => {
                    let error = FilesError::on("remove", &self.place(path))(error);
                    if error.is_lost_connection() {
                        return Err(error);
                    }
                    // Something else is in it.
                    tracing::debug!(%error, ?path, "a directory stays");
                    if plan.send.contains(path) {
                        let why = "a directory with files that no sync has written is in its place";
                        report.failed.push((path.clone(), refused(&self.place(path), why)));
                    }
                }
            }
        }
        Ok(())
    }

    /// Sends files and links, and makes directories.
    async fn send(
        &self,
        SyncSending { plan, copy }: &SyncSending<'_>,
        send: Vec<PathBuf>,
        written: &mut Manifest,
        report: &mut SyncReport,
    ) -> Result<(), FilesError> {
        let size_of = |path: &Path| self.source.file(path).map_or(0, |facts| facts.size);
        self.progress.expect(send.iter().map(|path| size_of(path)).sum());
        let (large, small): (Vec<PathBuf>, Vec<PathBuf>) =
            send.into_iter().partition(|path| size_of(path) >= LARGE);
        let staged_name = format!("staged-{}", sync_id(self.files, self.local));
        let staging = Staging {
            files: self.files,
            local: self.local,
            target: self.target,
            source: self.source,
            name: &staged_name,
            progress: self.progress,
        };
        let mut left = copy.own.clone();
        let left = left.split_off(Path::new(&staged_name));
        // An archive has files of any size, and the policy may limit that of one file.
        let is_limited = self.files.most_bytes().is_some();
        let staged = if is_limited || (small.is_empty() && plan.make.is_empty()) {
            Default::default()
        } else {
            staging.send(&plan.make, &small, &left).await?
        };
        let mut one_by_one = large;
        let mut directories = Vec::new();
        if staged.is_complete {
            // One rename brings a new directory with all that is in it.
            let made: BTreeSet<&Path> = plan.make.iter().map(PathBuf::as_path).collect();
            let is_in_new =
                |path: &Path| path.ancestors().skip(1).any(|above| made.contains(above));
            let is_changed = |path: &&PathBuf| staged.changed.contains(path);
            for path in &staged.changed {
                // It must not get to its place with its directory.
                staging.remove(path).await?;
            }
            let new_tops = plan.make.iter().filter(|path| !is_in_new(path));
            let single = small.iter().filter(|path| !is_changed(path) && !is_in_new(path));
            let failed = staging.place_all(new_tops.chain(single).cloned().collect()).await?;
            let is_failed = |path: &Path| failed.iter().any(|(failed, _)| path.starts_with(failed));
            for path in small.iter().filter(|path| !is_changed(path) && !is_failed(path)) {
                report.sent.push(path.clone());
                report.bytes += size_of(path);
            }
            for (path, digest) in &staged.verified {
                if let Some(facts) = self.source.file(path).filter(|_| !is_failed(path)) {
                    written.files.insert(path.clone(), record_of(facts, *digest));
                }
            }
            report.sent_bytes += staged.sent_bytes;
            report.failed.extend(failed);
            one_by_one.extend(staged.changed);
        } else {
            self.make_all(&plan.make, report).await?;
            // The deepest first: the mode of a directory may forbid to enter it.
            directories = plan.make.iter().rev().cloned().collect();
            self.link_all(&small, report).await?;
            one_by_one.extend(small.into_iter().filter(|path| self.source.file(path).is_some()));
        }
        self.put_all(one_by_one, &copy.tree, written, report).await?;
        self.set_modes(&directories, report).await?;
        staging.restrict(&plan.make).await;
        staging.discard().await
    }

    async fn make_all(
        &self,
        directories: &[PathBuf],
        report: &mut SyncReport,
    ) -> Result<(), FilesError> {
        for path in directories {
            match self.files.make_directory_without_link(&self.place(path)).await {
                Ok(()) => {}
                Err(error) if error.is_lost_connection() => return Err(error),
                Err(error) => report.failed.push((path.clone(), error)),
            }
        }
        Ok(())
    }

    async fn link_all(&self, paths: &[PathBuf], report: &mut SyncReport) -> Result<(), FilesError> {
        for path in paths {
            let Some(EntryKind::Link { target }) = self.source.entries.get(path) else {
                continue;
            };
            match self.files.put_link(target, &self.place(path)).await {
                Ok(()) => report.sent.push(path.clone()),
                Err(error) if error.is_lost_connection() => return Err(error),
                Err(error) => report.failed.push((path.clone(), error)),
            }
        }
        Ok(())
    }

    /// Sends files one by one, many at a time.
    async fn put_all(
        &self,
        paths: Vec<PathBuf>,
        there: &Tree,
        written: &mut Manifest,
        report: &mut SyncReport,
    ) -> Result<(), FilesError> {
        let puts = paths.into_iter().map(async |path| {
            let is_there = there.file(&path).is_some_and(|facts| facts.size >= BLOCKS_FROM);
            let put = self.put_one(&path, is_there).await;
            (path, put)
        });
        let mut puts = stream::iter(puts.collect::<Vec<_>>()).buffer_unordered(AT_A_TIME);
        while let Some((path, put)) = puts.next().await {
            match put {
                Ok(sent) => {
                    if let Some(facts) = self.source.file(&path) {
                        report.bytes += facts.size;
                        written.files.insert(path.clone(), record_of(facts, sent.digest));
                    }
                    report.sent_bytes += sent.sent_bytes;
                    report.sent.push(path);
                }
                Err(error) if error.is_lost_connection() => return Err(error),
                Err(error) => report.failed.push((path, error)),
            }
        }
        Ok(())
    }

    async fn put_one(&self, below: &Path, is_there: bool) -> Result<SentFile, FilesError> {
        let path = self.place(below);
        let facts = self.source.file(below).copied().unwrap_or(FileFacts {
            size: 0,
            modified: 0,
            nanoseconds: 0,
            mode: 0o600,
        });
        if is_there && facts.size >= BLOCKS_FROM {
            let by_blocks =
                self.files.put_blocks((self.local, below), &path, &facts, self.progress).await?;
            if let Some(written) = by_blocks {
                return Ok(SentFile {
                    digest: written.digest,
                    sent_bytes: written.sent_bytes,
                });
            }
        }
        let local = self.local.join(below);
        let opened = open_below(self.local, below).and_then(|file| LocalFile::open(&local, file));
        let source = FileSource::File(opened.map_err(FilesError::local(&local))?);
        let options = PutOptions {
            mode: Some(facts.mode),
            times: Some(Times::nearest(facts.modified, facts.modified)),
            links: LinkInPlace::Replaced,
            skip_comparison: true,
            ..PutOptions::default()
        };
        let put: Put = self.files.put(&path, source, &options, self.progress).await?;
        Ok(SentFile {
            digest: put.digest,
            sent_bytes: put.size.saturating_sub(put.resumed_from),
        })
    }

    async fn set_modes(
        &self,
        paths: &[PathBuf],
        report: &mut SyncReport,
    ) -> Result<(), FilesError> {
        for below in paths {
            let mode = match self.source.entries.get(below) {
                Some(EntryKind::File(facts)) => facts.mode,
                Some(EntryKind::Directory { mode }) => *mode,
                Some(EntryKind::Link { .. } | EntryKind::Other) | None => continue,
            };
            let path = self.place(below);
            let request = SftpRequest::Setstat(path.bytes(), Attributes::of_mode(mode));
            match self.files.session.status(request).await {
                Ok(()) => report.unchanged += u64::from(self.source.file(below).is_some()),
                Err(error) => {
                    let error = FilesError::on("change the mode of", &path)(error);
                    if error.is_lost_connection() {
                        return Err(error);
                    }
                    report.failed.push((below.clone(), error));
                }
            }
        }
        Ok(())
    }

    /// The hash of the tree. `None` if a file can't be read any more.
    async fn hash(&self, manifest: &Manifest) -> Option<String> {
        let mut tree = Manifest::default();
        for (path, kind) in &self.source.entries {
            if let Some(record) = manifest.files.get(path) {
                tree.files.insert(path.clone(), *record);
            }
            self.note(path, kind, &mut tree);
        }
        let tree = self.with_digests(tree).await;
        let is_known = tree.files.values().all(|record| record.sha256 != UNKNOWN);
        is_known.then(|| tree.content_hash())
    }

    /// The manifest with the digests of all its files, as far as they can be read here.
    async fn with_digests(&self, mut manifest: Manifest) -> Manifest {
        let unknown: Vec<PathBuf> = manifest
            .files
            .iter()
            .filter(|(_, record)| record.sha256 == UNKNOWN)
            .map(|(path, _)| path.clone())
            .collect();
        if let Ok(digests) = local_digests(self.local, &unknown).await {
            for (path, digest) in unknown.iter().zip(digests) {
                if let Some(record) = manifest.files.get_mut(path) {
                    record.sha256 = digest.bytes();
                }
            }
        }
        manifest
    }

    /// Writes a file of the directory of syncs.
    async fn write_own(&self, name: &str, content: Vec<u8>) -> Result<(), FilesError> {
        let path = self.target.join(format!("{SYNC_DIRECTORY}/{name}").as_bytes());
        let options = PutOptions {
            links: LinkInPlace::Replaced,
            skip_verification: true,
            ..PutOptions::default()
        };
        let source = FileSource::Memory(Bytes::from(content));
        let progress = TransferProgress::default();
        self.files.put(&path, source, &options, &progress).await?;
        Ok(())
    }

    fn place(&self, below: &Path) -> RemotePath {
        self.target.join(below.as_os_str().as_bytes())
    }
}

/// What is to be done, and what the host has.
struct SyncSending<'a> {
    plan: &'a SyncPlan,
    copy: &'a HostCopy,
}

/// A file that was sent by itself.
struct SentFile {
    digest: Digest,
    sent_bytes: u64,
}

fn record_of(facts: &FileFacts, digest: Digest) -> FileRecord {
    FileRecord {
        facts: *facts,
        sha256: digest.bytes(),
    }
}
