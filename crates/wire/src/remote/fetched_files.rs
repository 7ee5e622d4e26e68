//! Files of a job that are copied to this machine: from its host, or from the server that keeps them.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use sshjobs_core::jobs::{FetchPattern, Hasher, TransferProgress};

use super::api::Api;
use super::client::ServerClient;
use crate::{Code, Error, FetchReply, FetchRequest, FetchedEntry, Repeat, ResultsEntry};

/// Characters of a path that stand for themselves in a URL.
const IN_A_PATH: &AsciiSet = &NON_ALPHANUMERIC.remove(b'/').remove(b'.').remove(b'-').remove(b'_');

/// A job whose files are copied to this machine.
#[derive(Clone, Copy, Debug)]
pub struct FilesOfJob<'a> {
    /// The job.
    pub job_id: &'a str,
    /// The patterns that it was asked for: a server may send files that they cover, and no others.
    pub patterns: &'a [String],
    /// Whether it is a fleet, whose files are in a directory for each host.
    pub is_fleet: bool,
}

impl Api {
    /// Copies the files that a job was asked to give back to a directory of this machine, each whole.
    ///
    /// Cancel safe: files that were copied stay, each complete.
    pub async fn fetch_into(
        &self,
        files: FilesOfJob<'_>,
        directory: &Path,
        progress: &TransferProgress,
    ) -> Result<FetchReply, Error> {
        let job_id = files.job_id.to_owned();
        let results = match self {
            Self::Here(service) => {
                let fetched = service.library().fetch(&job_id, directory, progress).await?;
                ResultsEntry::of(fetched, usize::MAX)
            }
            Self::There(client) => through_server(client, files, directory, progress).await?,
        };
        Ok(FetchReply {
            job_id,
            fetching: false,
            results,
        })
    }
}

async fn through_server(
    client: &ServerClient,
    files: FilesOfJob<'_>,
    directory: &Path,
    progress: &TransferProgress,
) -> Result<ResultsEntry, Error> {
    let request = FetchRequest {
        job_id: files.job_id.to_owned(),
    };
    // One call waits for a while only.
    let kept = loop {
        let reply: FetchReply = client.call("fetch", &request, Repeat::Safe).await?;
        if !reply.fetching {
            break reply.results;
        }
    };
    let mut results = ResultsEntry {
        fetched_to: Some(directory.display().to_string()),
        fetch_failed: kept.fetch_failed,
        ..ResultsEntry::default()
    };
    let mut fetched = Vec::new();
    for file in kept.fetched.unwrap_or_default() {
        let received = match files.names_of(&file.path) {
            Some(below) => {
                download(
                    client,
                    files.job_id,
                    &file,
                    &directory.join(below),
                    progress,
                )
                .await
            }
            None => Err(not_asked_for()),
        };
        match received {
            Ok(()) => fetched.push(file),
            Err(error) if error.code == Code::Unreachable => return Err(error),
            Err(error) => results.fetch_failed.push(format!("{}: {error}", file.path)),
        }
    }
    results.fetched = Some(fetched);
    Ok(results)
}

impl FilesOfJob<'_> {
    /// The place of a file that a server names, below the directory. `None` if nobody has asked for it.
    fn names_of(self, path: &str) -> Option<PathBuf> {
        let names: Vec<&str> = path.split('/').collect();
        let is_plain = |name: &&str| !matches!(*name, "" | "." | "..");
        let on_host = if self.is_fleet {
            names.get(1..)?
        } else {
            &names
        };
        let mut patterns =
            self.patterns.iter().filter_map(|text| text.parse::<FetchPattern>().ok());
        let is_asked_for = patterns.any(|pattern| pattern.covers(on_host));
        (is_asked_for && !on_host.is_empty() && names.iter().all(is_plain))
            .then(|| names.iter().collect())
    }
}

fn not_asked_for() -> Error {
    Error::new(
        Code::Io,
        "the server names a file that was not asked for",
        "check --server",
    )
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
    target: &Path,
    progress: &TransferProgress,
) -> Result<(), Error> {
    let failed = |error: io::Error| {
        Error::new(
            Code::Io,
            format!("{}: {error}", target.display()),
            "check the directory, and fetch again",
        )
    };
    let mut part = open_part(target).map_err(failed)?;
    let path = utf8_percent_encode(&file.path, IN_A_PATH);
    let mut left = file.bytes;
    let taking = |bytes: bytes::Bytes| {
        let length = bytes.len() as u64;
        // More than it has announced is not the file.
        let Some(rest) = left.checked_sub(length) else { return false };
        left = rest;
        progress.add(length);
        part.add(&bytes);
        part.written.is_ok()
    };
    client.download(&format!("jobs/{job_id}/fetched/{path}"), taking).await?;
    std::mem::replace(&mut part.written, Ok(())).map_err(failed)?;
    let digest = std::mem::take(&mut part.hasher).digest().to_string();
    if digest != file.sha256 {
        return Err(Error::new(
            Code::NotVerified,
            format!("its SHA-256 is {digest}, not {}", file.sha256),
            "it may have changed; fetch again",
        ));
    }
    part.file
        .sync_data()
        .and_then(|()| fs::rename(&part.path, target))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_names_only_files_that_were_asked_for() {
        let patterns = ["runs/**".to_owned(), "*.csv".to_owned()];
        let files = |is_fleet| FilesOfJob {
            job_id: "web1-1",
            patterns: &patterns,
            is_fleet,
        };
        for (path, is_taken) in [
            ("runs/a/b", true),
            ("x.csv", true),
            (".bashrc", false),
            (".x.csv", false),
            ("runs/../.bashrc", false),
            ("/etc/passwd", false),
            ("runs//x", false),
            ("", false),
        ] {
            let expected = is_taken.then(|| PathBuf::from(path));
            assert_eq!(files(false).names_of(path), expected, "{path}");
        }
        assert_eq!(
            files(true).names_of("web1/x.csv"),
            Some("web1/x.csv".into())
        );
        for path in ["x.csv", "../x.csv", "web1"] {
            assert_eq!(files(true).names_of(path), None, "{path}");
        }
    }
}
