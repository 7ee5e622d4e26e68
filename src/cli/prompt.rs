use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};

use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};
use secrecy::SecretString;
use secrecy::zeroize::Zeroizing;

use super::exit::printable;
use crate::api::{Answer, Prompter, Question};

/// Asks the person at the terminal (`/dev/tty`, whatever stdin is), as ssh does.
#[derive(Debug)]
pub struct TerminalPrompter(());

impl TerminalPrompter {
    /// None where there is no terminal.
    pub fn new() -> Option<Self> {
        open().is_ok().then_some(Self(()))
    }
}

impl Prompter for TerminalPrompter {
    fn ask<'a>(&'a self, question: &'a Question) -> Answer<'a> {
        let (text, echo) = (format!("({}) {}", question.host, question.text), question.echo);
        Box::pin(async move {
            let asked = tokio::task::spawn_blocking(move || ask(&text, echo)).await.ok()?;
            asked.inspect_err(|error| tracing::warn!(%error, "the terminal can't be asked")).ok()?
        })
    }
}

fn open() -> io::Result<File> {
    OpenOptions::new().read(true).write(true).open("/dev/tty")
}

/// The terminal's own settings; they come back when this is dropped.
struct Quiet<'a> {
    terminal: &'a File,
    before: Termios,
}

impl<'a> Quiet<'a> {
    /// Keys come one by one and unseen. Ctrl-C is a key, too, so that it can't leave the terminal like this.
    fn new(terminal: &'a File) -> io::Result<Self> {
        let before = tcgetattr(terminal)?;
        let mut quiet = before.clone();
        quiet.local_modes -= LocalModes::ECHO | LocalModes::ICANON | LocalModes::ISIG;
        tcsetattr(terminal, OptionalActions::Flush, &quiet)?;
        Ok(Self { terminal, before })
    }
}

impl Drop for Quiet<'_> {
    fn drop(&mut self) {
        // A terminal that is gone needs no giving back.
        tcsetattr(self.terminal, OptionalActions::Now, &self.before).ok();
    }
}

fn ask(text: &str, echo: bool) -> io::Result<Option<SecretString>> {
    let terminal = open()?;
    let _quiet = Quiet::new(&terminal)?;
    write!(&terminal, "{}", printable(text))?;
    let answer = read_answer(&terminal, &terminal, echo);
    // Enter was not shown.
    write!(&terminal, "\r\n")?;
    answer
}

/// Reads keys up to Enter. None when the person gives up (Ctrl-C, Ctrl-D).
fn read_answer(mut keys: impl Read, mut screen: impl Write, echo: bool) -> io::Result<Option<SecretString>> {
    let mut line = Zeroizing::new(Vec::with_capacity(256));
    let mut key = [0];
    while keys.read(&mut key)? > 0 {
        match key[0] {
            b'\r' | b'\n' => {
                return Ok(Some(String::from_utf8_lossy(&line).into_owned().into()));
            }
            0x03 | 0x04 => return Ok(None),
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
    Ok(None)
}

/// Takes the last character away.
fn erase(line: &mut Vec<u8>) {
    while line.pop().is_some_and(|byte| byte & 0xc0 == 0x80) {}
}

#[cfg(test)]
mod tests {
    use secrecy::ExposeSecret;

    use super::*;

    fn typed(keys: &[u8]) -> Option<String> {
        read_answer(keys, io::sink(), false).unwrap().map(|answer| answer.expose_secret().to_owned())
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
