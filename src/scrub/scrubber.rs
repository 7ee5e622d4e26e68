//! Replaces secrets in one stream of output.

use std::fmt;

use secrecy::zeroize::Zeroizing;
use secrecy::{ExposeSecret, SecretString};

use super::form::{FormMatch, is_line_end};
use super::hidden_secret::HiddenSecret;

/// Replaces secrets in one stream of output, which comes in pieces.
pub struct Scrubber {
    secrets: Vec<HiddenSecret>,
    /// For each byte, whether a form of a secret may begin with it.
    may_begin: [bool; 256],
    /// The last bytes of the stream so far, which may be the start of a secret.
    held: Zeroizing<Vec<u8>>,
    /// The last returned byte that is not a line end, if a secret may begin with it.
    last_byte: Option<u8>,
    /// Whether line ends have followed it.
    is_new_line: bool,
}

/// The start of a text.
enum Start<'a> {
    /// A secret, which takes this many bytes.
    Secret(&'a HiddenSecret, usize),
    /// Perhaps a secret, or a longer one, once more bytes come.
    Undecided,
    Nothing,
}

/// Returns a whole text with a secret replaced by its name.
pub fn hide_in(text: String, name: &str, value: &SecretString) -> String {
    if !HiddenSecret::is_long_enough(value) {
        return hide_short(text, name, value.expose_secret());
    }
    let mut scrubber = Scrubber::default();
    scrubber.hide(HiddenSecret::new(name, value.clone()));
    let mut shown = scrubber.take(text.as_bytes());
    shown.extend(scrubber.finish());
    String::from_utf8_lossy(&shown).into_owned()
}

/// Like [`hide_in`], for a secret too short for the scrubber. It may also replace other text that happens to be
/// equal.
fn hide_short(text: String, name: &str, value: &str) -> String {
    if value.is_empty() {
        return text;
    }
    text.replace(value, &format!("[secret {name}]"))
}

impl Default for Scrubber {
    fn default() -> Self {
        Self {
            secrets: Vec::new(),
            may_begin: [false; 256],
            held: Zeroizing::default(),
            last_byte: None,
            is_new_line: false,
        }
    }
}

impl Scrubber {
    /// Hides a secret in bytes that come later.
    pub fn hide(&mut self, secret: HiddenSecret) {
        if self.secrets.contains(&secret) {
            return;
        }
        for byte in secret.forms().iter().flat_map(|form| form.first_bytes()) {
            self.may_begin[usize::from(byte)] = true;
        }
        self.secrets.push(secret);
    }

    /// Takes the next bytes of the stream, and returns the output that can't change any more.
    pub fn take(&mut self, bytes: &[u8]) -> Vec<u8> {
        self.held.extend_from_slice(bytes);
        self.decide(false)
    }

    /// Returns the bytes that were held back: the stream has ended, so no secret can be completed.
    pub fn finish(&mut self) -> Vec<u8> {
        self.decide(true)
    }

    fn decide(&mut self, is_end: bool) -> Vec<u8> {
        let text = std::mem::take(&mut self.held);
        let mut decided = Vec::with_capacity(text.len());
        let mut at = 0;
        while at < text.len() {
            let rest = &text[at..];
            match self.start_of(rest, is_end) {
                Start::Secret(secret, length) => {
                    decided.extend_from_slice(secret.replacement().as_bytes());
                    at += length;
                    self.last_byte = None;
                    self.is_new_line = false;
                }
                Start::Undecided => break,
                Start::Nothing => {
                    decided.push(rest[0]);
                    at += 1;
                    self.note_returned(rest[0]);
                }
            }
        }
        self.held.extend_from_slice(&text[at..]);
        decided
    }

    fn note_returned(&mut self, byte: u8) {
        if is_line_end(byte) {
            self.is_new_line = true;
        } else {
            self.last_byte = self.may_begin[usize::from(byte)].then_some(byte);
            self.is_new_line = false;
        }
    }

    /// The longest secret at the start of a text.
    fn start_of(&self, text: &[u8], is_end: bool) -> Start<'_> {
        let may_begin_here = self.may_begin[usize::from(text[0])];
        let last_byte = if self.is_new_line {
            self.last_byte
        } else {
            None
        };
        if !may_begin_here && last_byte.is_none() {
            return Start::Nothing;
        }

        let mut longest = None;
        let mut longest_length = 0;
        for secret in &self.secrets {
            for form in secret.forms() {
                let whole = form.find_at_start(text);
                let rest = match last_byte {
                    Some(first) => form.find_rest_at_start(first, text),
                    None => FormMatch::Nothing,
                };
                for found in [whole, rest] {
                    match found {
                        FormMatch::Whole(length) if length > longest_length => {
                            longest = Some(secret);
                            longest_length = length;
                        }
                        // More bytes may make it the longest one.
                        FormMatch::Partial if !is_end => return Start::Undecided,
                        FormMatch::Whole(_) | FormMatch::Partial | FormMatch::Nothing => {}
                    }
                }
            }
        }
        match longest {
            Some(secret) => Start::Secret(secret, longest_length),
            None => Start::Nothing,
        }
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
