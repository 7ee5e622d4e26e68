//! Reads the first output of a job on a connection whose login shell is unknown.
//!
//! The job's first command also detects the login shell. Its greeting proves that the command runs.
//! Without one there are two cases. A shell with another syntax, or one that is restricted, refuses
//! the whole command with an exit status other than 0. A forced command ignores it: with exit
//! status 0, and output that does not quote our command, its output is the job's, and it must not
//! run again.
//!
//! A forced command can't be distinguished from a shell that refuses if it fails, changes the
//! output of the requested command, runs for more than ten seconds, or first prints more than
//! 64 KiB to stdout or a megabyte in all. It then runs twice.

use std::collections::VecDeque;
use std::pin::pin;
use std::time::Duration;

use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use sshjobs_job::{Greeted, Greeting, MachineId, Nonce, repeats_our_command};
use sshjobs_ssh::{ChannelEvent, ChannelReader, ChannelWriter};

/// Time limit for a login shell to greet: the time that its startup files take.
const GREETING_TIME: Duration = Duration::from_secs(10);
/// Time for a greeting to arrive after the start was cancelled.
const ON_ITS_WAY: Duration = Duration::from_millis(500);
/// Maximum bytes of stdout and stderr that are read before the greeting.
const MOST_BYTES: usize = 1 << 20;

/// Result of a command that was sent to an unknown shell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum FirstWords {
    /// The command runs, on this machine if the host reports one.
    Greeted(Option<MachineId>),
    /// The connection was lost. The recorder reports that. The command must not be sent again.
    Lost,
    /// Something other than a shell ran and exited with 0.
    NoShell,
    /// Something ran, printed nothing and exited with 0: a startup file has ended the shell, or a forced command
    /// ran. The command itself did not run.
    Silence,
    /// The server refused the command, or the channel closed without a greeting: no part of the
    /// command ran.
    NotRun,
    /// The greeting did not arrive in time, too much other output came before it, or the start was
    /// cancelled. The channel was closed. A shell that starts later therefore fails to greet, and
    /// does not reach the command.
    GivenUp,
}

/// The events of a job's channel up to its greeting.
pub(crate) struct FirstEvents<'a> {
    reader: &'a mut ChannelReader,
    greeting: Greeting,
    /// The exit status was 0.
    has_succeeded: bool,
    /// Bytes of stdout and stderr so far.
    read_bytes: usize,
    /// The events read so far, for the job's recorder.
    pub(crate) events: VecDeque<ChannelEvent>,
}

impl<'a> FirstEvents<'a> {
    pub(crate) fn new(reader: &'a mut ChannelReader, nonce: &Nonce) -> Self {
        Self {
            reader,
            greeting: Greeting::new(nonce),
            has_succeeded: false,
            read_bytes: 0,
            events: VecDeque::new(),
        }
    }

    /// Reads until the greeting. Closes the channel if no greeting comes in time, or soon after
    /// `unwanted` is cancelled.
    pub(crate) async fn read(
        &mut self,
        writer: &ChannelWriter,
        unwanted: &CancellationToken,
    ) -> FirstWords {
        let words = {
            let mut reading = pin!(timeout(GREETING_TIME, self.read_greeting()));
            tokio::select! {
                words = &mut reading => words.ok().flatten(),
                // The greeting may be on its way. Then the command runs, and must be listed, so that it
                // can be ended.
                () = unwanted.cancelled() => {
                    timeout(ON_ITS_WAY, reading).await.ok().and_then(|words| words.ok().flatten())
                }
            }
        };
        // In time, and not after too much other output.
        if let Some(words) = words {
            return words;
        }

        // Closing breaks the shell's stdout. russh delivers no event of a channel after that, so
        // there is nothing to wait for. A lost connection needs no closing.
        writer.close().await.ok();
        FirstWords::GivenUp
    }

    /// Whether the output quotes our command.
    fn is_echo(&self) -> bool {
        let mut output = Vec::new();
        for event in &self.events {
            if let ChannelEvent::Data(bytes) | ChannelEvent::ExtendedData(bytes) = event {
                output.extend_from_slice(bytes);
            }
        }
        repeats_our_command(&output)
    }

    /// `None` if too much other output came first.
    async fn read_greeting(&mut self) -> Option<FirstWords> {
        loop {
            let event = self.reader.next().await;
            // Kept for the recorder, which must see every event.
            self.events.extend(event.clone());
            match event {
                Some(ChannelEvent::Data(bytes)) => {
                    self.read_bytes += bytes.len();
                    match self.greeting.read(&bytes) {
                        Greeted::By(machine) => return Some(FirstWords::Greeted(machine)),
                        // `Greeting` expects none after 64 KiB of stdout, long before `MOST_BYTES`.
                        Greeted::Never => return None,
                        Greeted::NotYet => {}
                    }
                }
                Some(ChannelEvent::ExtendedData(bytes)) => self.read_bytes += bytes.len(),
                Some(ChannelEvent::Close) if self.has_succeeded && self.read_bytes == 0 => {
                    return Some(FirstWords::Silence);
                }
                Some(ChannelEvent::Close) if self.has_succeeded && !self.is_echo() => {
                    return Some(FirstWords::NoShell);
                }
                Some(ChannelEvent::Close | ChannelEvent::Failure) => {
                    return Some(FirstWords::NotRun);
                }
                Some(ChannelEvent::ExitStatus(status)) => self.has_succeeded = status == 0,
                None => return Some(FirstWords::Lost),
                Some(ChannelEvent::Eof | ChannelEvent::ExitSignal(_) | ChannelEvent::Success) => {}
            }
            if self.read_bytes > MOST_BYTES {
                return None;
            }
        }
    }
}
