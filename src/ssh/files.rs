use std::io;
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::time::timeout;

/// How long a user's file may take to be read.
const FILE_TIMEOUT: Duration = Duration::from_secs(5);
/// How many reads may be under way. One that hangs, as on a dead network home, keeps its place.
static READS: Semaphore = Semaphore::const_new(16);

/// Reads users' files on a thread of their own, so that a FIFO or a dead network home stops nobody else.
///
/// Fails with `TimedOut` after five seconds. The thread may then hang on, and so it does when the future is dropped;
/// a runtime that is shut down in the background does not wait for it.
pub async fn off_runtime<T: Send + 'static>(read: impl FnOnce() -> T + Send + 'static) -> io::Result<T> {
    let reading = async {
        let place = READS.acquire().await.map_err(io::Error::other)?;
        let reading = move || {
            let _place = place;
            read()
        };
        tokio::task::spawn_blocking(reading).await.map_err(io::Error::other)
    };
    let silent = || io::Error::new(io::ErrorKind::TimedOut, format!("it took longer than {FILE_TIMEOUT:?}"));
    timeout(FILE_TIMEOUT, reading).await.unwrap_or_else(|_| Err(silent()))
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
        let hanging = {
            let fifo = fifo.clone();
            off_runtime(move || std::fs::read(fifo))
        };
        let error = tokio::select! {
            biased;
            hanging = hanging => hanging.unwrap_err(),
            () = std::future::pending() => unreachable!(),
        };
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        // The thread that hangs must not hold up the end of this test.
        std::fs::OpenOptions::new().write(true).open(&fifo).unwrap();
        assert!(off_runtime(|| Path::new("/").exists()).await.unwrap());
    }
}
