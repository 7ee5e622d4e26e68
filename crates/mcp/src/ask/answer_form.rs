//! The HTML of an answer form, without scripts and with strict headers.

use secrecy::SecretString;
use url::form_urlencoded;

use sshjobs_core::jobs::{Question, printable};

/// A form for one answer of a person, as HTML.
pub(crate) struct AnswerForm {
    /// A value in the form that only this process knows. An answer without it comes from another
    /// page and is ignored.
    nonce: String,
}

/// Seconds after which a browser leaves the form automatically: by then the login has timed out
/// (`PERSON_TIMEOUT` in `ssh`), and another program may use the address.
const FORM_SECONDS: u64 = 100;
/// Maximum bytes of a request with an answer.
pub(crate) const LONGEST_REQUEST: usize = 16 << 10;

pub(crate) const THANKS: &str = "<p>Thank you. You can close this page.</p>";
pub(crate) const OTHER_QUESTION: &str = "This answer is to another question.";
pub(crate) const NOTHING_HERE: &str = "There is nothing here.";

/// Headers of every page.
pub(crate) const HEADERS: [(&str, &str); 5] = [
    ("Content-Type", "text/html; charset=utf-8"),
    ("Cache-Control", "no-store"),
    (
        "Content-Security-Policy",
        "default-src 'none'; form-action 'self'; frame-ancestors 'none'",
    ),
    // With `no-referrer`, browsers would send `Origin: null` and the answer would be refused.
    ("Referrer-Policy", "same-origin"),
    ("X-Content-Type-Options", "nosniff"),
];

impl AnswerForm {
    pub(crate) fn new() -> Self {
        Self {
            nonce: unguessable(),
        }
    }

    #[cfg(test)]
    pub(crate) fn nonce(&self) -> &str {
        &self.nonce
    }

    /// The form for a question.
    pub(crate) fn page(&self, question: &Question) -> String {
        let kind = if question.echo { "text" } else { "password" };
        format!(
            "<meta http-equiv=refresh content=\"{FORM_SECONDS};url=about:blank\"><form method=post><p>To log in to \
             <b>{}</b>:</p><input type=hidden name=form value={}><label>{} <input name=answer type={kind} autofocus \
             autocomplete=off></label> <button>Answer</button></form>",
            escape(&question.host),
            self.nonce,
            escape(&question.text)
        )
    }

    /// The answer typed into this form.
    pub(crate) fn answer_in(&self, body: &[u8]) -> Option<SecretString> {
        if field("form", body)? != self.nonce {
            return None;
        }
        field("answer", body).map(SecretString::from)
    }
}

/// A complete page.
pub(crate) fn document(body: &str) -> String {
    format!("<!doctype html><meta charset=utf-8><title>sshjobs</title>{body}\n")
}

/// A word of 128 random bits.
pub(crate) fn unguessable() -> String {
    format!("{:032x}", rand::random::<u128>())
}

/// The server's text must not become markup.
fn escape(text: &str) -> String {
    printable(text)
        .chars()
        .map(|c| match c {
            '<' => "&lt;".to_owned(),
            '>' => "&gt;".to_owned(),
            '&' => "&amp;".to_owned(),
            '"' => "&quot;".to_owned(),
            '\'' => "&#39;".to_owned(),
            c => c.to_string(),
        })
        .collect()
}

/// A field of a form.
fn field(wanted: &str, body: &[u8]) -> Option<String> {
    let (_, value) = form_urlencoded::parse(body).find(|(name, _)| name == wanted)?;
    Some(value.into_owned())
}
