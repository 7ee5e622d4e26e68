use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{LazyLock, Mutex};
use std::time::Duration;

use tokio::time::{Instant, timeout};

use crate::lock::lock;

/// Time limit for reading a user's file.
const FILE_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum reads that may hang at the same time.
const MOST_HANGING: usize = 64;

/// When the reads that are under way began, by file.
static READS: LazyLock<Mutex<HashMap<PathBuf, Vec<Instant>>>> = LazyLock::new(Mutex::default);

/// Reads users' files, `file` and perhaps others of its kind, on a thread of their own, so that a FIFO or a dead network home
/// stops nobody else.
///
/// Fails with `TimedOut` after five seconds. The thread may then hang on, and so it does when the future is dropped; a file that
/// hangs is not read again meanwhile. A runtime that is shut down in the background does not wait for it.
pub async fn off_runtime<T: Send + 'static>(
    file: &Path,
    read: impl FnOnce() -> T + Send + 'static,
) -> io::Result<T> {
    let began = begin(file)?;
    let path = file.to_owned();
    let reading = tokio::task::spawn_blocking(move || {
        let result = read();
        end(&path, began);
        result
    });
    let late = |_| io::Error::new(io::ErrorKind::TimedOut, format!("it took longer than {FILE_TIMEOUT:?}"));
    timeout(FILE_TIMEOUT, reading).await.map_err(late)?.map_err(io::Error::other)
}

/// Takes note of a read, unless the file hangs, or too many others do.
fn begin(file: &Path) -> io::Result<Instant> {
    let mut reads = lock(&READS);
    let hangs = |reads: &Vec<Instant>| reads.iter().any(|began| began.elapsed() >= FILE_TIMEOUT);
    if reads.get(file).is_some_and(hangs) {
        return Err(io::Error::new(io::ErrorKind::TimedOut, "the last try to read it still hangs"));
    }
    let hanging = reads.values().filter(|reads| hangs(reads)).count();
    if hanging >= MOST_HANGING {
        return Err(io::Error::other(format!("{hanging} other files hang when they are read")));
    }
    let began = Instant::now();
    reads.entry(file.to_owned()).or_default().push(began);
    Ok(began)
}

fn end(file: &Path, began: Instant) {
    let mut reads = lock(&READS);
    if let Some(of_file) = reads.get_mut(file) {
        if let Some(index) = of_file.iter().position(|other| *other == began) {
            of_file.swap_remove(index);
        }
        if of_file.is_empty() {
            reads.remove(file);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[tokio::test]
    async fn a_fifo_that_nobody_writes_to_is_given_up_and_stops_nobody() {
        let directory = tempfile::tempdir().unwrap();
        let fifo = directory.path().join("fifo");
        assert!(std::process::Command::new("mkfifo").arg(&fifo).status().unwrap().success());
        let hanging = async {
            let fifo = fifo.clone();
            let path = fifo.clone();
            off_runtime(&path, move || std::fs::read(fifo)).await
        };
        let error = tokio::select! {
            biased;
            hanging = hanging => hanging.unwrap_err(),
            () = std::future::pending() => unreachable!(),
        };
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        // It takes no second thread to hang on it, and others are read meanwhile.
        let again = off_runtime(&fifo, || ()).await.unwrap_err();
        assert!(again.to_string().contains("hangs"), "{again}");
        assert!(off_runtime(Path::new("/"), || Path::new("/").exists()).await.unwrap());
        // The thread that hangs must not hold up the end of this test.
        std::fs::OpenOptions::new().write(true).open(&fifo).unwrap();
        while off_runtime(&fifo, || ()).await.is_err() {
            tokio::task::yield_now().await;
        }
    }
}
