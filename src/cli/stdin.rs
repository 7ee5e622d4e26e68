use std::future::pending;
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tokio::sync::mpsc;

use crate::remote::Control;
use crate::wire::Code;

/// Time limit for one write to a command that does not read; then another follows.
const PATIENCE: Duration = Duration::from_secs(3600);

/// Most reads of keys that wait for a command that does not take them.
const KEYS_AHEAD: usize = 256;

/// Passes our stdin on to a job until it ends or the job does.
pub(super) async fn forward(job: &Control) {
    let input = Input::default();
    while let Some(data) = input.read().await {
        if let Err(error) = job.write(&data, PATIENCE).await {
            // A command need not read its stdin to its end.
            tracing::debug!(%error, "stdin is not passed on any further");
            return;
        }
    }
    end(job).await;
}

/// Passes the keys of our terminal on to a job; returns when those were pressed that end everything. These are seen also
/// while the command, or the host, takes no others.
pub(super) async fn forward_keys(job: &Control) {
    let (sender, mut keys) = mpsc::channel::<Vec<u8>>(KEYS_AHEAD);
    let passing = async {
        while let Some(keys) = keys.recv().await {
            if let Err(error) = job.write(&keys, PATIENCE).await {
                tracing::debug!(%error, "a key was not passed on");
            }
        }
        end(job).await;
        pending().await
    };
    tokio::select! {
        () = read_keys(sender) => {}
        never = passing => never,
    }
}

async fn read_keys(sender: mpsc::Sender<Vec<u8>>) {
    let input = Input::default();
    let mut escape = EscapeKeys::default();
    while let Some(data) = input.read().await {
        let Taken { keys, ended, asked } = escape.take(&data);
        if ended {
            return;
        }
        if asked {
            // The terminal is raw.
            write!(io::stderr(), "{}", ESCAPES.replace('\n', "\r\n")).ok();
        }
        if sender.try_send(keys).is_err() {
            tracing::debug!("keys are lost: nobody takes them");
        }
    }
    drop(sender);
    pending().await
}

/// Ends the job's stdin. It is no mistake when the job is over.
pub(super) async fn end(job: &Control) {
    if let Err(error) = job.close_stdin().await
        && error.code != Code::JobEnded
    {
        tracing::debug!(%error, "stdin could not be ended");
    }
}

/// Our stdin. When this is dropped nothing more is taken from it: what is typed then is for whoever comes next.
#[derive(Default)]
struct Input {
    is_over: Arc<AtomicBool>,
}

impl Drop for Input {
    fn drop(&mut self) {
        self.is_over.store(true, Relaxed);
    }
}

impl Input {
    /// What comes next; none at the end.
    async fn read(&self) -> Option<Vec<u8>> {
        let is_over = Arc::clone(&self.is_over);
        let read = tokio::task::spawn_blocking(move || read_unless(&is_over)).await;
        match read.unwrap_or_else(|error| Err(io::Error::other(error))) {
            Ok(data) => Some(data).filter(|data| !data.is_empty()),
            Err(error) => {
                tracing::warn!(%error, "stdin can't be read");
                None
            }
        }
    }
}

fn read_unless(is_over: &AtomicBool) -> io::Result<Vec<u8>> {
    let (stdin, moment) = (io::stdin(), Timespec { tv_sec: 0, tv_nsec: 50_000_000 });
    while !is_over.load(Relaxed) {
        if poll(&mut [PollFd::new(&stdin, PollFlags::IN)], Some(&moment))? > 0 {
            let mut buffer = vec![0; 32 << 10];
            let length = rustix::io::retry_on_intr(|| rustix::io::read(&stdin, &mut *buffer))?;
            buffer.truncate(length);
            return Ok(buffer);
        }
    }
    Ok(Vec::new())
}

/// What `~?` shows.
const ESCAPES: &str = "\n~.  end the command and the connection\n~~  send a tilde\n~?  show this list\n\
    (an escape is known only at the start of a line)\n";

/// What came of keys that were pressed.
#[derive(Debug, Default, PartialEq, Eq)]
struct Taken {
    /// Those to be passed on.
    keys: Vec<u8>,
    /// They said that all is over.
    ended: bool,
    /// They asked what the escapes are.
    asked: bool,
}

/// Looks for `~.` at the start of a line among the keys that are pressed, as ssh does: the way out when all other keys go to
/// a host that does not answer. `~~` is a tilde.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum EscapeKeys {
    #[default]
    LineStart,
    Tilde,
    InLine,
}

impl EscapeKeys {
    fn take(&mut self, keys: &[u8]) -> Taken {
        let mut taken = Taken::default();
        for &key in keys {
            match (*self, key) {
                (Self::LineStart, b'~') => {
                    *self = Self::Tilde;
                    continue;
                }
                (Self::Tilde, b'.') => return Taken { ended: true, ..taken },
                (Self::Tilde, b'?') => {
                    *self = Self::LineStart;
                    taken.asked = true;
                    continue;
                }
                (Self::Tilde, b'~') => {}
                (Self::Tilde, _) => taken.keys.push(b'~'),
                (Self::LineStart | Self::InLine, _) => {}
            }
            taken.keys.push(key);
            *self = if matches!(key, b'\r' | b'\n') { Self::LineStart } else { Self::InLine };
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
        assert_eq!(escape.take(b"\r~?x"), Taken { keys: b"\rx".to_vec(), ended: false, asked: true });
    }

    #[test]
    fn other_tildes_pass() {
        assert_eq!(take(&[b"cd ~.\r~~.\r~x"]), ("cd ~.\r~.\r~x".to_owned(), false));
    }
}
