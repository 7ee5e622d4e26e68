use secrecy::SecretString;
use url::form_urlencoded;

use crate::jobs::{Question, printable};

/// A form that takes one answer from a person, as HTML.
pub(super) struct AnswerForm {
    /// A value in the form that only this process knows: an answer typed into a form of somebody else's is none.
    nonce: String,
}

/// Seconds after which a browser leaves the form by itself: the login has given up, and the address may be somebody else's.
const FORM_SECONDS: u64 = 100;
/// Maximum bytes of a request with an answer.
pub(super) const LONGEST_REQUEST: usize = 16 << 10;

pub(super) const THANKS: &str = "<p>Thank you. You can close this page.</p>";
pub(super) const OTHER_QUESTION: &str = "This answer is to another question.";
pub(super) const NOTHING_HERE: &str = "There is nothing here.";

/// Headers of every page.
pub(super) const HEADERS: [(&str, &str); 5] = [
    ("Content-Type", "text/html; charset=utf-8"),
    ("Cache-Control", "no-store"),
    ("Content-Security-Policy", "default-src 'none'; form-action 'self'; frame-ancestors 'none'"),
    ("Referrer-Policy", "same-origin"),
    ("X-Content-Type-Options", "nosniff"),
];

impl AnswerForm {
    pub(super) fn new() -> Self {
        Self { nonce: unguessable() }
    }

    #[cfg(test)]
    pub(super) fn nonce(&self) -> &str {
        &self.nonce
    }

    /// The form for a question.
    pub(super) fn page(&self, question: &Question) -> String {
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

    /// What was typed into our form.
    pub(super) fn answer_in(&self, body: &[u8]) -> Option<SecretString> {
        let field = |wanted: &str| form_urlencoded::parse(body).find(|(name, _)| name == wanted);
        field("form").filter(|(_, value)| *value == self.nonce)?;
        field("answer").map(|(_, answer)| SecretString::from(answer.into_owned()))
    }
}

/// A whole page.
pub(super) fn document(body: &str) -> String {
    format!("<!doctype html><meta charset=utf-8><title>sshjobs</title>{body}\n")
}

/// A word of 128 random bits.
pub(super) fn unguessable() -> String {
    format!("{:032x}", rand::random::<u128>())
}

/// The server's own words must not become part of the page.
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
