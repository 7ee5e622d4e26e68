//! Questions for a person during a login, and the programs that ask them.

use std::path::PathBuf;
use std::pin::Pin;
use std::time::Duration;

use secrecy::SecretString;
use tokio::process::Command;

use crate::config::first_line_of;
use sshjobs_output::printable;

/// Before a question that is asked again.
pub(super) const REFUSED: &str = "That was not accepted. ";

/// Time limit for a person's answer: below sshd's LoginGraceTime of 120 s, since a login that
/// exceeds it counts as failed.
pub(super) const PERSON_TIMEOUT: Duration = Duration::from_secs(100);

/// A question for a person during a login.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// The host, as the user named it.
    pub host: String,
    /// The text. For keyboard-interactive (RFC 4256) it comes from the server, so it is untrusted
    /// and must be escaped.
    pub text: String,
    /// Whether the answer is shown while it is typed.
    pub echo: bool,
}

/// The answer to a [`Question`]; `None` if there is no answer.
pub type Answer<'a> = Pin<Box<dyn Future<Output = Option<SecretString>> + Send + 'a>>;

/// Asks a person.
pub trait Prompter: Send + Sync {
    /// Asks a question. Dropping the future withdraws it.
    fn ask<'a>(&'a self, question: &'a Question) -> Answer<'a>;

    /// Whether a person may be available now.
    fn is_there(&self) -> bool {
        true
    }
}

/// Asks through the program in `SSH_ASKPASS`, as ssh does without a terminal.
#[derive(Debug)]
pub struct Askpass(PathBuf);

impl Askpass {
    /// The program from the environment, if set.
    pub fn from_env() -> Option<Self> {
        let is_unwanted = std::env::var_os("SSH_ASKPASS_REQUIRE").is_some_and(|how| how == "never");
        let program =
            std::env::var_os("SSH_ASKPASS").filter(|program| !program.is_empty() && !is_unwanted);
        program.map(|program| Self(program.into()))
    }
}

impl Prompter for Askpass {
    fn ask<'a>(&'a self, question: &'a Question) -> Answer<'a> {
        Box::pin(async move {
            // The server may have written the text, which becomes an argument of another program.
            let text = printable(&question.text).replace('\n', " ");
            let mut program = Command::new(&self.0);
            program.arg(format!("{}: {text}", question.host));
            let answer = first_line_of(&mut program, PERSON_TIMEOUT).await;
            answer
                .inspect_err(|error| tracing::warn!(%error, "SSH_ASKPASS gave no answer"))
                .ok()
        })
    }
}
