//! A job's stdin: one writer at a time, after the initial input.

use std::sync::Arc;
use std::time::Duration;

use secrecy::{ExposeSecret, SecretString};
use tokio::sync::{Mutex, OwnedMutexGuard, watch};
use tokio::time::{Instant, timeout, timeout_at};

use super::error::WriteError;
use sshjobs_base::lock::lock;
use sshjobs_job::{Controls, FarEndError, Job, Stdin};

/// A job's stdin. Writers take turns. The plan's own input is sent first.
pub(crate) struct JobStdin {
    controls: Arc<dyn Controls>,
    job: Arc<Job>,
    /// Number of process group announcements so far.
    announced: Option<watch::Receiver<u32>>,
    state: Arc<Mutex<StdinState>>,
    /// Holds the lock until [`begin`](Self::begin), so that no write or close can precede the job's
    /// initial input.
    before_begin: std::sync::Mutex<Option<OwnedMutexGuard<StdinState>>>,
}

struct StdinState {
    /// Values that the prelude reads first.
    header: Option<SecretString>,
    closed: bool,
    /// The terminal is at the start of an input line.
    at_line_start: bool,
}

/// On a terminal, the key for end of input when typed at the start of a line (VEOF).
const END_OF_INPUT: u8 = 4;
/// On a terminal, the keys for signals (VINTR, VQUIT, VSUSP), which discard the line so far.
const SIGNAL_KEYS: [u8; 3] = [0x03, 0x1c, 0x1a];
/// Time limit for the prelude to prepare its terminal for the values.
const PRELUDE_TIMEOUT: Duration = Duration::from_secs(10);

impl JobStdin {
    pub(crate) fn new(
        controls: Arc<dyn Controls>,
        job: Arc<Job>,
        announced: watch::Receiver<u32>,
        header: Option<SecretString>,
    ) -> Self {
        let state = Arc::new(Mutex::new(StdinState {
            header,
            closed: false,
            at_line_start: true,
        }));
        // Always succeeds, because no other task has the state yet.
        let before_begin = std::sync::Mutex::new(Arc::clone(&state).try_lock_owned().ok());
        Self {
            controls,
            job,
            announced: Some(announced),
            state,
            before_begin,
        }
    }

    /// Stdin of a durable job or a fleet: no prelude announces itself, and the initial input is
    /// already at the far end.
    pub(crate) fn unannounced(controls: Arc<dyn Controls>, job: Arc<Job>, closed: bool) -> Self {
        let state = Arc::new(Mutex::new(StdinState {
            header: None,
            closed,
            at_line_start: true,
        }));
        Self {
            controls,
            job,
            announced: None,
            state,
            before_begin: std::sync::Mutex::new(None),
        }
    }

    /// Sends the initial input: the prelude's values, then the text for the command, then the end
    /// of input if requested.
    pub(crate) async fn begin(&self) -> Result<(), FarEndError> {
        let first = lock(&self.before_begin).take();
        let mut state = match first {
            Some(state) => state,
            None => Arc::clone(&self.state).lock_owned().await,
        };
        if let Some(header) = state.header.take() {
            self.announced(1).await?;
            self.write_all(header.expose_secret().as_bytes()).await?;
            self.announced(2).await?;
        }
        match &self.job.spec.stdin {
            Stdin::Open => return Ok(()),
            Stdin::Closed => {}
            Stdin::Text(text) => {
                let text = text.expose_secret().as_bytes();
                self.write_all(text).await?;
                state.wrote(text);
            }
        }
        self.end(&mut state).await
    }

    /// Waits until the prelude on a terminal has announced itself this many times: once when echo
    /// is off, twice when it has read the values. A prelude that does not announce itself must not
    /// get them.
    async fn announced(&self, times: u32) -> Result<(), FarEndError> {
        if self.job.spec.terminal.is_none() {
            return Ok(());
        }
        let Some(mut announced) = self.announced.clone() else { return Ok(()) };
        let enough = announced.wait_for(|count| *count >= times);
        let is_ready = matches!(timeout(PRELUDE_TIMEOUT, enough).await, Ok(Ok(_)));
        if is_ready {
            return Ok(());
        }
        self.controls.close().await?;
        Err(FarEndError::TimedOut(PRELUDE_TIMEOUT))
    }

    async fn write_all(&self, mut data: &[u8]) -> Result<(), FarEndError> {
        while !data.is_empty() {
            let written = self.controls.write(data).await?;
            data = &data[written..];
        }
        Ok(())
    }

    /// Writes `data`. Waits at most `patience`; the error then says how much was written.
    pub(crate) async fn write(&self, data: &[u8], patience: Duration) -> Result<(), WriteError> {
        let deadline = Instant::now() + patience;
        let mut written = 0;
        // Held for all of `data`, so that pieces of two writers do not mix.
        let state = timeout_at(deadline, self.state.lock()).await;
        let mut state = state.map_err(|_| WriteError::Backpressure { written })?;
        if state.closed {
            return Err(WriteError::StdinClosed);
        }
        while written < data.len() {
            let piece = timeout_at(deadline, self.controls.write(&data[written..])).await;
            let length = piece.map_err(|_| WriteError::Backpressure { written })??;
            // After each piece, so that it is right even if a later one times out.
            state.wrote(&data[written..written + length]);
            written += length;
        }
        Ok(())
    }

    /// Closes stdin after the pending writes. Waits at most `patience`. Succeeds if stdin is
    /// already closed.
    pub(crate) async fn close(&self, patience: Duration) -> Result<(), WriteError> {
        let closing = async {
            let mut state = self.state.lock().await;
            if state.closed {
                Ok(())
            } else {
                self.end(&mut state).await
            }
        };
        let closed = timeout_at(Instant::now() + patience, closing).await;
        Ok(closed.map_err(|_| WriteError::Backpressure { written: 0 })??)
    }

    /// A terminal has no end of file. A key signals it, and other keys can follow. In the middle of
    /// a line the key must be sent twice: the first passes the line on.
    async fn end(&self, state: &mut StdinState) -> Result<(), FarEndError> {
        match &self.job.spec.terminal {
            None => {
                self.controls.eof().await?;
                state.closed = true;
                return Ok(());
            }
            Some(_) if state.at_line_start => self.write_all(&[END_OF_INPUT]).await?,
            Some(_) => self.write_all(&[END_OF_INPUT; 2]).await?,
        }
        state.at_line_start = true;
        Ok(())
    }

    /// Whether stdin is closed. It is not while a write is pending.
    pub(crate) fn is_closed(&self) -> bool {
        self.state.try_lock().is_ok_and(|state| state.closed)
    }

    /// The job that reads it.
    pub(crate) fn job(&self) -> &Job {
        &self.job
    }

    /// The far end's controls, for signals and closing.
    pub(crate) fn controls(&self) -> &dyn Controls {
        &*self.controls
    }
}

impl StdinState {
    fn wrote(&mut self, data: &[u8]) {
        if let Some(last) = data.last() {
            // The key passes on the line so far, or a signal discards it: the next input starts a new one.
            self.at_line_start =
                matches!(*last, b'\n' | b'\r' | END_OF_INPUT) || SIGNAL_KEYS.contains(last);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex as Shared;

    use futures_util::FutureExt;
    use futures_util::future::BoxFuture;

    use super::*;
    use sshjobs_job::{Caller, Draft, Signal, Terminal};
    use sshjobs_output::{RingLimits, TerminalSize};

    /// A far end that accepts `room` bytes and records them.
    #[derive(Default)]
    struct Pipe {
        room: usize,
        taken: Shared<Vec<u8>>,
        ended: Shared<bool>,
    }

    impl Controls for Pipe {
        fn write<'a>(&'a self, data: &'a [u8]) -> BoxFuture<'a, Result<usize, FarEndError>> {
            async move {
                let room = self.room - lock(&self.taken).len();
                if room == 0 {
                    std::future::pending::<()>().await;
                }
                let piece = &data[..data.len().min(room)];
                lock(&self.taken).extend(piece);
                Ok(piece.len())
            }
            .boxed()
        }

        fn eof(&self) -> BoxFuture<'_, Result<(), FarEndError>> {
            *lock(&self.ended) = true;
            async { Ok(()) }.boxed()
        }

        fn signal(&self, _signal: Signal) -> BoxFuture<'_, Result<(), FarEndError>> {
            async { Ok(()) }.boxed()
        }

        fn resize(&self, _size: TerminalSize) -> BoxFuture<'_, Result<(), FarEndError>> {
            async { Ok(()) }.boxed()
        }

        fn close(&self) -> BoxFuture<'_, Result<(), FarEndError>> {
            async { Ok(()) }.boxed()
        }

        fn outlives_us(&self) -> bool {
            false
        }
    }

    fn stdin(room: usize, change: impl FnOnce(&mut Draft)) -> (JobStdin, Arc<Pipe>) {
        with_header(room, None, change)
    }

    fn with_header(
        room: usize,
        header: Option<&str>,
        change: impl FnOnce(&mut Draft),
    ) -> (JobStdin, Arc<Pipe>) {
        let mut draft = Draft::new("h", "cat");
        change(&mut draft);
        let job = Job::new(
            Caller::local(),
            draft.try_into().unwrap(),
            RingLimits::default(),
        );
        let pipe = Arc::new(Pipe {
            room,
            ..Pipe::default()
        });
        let controls = Arc::clone(&pipe) as Arc<dyn Controls>;
        (
            JobStdin::new(
                controls,
                Arc::new(job),
                watch::Sender::new(0).subscribe(),
                header.map(Into::into),
            ),
            pipe,
        )
    }

    fn taken(pipe: &Pipe) -> String {
        String::from_utf8(lock(&pipe.taken).clone()).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn values_go_before_the_text_and_the_text_before_the_end() {
        let (stdin, pipe) = with_header(100, Some("header\n"), |draft| {
            draft.stdin = Stdin::Text("text".into())
        });
        stdin.begin().await.unwrap();
        assert_eq!(
            (taken(&pipe).as_str(), stdin.is_closed()),
            ("header\ntext", true)
        );
        assert!(matches!(
            stdin.write(b"x", PRELUDE_TIMEOUT).await,
            Err(WriteError::StdinClosed)
        ));
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_is_written_and_nothing_ends_before_what_a_job_starts_with() {
        let (stdin, pipe) = with_header(100, Some("header\n"), |_| ());

        assert!(stdin.close(PRELUDE_TIMEOUT).await.is_err());
        assert_eq!(taken(&pipe), "");

        stdin.begin().await.unwrap();
        stdin.close(PRELUDE_TIMEOUT).await.unwrap();
        assert_eq!(taken(&pipe), "header\n");
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_to_a_command_that_does_not_read_fails_and_reports_the_bytes_written() {
        let (stdin, _pipe) = stdin(3, |_| ());
        stdin.begin().await.unwrap();
        let error = stdin.write(b"hello", Duration::from_secs(1)).await.unwrap_err();
        assert!(
            matches!(error, WriteError::Backpressure { written: 3 }),
            "{error:?}"
        );
        assert!(!stdin.is_closed());
    }

    #[tokio::test(start_paused = true)]
    async fn the_end_of_input_on_a_terminal_is_one_key_and_in_mid_line_two() {
        let terminal = |draft: &mut Draft| draft.terminal = Terminal::new("dumb", 80, 24).ok();
        let (stdin, pipe) = stdin(100, terminal);
        stdin.begin().await.unwrap();
        stdin.close(PRELUDE_TIMEOUT).await.unwrap();
        stdin.write(b"half", PRELUDE_TIMEOUT).await.unwrap();
        stdin.close(PRELUDE_TIMEOUT).await.unwrap();
        assert_eq!(taken(&pipe), "\x04half\x04\x04");
        stdin.write(b"half\x03", PRELUDE_TIMEOUT).await.unwrap();
        stdin.close(PRELUDE_TIMEOUT).await.unwrap();
        let all = taken(&pipe);
        assert!(
            all.ends_with("half\x03\x04"),
            "the line was discarded: {all:?}"
        );
        assert!(
            !stdin.is_closed() && !*lock(&pipe.ended),
            "keys can still be pressed"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_terminal_that_is_not_ready_does_not_get_the_values() {
        let terminal = |draft: &mut Draft| draft.terminal = Terminal::new("dumb", 80, 24).ok();
        let (stdin, pipe) = with_header(100, Some("secret"), terminal);
        assert!(stdin.begin().await.is_err());
        assert_eq!(taken(&pipe), "");
    }
}
