//! Files that a job has written and that are copied back when it has ended.
//!
//! A process that serves does so by itself, and keeps the files beside the job's output. Others do when they are asked.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use cap_std::ambient_authority;
use cap_std::fs::Dir;
use futures_util::FutureExt;
use serde::{Deserialize, Serialize};
use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::sleep;

use super::error::Error;
use super::files::{HostPath, is_broken};
use super::job::Job;
use super::jobs::Jobs;
use super::jobs_to_fetch::{JobToFetch, MOST_WAITING};
use crate::admission::Rights;
use crate::files::{FetchReport, FetchedFile, FilesError, RemotePath, TransferProgress};
use sshjobs_job::{JobFacts, JobId, Phase, Scope};
use sshjobs_output::{Timestamp, timestamp_of};
use sshjobs_policy::{Role, Verb};
use sshjobs_store::{Filter, StoreError};

/// The files of a job that were copied back.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobResults {
    /// The directory on the machine of the process that has copied them.
    pub directory: PathBuf,
    /// The copied files, by path.
    pub files: Vec<FetchedFile>,
    /// What was not copied and why, in words.
    pub failed: Vec<String>,
    /// When they were copied.
    pub fetched_at: Timestamp,
}

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
/// Name of the list of a job's files, and of the directory with them.
const LIST: &str = "list.json";
const FILES: &str = "files";

impl Jobs {
    /// Copies the files that a job was asked to give back to a directory of this machine, by default to the one that is kept
    /// with the job. The files of a fleet's members go to a directory for each host.
    ///
    /// Dropping the future leaves whole files.
    ///
    /// # Errors
    /// [`Error::FilesNotReady`]; [`Error::NothingToFetch`]; [`Error::Refused`] if the caller may not read files there;
    /// [`Error::Files`] if the host can't be asked. Files that fail are in the results.
    pub async fn fetch(
        &self,
        id: &str,
        into: Option<&Path>,
        progress: &TransferProgress,
    ) -> Result<JobResults, Error> {
        let job = self.job_for(Verb::Get, id).await?;
        let facts = job.job.spec().facts.clone();
        if facts.fetch.is_empty() {
            return Err(Error::NothingToFetch(job.job.id().clone()));
        }
        if !job.is_over() {
            return Err(Error::FilesNotReady(job.job.id().clone()));
        }
        let directory = match into {
            Some(into) => into.to_owned(),
            None => self.kept_results(job.job.id())?.join(FILES),
        };
        let fetched = if job.is_fleet() {
            self.fetch_members(&job, &facts, &directory, progress).await
        } else {
            self.fetch_from(&facts.host, &facts, &directory, progress).await?
        };
        let results = JobResults {
            directory,
            files: fetched.files,
            failed: fetched.failed,
            fetched_at: timestamp_of(SystemTime::now()),
        };
        self.record(job.job.id(), &results).await;
        Ok(results)
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
            let name = host.replace('/', "_");
            let into = directory.join(if name == ".." { "_" } else { &name });
            match self.fetch_from(host, facts, &into, progress).await {
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
        let jobs = self.with_context(|context| context.becomes.clone_from(&facts.becomes));
        jobs.repeat(Verb::Get, HostPath { host, path }, |files| {
            async move { files.fetch(path, &facts.fetch, into, progress).await }.boxed()
        })
        .await
    }

    /// The files of a job that were copied back last. `None` if none were, or if nothing is stored.
    pub async fn results_of(&self, id: &str) -> Option<JobResults> {
        let list = self.kept_results(&JobId::from(id)).ok()?.join(LIST);
        let text = tokio::fs::read(list).await.ok()?;
        serde_json::from_slice(&text).ok()
    }

    /// Whether this process copies files back by itself when a job has ended.
    pub fn fetches_at_end(&self) -> bool {
        self.door.inside.to_fetch.is_watched()
    }

    /// Opens a file that was copied back and is kept with its job, by its path in [`JobResults`]. Also returns its length in
    /// bytes.
    ///
    /// # Errors
    /// As [`job_for`](Self::job_for); [`Error::Files`] if there is no such file.
    pub async fn result_file(&self, id: &str, path: &str) -> Result<(fs::File, u64), Error> {
        let job = self.job_for(Verb::Get, id).await?;
        let results = self.results_of(id).await.unwrap_or_default();
        if !results.files.iter().any(|file| file.path == path) {
            let path = RemotePath::new(path.to_owned()).map_err(FilesError::from)?;
            return Err(FilesError::NoMatch(path).into());
        }
        let directory = self.kept_results(job.job.id())?.join(FILES);
        let below = PathBuf::from(path);
        let failed = FilesError::local(Path::new(path));
        let opened = spawn_blocking(move || {
            // No link leads out of it.
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

    /// The directory with a job's list of files, and those files.
    fn kept_results(&self, id: &JobId) -> Result<PathBuf, Error> {
        let store = match &self.door.inside.store {
            Some(Ok(store)) => store.results(id),
            Some(Err(error)) => return Err(error.clone().into()),
            None => None,
        };
        store.ok_or_else(|| {
            StoreError::Records("files of jobs are kept only in a state directory".to_owned())
                .into()
        })
    }

    /// Notes which files were copied back. A failure is logged: the files are there.
    async fn record(&self, id: &JobId, results: &JobResults) {
        let Ok(directory) = self.kept_results(id) else { return };
        let text = serde_json::to_vec(results).expect("results are plain data");
        let written = spawn_blocking(move || {
            // Not recursive: a job that was deleted meanwhile, with its folder, stays deleted.
            match fs::create_dir(&directory) {
                Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => Err(error)?,
                Ok(()) | Err(_) => {}
            }
            let new = directory.join(format!("{LIST}.{:08x}", rand::random::<u32>()));
            fs::write(&new, &text)?;
            fs::rename(&new, directory.join(LIST))
        });
        if let Err(error) = written.await.expect("writing a file does not panic") {
            tracing::warn!(job = %id, %error, "the list of its files is not kept");
        }
    }

    /// Copies back the files of jobs as they end, also of those that have ended while no process did, until it is dropped.
    /// Never returns.
    pub async fn fetch_at_end(&self) -> Infallible {
        let mut ended = self.door.inside.to_fetch.watch().await;
        let mut waiting = self.ended_without_results().await;
        let mut known: BTreeSet<JobId> = waiting.iter().map(|job| job.id.clone()).collect();
        let mut fetches = JoinSet::new();
        loop {
            while fetches.len() < AT_A_TIME
                && let Some(job) = waiting.pop()
            {
                fetches.spawn(self.clone().fetch_ended(job));
            }
            tokio::select! {
                Some(job) = ended.recv() => {
                    if known.insert(job.id.clone()) {
                        waiting.insert(0, job);
                    }
                }
                Some(_) = fetches.join_next() => {}
            }
        }
    }

    /// Jobs that have ended not long ago, whose files were not copied back.
    async fn ended_without_results(&self) -> Vec<JobToFetch> {
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
        let oldest = SystemTime::now() - RECENT;
        let mut left = Vec::new();
        for job in jobs {
            let is_over = matches!(job.status.phase, Phase::Ended(_));
            let is_recent = job.status.ended_at.is_some_and(|at| at >= oldest);
            let asks = !job.facts.fetch.is_empty() && is_over && is_recent;
            if asks && self.results_of(job.id.as_str()).await.is_none() {
                left.push(JobToFetch {
                    id: job.id,
                    caller: job.caller,
                });
            }
        }
        left
    }

    /// Copies the files of an ended job, with pauses while its host can't be reached.
    async fn fetch_ended(self, job: JobToFetch) {
        // The hosts of the caller's token were checked at the start; the policy is asked again.
        let jobs = self.of(job.caller, Rights::everywhere(Role::Run));
        let id = job.id.as_str();
        let progress = TransferProgress::default();
        let mut pauses = PAUSES.into_iter();
        let error = loop {
            match jobs.fetch(id, None, &progress).await {
                Ok(results) => {
                    let (files, failed) = (results.files.len(), results.failed.len());
                    tracing::info!(job = id, files, failed, "its files were copied back");
                    return;
                }
                Err(Error::UnknownJob(_) | Error::Expired(_)) => return,
                Err(error) => match pauses.next() {
                    Some(pause) if is_broken(&error) => sleep(pause).await,
                    Some(_) | None => break error,
                },
            }
        };
        tracing::warn!(job = id, %error, "its files can't be copied back");
        let results = JobResults {
            directory: PathBuf::new(),
            files: Vec::new(),
            failed: vec![error.to_string()],
            fetched_at: timestamp_of(SystemTime::now()),
        };
        jobs.record(&job.id, &results).await;
    }
}
