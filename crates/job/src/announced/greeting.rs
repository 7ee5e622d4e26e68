//! The first line that a shell on a host prints for us: `NONCE PID sshjobs-machine:…`.
//!
//! It proves that a shell runs our commands there. Its process id is that of the shell, and the
//! rest identifies the machine.

use memchr::memmem;

use super::announcements::{MOST_NOISE, process_group};
use super::machine_id::MachineId;
use crate::Nonce;

/// Finds the greeting in a shell's stdout. Startup files may have printed something before it.
#[derive(Debug)]
pub struct Greeting {
    nonce: Nonce,
    /// Output that may still contain the greeting.
    unread: Vec<u8>,
    read_bytes: usize,
}

/// Result of reading output up to the greeting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Greeted {
    /// The greeting is not complete; more output is needed.
    NotYet,
    /// A shell greeted, on this machine if the host reports one.
    By(Option<MachineId>),
    /// Too much other output came first, so no greeting is expected.
    Never,
}

impl Greeting {
    /// Expects a line that starts with `nonce`.
    pub fn new(nonce: &Nonce) -> Self {
        Self {
            nonce: nonce.clone(),
            unread: Vec::new(),
            read_bytes: 0,
        }
    }

    /// Reads the next bytes of stdout.
    pub fn read(&mut self, bytes: &[u8]) -> Greeted {
        self.read_bytes += bytes.len();
        self.unread.extend_from_slice(bytes);
        let nonce = self.nonce.as_str().as_bytes();

        while let Some(start) = memmem::find(&self.unread, nonce) {
            let rest = &self.unread[start + nonce.len()..];
            let Some(end) = memchr::memchr(b'\n', rest) else { break };
            let line = &rest[..end];
            if process_group(line).is_some() {
                return Greeted::By(machine(line));
            }
            // An echo of our command, which has the nonce too. The greeting may follow.
            let skipped = start + nonce.len() + end;
            self.unread.drain(..skipped);
        }
        // After the search, so that a greeting within the last chunk counts.
        if self.read_bytes > MOST_NOISE {
            Greeted::Never
        } else {
            Greeted::NotYet
        }
    }
}

/// Whether output repeats part of a command that greets, as an echo or an error message does. All
/// such commands contain this word; a probe writes it with quotes after the first letter, so that an
/// echo of its text is not taken for its answer.
pub fn repeats_our_command(output: &[u8]) -> bool {
    let word = b"shjobs";
    output.windows(word.len()).any(|window| window.eq_ignore_ascii_case(word))
}

fn machine(line: &[u8]) -> Option<MachineId> {
    let text = std::str::from_utf8(line).ok()?;
    MachineId::parse(text.trim_start().split_once(' ')?.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_greeting_is_found_behind_noise_in_any_pieces() {
        let nonce = Nonce::new();
        let output = format!("motd\n{} 4711\r\nthe command's own\n", nonce.as_str());

        let mut greeting = Greeting::new(&nonce);
        let found = output
            .bytes()
            .map(|byte| greeting.read(&[byte]))
            .find(|found| *found != Greeted::NotYet);

        assert_eq!(found, Some(Greeted::By(None)));
    }

    #[test]
    fn a_repeated_command_is_not_a_greeting() {
        let nonce = Nonce::new();
        let mut greeting = Greeting::new(&nonce);

        let repeated = greeting.read(format!("you said: echo {} $$\n", nonce.as_str()).as_bytes());
        let greeted = greeting.read(format!("{} 4711\n", nonce.as_str()).as_bytes());

        assert_eq!((repeated, greeted), (Greeted::NotYet, Greeted::By(None)));
    }

    #[test]
    fn a_host_that_prints_much_else_does_not_greet() {
        let mut greeting = Greeting::new(&Nonce::new());

        assert_eq!(greeting.read(&vec![b'x'; MOST_NOISE]), Greeted::NotYet);
        assert_eq!(greeting.read(b"x"), Greeted::Never);
    }
}
