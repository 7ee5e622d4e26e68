//! Files that a job has written and that are copied back when it has ended.
//!
//! A server copies them when the job ends, and keeps them beside its output. Other processes copy them on request.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use cap_std::ambient_authority;
use cap_std::fs::Dir;
use futures_util::FutureExt;
use tokio::sync::Semaphore;
use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::sleep;

use super::error::Error;
use super::files::{HostPath, is_broken};
use super::job::Job;
use super::job_results::JobResults;
use super::jobs::Jobs;
use super::jobs_to_fetch::{JobToFetch, MOST_WAITING, has_begun};
use crate::admission::Rights;
use crate::files::{
    FetchReport, FetchedFile, FilesError, FilesToFetch, RemotePath, TransferProgress,
};
use crate::runner::Summary;
use sshjobs_job::{JobFacts, JobId, Phase, Scope};
use sshjobs_output::timestamp_of;
use sshjobs_policy::{Role, Verb};
use sshjobs_store::{Filter, Store, StoreError};

/// Jobs whose files are copied at the same time.
const AT_A_TIME: usize = 4;
/// Pauses before further attempts, if the host can't be reached.
const PAUSES: [Duration; 4] = [
    Duration::from_secs(5),
    Duration::from_secs(30),
    Duration::from_secs(120),
    Duration::from_secs(600),
];
/// Age of jobs that a process still looks at when it starts.
const RECENT: Duration = Duration::from_secs(24 * 3600);
/// Time limit for the end of a job to be known everywhere.
const END_SEEN: Duration = Duration::from_secs(60);
/// Names of the directory with kept files, of the list of these, and of the list of files in another directory.
const FILES: &str = "files";
const LIST: &str = "list.json";
const LIST_ELSEWHERE: &str = "elsewhere.json";

impl Jobs {
    /// Copies the files that a job was asked to give back to a directory of this machine. The files of a fleet's members go to
    /// a directory for each host.
    ///
    /// Cancel safe: files that were copied stay, each complete.
    ///
    /// # Errors
    /// [`Error::FilesNotReady`]; [`Error::NothingToFetch`]; [`Error::Refused`] if the caller may not read files there;
    /// [`Error::Files`] if the host can't be asked. Files that fail are in the results.
    pub async fn fetch(
        &self,
        id: &str,
        directory: &Path,
        progress: &TransferProgress,
    ) -> Result<JobResults, Error> {
        let job = self.job_with_files(id).await?;
        let directory = std::path::absolute(directory).map_err(FilesError::local(directory))?;
        let results = self.copy_files(&job, directory, progress).await?;
        self.record(job.job.id(), LIST_ELSEWHERE, &results).await;
        Ok(results)
    }

    /// Copies the files that a job was asked to give back to the directory that is kept with the job. If that is in progress
    /// already, waits for it. Cancelling ends the wait only.
    ///
    /// # Errors
    /// As [`fetch`](Self::fetch); [`Error::Store`] if nothing can be kept.
    pub async fn fetch_kept(&self, id: &str) -> Result<JobResults, Error> {
        let job = self.job_with_files(id).await?;
        let id = job.job.id().clone();
        let directory = self.kept_results(&id)?.join(FILES);
        let jobs = self.clone();
        let copying = async move {
            let results = jobs.copy_files(&job, directory, &TransferProgress::default()).await?;
            jobs.record(job.job.id(), LIST, &results).await;
            Ok(results)
        };
        self.door.inside.to_fetch.join(id, copying.boxed()).await
    }

    /// A job whose files can be copied.
    async fn job_with_files(&self, id: &str) -> Result<Job, Error> {
        let job = self.job_for(Verb::Get, id).await?;
        let status = job.status();
        let has_none = job.job.spec().fetch.is_empty() || !has_begun(&status.phase);
        if has_none {
            return Err(Error::NothingToFetch(job.job.id().clone()));
        }
        if !job.is_over() {
            return Err(Error::FilesNotReady(job.job.id().clone()));
        }
        Ok(job)
    }

    async fn copy_files(
        &self,
        job: &Job,
        directory: PathBuf,
        progress: &TransferProgress,
    ) -> Result<JobResults, Error> {
        let facts = job.job.spec().facts.clone();
        let fetched = if job.is_fleet() {
            self.fetch_members(job, &facts, &directory, progress).await
        } else {
            self.fetch_from(&facts.host, &facts, &directory, progress).await?
        };
        Ok(JobResults {
            directory,
            files: fetched.files,
            failed: fetched.failed,
            fetched_at: timestamp_of(SystemTime::now()),
        })
    }

    async fn fetch_members(
        &self,
        fleet: &Job,
        facts: &JobFacts,
        directory: &Path,
        progress: &TransferProgress,
    ) -> FetchReport {
        let mut all = FetchReport::default();
        let members = fleet.members();
        for member in members.iter().filter(|member| member.job.is_some()) {
            let host = &member.name;
            // A host's name is a name of a directory here: it must not lead elsewhere.
            let name = match host.as_str() {
                "." | ".." => "_".to_owned(),
                host => host.replace('/', "_"),
            };
            match self.fetch_from(host, facts, &directory.join(&name), progress).await {
                Ok(report) => {
                    all.files.extend(report.files.into_iter().map(|file| FetchedFile {
                        path: format!("{name}/{}", file.path),
                        ..file
                    }));
                    all.failed.extend(report.failed.iter().map(|why| format!("{host}: {why}")));
                }
                Err(error) => all.failed.push(format!("{host}: {error}")),
            }
        }
        all
    }

    async fn fetch_from(
        &self,
        host: &str,
        facts: &JobFacts,
        into: &Path,
        progress: &TransferProgress,
    ) -> Result<FetchReport, Error> {
        let cwd = facts.cwd.clone().unwrap_or_else(|| ".".to_owned());
        let path = &RemotePath::new(cwd).map_err(FilesError::from)?;
        let tree = facts.tree.as_ref().map(|tree| RemotePath::new(tree.path.clone()));
        let tree = tree.transpose().map_err(FilesError::from)?;
        let wanted = FilesToFetch {
            directory: path,
            patterns: &facts.fetch,
            tree: tree.as_ref(),
        };
        let jobs = self.with_context(|context| context.becomes.clone_from(&facts.becomes));
        jobs.repeat(Verb::Get, HostPath { host, path }, |files| {
            async move { files.fetch(wanted, into, progress).await }.boxed()
        })
        .await
    }

    /// The files of a job that were copied back: those that are kept or, if there are none, those that were copied elsewhere last.
    pub async fn results_of(&self, id: &str) -> Option<JobResults> {
        match self.listed(id, LIST).await {
            Some(kept) => Some(kept),
            None => self.listed(id, LIST_ELSEWHERE).await,
        }
    }

    async fn listed(&self, id: &str, list: &str) -> Option<JobResults> {
        let list = self.kept_results(&JobId::from(id)).ok()?.join(list);
        let text = tokio::fs::read(list).await.ok()?;
        serde_json::from_slice(&text).ok()
    }

    /// Whether this process copies the files of a job back by itself when the job has ended.
    pub fn fetches_at_end(&self, id: &str) -> bool {
        self.door.inside.to_fetch.is_watched() && self.kept_results(&JobId::from(id)).is_ok()
    }

    /// Opens a file that was copied back and is kept with its job, by its path in [`JobResults`]. Also returns its length in
    /// bytes.
    ///
    /// # Errors
    /// As [`job_for`](Self::job_for); [`Error::Files`] if there is no such file.
    pub async fn result_file(&self, id: &str, path: &str) -> Result<(fs::File, u64), Error> {
        let job = self.job_for(Verb::Get, id).await?;
        let results = self.listed(id, LIST).await.unwrap_or_default();
        if !results.files.iter().any(|file| file.path == path) {
            let path = RemotePath::new(path.to_owned()).map_err(FilesError::from)?;
            return Err(FilesError::NoMatch(path).into());
        }
        let directory = self.kept_results(job.job.id())?.join(FILES);
        let below = PathBuf::from(path);
        let failed = FilesError::local(Path::new(path));
        let opened = spawn_blocking(move || {
            // `Dir` follows no link out of the directory.
            let directory = Dir::open_ambient_dir(directory, ambient_authority())?;
            let file = directory.open(below)?.into_std();
            let found = file.metadata()?;
            if !found.is_file() {
                return Err(std::io::Error::other("it is not a file"));
            }
            Ok((file, found.len()))
        });
        let opened = opened.await.expect("opening a file does not panic");
        Ok(opened.map_err(failed)?)
    }

    /// The directory with a job's lists of files, and those that are kept.
    fn kept_results(&self, id: &JobId) -> Result<PathBuf, Error> {
        let directory = match &self.door.inside.store {
            Some(Ok(store)) => store.results(id),
            Some(Err(error)) => return Err(error.clone().into()),
            None => None,
        };
        directory.ok_or_else(|| {
            StoreError::Records("files of jobs are kept only in a state directory".to_owned())
                .into()
        })
    }

    /// Notes which files were copied back. A failure is logged: the files are there.
    async fn record(&self, id: &JobId, list: &'static str, results: &JobResults) {
        let Some(Ok(store)) = self.door.inside.store.clone() else { return };
        let Some(directory) = store.results(id) else { return };
        let text = serde_json::to_vec(results).expect("results are plain data");
        let job = id.clone();
        let writing =
            spawn_blocking(move || write_list(&*store, &job, &directory.join(list), &text));
        if let Err(error) = writing.await.expect("writing a file does not panic") {
            tracing::warn!(job = %id, %error, "the list of its files is not kept");
        }
    }

    /// Copies back the files of jobs as they end. Also copies those of jobs that ended while no server ran. Runs until it is
    /// dropped.
    pub async fn fetch_at_end(&self) -> Infallible {
        let mut ended = self.door.inside.to_fetch.watch().await;
        let slots = Arc::new(Semaphore::new(AT_A_TIME));
        let mut known: BTreeSet<JobId> = BTreeSet::new();
        let mut fetches = JoinSet::new();
        let fetch = |job: JobToFetch, fetches: &mut JoinSet<JobId>, known: &mut BTreeSet<JobId>| {
            if known.len() < MOST_WAITING && known.insert(job.id.clone()) {
                fetches.spawn(self.clone().fetch_ended(job, Arc::clone(&slots)));
            }
        };
        for summary in self.recent_without_results(RECENT).await {
            let job = JobToFetch {
                id: summary.id,
                caller: summary.caller,
            };
            fetch(job, &mut fetches, &mut known);
        }
        loop {
            tokio::select! {
                Some(job) = ended.recv() => fetch(job, &mut fetches, &mut known),
                Some(fetched) = fetches.join_next() => match fetched {
                    Ok(id) => drop(known.remove(&id)),
                    Err(error) => tracing::error!(%error, "copying files back has panicked"),
                },
            }
        }
    }

    /// Jobs that have ended not longer ago, and whose files were not copied back.
    pub(super) async fn recent_without_results(&self, age: Duration) -> Vec<Summary> {
        let filter = Filter {
            limit: MOST_WAITING,
            ..Filter::default()
        };
        let listed = self.door.runner().list(&Scope::All, filter, None).await;
        let (jobs, _) = match listed {
            Ok(listed) => listed,
            Err(error) => {
                tracing::warn!(%error, "jobs whose files are to be copied back can't be listed");
                return Vec::new();
            }
        };
        let oldest = SystemTime::now() - age;
        let mut left = Vec::new();
        for job in jobs {
            let has_ended =
                matches!(job.status.phase, Phase::Ended(_)) && has_begun(&job.status.phase);
            let is_recent = job.status.ended_at.is_some_and(|at| at >= oldest);
            let gives_files = !job.facts.fetch.is_empty() && has_ended && is_recent;
            if gives_files && self.results_of(job.id.as_str()).await.is_none() {
                left.push(job);
            }
        }
        left
    }

    /// Copies the files of an ended job, with pauses while its host can't be reached. Returns its id.
    async fn fetch_ended(self, job: JobToFetch, slots: Arc<Semaphore>) -> JobId {
        // The hosts of the caller's token were checked at the start; the policy is asked again.
        let jobs = self.of(job.caller, Rights::everywhere(Role::Run));
        let id = job.id.as_str();
        let mut pauses = PAUSES.into_iter();
        let error = loop {
            let slot = slots.acquire().await.expect("the semaphore is never closed");
            // The end may not be recorded yet.
            if let Ok(ended) = jobs.job_for(Verb::Get, id).await {
                ended.wait_within(END_SEEN).await;
            }
            match jobs.fetch_kept(id).await {
                Ok(results) => {
                    let (files, failed) = (results.files.len(), results.failed.len());
                    tracing::info!(job = id, files, failed, "its files were copied back");
                    return job.id;
                }
                Err(Error::UnknownJob(_) | Error::Expired(_)) => return job.id,
                Err(error) => match pauses.next() {
                    Some(pause) if is_broken(&error) => {
                        drop(slot);
                        sleep(pause).await;
                    }
                    Some(_) | None => break error,
                },
            }
        };
        tracing::warn!(job = id, %error, "its files can't be copied back");
        let results = JobResults {
            failed: vec![error.to_string()],
            fetched_at: timestamp_of(SystemTime::now()),
            ..JobResults::default()
        };
        jobs.record(&job.id, LIST, &results).await;
        job.id
    }
}

/// Writes a list at once, unless the job was deleted meanwhile.
fn write_list(
    store: &dyn Store,
    job: &JobId,
    list: &Path,
    text: &[u8],
) -> Result<(), std::io::Error> {
    let directory = list.parent().unwrap_or(list);
    // Not recursive: must not make the folder of a deleted job again.
    if let Err(error) = fs::create_dir(directory)
        && error.kind() != std::io::ErrorKind::AlreadyExists
    {
        return Err(error);
    }
    let new = list.with_extension(format!("{:08x}", rand::random::<u32>()));
    fs::write(&new, text)?;
    fs::rename(&new, list)?;
    // A fetch that was in progress when the job was deleted has made its directory again.
    if matches!(store.get(job), Ok(None)) {
        fs::remove_dir_all(directory)?;
    }
    Ok(())
}
