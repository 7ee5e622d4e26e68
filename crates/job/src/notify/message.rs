//! The content of a notification.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::receiver::Receiver;

/// An event of a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Occasion {
    /// It has ended.
    Ended,
    /// It waits for input.
    Prompt {
        /// Its unfinished line.
        text: String,
    },
    /// It has printed nothing for a while.
    Silent {
        /// For how long, in seconds.
        seconds: u64,
    },
    /// Its GPUs have been idle for a while.
    GpuIdle {
        /// Since when, in seconds since 1970 by the host's clock.
        since: u64,
    },
    /// No caller has asked for it in a long time, so it will be ended.
    Abandoned {
        /// In how many seconds, unless a call names it.
        seconds: u64,
    },
    /// A line matches a pattern.
    Matched {
        /// The line's number.
        line_no: u64,
        /// The line.
        text: String,
    },
}

/// Most characters of one text in a message.
const MOST_SHOWN: usize = 300;

/// A text for a message: shortened, on one line, and without characters that could reorder it.
pub fn shortened(text: &str) -> String {
    let harmless = text.chars().map(|c| if is_harmful(c) { ' ' } else { c });
    let mut short: String = harmless.take(MOST_SHOWN).collect();
    if text.chars().nth(MOST_SHOWN).is_some() {
        short.push('…');
    }
    short
}

/// Whether a character is a control character or changes the direction of text.
fn is_harmful(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

impl Occasion {
    /// Its name in messages.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Ended => "ended",
            Self::Prompt { .. } => "prompt",
            Self::Silent { .. } => "silent",
            Self::GpuIdle { .. } => "gpu_idle",
            Self::Abandoned { .. } => "abandoned",
            Self::Matched { .. } => "matched",
        }
    }
}

/// The job at the time of the event. Times are in milliseconds since the Unix epoch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct NotifiedJob {
    /// Its id.
    pub job_id: String,
    /// The fleet of which it is a member.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fleet_id: Option<String>,
    /// Its host.
    pub host: String,
    /// Its owner.
    pub caller: String,
    /// Its label.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// Its command, shortened.
    pub command: String,
    /// Its state: `running`, `exited` and so on.
    pub state: String,
    /// How it ended, in words: `exited 3`.
    pub outcome: String,
    /// Whether it ended without success.
    pub has_failed: bool,
    /// Its exit status, once it has exited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exit_status: Option<u32>,
    /// Time of its start.
    pub started_at: u64,
    /// Time of its end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<u64>,
    /// Number of lines printed.
    pub total_lines: u64,
    /// Its last lines.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub last_lines: Vec<String>,
    /// Address of the job on the live page, if the server's URL is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
}

/// A notification.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Notification {
    /// The event.
    #[serde(flatten)]
    pub occasion: Occasion,
    /// When, in milliseconds since the Unix epoch.
    pub at: u64,
    /// The job.
    pub job: NotifiedJob,
}

impl Notification {
    /// The id for one receiver, the same whichever process makes it: `msg_` and 32 hex digits.
    pub fn id_for(&self, receiver: &Receiver) -> String {
        let lines = match self.occasion {
            // A second silence, or the same question again, has other output before it.
            Occasion::Silent { .. } | Occasion::Prompt { .. } => self.job.total_lines,
            // A second idle period has begun later.
            Occasion::Ended | Occasion::Matched { .. } | Occasion::GpuIdle { .. } => 0,
            // Another notice comes after another call only, and that says when it was.
            Occasion::Abandoned { .. } => self.at,
        };
        let content = json!([self.job.job_id, self.occasion, lines, receiver]);
        let hash = Sha256::digest(content.to_string());
        let digits: String = hash.iter().take(16).map(|byte| format!("{byte:02x}")).collect();
        format!("msg_{digits}")
    }

    /// The body as JSON, with the id by which a receiver recognizes a second copy.
    pub fn to_json(&self, id: &str) -> Value {
        let mut body = json!(self);
        body["id"] = id.into();
        body
    }

    /// The body in Slack's format for incoming webhooks, which Mattermost accepts, too.
    pub fn to_slack(&self) -> Value {
        let mut text = format!("{} {}", self.symbol(), self.in_words());
        if let Some(url) = &self.job.url {
            text.push_str(&format!(" <{url}|Open>"));
        }
        if !self.job.last_lines.is_empty() {
            let lines = self.job.last_lines.join("\n");
            // Three backticks would end the block.
            // The fences stand on lines of their own: in Mattermost a block within a line ends at an empty line.
            text.push_str(&format!(
                "\n```\n{}\n```",
                escaped(&lines).replace("```", "'''")
            ));
        }
        json!({"text": text})
    }

    fn symbol(&self) -> &'static str {
        match self.occasion {
            Occasion::Ended if self.job.has_failed => ":x:",
            Occasion::Ended => ":white_check_mark:",
            Occasion::Prompt { .. } => ":speech_balloon:",
            Occasion::Silent { .. } | Occasion::GpuIdle { .. } => ":hourglass:",
            Occasion::Abandoned { .. } => ":wastebasket:",
            Occasion::Matched { .. } => ":mag:",
        }
    }

    /// One line for people, in Slack's markup.
    fn in_words(&self) -> String {
        let job = &self.job;
        let name = format!("*{}* on {}", escaped(&job.job_id), escaped(&job.host));
        let what = match &self.occasion {
            // The reason of a job that was not started may have words of its host.
            Occasion::Ended if job.state == "refused" => code(&job.outcome),
            Occasion::Ended => escaped(&job.outcome),
            Occasion::Prompt { text } => format!("waits for input: {}", code(text)),
            Occasion::Silent { seconds } => format!("has printed nothing for {seconds} s"),
            Occasion::GpuIdle { .. } => "does not use its GPUs any more".to_owned(),
            Occasion::Abandoned { seconds } => format!(
                "will be ended in {seconds} s, because no call has named it for long; a call that names it keeps it"
            ),
            Occasion::Matched { line_no, text } => format!("line {line_no}: {}", code(text)),
        };
        format!("{name}: {what} ({})", code(&job.command))
    }
}

/// Text in a code span, in which neither Slack nor Mattermost reads markup.
fn code(text: &str) -> String {
    format!("`{}`", escaped(text).replace('`', "'"))
}

/// Text that Slack must not read as markup, a mention or a link.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message() -> Notification {
        Notification {
            occasion: Occasion::Ended,
            at: 1_000,
            job: NotifiedJob {
                job_id: "web1-make-k3v9tq2x".to_owned(),
                host: "web1".to_owned(),
                command: "make `test` <!channel>".to_owned(),
                state: "exited".to_owned(),
                outcome: "exited 3".to_owned(),
                has_failed: true,
                exit_status: Some(3),
                last_lines: vec!["<@U1> ```".to_owned()],
                ..NotifiedJob::default()
            },
        }
    }

    #[test]
    fn the_json_says_what_happened_to_which_job() {
        let body = message().to_json("msg_1");

        assert_eq!(body["id"], "msg_1");
        assert_eq!(body["event"], "ended");
        assert_eq!(body["job"]["exit_status"], 3);
        assert_eq!(body["job"]["label"], Value::Null);
    }

    #[test]
    fn a_command_can_neither_mention_people_nor_leave_its_block_in_slack() {
        let body = message().to_slack();
        let text = body["text"].as_str().unwrap();

        assert!(text.contains("(`make 'test' &lt;!channel&gt;`)"), "{text}");
        assert!(text.ends_with("\n```\n&lt;@U1&gt; '''\n```"), "{text}");
    }

    #[test]
    fn lines_that_would_end_a_block_in_mattermost_stay_in_it() {
        let mut message = message();
        message.job.last_lines = vec![String::new(), "@channel".to_owned()];

        let body = message.to_slack();

        let text = body["text"].as_str().unwrap();
        assert!(text.ends_with("\n```\n\n@channel\n```"), "{text}");
    }
}
