use std::time::Duration;

use tokio::io::{AsyncReadExt, stdin};

use crate::api::{Code, Service};

/// How long a command that does not read is waited for before looking again whether the job is over.
const PATIENCE: Duration = Duration::from_secs(3600);

/// Passes our stdin on to a job until it ends or the job does, then waits for ever: it is for a `select!`. It returns when
/// the keys that end everything were pressed.
pub(super) async fn forward(service: &Service, job_id: &str, mut escape: Option<EscapeKeys>) {
    let mut input = stdin();
    let mut buffer = vec![0; 32 << 10];
    loop {
        match input.read(&mut buffer).await {
            Ok(length @ 1..) => {
                let (keys, ended) = match &mut escape {
                    Some(escape) => escape.take(&buffer[..length]),
                    None => (buffer[..length].to_vec(), false),
                };
                if let Err(error) = service.write_bytes(job_id, &keys, PATIENCE).await {
                    // A command need not read its stdin to its end.
                    tracing::debug!(%error, "stdin is not passed on any further");
                    break;
                }
                if ended {
                    return;
                }
            }
            Ok(0) => {
                if let Err(error) = service.close_stdin(job_id).await
                    && error.code != Code::JobEnded
                {
                    tracing::debug!(%error, "stdin could not be ended");
                }
                break;
            }
            Err(error) => {
                tracing::warn!(%error, "stdin can't be read");
                break;
            }
        }
    }
    std::future::pending().await
}

/// Looks for `~.` at the start of a line among the keys that are pressed, as ssh does: the way out when all other keys go to
/// a host that does not answer. `~~` is a tilde.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum EscapeKeys {
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
