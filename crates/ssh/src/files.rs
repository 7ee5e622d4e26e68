//! Reads users' files without blocking the runtime, even if the file never answers.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{LazyLock, Mutex};
use std::time::Duration;

use tokio::time::{Instant, timeout};

use sshjobs_base::lock::lock;

/// Time limit for reading a user's file.
const FILE_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum reads that may hang at the same time.
const MOST_HANGING: usize = 64;

/// Start times of reads in progress, by file.
static READS: LazyLock<Mutex<HashMap<PathBuf, Vec<Instant>>>> = LazyLock::new(Mutex::default);

/// Reads users' files on a thread of their own, so that a FIFO or a dead network home blocks
/// nothing else. `file` identifies the group of files that one read covers.
///
/// Fails with `TimedOut` after five seconds. The thread may hang longer, also after the future is
/// dropped. Until it ends, the file is not read again. A runtime that shuts down in the background
/// does not wait for the thread.
pub async fn off_runtime<T: Send + 'static>(
    file: &Path,
    read: impl FnOnce() -> T + Send + 'static,
) -> io::Result<T> {
    let began = begin(file)?;
    let path = file.to_owned();
    let reading = tokio::task::spawn_blocking(move || {
        let result = read();
        // A read that hangs does not get here, and stays registered.
        end(&path, began);
        result
    });
    timeout(FILE_TIMEOUT, reading)
        .await
        .map_err(|_| {
            io::Error::new(
                io::ErrorKind::TimedOut,
                format!("it took longer than {FILE_TIMEOUT:?}"),
            )
        })?
        .map_err(io::Error::other)
}

/// Registers a read, unless the file already hangs or too many others do.
fn begin(file: &Path) -> io::Result<Instant> {
    let mut reads = lock(&READS);
    // Each hanging read occupies a thread of tokio's limited blocking pool.
    if reads.get(file).is_some_and(|reads| hangs(reads)) {
        return Err(io::Error::new(
            io::ErrorKind::TimedOut,
            "the last try to read it still hangs",
        ));
    }
    let hanging = reads.values().filter(|reads| hangs(reads)).count();
    if hanging >= MOST_HANGING {
        return Err(io::Error::other(format!(
            "{hanging} other files hang when they are read"
        )));
    }
    let began = Instant::now();
    reads.entry(file.to_owned()).or_default().push(began);
    Ok(began)
}

fn end(file: &Path, began: Instant) {
    let mut reads = lock(&READS);
    if let Some(of_file) = reads.get_mut(file) {
        // Reads of one file with the same start time are interchangeable.
        if let Some(index) = of_file.iter().position(|other| *other == began) {
            of_file.swap_remove(index);
        }
        if of_file.is_empty() {
            reads.remove(file);
        }
    }
}

fn hangs(reads: &[Instant]) -> bool {
    reads.iter().any(|began| began.elapsed() >= FILE_TIMEOUT)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[tokio::test]
    async fn a_fifo_without_a_writer_is_given_up_and_delays_no_other_read() {
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
