//! Replaces secrets in one stream of output.

use std::fmt;

use secrecy::zeroize::Zeroizing;

use super::form::Found;
use super::hidden_secret::HiddenSecret;

/// Replaces secrets in one stream of output, which comes in pieces.
pub struct Scrubber {
    secrets: Vec<HiddenSecret>,
    /// For each byte, whether a form of a secret may begin with it.
    may_begin: [bool; 256],
    /// The last bytes of the stream so far, which may be the start of a secret.
    held: Zeroizing<Vec<u8>>,
}

/// What a text begins with.
enum Start<'a> {
    /// A secret, which takes this many bytes.
    Secret(&'a HiddenSecret, usize),
    /// Perhaps a secret, or a longer one: the text ends too early to tell.
    Undecided,
    Nothing,
}

impl Default for Scrubber {
    fn default() -> Self {
        Self {
            secrets: Vec::new(),
            may_begin: [false; 256],
            held: Zeroizing::default(),
        }
    }
}

impl Scrubber {
    /// Hides a secret from here on.
    pub fn hide(&mut self, secret: HiddenSecret) {
        let is_known =
            |known: &HiddenSecret| known.name() == secret.name() && known.forms == secret.forms;
        if self.secrets.iter().any(is_known) {
            return;
        }
        for byte in secret.forms.iter().flat_map(|form| form.first_bytes()) {
            self.may_begin[usize::from(byte)] = true;
        }
        self.secrets.push(secret);
    }

    /// Takes the next bytes of the stream, and returns the bytes that are decided.
    pub fn take(&mut self, bytes: &[u8]) -> Vec<u8> {
        self.held.extend_from_slice(bytes);
        self.decide(false)
    }

    /// Returns the bytes that were held back: the stream has ended, so they are no secret.
    pub fn finish(&mut self) -> Vec<u8> {
        self.decide(true)
    }

    fn decide(&mut self, is_end: bool) -> Vec<u8> {
        let text = std::mem::take(&mut self.held);
        let mut decided = Vec::with_capacity(text.len());
        let mut at = 0;
        while let Some(rest) = text.get(at..).filter(|rest| !rest.is_empty()) {
            let harmless = rest.iter().take_while(|byte| !self.may_begin[usize::from(**byte)]);
            let count = harmless.count();
            decided.extend_from_slice(&rest[..count]);
            at += count;
            if count == rest.len() {
                break;
            }
            match self.start_of(&rest[count..], is_end) {
                Start::Secret(secret, length) => {
                    decided.extend_from_slice(secret.replacement().as_bytes());
                    at += length;
                }
                Start::Undecided => break,
                Start::Nothing => {
                    decided.push(rest[count]);
                    at += 1;
                }
            }
        }
        self.held.extend_from_slice(&text[at..]);
        decided
    }

    /// The longest secret at the start of a text.
    fn start_of(&self, text: &[u8], is_end: bool) -> Start<'_> {
        let mut longest = Start::Nothing;
        for secret in &self.secrets {
            for form in &secret.forms {
                match form.find_at_start(text) {
                    Found::Whole(length) => {
                        let known = match longest {
                            Start::Secret(_, known) => known,
                            Start::Undecided | Start::Nothing => 0,
                        };
                        if length > known {
                            longest = Start::Secret(secret, length);
                        }
                    }
                    // More bytes may make it the longest one.
                    Found::Partial if !is_end => return Start::Undecided,
                    Found::Partial | Found::Nothing => {}
                }
            }
        }
        longest
    }
}

impl fmt::Debug for Scrubber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.secrets.iter().map(HiddenSecret::name).collect();
        f.debug_struct("Scrubber").field("secrets", &names).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
