//! Brings a directory of this machine to the state of one of a host.

use std::ffi::OsStr;
use std::fs;
use std::io::{self, Write as _};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use cap_std::ambient_authority;
use cap_std::fs::Dir;
use futures_util::{StreamExt, stream};
use sshjobs_tree::{
    EntryKind, FileFacts, FileRecord, Manifest, SYNC_DIRECTORY, SyncPlan, Tree, WorkingTree,
};
use tokio_util::io::SyncIoBridge;

use super::exclusive::{Exclusive, sync_id};
use super::host_copy::{IGNORED, MANIFEST, refused};
use super::{SyncOptions, SyncReport};
use crate::files::download::GetOptions;
use crate::files::host_files::HostFiles;
use crate::files::progress::TransferProgress;
use crate::files::shell_command::directory_variable;
use crate::files::tree::archive::{
    KeptAttributes, OWNER_RWX, is_real_directory, merge, open_directory, set_mode_below, unpack,
};
use crate::files::tree::put_tree::{AT_A_TIME, NO_TAR, local_digests};
use crate::files::{Digest, FilesError, RemotePath};

/// Size from which a file is received by itself, so that a cut transfer of it continues.
const LARGE: u64 = 8 << 20;
/// Bytes between the channel and the thread that unpacks.
const PIPE_BYTES: usize = 1 << 20;

impl HostFiles {
    /// Brings the directory `local` of this machine to the state of the directory `source` of the host. Like
    /// [`sync_to`](Self::sync_to) in the other direction, but the ignore files of the host don't count: only the exclusions
    /// are left out. Nothing that the host sends is written outside of `local`.
    ///
    /// # Errors
    /// As [`sync_to`](Self::sync_to).
    pub async fn sync_from(
        &self,
        source: &RemotePath,
        local: &Path,
        options: &SyncOptions,
        progress: &Arc<TransferProgress>,
    ) -> Result<SyncReport, FilesError> {
        let source = self.expand(source).await?;
        let _exclusive = if options.dry_run {
            None
        } else {
            fs::create_dir_all(local).map_err(FilesError::local(local))?;
            Some(Exclusive::to_here(local, &source).await?)
        };
        let copy = self.look_at_copy(&source).await?;
        if !copy.exists {
            return Err(refused(&source, "there is no such directory"));
        }
        let mut wanted = copy.tree.clone();
        // The host must not change the hooks of a repository here.
        wanted.entries.retain(|path, _| path.iter().all(|name| name != ".git"));
        options.exclusions.remove_from(&mut wanted);
        let syncing = SyncFrom {
            files: self,
            local,
            source: &source,
            wanted: &wanted,
            progress,
        };
        let (here, written) = syncing.look_here().map_err(FilesError::local(local))?;
        let plan = SyncPlan::new(&wanted, &here, &written, |path| {
            // What could not be listed is not known to be gone.
            !copy.is_complete || copy.tree.entries.contains_key(path)
        });
        let mut report = syncing.new_report(&plan);
        if options.dry_run {
            report.add_plan(&plan);
        } else if !plan.is_empty() {
            syncing.run(&plan, here, written, &mut report).await?;
        }
        Ok(report)
    }
}

/// One sync.
struct SyncFrom<'a> {
    files: &'a HostFiles,
    local: &'a Path,
    source: &'a RemotePath,
    wanted: &'a Tree,
    progress: &'a Arc<TransferProgress>,
}

/// Files that were received into the staging directory.
#[derive(Default)]
struct Received {
    records: Vec<(PathBuf, FileRecord)>,
    links: Vec<PathBuf>,
}

impl SyncFrom<'_> {
    /// The entries here, and what earlier syncs have written.
    fn look_here(&self) -> io::Result<(Tree, Manifest)> {
        if !self.local.exists() {
            return Ok(Default::default());
        }
        let own = self.local.join(SYNC_DIRECTORY);
        if own.symlink_metadata().is_ok() && !is_real_directory(&own) {
            let why = format!("{SYNC_DIRECTORY} in it is not a directory; remove it");
            return Err(io::Error::other(why));
        }
        let tree = WorkingTree::read_all(self.local)?.tree;
        let manifest = match fs::read(own.join(MANIFEST)) {
            Ok(text) => Manifest::parse(&text).map_err(|error| {
                io::Error::other(format!("{error}; remove {SYNC_DIRECTORY} in it"))
            })?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Manifest::default(),
            Err(error) => return Err(error),
        };
        Ok((tree, manifest))
    }

    fn new_report(&self, plan: &SyncPlan) -> SyncReport {
        let blocked = plan.blocked.iter().map(|blocked| {
            let path = self.local.join(&blocked.path);
            let why = format!("{} that no sync has written is in its place", blocked.by);
            (
                blocked.path.clone(),
                FilesError::local(&path)(io::Error::other(why)),
            )
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
        here: Tree,
        mut written: Manifest,
        report: &mut SyncReport,
    ) -> Result<(), FilesError> {
        let failed_here = || FilesError::local(self.local);
        written.retain_in(&here);
        let mut receive = plan.send.clone();
        receive.extend(self.differing(&plan.compare, report).await?);
        let root = open_directory(self.local).map_err(failed_here())?;
        let own = self.local.join(SYNC_DIRECTORY);
        make_private(&own).map_err(failed_here())?;
        let mut planned = written.clone();
        for path in plan.make.iter().chain(&receive) {
            planned.files.remove(path);
            note(path, &self.wanted.entries, &mut planned);
        }
        write_own(&own, &planned).map_err(failed_here())?;

        self.delete(plan, &root, report);
        let staged = own.join(format!("staged-{}", sync_id(self.files, self.local)));
        let received = self.receive(&plan.make, receive, &staged, report).await?;
        let merged = merge(&staged, self.local).map_err(failed_here())?;
        for entry in merged.not_moved {
            let below = entry.target.strip_prefix(self.local).unwrap_or(&entry.target).to_owned();
            report.failed.push((below, FilesError::local(&entry.target)(entry.error)));
        }
        // The deepest first: the mode of a directory may forbid to enter it.
        for path in plan.make.iter().chain(&plan.set_mode).rev() {
            self.set_mode(&root, path, report);
        }
        fs::remove_dir_all(&staged).map_err(failed_here())?;
        fs::remove_dir_all(parts_of(&staged)).map_err(failed_here())?;

        let failed: Vec<PathBuf> = report.failed.iter().map(|(path, _)| path.clone()).collect();
        let has_failed = |path: &Path| failed.iter().any(|failed| path.starts_with(failed));
        for (path, record) in received.records {
            if !has_failed(&path) {
                report.bytes += record.facts.size;
                report.sent_bytes += record.facts.size;
                report.sent.push(path.clone());
                written.files.insert(path, record);
            }
        }
        report.sent.extend(received.links.into_iter().filter(|path| !has_failed(path)));
        for path in self.wanted.entries.keys().filter(|path| !has_failed(path)) {
            note(path, &self.wanted.entries, &mut written);
        }
        write_own(&own, &written).map_err(failed_here())
    }

    /// Files whose content differs. The others only get the time of the source.
    async fn differing(
        &self,
        compare: &[PathBuf],
        report: &mut SyncReport,
    ) -> Result<Vec<PathBuf>, FilesError> {
        if compare.is_empty() {
            return Ok(Vec::new());
        }
        let here = local_digests(self.local, compare).await;
        let there = self.files.digests_below(self.source, compare).await;
        let (Ok(here), Some(there)) = (here, there) else {
            return Ok(compare.to_vec());
        };
        let mut differing = Vec::new();
        for (path, (here, there)) in compare.iter().zip(here.into_iter().zip(there)) {
            if here != there {
                differing.push(path.clone());
            } else if let Some(facts) = self.wanted.file(path) {
                let set = crate::files::tree::local::open_below(self.local, path)
                    .and_then(|file| keep(&file, facts));
                set.map_err(FilesError::local(&self.local.join(path)))?;
                report.unchanged += 1;
            }
        }
        Ok(differing)
    }

    /// Deletes entries that are gone at the source.
    fn delete(&self, plan: &SyncPlan, root: &Dir, report: &mut SyncReport) {
        for path in &plan.delete {
            match root.remove_file(path) {
                Ok(()) => report.deleted.push(path.clone()),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => {
                    let error = FilesError::local(&self.local.join(path))(error);
                    report.failed.push((path.clone(), error));
                }
            }
        }
        for path in &plan.delete_directories {
            match root.remove_dir(path) {
                Ok(()) => report.deleted.push(path.clone()),
                // Something else is in it.
                Err(error) => tracing::debug!(%error, ?path, "a directory stays"),
            }
        }
    }

    /// Receives entries into the staging directory.
    async fn receive(
        &self,
        directories: &[PathBuf],
        receive: Vec<PathBuf>,
        staged: &Path,
        report: &mut SyncReport,
    ) -> Result<Received, FilesError> {
        let size_of = |path: &Path| self.wanted.file(path).map_or(0, |facts| facts.size);
        self.progress.expect(receive.iter().map(|path| size_of(path)).sum());
        // Entries that an earlier sync has left are not planned, and must not get to their places. Only parts of large files stay.
        match fs::remove_dir_all(staged) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(FilesError::local(staged)(error));
            }
            Ok(()) | Err(_) => {}
        }
        make_private(staged).map_err(FilesError::local(staged))?;
        make_private(&parts_of(staged)).map_err(FilesError::local(staged))?;
        let (large, small): (Vec<PathBuf>, Vec<PathBuf>) =
            receive.into_iter().partition(|path| size_of(path) >= LARGE);
        // An archive has files of any size, and the policy may limit that of one file.
        let is_limited = self.files.most_bytes().is_some();
        let mut one_by_one = large;
        let mut received = Received::default();
        let has_unpacked =
            !is_limited && self.unpack(directories.iter().chain(&small), staged).await?;
        if has_unpacked {
            let is_file = |path: &&PathBuf| self.wanted.file(path).is_some();
            let files: Vec<PathBuf> = small.iter().filter(is_file).cloned().collect();
            let changed = self.verify(files, staged, &mut received).await;
            one_by_one.extend(changed);
        } else {
            self.make_all(directories, staged).map_err(FilesError::local(staged))?;
            one_by_one
                .extend(small.iter().filter(|path| self.wanted.file(path).is_some()).cloned());
        }
        received.links =
            small.into_iter().filter(|path| self.wanted.file(path).is_none()).collect();
        if !has_unpacked {
            self.link_all(&received.links, staged, report);
        }
        self.get_all(one_by_one, staged, &mut received, report).await?;
        Ok(received)
    }

    /// Unpacks entries into the staging directory. Returns false if the host has no tar that takes a list.
    async fn unpack(
        &self,
        entries: impl Iterator<Item = &PathBuf>,
        staged: &Path,
    ) -> Result<bool, FilesError> {
        // `./`, because a name may begin with a dash.
        let names = entries.flat_map(|path| [b"./", path.as_os_str().as_bytes(), b"\0"].concat());
        let names: Vec<u8> = names.collect();
        if names.is_empty() {
            return Ok(true);
        }
        let (near, mut far) = tokio::io::duplex(PIPE_BYTES);
        let (into, progress) = (staged.to_owned(), Arc::clone(self.progress));
        let kept = KeptAttributes {
            umask: 0,
            times: true,
        };
        let unpacking = tokio::task::spawn_blocking(move || {
            let mut stream = SyncIoBridge::new(near);
            unpack(&mut stream, &into, kept, &progress)?;
            // Reads the padding behind the archive's end, which would block the host's tar.
            io::copy(&mut stream, &mut io::sink())?;
            Ok::<_, io::Error>(())
        });
        let script = format!(
            "case $(tar --version 2>/dev/null) in *GNU*) ;; *) exit {NO_TAR} ;; esac; {} cd -- \"$d\" && \
             exec tar --format=gnu -S --no-recursion --null -T - -cf -",
            directory_variable(self.source)
        );
        let ended = self.files.run_script(script, &*names, &mut far).await?;
        drop(far);
        let unpacked = unpacking.await.map_err(io::Error::other).and_then(|unpacked| unpacked);
        if !ended.has_begun || ended.status == Some(NO_TAR) {
            return Ok(false);
        }
        // Files that are gone meanwhile are missing, and found by their digests.
        if ended.status.is_some_and(|status| status <= 2) {
            unpacked.map_err(FilesError::local(staged))?;
        }
        Ok(true)
    }

    /// Compares the received files with those of the host. Returns those that differ or are missing, and removes them.
    async fn verify(
        &self,
        files: Vec<PathBuf>,
        staged: &Path,
        received: &mut Received,
    ) -> Vec<PathBuf> {
        let mut changed = Vec::new();
        let (whole, missing): (Vec<_>, Vec<_>) =
            files.into_iter().partition(|path| staged.join(path).symlink_metadata().is_ok());
        changed.extend(missing);
        let here = local_digests(staged, &whole).await.unwrap_or_default();
        let there = self.files.digests_below(self.source, &whole).await;
        for (index, path) in whole.into_iter().enumerate() {
            let Some(here) = here.get(index) else {
                changed.push(path);
                continue;
            };
            let is_equal = there.as_ref().is_none_or(|there| there.get(index) == Some(here));
            match self.wanted.file(&path) {
                Some(facts) if is_equal => {
                    let record = FileRecord {
                        facts: *facts,
                        sha256: here.bytes(),
                    };
                    received.records.push((path, record));
                }
                Some(_) | None => {
                    // What replaces it is written beside it first.
                    fs::remove_file(staged.join(&path)).ok();
                    changed.push(path);
                }
            }
        }
        changed
    }

    fn make_all(&self, directories: &[PathBuf], staged: &Path) -> io::Result<()> {
        directories.iter().try_for_each(|path| fs::create_dir_all(staged.join(path)))
    }

    fn link_all(&self, links: &[PathBuf], staged: &Path, report: &mut SyncReport) {
        for path in links {
            let Some(EntryKind::Link { target }) = self.wanted.entries.get(path) else {
                continue;
            };
            let local = staged.join(path);
            let parent = local.parent().unwrap_or(staged);
            let made = fs::create_dir_all(parent)
                .and_then(|()| std::os::unix::fs::symlink(target, &local));
            if let Err(error) = made {
                report.failed.push((path.clone(), FilesError::local(&local)(error)));
            }
        }
    }

    /// Receives files one by one, many at a time.
    async fn get_all(
        &self,
        paths: Vec<PathBuf>,
        staged: &Path,
        received: &mut Received,
        report: &mut SyncReport,
    ) -> Result<(), FilesError> {
        let gets = paths.into_iter().map(async |path| {
            let got = self.get_one(&path, staged).await;
            (path, got)
        });
        let mut gets = stream::iter(gets.collect::<Vec<_>>()).buffer_unordered(AT_A_TIME);
        while let Some((path, got)) = gets.next().await {
            match got {
                Ok(record) => received.records.push((path, record)),
                Err(error) if error.is_lost_connection() => return Err(error),
                Err(error) => report.failed.push((path, error)),
            }
        }
        Ok(())
    }

    async fn get_one(&self, below: &Path, staged: &Path) -> Result<FileRecord, FilesError> {
        let local = staged.join(below);
        let here = || FilesError::local(&local);
        let remote = self.source.join(below.as_os_str().as_bytes());
        fs::create_dir_all(local.parent().unwrap_or(staged)).map_err(here())?;
        // Beside the staging directory, so that the next sync continues a file that was cut.
        let part = parts_of(staged).join(Digest::of(below.as_os_str().as_bytes()).to_string());
        let options = GetOptions::default();
        let got = self.files.get(&remote, &part, options, self.progress).await?;
        fs::rename(&part, &local).map_err(here())?;
        let facts = self.wanted.file(below).copied();
        let facts = facts.ok_or_else(|| here()(io::ErrorKind::NotFound.into()))?;
        let file = fs::File::open(&local).map_err(here())?;
        keep(&file, &facts).map_err(here())?;
        Ok(FileRecord {
            facts,
            sha256: got.digest.bytes(),
        })
    }

    fn set_mode(&self, root: &Dir, path: &Path, report: &mut SyncReport) {
        let set = match self.wanted.entries.get(path) {
            Some(EntryKind::Directory { mode }) => set_mode_below(root, path, *mode),
            Some(EntryKind::File(facts)) => {
                report.unchanged += 1;
                crate::files::tree::local::open_below(self.local, path)
                    .and_then(|file| keep(&file, facts))
            }
            Some(EntryKind::Link { .. } | EntryKind::Other) | None => Ok(()),
        };
        if let Err(error) = set {
            let error = FilesError::local(&self.local.join(path))(error);
            report.failed.push((path.to_owned(), error));
        }
    }
}

/// The directory of large files that are not whole yet.
fn parts_of(staged: &Path) -> PathBuf {
    staged.with_extension("parts")
}

/// Gives a file the mode and the time of the source.
fn keep(file: &fs::File, facts: &FileFacts) -> io::Result<()> {
    file.set_permissions(PermissionsExt::from_mode(facts.mode))?;
    let seconds = u64::try_from(facts.modified).unwrap_or_default();
    let time = UNIX_EPOCH.checked_add(Duration::from_secs(seconds)).unwrap_or(UNIX_EPOCH);
    file.set_modified(time)
}

/// Adds an entry to a manifest. The digest of an unchanged file is kept.
fn note(
    path: &Path,
    entries: &std::collections::BTreeMap<PathBuf, EntryKind>,
    manifest: &mut Manifest,
) {
    match entries.get(path) {
        Some(EntryKind::Directory { mode }) => {
            manifest.directories.insert(path.to_owned(), *mode);
        }
        Some(EntryKind::Link { target }) => {
            manifest.links.insert(path.to_owned(), target.clone());
        }
        Some(EntryKind::File(facts)) => {
            let sha256 = manifest.digest(path, facts).unwrap_or_default();
            let record = FileRecord {
                facts: *facts,
                sha256,
            };
            manifest.files.insert(path.to_owned(), record);
        }
        Some(EntryKind::Other) | None => {}
    }
}

fn make_private(directory: &Path) -> io::Result<()> {
    if is_real_directory(directory) {
        return fs::set_permissions(directory, PermissionsExt::from_mode(OWNER_RWX));
    }
    fs::DirBuilder::new().mode(OWNER_RWX).create(directory)
}

/// Writes the manifest, and the rules that keep git from listing the directory of syncs.
fn write_own(own: &Path, manifest: &Manifest) -> io::Result<()> {
    let own = Dir::open_ambient_dir(own, ambient_authority())?;
    for (name, content) in [
        (".gitignore", IGNORED.to_vec()),
        (MANIFEST, manifest.encode()),
    ] {
        let part = format!("{name}.part");
        let mut file = own.create(&part)?;
        file.write_all(&content)?;
        own.rename(Path::new(OsStr::new(&part)), &own, name)?;
    }
    Ok(())
}
