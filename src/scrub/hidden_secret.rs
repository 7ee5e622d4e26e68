//! A secret that a job's output must not show.

use base64::Engine;
use base64::prelude::{BASE64_STANDARD_NO_PAD, BASE64_URL_SAFE_NO_PAD};
use secrecy::zeroize::Zeroizing;
use secrecy::{ExposeSecret, SecretString};

use super::form::{Form, Style};

/// A secret that the output of a job must not show: its name, its value and the forms of the value.
/// `Debug` does not show the value.
#[derive(Clone, Debug)]
pub struct HiddenSecret {
    name: String,
    value: SecretString,
    pub(super) forms: Vec<Form>,
}

/// Minimum length of a secret in bytes: a shorter one occurs in output by chance.
pub const SHORTEST: usize = 4;

/// Minimum length of a line of a secret with several lines: a shorter one occurs in output by chance.
const SHORTEST_LINE: usize = 8;

/// Minimum length of the part of a base64 text that is the same wherever the value stands in the
/// encoded text.
const SHORTEST_INNER_BASE64: usize = 6;

impl HiddenSecret {
    /// A secret with at least [`SHORTEST`] bytes.
    pub fn new(name: impl Into<String>, value: SecretString) -> Self {
        let forms = forms(value.expose_secret());
        Self {
            name: name.into(),
            value,
            forms,
        }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its value.
    pub fn value(&self) -> &SecretString {
        &self.value
    }

    /// The text that replaces it in output.
    pub(super) fn replacement(&self) -> String {
        format!("[secret {}]", self.name)
    }
}

fn forms(value: &str) -> Vec<Form> {
    let mut forms = Vec::new();
    let mut add = |bytes: &[u8], style| {
        let form = Form::new(bytes, style);
        // Many values look the same in several forms.
        forms.extend(form.filter(|form| !forms.contains(form)));
    };
    add(value.as_bytes(), Style::Plain);
    add(value.as_bytes(), Style::Backslashes);
    add(value.as_bytes(), Style::Percent);
    // A command may print some lines of a key.
    for line in value.lines().filter(|line| line.len() >= SHORTEST_LINE) {
        add(line.as_bytes(), Style::Plain);
    }
    for text in quoted(value) {
        add(text.as_bytes(), Style::Plain);
    }
    for text in base64(value.as_bytes()) {
        add(text.as_bytes(), Style::Plain);
    }
    forms
}

/// The value in single quotes, as shells and Python's `shlex` write it, with and without the outer
/// quotes; and with the escapes of JSON, which are those of `$'…'`, too.
fn quoted(value: &str) -> Vec<Zeroizing<String>> {
    let mut texts = Vec::new();
    for quote in [r"'\''", r#"'"'"'"#] {
        let inner = value.replace('\'', quote);
        // Shells quote only what needs it.
        if value.bytes().any(|byte| !byte.is_ascii_alphanumeric()) {
            texts.push(Zeroizing::new(format!("'{inner}'")));
        }
        texts.push(Zeroizing::new(inner));
    }
    if let Ok(json) = serde_json::to_string(value) {
        let json = Zeroizing::new(json);
        let inner = json.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
        texts.extend(inner.map(|inner| Zeroizing::new(inner.to_owned())));
    }
    texts
}

/// The value in base64 (RFC 4648), in both alphabets: alone, with and without padding; and inside of a
/// longer text that was encoded, such as `USER:VALUE` of HTTP's basic authentication.
fn base64(value: &[u8]) -> Vec<Zeroizing<String>> {
    let mut texts = Vec::new();
    for engine in [&BASE64_STANDARD_NO_PAD, &BASE64_URL_SAFE_NO_PAD] {
        let whole = Zeroizing::new(engine.encode(value));
        let padding = "=".repeat((3 - value.len() % 3) % 3);
        texts.push(Zeroizing::new(format!("{}{padding}", *whole)));
        texts.push(whole);

        for bytes_before in 0..3 {
            let mut shifted = Zeroizing::new(vec![0; bytes_before]);
            shifted.extend_from_slice(value);
            let encoded = Zeroizing::new(engine.encode(&*shifted));
            // A character has 6 bits: the first ones and the last one depend on the neighbours, too.
            let first = (bytes_before * 8).div_ceil(6);
            let last = shifted.len() * 8 / 6;
            if let Some(inner) = encoded.get(first..last)
                && inner.len() >= SHORTEST_INNER_BASE64
            {
                texts.push(Zeroizing::new(inner.to_owned()));
            }
        }
    }
    texts
}
