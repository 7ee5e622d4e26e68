//! Asks for passwords on the terminal, without echo. The terminal is restored even if a signal
//! arrives.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Signal, getpid, kill_process};
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};
use secrecy::SecretString;
use secrecy::zeroize::Zeroizing;
use tokio::signal::unix::{SignalKind, signal};

use sshjobs_base::lock::lock;
use sshjobs_core::jobs::{Answer, Prompter, Question, printable};

/// The question on the terminal, as it was printed. Nothing may be written beside it.
static QUESTION: Mutex<Option<String>> = Mutex::new(None);
/// Whether the row of the cursor has a progress bar.
static HAS_BAR: AtomicBool = AtomicBool::new(false);
/// Returns to the first column and deletes the row.
const CLEAR_ROW: &[u8] = b"\r\x1b[K";

/// Whether a person is being asked. Progress is not drawn meanwhile.
pub(crate) fn is_asking() -> bool {
    lock(&QUESTION).is_some()
}

/// Notes whether the row of the cursor has a progress bar, which a question replaces.
pub(crate) fn note_bar(is_drawn: bool) {
    HAS_BAR.store(is_drawn, Relaxed);
}

/// Writes to the terminal. A question that is open is printed again below. Must not be nested.
pub(crate) fn above_question<T>(write: impl FnOnce() -> T) -> T {
    let question = lock(&QUESTION);
    let terminal = question.as_ref().and_then(|_| open().ok());
    // Ignored: a closed terminal shows no question either.
    if let Some(terminal) = &terminal {
        (&*terminal).write_all(CLEAR_ROW).ok();
    }
    let done = write();
    if let (Some(terminal), Some(question)) = (&terminal, question.as_deref()) {
        (&*terminal).write_all(question.as_bytes()).ok();
    }
    done
}

/// Asks the person at the terminal (`/dev/tty`, even if stdin is redirected), as ssh does.
#[derive(Debug)]
pub struct TerminalPrompter(());

impl TerminalPrompter {
    /// `None` without a terminal.
    pub fn new() -> Option<Self> {
        open().is_ok().then_some(Self(()))
    }
}

impl Prompter for TerminalPrompter {
    fn ask<'a>(&'a self, question: &'a Question) -> Answer<'a> {
        let text = format!("({}) {}", question.host, question.text);
        Box::pin(async move {
            match ask(&text, question.echo).await {
                Ok(Typed::Answer(answer)) => Some(answer),
                Ok(Typed::GivenUp) => None,
                Ok(Typed::Interrupted(signal)) => {
                    // The terminal is restored, so the signal acts as if the key had been pressed
                    // there.
                    kill_process(getpid(), signal).ok();
                    None
                }
                Err(error) => {
                    tracing::warn!(%error, "the terminal can't be asked");
                    None
                }
            }
        })
    }
}

fn open() -> io::Result<File> {
    OpenOptions::new().read(true).write(true).open("/dev/tty")
}

/// Result of typing.
#[derive(Debug)]
enum Typed {
    Answer(SecretString),
    GivenUp,
    Interrupted(Signal),
}

/// Our terminal while keys are read one by one without echo. Dropping this restores it and ends the
/// reading.
struct Quiet {
    terminal: Arc<File>,
    before: Termios,
    is_over: Arc<AtomicBool>,
}

impl Quiet {
    /// Ctrl-C is read as a key, too, so that it can't leave the terminal in this mode.
    fn new(terminal: Arc<File>) -> io::Result<Self> {
        let before = tcgetattr(&terminal)?;
        let mut quiet = before.clone();
        quiet.local_modes -= LocalModes::ECHO | LocalModes::ICANON | LocalModes::ISIG;
        // Flush: keys typed before the question are not an answer to it.
        tcsetattr(&terminal, OptionalActions::Flush, &quiet)?;
        Ok(Self {
            terminal,
            before,
            is_over: Arc::default(),
        })
    }

    /// The keys as they are pressed, until this is dropped.
    fn keys(&self) -> impl FnMut() -> io::Result<Option<u8>> + Send + 'static {
        let terminal = Arc::clone(&self.terminal);
        let is_over = Arc::clone(&self.is_over);
        let moment = Timespec {
            tv_sec: 0,
            tv_nsec: 50_000_000,
        };
        move || loop {
            if is_over.load(Relaxed) {
                return Ok(None);
            }
            if poll(&mut [PollFd::new(&terminal, PollFlags::IN)], Some(&moment))? > 0 {
                let mut key = [0];
                return Ok(((&*terminal).read(&mut key)? > 0).then_some(key[0]));
            }
        }
    }
}

impl Drop for Quiet {
    fn drop(&mut self) {
        self.is_over.store(true, Relaxed);
        *lock(&QUESTION) = None;
        // A closed terminal needs no restoring. Enter was not echoed.
        tcsetattr(&self.terminal, OptionalActions::Now, &self.before).ok();
        (&*self.terminal).write_all(b"\r\n").ok();
    }
}

async fn ask(text: &str, echo: bool) -> io::Result<Typed> {
    // Before the terminal changes: from here on these signals can't end the program without
    // restoring it.
    let mut ends = [SignalKind::terminate(), SignalKind::hangup()].map(signal);
    let [Ok(terminate), Ok(hang_up)] = &mut ends else {
        return Err(io::Error::other("signals can't be caught"));
    };
    let quiet = Quiet::new(Arc::new(open()?))?;
    let screen = Arc::clone(&quiet.terminal);
    {
        let mut question = lock(&QUESTION);
        if HAS_BAR.swap(false, Relaxed) {
            (&*screen).write_all(CLEAR_ROW)?;
        }
        let shown = printable(text);
        (&*screen).write_all(shown.as_bytes())?;
        *question = Some(shown);
    }
    let keys = quiet.keys();
    let reading = tokio::task::spawn_blocking(move || read_answer(keys, &*screen, echo));
    tokio::select! {
        typed = reading => typed.unwrap_or_else(|error| Err(io::Error::other(error))),
        _ = terminate.recv() => Ok(Typed::GivenUp),
        _ = hang_up.recv() => Ok(Typed::GivenUp),
    }
}

/// Reads keys until Enter, or a key that cancels.
fn read_answer(
    mut next_key: impl FnMut() -> io::Result<Option<u8>>,
    mut screen: impl Write,
    echo: bool,
) -> io::Result<Typed> {
    // Growing would leave a copy of the secret that is not wiped.
    let mut line = Zeroizing::new(Vec::with_capacity(256));
    while let Some(key) = next_key()? {
        match key {
            b'\r' | b'\n' => {
                return Ok(Typed::Answer(
                    String::from_utf8_lossy(&line).into_owned().into(),
                ));
            }
            // Ctrl with C, \, D, H and U, which the terminal does not handle in this mode.
            0x03 => return Ok(Typed::Interrupted(Signal::INT)),
            0x1c => return Ok(Typed::Interrupted(Signal::QUIT)),
            0x04 => return Ok(Typed::GivenUp),
            0x08 | 0x7f => erase(&mut line),
            0x15 => line.clear(),
            key => {
                line.push(key);
                if echo {
                    screen.write_all(&[key])?;
                }
            }
        }
    }
    Ok(Typed::GivenUp)
}

/// Erases the last character.
fn erase(line: &mut Vec<u8>) {
    while line.pop().is_some_and(|byte| byte & 0xc0 == 0x80) {}
}

#[cfg(test)]
mod tests {
    use secrecy::ExposeSecret;

    use super::*;

    fn typed(keys: &[u8]) -> Option<String> {
        let mut keys = keys.iter().copied();
        match read_answer(|| Ok(keys.next()), io::sink(), false).unwrap() {
            Typed::Answer(answer) => Some(answer.expose_secret().to_owned()),
            Typed::GivenUp | Typed::Interrupted(_) => None,
        }
    }

    #[test]
    fn keys_make_a_line_that_can_be_mended() {
        assert_eq!(typed(b"secret\r").as_deref(), Some("secret"));
        assert_eq!(typed("sé\x7fecret\n".as_bytes()).as_deref(), Some("secret"));
        assert_eq!(typed(b"wrong\x15right\n").as_deref(), Some("right"));
        assert_eq!(typed(b"\x7f\n").as_deref(), Some(""));
    }

    #[test]
    fn a_person_can_give_up() {
        assert_eq!(typed(b"sec\x03ret\n"), None);
        assert_eq!(typed(b"\x04"), None);
        assert_eq!(typed(b"unfinished"), None);
    }
}
