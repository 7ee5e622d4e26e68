//! Passes our stdin to a job: a pipe as it is, a terminal key by key with ssh's escapes. A
//! closed terminal ends the copying without closing the job's stdin.

use std::future::pending;
use std::io::{self, IsTerminal, Write};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tokio::sync::mpsc;

use sshjobs_base::lock::lock;
use sshjobs_core::jobs::printable;
use sshjobs_wire::remote::Control;
use sshjobs_wire::{Code, Error};

/// Time limit for one write. One that times out is continued: the command may read at any time.
const PATIENCE: Duration = Duration::from_secs(3600);

/// Interval between attempts to write to a job that has not started.
const START_INTERVAL: Duration = Duration::from_millis(200);

/// Maximum reads of keys that wait for a command.
const KEYS_AHEAD: usize = 256;

/// Delay before the end of a pipe is passed on to a durable job. When a terminal closes, the
/// program at the other end of our pipe gets SIGHUP as we do, and the pipe may end before the
/// signal arrives.
const HANG_UP_DELAY: Duration = Duration::from_millis(100);

/// Interval at which the reading thread checks whether to stop.
const POLL_TIMEOUT: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 50_000_000,
};

/// Line of a terminal with which the user leaves the command running.
const LEAVE_LINE: &[u8] = b"~&\n";

/// Copies our stdin to a job until it or the job ends. Returns only if our terminal has closed, or if
/// the user has left the command running with the line `~&`.
pub(crate) async fn forward(job: &Control) -> KeysEnded {
    let input = OwnStdin::default();
    let is_terminal = io::stdin().is_terminal();
    loop {
        let data = match input.read().await {
            // A terminal gives one line at a time.
            Came::Data(data) if is_terminal && data == LEAVE_LINE => {
                if leave(job).await {
                    return KeysEnded::Left;
                }
                continue;
            }
            Came::Data(data) => data,
            Came::End => break,
            Came::HungUp => return KeysEnded::HungUp,
        };
        if let Err(error) = write_all(job, &data).await {
            // Never returns: the end of the job, or a signal, decides how the run ends.
            tracing::debug!(%error, "stdin is not passed on any further");
            if matches!(error.code, Code::PolicyDenied | Code::ApprovalPending) {
                let message = printable(&error.message);
                writeln!(io::stderr(), "sshjobs: stdin is not passed on: {message}").ok();
            }
            return pending().await;
        }
    }

    if job.entry().durable && !is_terminal {
        tokio::time::sleep(HANG_UP_DELAY).await;
    }
    end(job).await;
    pending().await
}

/// Writes all of the data, however long the command takes to start and to read it.
async fn write_all(job: &Control, mut data: &[u8]) -> Result<(), Error> {
    loop {
        match job.write(data, PATIENCE).await {
            Err(error) if error.code == Code::Backpressure => match error.bytes_written {
                Some(written) => data = data.get(written..).unwrap_or_default(),
                // It has not started: it may be queued.
                None => tokio::time::sleep(START_INTERVAL).await,
            },
            Err(error) => return Err(error),
            Ok(_) => return Ok(()),
        }
    }
}

/// Why keys are no longer passed on.
pub(crate) enum KeysEnded {
    /// The user pressed the escape keys.
    ByUser,
    /// The user has left the command running.
    Left,
    /// The terminal has closed.
    HungUp,
}

/// Passes the keys of our terminal to a job. Returns when the escape keys were pressed, even while
/// the command or the host accepts no input, or when the terminal has closed.
pub(crate) async fn forward_keys(job: &Control, role: KeyboardRole) -> KeysEnded {
    let (sender, mut keys) = mpsc::channel::<Vec<u8>>(KEYS_AHEAD);
    let passing = async {
        let mut is_told = false;
        while let Some(keys) = keys.recv().await {
            let Err(error) = job.write(&keys, PATIENCE).await else { continue };
            tracing::debug!(%error, "a key was not passed on");
            // Once: a person who types sees nothing otherwise. The terminal is raw.
            if !std::mem::replace(&mut is_told, true) && error.code != Code::JobEnded {
                write!(
                    io::stderr(),
                    "\r\nsshjobs: keys don't reach the job: {}\r\n",
                    error.message
                )
                .ok();
            }
        }
        if role == KeyboardRole::Owner {
            end(job).await;
        }
        pending().await
    };
    tokio::select! {
        ended = read_keys(job, sender, role) => ended,
        never = passing => never,
    }
}

async fn read_keys(job: &Control, sender: mpsc::Sender<Vec<u8>>, role: KeyboardRole) -> KeysEnded {
    let input = OwnStdin::default();
    let mut escape = EscapeKeys::default();
    loop {
        let data = match input.read().await {
            Came::Data(data) => data,
            Came::End => break,
            Came::HungUp => return KeysEnded::HungUp,
        };
        let TakenKeys {
            keys,
            ended,
            left,
            asked,
        } = escape.take(&data);
        if asked {
            // The terminal is raw.
            write!(io::stderr(), "{}", role.escapes().replace('\n', "\r\n")).ok();
        }
        // Without an await, so that `~.` is recognized while the command reads nothing.
        if sender.try_send(keys).is_err() {
            tracing::debug!("keys are lost: the command does not read them");
        }
        if ended {
            return KeysEnded::ByUser;
        }
        if left && (role == KeyboardRole::Guest || leave(job).await) {
            return KeysEnded::Left;
        }
    }
    // Ends the loop of `passing`, which then closes the job's stdin.
    drop(sender);
    pending().await
}

/// Leaves the command running when this program ends. Returns whether that is possible; if not, says
/// why.
async fn leave(job: &Control) -> bool {
    let Err(error) = job.leave().await else { return true };
    // The terminal may be raw.
    let (message, hint) = (
        printable(&error.message),
        printable(&error.hint.for_a_person()),
    );
    write!(io::stderr(), "\r\nsshjobs: {message}: {hint}\r\n").ok();
    false
}

/// Closes the job's stdin. A job that has ended is not an error.
pub(crate) async fn end(job: &Control) {
    if let Err(error) = job.close_stdin().await
        && error.code != Code::JobEnded
    {
        tracing::debug!(%error, "stdin could not be ended");
    }
}

/// Our stdin. Dropping it stops reading: keys typed later are for the next program.
#[derive(Default)]
struct OwnStdin {
    /// Held while the thread reads, so that it reads nothing after the drop.
    is_over: Arc<Mutex<bool>>,
}

impl Drop for OwnStdin {
    fn drop(&mut self) {
        *lock(&self.is_over) = true;
    }
}

impl OwnStdin {
    /// The next input.
    async fn read(&self) -> Came {
        let is_over = Arc::clone(&self.is_over);
        // A blocked read can't be cancelled, so the thread polls and checks the flag.
        let read = tokio::task::spawn_blocking(move || read_unless(&is_over)).await;
        match read.unwrap_or_else(|error| Err(io::Error::other(error))) {
            Ok(data) if data.is_empty() && has_hung_up() => Came::HungUp,
            Ok(data) if data.is_empty() => Came::End,
            Ok(data) => Came::Data(data),
            Err(_) if has_hung_up() => Came::HungUp,
            Err(error) => {
                tracing::warn!(%error, "stdin can't be read");
                Came::End
            }
        }
    }
}

/// Input from stdin.
enum Came {
    Data(Vec<u8>),
    End,
    /// Stdin was a terminal, and that has closed.
    HungUp,
}

/// Whether stdin is a terminal that has closed: only then querying its modes fails with EIO.
fn has_hung_up() -> bool {
    rustix::termios::tcgetattr(io::stdin()).is_err_and(|error| error == rustix::io::Errno::IO)
}

/// Whether stdin has input, after waiting for it at most for `time_limit`.
fn is_readable(stdin: &io::Stdin, time_limit: &Timespec) -> io::Result<bool> {
    let ready = rustix::io::retry_on_intr(|| {
        poll(&mut [PollFd::new(stdin, PollFlags::IN)], Some(time_limit))
    })?;
    Ok(ready > 0)
}

/// Whether stdin is a pipe or a file with input that was not read.
pub(crate) fn has_unread_input() -> bool {
    let stdin = io::stdin();
    !stdin.is_terminal() && rustix::io::ioctl_fionread(stdin).is_ok_and(|bytes| bytes > 0)
}

fn read_unless(is_over: &Mutex<bool>) -> io::Result<Vec<u8>> {
    let stdin = io::stdin();
    loop {
        is_readable(&stdin, &POLL_TIMEOUT)?;
        let is_over = lock(is_over);
        if *is_over {
            return Ok(Vec::new());
        }
        // Again, because another program may have read it: this read must not block.
        if is_readable(&stdin, &Timespec::default())? {
            let mut buffer = vec![0; 32 << 10];
            let length = rustix::io::retry_on_intr(|| rustix::io::read(&stdin, &mut *buffer))?;
            buffer.truncate(length);
            return Ok(buffer);
        }
    }
}

/// Relation of this keyboard to the job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyboardRole {
    /// The job's only keyboard: `~.` ends the session; closing our stdin closes the job's.
    Owner,
    /// One of several keyboards, or of a job that outlives us: `~.` detaches.
    Guest,
}

impl KeyboardRole {
    /// What `~?` shows.
    fn escapes(self) -> String {
        let way_out = match self {
            Self::Owner => "end the command and the connection",
            Self::Guest => "detach; the job continues",
        };
        format!(
            "\n~.  {way_out}\n~&  leave the command running\n~~  send a tilde\n~?  show this list\n\
             (an escape is known only at the start of a line)\n"
        )
    }
}

/// Result of examining keys.
#[derive(Debug, Default, PartialEq, Eq)]
struct TakenKeys {
    /// Keys to pass on.
    keys: Vec<u8>,
    /// Whether the keys end the session.
    ended: bool,
    /// Whether the keys leave the command running.
    left: bool,
    /// Whether the keys ask for help.
    asked: bool,
}

/// Finds `~.` at the start of a line among the keys, as ssh does: the way out when all other keys
/// go to a host that does not answer. `~~` is a tilde.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum EscapeKeys {
    #[default]
    LineStart,
    Tilde,
    InLine,
}

impl EscapeKeys {
    fn take(&mut self, keys: &[u8]) -> TakenKeys {
        let mut taken = TakenKeys::default();
        for &key in keys {
            match (*self, key) {
                (Self::LineStart, b'~') => {
                    *self = Self::Tilde;
                    continue;
                }
                (Self::Tilde, b'.') => {
                    return TakenKeys {
                        ended: true,
                        ..taken
                    };
                }
                (Self::Tilde, b'&') => {
                    *self = Self::LineStart;
                    taken.left = true;
                    continue;
                }
                (Self::Tilde, b'?') => {
                    *self = Self::LineStart;
                    taken.asked = true;
                    continue;
                }
                (Self::Tilde, b'~') => {}
                // No escape after all: the tilde that was held back is passed on.
                (Self::Tilde, _) => taken.keys.push(b'~'),
                (Self::LineStart | Self::InLine, _) => {}
            }
            taken.keys.push(key);
            *self = if matches!(key, b'\r' | b'\n') {
                Self::LineStart
            } else {
                Self::InLine
            };
        }
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(keys: &[&[u8]]) -> (String, bool) {
        let mut escape = EscapeKeys::default();
        let mut passed = Vec::new();
        for keys in keys {
            let taken = escape.take(keys);
            passed.extend(taken.keys);
            if taken.ended {
                return (String::from_utf8(passed).unwrap(), true);
            }
        }
        (String::from_utf8(passed).unwrap(), false)
    }

    #[test]
    fn tilde_dot_at_the_start_of_a_line_ends_it() {
        assert_eq!(take(&[b"ls\r~", b".x"]), ("ls\r".to_owned(), true));
        assert_eq!(take(&[b"~."]), (String::new(), true));
    }

    #[test]
    fn tilde_question_mark_asks_for_the_list_and_is_not_passed_on() {
        let mut escape = EscapeKeys::default();
        assert_eq!(
            escape.take(b"\r~?x"),
            TakenKeys {
                keys: b"\rx".to_vec(),
                ended: false,
                left: false,
                asked: true
            }
        );
    }

    #[test]
    fn tilde_ampersand_leaves_the_command_running() {
        let taken = EscapeKeys::default().take(b"ls\r~&");
        assert!(taken.left && !taken.ended, "{taken:?}");
        assert_eq!(taken.keys, b"ls\r");
    }

    #[test]
    fn other_tildes_pass() {
        assert_eq!(
            take(&[b"cd ~.\r~~.\r~x"]),
            ("cd ~.\r~.\r~x".to_owned(), false)
        );
    }
}
