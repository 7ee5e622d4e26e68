//! A line that the user types: a pattern, an answer or a filter.

/// A line typed by the user.
#[derive(Debug)]
pub(super) struct Prompt {
    pub(super) purpose: Purpose,
    /// The job that it is for. `None` for a filter.
    pub(super) job: Option<String>,
    pub(super) text: String,
    /// Whether it may be a secret, which is not shown.
    pub(super) is_hidden: bool,
}

/// Purpose of a typed line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// A pattern to search for.
    Search,
    /// A line for the job's stdin.
    Answer,
    /// A word that the listed jobs must contain.
    Filter,
}

impl Prompt {
    pub(super) fn new(purpose: Purpose, job: Option<String>) -> Self {
        Self {
            purpose,
            job,
            text: String::new(),
            is_hidden: false,
        }
    }

    /// The line as shown.
    pub(super) fn shown(&self) -> String {
        let name = match self.purpose {
            Purpose::Search => "/",
            Purpose::Answer => "answer: ",
            Purpose::Filter => "only jobs with: ",
        };
        let text = if self.is_hidden {
            "*".repeat(self.text.chars().count())
        } else {
            self.text.clone()
        };
        format!("{name}{text}")
    }

    /// Erases the last word.
    pub(super) fn erase_word(&mut self) {
        let end = self.text.trim_end().rfind(char::is_whitespace).map_or(0, |space| space + 1);
        self.text.truncate(end);
    }
}

/// Whether a job's question probably asks for a secret.
pub(super) fn asks_for_a_secret(question: &str) -> bool {
    let question = question.to_lowercase();
    [
        "password",
        "passphrase",
        "passcode",
        "secret",
        "token",
        "pin:",
        "verification code",
        "kennwort",
    ]
    .iter()
    .any(|word| question.contains(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_typed_for_a_password_is_not_shown() {
        assert!(asks_for_a_secret("[sudo] Password for me: "));
        assert!(!asks_for_a_secret("Continue? [y/N] "));
        let prompt = Prompt {
            text: "très".to_owned(),
            is_hidden: true,
            ..Prompt::new(Purpose::Answer, None)
        };
        assert_eq!(prompt.shown(), "answer: ****");
    }

    #[test]
    fn a_word_is_erased_with_the_space_behind_it() {
        let mut prompt = Prompt {
            text: "été 東京 ".to_owned(),
            ..Prompt::new(Purpose::Search, None)
        };
        prompt.erase_word();
        assert_eq!(prompt.text, "été ");
        prompt.erase_word();
        assert_eq!(prompt.text, "");
    }
}
