//! The lock beside a file that is changed under a condition, and files that are removed when their
//! writer is cancelled.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::time::{Instant, sleep};

use super::error::FilesError;
use super::host_files::HostFiles;
use super::path::RemotePath;
use super::sftp::{Attributes, Open, SftpError, SftpRequest, SftpSession, SftpStatus, Times};

/// How long locks of other processes are waited for.
const LOCK_WAIT: Duration = Duration::from_secs(45);
/// Time after which a lock that does not change is abandoned.
const LOCK_LIFE: Duration = Duration::from_secs(30);
/// Interval at which the holder of a lock changes its time. The check of a large file takes longer than
/// [`LOCK_LIFE`].
const REFRESH_INTERVAL: Duration = Duration::from_secs(10);
/// Interval between attempts to take the lock.
const LOCK_INTERVAL: Duration = Duration::from_millis(50);
/// Permissions of a lock.
const PRIVATE: u32 = 0o600;

/// A lock file beside a file that is changed under a condition. Conditional writes of sshjobs respect
/// it, so that of two writers with the same expectation one is refused.
pub(super) struct Lock<'a> {
    files: &'a HostFiles,
    path: RemotePath,
    /// Removes it if the write is cancelled.
    removal: Option<Removal>,
}

impl<'a> Lock<'a> {
    /// Takes the lock of a file. Waits for other processes, and removes a lock that one has left.
    pub(super) async fn take(
        files: &'a HostFiles,
        target: &RemotePath,
    ) -> Result<Self, FilesError> {
        let path = target.beside(".", ".sshjobs-lock");
        let started = Instant::now();
        let mut began = started;
        let mut seen: Option<Attributes> = None;
        loop {
            let made = files.open_as(&path, Open::CreateNew, Attributes::of_mode(PRIVATE)).await;
            match made {
                Ok(_) => {
                    let removal = Some(Removal::new(files, &path));
                    return Ok(Self {
                        files,
                        path,
                        removal,
                    });
                }
                Err(error @ SftpError::Refused { .. }) => match files.lstat(&path).await {
                    // The lock of another process, for the first time.
                    Ok(found) if seen.as_ref() != Some(&found) => {
                        seen = Some(found);
                        began = Instant::now();
                    }
                    // It has been there all the time, and a lock is held for a moment only: its
                    // process has died, or has lost its connection.
                    Ok(_) if began.elapsed() >= LOCK_LIFE => {
                        tracing::warn!(lock = %path, "an abandoned lock is removed");
                        files.remove(&path).await.ok();
                    }
                    Ok(_) => {}
                    // Released meanwhile. If not, it was refused for another reason.
                    Err(gone) if gone.is_no_such_file() && error.is(SftpStatus::Failure) => {}
                    Err(_) => return Err(FilesError::on("lock", target)(error)),
                },
                Err(error) => return Err(FilesError::on("lock", target)(error)),
            }
            if started.elapsed() >= LOCK_WAIT {
                return Err(FilesError::Locked {
                    path: target.clone(),
                    lock: path,
                    waited: LOCK_WAIT,
                });
            }
            sleep(LOCK_INTERVAL).await;
        }
    }

    /// Performs work, and refreshes the lock's time meanwhile, so that other processes don't take the lock
    /// for abandoned.
    pub(super) async fn hold<T>(&self, work: impl Future<Output = T>) -> T {
        tokio::select! {
            done = work => done,
            never = self.refresh() => match never {},
        }
    }

    async fn refresh(&self) -> std::convert::Infallible {
        loop {
            sleep(REFRESH_INTERVAL).await;
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            let now = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
            let times = Attributes {
                times: Some(Times::nearest(now, now)),
                ..Attributes::default()
            };
            let request = SftpRequest::Setstat(self.path.bytes(), times);
            if let Err(error) = self.files.session.status(request).await {
                tracing::debug!(%error, lock = %self.path, "a lock could not be kept in use");
            }
        }
    }

    pub(super) async fn release(mut self) {
        // Not twice: the second removal could hit the lock of another process.
        if let Some(removal) = self.removal.take() {
            removal.cancel();
        }
        if let Err(error) = self.files.remove(&self.path).await {
            tracing::warn!(%error, lock = %self.path, "a lock file could not be removed");
        }
    }
}

/// Removes a file when it is dropped, unless it was cancelled.
pub(super) struct Removal {
    session: Arc<SftpSession>,
    path: RemotePath,
    is_cancelled: bool,
}

impl Removal {
    pub(super) fn new(files: &HostFiles, path: &RemotePath) -> Self {
        Self {
            session: Arc::clone(&files.session),
            path: path.clone(),
            is_cancelled: false,
        }
    }

    pub(super) fn cancel(mut self) {
        self.is_cancelled = true;
    }
}

impl Drop for Removal {
    fn drop(&mut self) {
        if !self.is_cancelled {
            self.session.send_only(&SftpRequest::Remove(self.path.bytes()));
        }
    }
}
