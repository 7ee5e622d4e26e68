use std::future::pending;
use std::time::Duration;

use tokio::io::{AsyncReadExt, Stdin, stdin};
use tokio::sync::mpsc;

use crate::api::{Code, Service};

/// How long a command that does not read is waited for before looking again whether the job is over.
const PATIENCE: Duration = Duration::from_secs(3600);

/// How many reads of keys may wait for a command that does not take them.
const KEYS_AHEAD: usize = 256;

/// Passes our stdin on to a job until it ends or the job does.
pub(super) async fn forward(service: &Service, job_id: &str) {
    let mut input = stdin();
    let mut buffer = vec![0; 32 << 10];
    while let Some(length) = read(&mut input, &mut buffer).await {
        if let Err(error) = service.write_bytes(job_id, &buffer[..length], PATIENCE).await {
            // A command need not read its stdin to its end.
            tracing::debug!(%error, "stdin is not passed on any further");
            return;
        }
    }
    end(service, job_id).await;
}

/// Passes the keys of our terminal on to a job; returns when those were pressed that end everything. These are seen also
/// while the command, or the host, takes no others.
pub(super) async fn forward_keys(service: &Service, job_id: &str) {
    let (sender, mut keys) = mpsc::channel::<Vec<u8>>(KEYS_AHEAD);
    let passing = async {
        while let Some(keys) = keys.recv().await {
            if let Err(error) = service.write_bytes(job_id, &keys, PATIENCE).await {
                tracing::debug!(%error, "a key was not passed on");
            }
        }
        end(service, job_id).await;
        pending().await
    };
    tokio::select! {
        () = read_keys(sender) => {}
        never = passing => never,
    }
}

async fn read_keys(sender: mpsc::Sender<Vec<u8>>) {
    let (mut input, mut buffer) = (stdin(), vec![0; 4 << 10]);
    let mut escape = EscapeKeys::default();
    while let Some(length) = read(&mut input, &mut buffer).await {
        let (keys, ended) = escape.take(&buffer[..length]);
        if ended {
            return;
        }
        if sender.try_send(keys).is_err() {
            tracing::debug!("keys are lost: nobody takes them");
        }
    }
    drop(sender);
    pending().await
}

/// Ends the job's stdin. It is no mistake when the job is over.
pub(super) async fn end(service: &Service, job_id: &str) {
    if let Err(error) = service.close_stdin(job_id).await
        && error.code != Code::JobEnded
    {
        tracing::debug!(%error, "stdin could not be ended");
    }
}

/// How much was read; none at the end.
async fn read(input: &mut Stdin, buffer: &mut [u8]) -> Option<usize> {
    match input.read(buffer).await {
        Ok(length) => Some(length).filter(|length| *length > 0),
        Err(error) => {
            tracing::warn!(%error, "stdin can't be read");
            None
        }
    }
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
    /// What of `keys` is to be passed on, and whether they say that all is over.
    fn take(&mut self, keys: &[u8]) -> (Vec<u8>, bool) {
        let mut passed = Vec::with_capacity(keys.len() + 1);
        for &key in keys {
            match (*self, key) {
                (Self::LineStart, b'~') => {
                    *self = Self::Tilde;
                    continue;
                }
                (Self::Tilde, b'.') => return (passed, true),
                (Self::Tilde, b'~') => {}
                (Self::Tilde, _) => passed.push(b'~'),
                (Self::LineStart | Self::InLine, _) => {}
            }
            passed.push(key);
            *self = if matches!(key, b'\r' | b'\n') { Self::LineStart } else { Self::InLine };
        }
        (passed, false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(keys: &[&[u8]]) -> (String, bool) {
        let mut escape = EscapeKeys::default();
        let mut passed = Vec::new();
        for keys in keys {
            let (more, ended) = escape.take(keys);
            passed.extend(more);
            if ended {
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
    fn other_tildes_pass() {
        assert_eq!(take(&[b"cd ~.\r~~.\r~x"]), ("cd ~.\r~.\r~x".to_owned(), false));
    }
}
