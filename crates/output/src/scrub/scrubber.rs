//! Replaces secrets in one stream of output.

use std::fmt;

use secrecy::zeroize::Zeroizing;
use secrecy::{ExposeSecret, SecretString};

use super::form::{FormMatch, is_line_end};
use super::hidden_secret::HiddenSecret;

/// Bytes of a possible secret that may be shown before it is known to be one. If it is, they take the place of `[secret ` in
/// its replacement, so that the length of the output does not depend on when they were shown.
const MAX_SHOWN_EARLY: usize = "[secret ".len();

/// Replaces secrets in one stream of output, which comes in pieces.
pub struct Scrubber {
    secrets: Vec<HiddenSecret>,
    /// For each byte, whether a form of a secret may begin with it.
    may_begin: [bool; 256],
    /// The last bytes of the stream so far, which may be the start of a secret.
    held: Zeroizing<Vec<u8>>,
    /// Bytes of the output for `held` that were returned already.
    shown_early: usize,
    /// The last returned byte that is not a line end, if a secret may begin with it.
    last_byte: Option<u8>,
    /// Whether line ends have followed it.
    is_new_line: bool,
}

/// The start of a text.
enum MatchStart<'a> {
    /// A secret, which takes this many bytes.
    Secret(&'a HiddenSecret, usize),
    /// Perhaps a secret, or a longer one, once more bytes come.
    Undecided(Candidate),
    Nothing,
}

/// What may become a secret.
#[derive(Clone, Copy)]
struct Candidate {
    evidence: Evidence,
    /// Bytes of the shortest form that it may become.
    shortest: usize,
}

/// How much of a secret is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Evidence {
    /// Less than a third of any.
    Weak,
    /// At least a third of one.
    Strong,
    /// All of one, and it may become a longer one.
    Complete,
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
            shown_early: 0,
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

    /// Takes the next bytes of the stream, and returns the output for them, without the last bytes if they are at least a
    /// third of a secret, or more than eight bytes of one. Fewer are not held back: otherwise whoever chooses a part of the
    /// output would learn from its delay how a secret begins.
    pub fn take(&mut self, bytes: &[u8]) -> Vec<u8> {
        self.held.extend_from_slice(bytes);
        let mut output = self.decide(false);
        output.extend(self.show_early(Evidence::Weak));
        output
    }

    /// Returns bytes that were held back although no more have come for a while: at most eight, and half of a secret. The others
    /// wait for the next bytes.
    pub fn release(&mut self) -> Vec<u8> {
        self.show_early(Evidence::Strong)
    }

    /// Whether bytes are held back that [`release`](Self::release) may return.
    pub fn holds_bytes(&self) -> bool {
        self.held.len() > self.shown_early
    }

    /// Returns the bytes that were held back: the stream has ended, so no secret can be completed.
    pub fn finish(&mut self) -> Vec<u8> {
        self.decide(true)
    }

    /// Returns the first held bytes, up to one with which a secret begins for which more speaks than `limit`, or a control
    /// character: neither the number of lines nor a control sequence may depend on what is shown early.
    fn show_early(&mut self, limit: Evidence) -> Vec<u8> {
        let mut end = 0;
        let mut most = self.held.len().min(MAX_SHOWN_EARLY);
        while end < most && !self.held[end].is_ascii_control() {
            match self.start_of(&self.held[end..], false) {
                MatchStart::Secret(..) => break,
                MatchStart::Undecided(candidate) if candidate.evidence > limit => break,
                MatchStart::Undecided(candidate) => most = most.min(end + candidate.shortest / 2),
                MatchStart::Nothing => {}
            }
            if end < most {
                end += 1;
            }
        }
        // No character is cut.
        if let Err(error) = std::str::from_utf8(&self.held[..end]) {
            end = error.valid_up_to();
        }
        let new = self.held.get(self.shown_early..end).unwrap_or_default().to_vec();
        self.shown_early = self.shown_early.max(end);
        new
    }

    fn decide(&mut self, is_end: bool) -> Vec<u8> {
        let text = std::mem::take(&mut self.held);
        let mut decided = Vec::with_capacity(text.len());
        let mut at = 0;
        while at < text.len() {
            let rest = &text[at..];
            match self.start_of(rest, is_end) {
                MatchStart::Secret(secret, length) => {
                    decided.extend_from_slice(secret.replacement().as_bytes());
                    at += length;
                    self.last_byte = None;
                    self.is_new_line = false;
                }
                MatchStart::Undecided(_) => break,
                MatchStart::Nothing => {
                    decided.push(rest[0]);
                    at += 1;
                    self.note_returned(rest[0]);
                }
            }
        }
        self.held.extend_from_slice(&text[at..]);
        let new = decided.split_off(self.shown_early.min(decided.len()));
        self.shown_early -= decided.len();
        new
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
    fn start_of(&self, text: &[u8], is_end: bool) -> MatchStart<'_> {
        let may_begin_here = self.may_begin[usize::from(text[0])];
        let last_byte = if self.is_new_line {
            self.last_byte
        } else {
            None
        };
        if !may_begin_here && last_byte.is_none() {
            return MatchStart::Nothing;
        }

        let mut longest = None;
        let mut longest_length = 0;
        let mut candidate: Option<Candidate> = None;
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
                        FormMatch::Partial { is_likely, of } if !is_end => {
                            let this = if is_likely {
                                Evidence::Strong
                            } else {
                                Evidence::Weak
                            };
                            candidate = Some(Candidate {
                                evidence: candidate.map_or(this, |other| other.evidence.max(this)),
                                shortest: candidate.map_or(of, |other| other.shortest.min(of)),
                            });
                        }
                        FormMatch::Whole(_) | FormMatch::Partial { .. } | FormMatch::Nothing => {}
                    }
                }
            }
        }
        match (longest, candidate) {
            (None, Some(candidate)) => MatchStart::Undecided(candidate),
            (Some(_), Some(candidate)) => MatchStart::Undecided(Candidate {
                evidence: Evidence::Complete,
                ..candidate
            }),
            (Some(secret), None) => MatchStart::Secret(secret, longest_length),
            (None, None) => MatchStart::Nothing,
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
