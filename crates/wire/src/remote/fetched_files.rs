//! Files of a job that are copied to this machine: from its host, or from the server that keeps them.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use sshjobs_core::jobs::{Hasher, TransferProgress};

use super::api::Api;
use super::client::ServerClient;
use crate::{Code, Error, FetchReply, FetchRequest, FetchedEntry, Repeat, ResultsEntry};

/// Characters of a path that stand for themselves in a URL.
const IN_A_PATH: &AsciiSet = &NON_ALPHANUMERIC.remove(b'/').remove(b'.').remove(b'-').remove(b'_');

impl Api {
    /// Copies the files that a job was asked to give back to a directory of this machine, each whole.
    ///
    /// Cancelling leaves whole files.
    pub async fn fetch_into(
        &self,
        job_id: &str,
        directory: &Path,
        progress: &TransferProgress,
    ) -> Result<FetchReply, Error> {
        let job_id = job_id.to_owned();
        match self {
            Self::Here(service) => {
                let fetched = service.library().fetch(&job_id, Some(directory), progress).await?;
                let results = ResultsEntry::of(fetched, usize::MAX);
                Ok(FetchReply { job_id, results })
            }
            Self::There(client) => {
                let request = FetchRequest {
                    job_id: job_id.clone(),
                };
                let reply: FetchReply = client.call("fetch", &request, Repeat::Never).await?;
                let mut results = ResultsEntry {
                    fetched_to: Some(directory.display().to_string()),
                    fetch_failed: reply.results.fetch_failed,
                    ..ResultsEntry::default()
                };
                let mut fetched = Vec::new();
                for file in reply.results.fetched.unwrap_or_default() {
                    match download(client, &job_id, &file, directory, progress).await {
                        Ok(()) => fetched.push(file),
                        Err(error) if error.code == Code::Unreachable => return Err(error),
                        Err(error) => results.fetch_failed.push(format!("{}: {error}", file.path)),
                    }
                }
                results.fetched = Some(fetched);
                Ok(FetchReply { job_id, results })
            }
        }
    }
}

/// A file that is being received. It is removed if it is dropped.
struct Part {
    path: PathBuf,
    file: File,
    hasher: Hasher,
    written: io::Result<()>,
}

impl Part {
    fn add(&mut self, bytes: &[u8]) {
        self.hasher.update(bytes);
        self.written = self.file.write_all(bytes);
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        // It has been renamed, unless something has failed.
        fs::remove_file(&self.path).ok();
    }
}

/// Receives one file, and puts it in its place when it is whole.
async fn download(
    client: &ServerClient,
    job_id: &str,
    file: &FetchedEntry,
    directory: &Path,
    progress: &TransferProgress,
) -> Result<(), Error> {
    let below = Path::new(&file.path);
    // The server chose the names: they must not lead out of the directory.
    let is_below = below.components().all(|part| matches!(part, std::path::Component::Normal(_)));
    if !is_below {
        return Err(Error::new(
            Code::Io,
            "the server's name for it leads out of the directory",
            "check --server",
        ));
    }
    let target = directory.join(below);
    let failed = |error: io::Error| {
        Error::new(
            Code::Io,
            format!("{}: {error}", target.display()),
            "check the directory, and fetch again",
        )
    };
    let mut part = open_part(&target).map_err(failed)?;
    let path = utf8_percent_encode(&file.path, IN_A_PATH);
    let taking = |bytes: bytes::Bytes| {
        progress.add(bytes.len() as u64);
        part.add(&bytes);
        part.written.is_ok()
    };
    client.download(&format!("jobs/{job_id}/fetched/{path}"), taking).await?;
    std::mem::replace(&mut part.written, Ok(())).map_err(failed)?;
    let digest = std::mem::take(&mut part.hasher).digest().to_string();
    if digest != file.sha256 {
        return Err(Error::new(
            Code::Io,
            format!("its SHA-256 is {digest}, not {}", file.sha256),
            "it may have changed; fetch again",
        ));
    }
    part.file
        .sync_data()
        .and_then(|()| fs::rename(&part.path, &target))
        .map_err(failed)?;
    progress.complete();
    Ok(())
}

fn open_part(target: &Path) -> io::Result<Part> {
    let parent = target.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(parent)?;
    let name = target.file_name().unwrap_or_default().to_string_lossy();
    let name: String = name.chars().take(60).collect();
    let path = parent.join(format!(
        ".{name}.sshjobs-{:08x}.part",
        rand::random::<u32>()
    ));
    Ok(Part {
        file: File::create_new(&path)?,
        path,
        hasher: Hasher::default(),
        written: Ok(()),
    })
}
