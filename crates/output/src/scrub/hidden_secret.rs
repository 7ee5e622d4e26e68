//! A secret that a job's output must not show.

use std::sync::Arc;

use base64::Engine;
use base64::prelude::{BASE64_STANDARD_NO_PAD, BASE64_URL_SAFE_NO_PAD};
use secrecy::zeroize::Zeroizing;
use secrecy::{ExposeSecret, SecretString};

use super::form::{Form, FormStyle, is_line_end};

/// A secret that the output of a job must not show: its name, its value and the forms of the value.
/// Clones share the value. `Debug` does not show it.
#[derive(Clone, Debug)]
pub struct HiddenSecret(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    name: String,
    value: SecretString,
    forms: Vec<Form>,
}

/// Minimum length of a secret in bytes without line ends: a shorter one occurs in output by chance.
pub const MIN_SECRET_BYTES: usize = 4;

/// Version of the forms that are found. Two processes with different versions scrub the same output
/// differently. Increase it with every change of this room.
pub const SCRUBBER_VERSION: u32 = 3;

/// Minimum length of the base64 characters that do not depend on the bytes around the value.
const SHORTEST_INNER_BASE64: usize = 6;

/// Minimum length of a line of a secret with several lines: a shorter one occurs in output by chance.
const SHORTEST_LINE: usize = 8;

impl HiddenSecret {
    /// A secret. Its value must have [`MIN_SECRET_BYTES`].
    pub fn new(name: impl Into<String>, value: SecretString) -> Self {
        let forms = forms(value.expose_secret());
        Self(Arc::new(Inner {
            name: name.into(),
            value,
            forms,
        }))
    }

    /// Whether a value is long enough to be found in output.
    pub fn is_long_enough(value: &SecretString) -> bool {
        let bytes = value.expose_secret().bytes();
        bytes.filter(|byte| !is_line_end(*byte)).count() >= MIN_SECRET_BYTES
    }

    /// Name of the secret.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Value of the secret.
    pub fn value(&self) -> &SecretString {
        &self.0.value
    }

    pub(super) fn forms(&self) -> &[Form] {
        &self.0.forms
    }

    /// The text that replaces it in output.
    pub(super) fn replacement(&self) -> String {
        format!("[secret {}]", self.0.name)
    }
}

impl PartialEq for HiddenSecret {
    fn eq(&self, other: &Self) -> bool {
        let is_same_value = self.0.value.expose_secret() == other.0.value.expose_secret();
        self.name() == other.name() && is_same_value
    }
}

fn forms(value: &str) -> Vec<Form> {
    let mut forms = Vec::new();
    let mut add = |bytes: &[u8], style| {
        let form = Form::new(bytes, style);
        // Many values look the same in several forms.
        if let Some(form) = form
            && !forms.contains(&form)
        {
            forms.push(form);
        }
    };
    add(value.as_bytes(), FormStyle::Plain);
    add(value.as_bytes(), FormStyle::Backslashes);
    add(value.as_bytes(), FormStyle::Percent);
    // A command may print some lines of a key.
    for line in value.lines().filter(|line| line.len() >= SHORTEST_LINE) {
        add(line.as_bytes(), FormStyle::Plain);
    }
    for text in quoted(value) {
        add(text.as_bytes(), FormStyle::Plain);
    }
    for text in base64(value.as_bytes()) {
        add(text.as_bytes(), FormStyle::Plain);
    }
    forms
}

/// The value in single quotes, as shells and Python's `shlex` write it, with and without the outer
/// quotes; and as JSON text of ASCII characters.
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
    for upper in [false, true] {
        texts.push(Zeroizing::new(ascii_json(value, upper)));
    }
    texts
}

/// The value as JSON text without characters beyond ASCII (RFC 8259, section 7), and without its quotes.
fn ascii_json(value: &str, upper: bool) -> String {
    let text = Zeroizing::new(serde_json::to_string(value).unwrap_or_default());
    let inner = text.trim_start_matches('"').strip_suffix('"').unwrap_or_default();
    let mut json = String::new();
    for c in inner.chars() {
        if c.is_ascii() {
            json.push(c);
            continue;
        }
        for unit in c.encode_utf16(&mut [0; 2]) {
            let escape = if upper {
                format!("\\u{unit:04X}")
            } else {
                format!("\\u{unit:04x}")
            };
            json.push_str(&escape);
        }
    }
    json
}

/// The value in base64 (RFC 4648), in both alphabets: alone, with and without padding; and as a part of a
/// longer encoded text, such as `USER:VALUE` of HTTP's basic authentication.
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
            // The first and last characters also encode bits of the neighbouring bytes.
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
