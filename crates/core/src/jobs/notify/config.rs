//! The table `[notify]` of the configuration: targets of notifications, and rules that choose jobs.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use sshjobs_base::host_pattern::glob_matches;
use sshjobs_job;
use sshjobs_job::notify::check_url;

/// Notifications: the table `[notify]`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct NotifyConfig {
    /// Targets, by the names that callers use.
    pub targets: BTreeMap<String, NotifyTarget>,
    /// Jobs that notify without being asked to.
    pub rules: Vec<NotifyRule>,
    /// URL of a server with the live page, for links in messages: by default the one of `serve --public-url`.
    pub page_url: Option<String>,
    /// A file with the key for URLs that a person names with `--notify`.
    pub signing_key_file: Option<PathBuf>,
    /// Whether jobs may notify URLs and commands that are not listed here: those of a person on this
    /// machine. Not read from a file.
    #[serde(skip)]
    pub allows_any_target: bool,
}

/// A target: a URL or a command.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct NotifyTarget {
    /// A URL, to which messages are sent.
    pub url: Option<String>,
    /// A file with the URL, if the URL is a secret.
    pub url_file: Option<PathBuf>,
    /// A program with its arguments, which gets messages on its stdin.
    pub command: Vec<String>,
    /// Format of messages.
    pub format: NotifyFormat,
    /// A file with the key by which the receiver recognizes our messages.
    pub signing_key_file: Option<PathBuf>,
    /// Whether the URL may lead to an address of a private network.
    pub allow_private_addresses: bool,
}

/// Format of messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NotifyFormat {
    /// All facts, as JSON.
    #[default]
    Json,
    /// Incoming webhooks of Slack and Mattermost.
    Slack,
}

/// A rule: which jobs notify which targets of what. All of its conditions must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct NotifyRule {
    /// Names of targets.
    pub targets: Vec<String>,
    /// Patterns of host names. Empty: every host.
    pub hosts: Vec<String>,
    /// Patterns of labels. Empty: every job, with a label or without one.
    pub labels: Vec<String>,
    /// Patterns of callers. Empty: every caller.
    pub callers: Vec<String>,
    /// The occasions. Empty: the end.
    pub on: Vec<NotifyOn>,
    /// With `silence`: seconds without output.
    pub silence_s: Option<u64>,
    /// With `gpu_idle`: seconds without use of the job's GPUs. 600 by default.
    pub gpu_idle_s: Option<u64>,
    /// With `match`: a regular expression for lines.
    pub pattern: Option<String>,
}

/// An occasion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NotifyOn {
    /// The job ends.
    End,
    /// The job ends without success.
    Failure,
    /// The job waits for input.
    Prompt,
    /// The job prints nothing for `silence_s`.
    Silence,
    /// A line matches `pattern`.
    Match,
    /// The job does not use its GPUs for `gpu_idle_s`.
    GpuIdle,
}

/// The facts of a job by which rules choose.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ChosenBy<'a> {
    pub(crate) host: &'a str,
    pub(crate) label: Option<&'a str>,
    pub(crate) caller: &'a str,
}

impl<'a> ChosenBy<'a> {
    pub(crate) fn of(job: &'a sshjobs_job::Job) -> Self {
        Self {
            host: &job.spec.host,
            label: job.spec.label.as_deref(),
            caller: job.caller.as_str(),
        }
    }
}

impl NotifyConfig {
    /// The first mistake, in words that begin with its key.
    pub(crate) fn validate(&self) -> Option<String> {
        for (name, target) in &self.targets {
            if let Some(mistake) = target.mistake() {
                return Some(format!("{mistake}, in the target {name:?}"));
            }
        }
        for rule in &self.rules {
            if rule.targets.is_empty() {
                return Some("targets of a rule must name at least one target".to_owned());
            }
            let unknown = rule.targets.iter().find(|name| !self.targets.contains_key(*name));
            if let Some(unknown) = unknown {
                return Some(format!(
                    "targets has {unknown:?}, and [notify.targets] does not"
                ));
            }
            if let Some(mistake) = rule.mistake() {
                return Some(mistake);
            }
        }
        if let Some(url) = &self.page_url
            && check_url(url).is_err()
        {
            return Some("page_url must be a URL of https:// or http://".to_owned());
        }
        None
    }

    /// Makes the paths of files relative to the directory of the configuration.
    pub(crate) fn resolve_files(&mut self, directory: &Path) {
        if let Some(file) = &mut self.signing_key_file {
            *file = directory.join(&*file);
        }
        for target in self.targets.values_mut() {
            for file in [&mut target.url_file, &mut target.signing_key_file].into_iter().flatten() {
                *file = directory.join(&*file);
            }
        }
    }

    /// The rules that choose a job.
    pub(crate) fn rules_for(&self, job: ChosenBy<'_>) -> impl Iterator<Item = &NotifyRule> {
        self.rules.iter().filter(move |rule| rule.chooses(job))
    }
}

impl NotifyTarget {
    fn mistake(&self) -> Option<&'static str> {
        let places = [
            self.url.is_some(),
            self.url_file.is_some(),
            !self.command.is_empty(),
        ];
        if places.into_iter().filter(|is_set| *is_set).count() != 1 {
            return Some("url, url_file or command must be set, and only one of them");
        }
        if let Some(url) = &self.url
            && let Err(mistake) = check_url(url)
        {
            return Some(mistake);
        }
        if !self.command.is_empty() && self.signing_key_file.is_some() {
            return Some("signing_key_file is for URLs");
        }
        None
    }
}

/// Whether one of the patterns matches a value. Without patterns, every value is chosen.
fn is_chosen(patterns: &[String], value: Option<&str>) -> bool {
    let Some(value) = value else { return patterns.is_empty() };
    patterns.is_empty() || patterns.iter().any(|pattern| glob_matches(pattern, value))
}

impl NotifyRule {
    fn mistake(&self) -> Option<String> {
        if self.on.contains(&NotifyOn::Silence) != self.silence_s.is_some() {
            return Some("silence_s must be set for on = [\"silence\"], and only then".to_owned());
        }
        if self.silence_s == Some(0) {
            return Some("silence_s must be at least 1".to_owned());
        }
        if self.gpu_idle_s.is_some() && !self.on.contains(&NotifyOn::GpuIdle) {
            return Some("gpu_idle_s is for on = [\"gpu_idle\"]".to_owned());
        }
        if self.on.contains(&NotifyOn::Match) != self.pattern.is_some() {
            return Some("pattern must be set for on = [\"match\"], and only then".to_owned());
        }
        let pattern = self.pattern.as_deref().map(regex::Regex::new)?;
        pattern.err().map(|error| {
            let message = error.to_string();
            let reason = message.lines().last().unwrap_or_default();
            format!("pattern is not a regular expression: {reason}")
        })
    }

    fn chooses(&self, job: ChosenBy<'_>) -> bool {
        is_chosen(&self.hosts, Some(job.host))
            && is_chosen(&self.labels, job.label)
            && is_chosen(&self.callers, Some(job.caller))
    }

    /// Whether jobs must be watched for it while they run.
    pub(crate) fn watches(&self) -> bool {
        self.occasions().iter().any(|occasion| match occasion {
            NotifyOn::End | NotifyOn::Failure => false,
            NotifyOn::Prompt | NotifyOn::Silence | NotifyOn::Match | NotifyOn::GpuIdle => true,
        })
    }

    /// The occasions of the rule.
    pub(crate) fn occasions(&self) -> &[NotifyOn] {
        if self.on.is_empty() {
            &[NotifyOn::End]
        } else {
            &self.on
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(text: &str) -> NotifyConfig {
        toml::from_str(text).unwrap()
    }

    #[test]
    fn a_rule_chooses_by_host_label_and_caller() {
        let config = config(
            "[targets.ops]\nurl = \"https://example.com\"\n\
             [[rules]]\ntargets = [\"ops\"]\nhosts = [\"web*\"]\nlabels = [\"deploy\"]\n",
        );
        let chosen = |host, label| {
            let job = ChosenBy {
                host,
                label,
                caller: "ci",
            };
            config.rules_for(job).count()
        };

        assert_eq!(chosen("web1", Some("deploy")), 1);
        assert_eq!(chosen("web1", None), 0);
        assert_eq!(chosen("db1", Some("deploy")), 0);
    }

    #[test]
    fn mistakes_are_named_by_their_key() {
        let target =
            "[targets.ops]\nurl = \"https://example.com\"\n[[rules]]\ntargets = [\"ops\"]\n";
        for (text, expected) in [
            ("[targets.a]\n".to_owned(), "url, url_file or command"),
            (
                "[targets.a]\nurl = \"ftp://x\"\n".to_owned(),
                "the URL must begin",
            ),
            (
                "[[rules]]\ntargets = [\"a\"]\n".to_owned(),
                "targets has \"a\"",
            ),
            (
                format!("{target}on = [\"silence\"]\n"),
                "silence_s must be set",
            ),
            (format!("{target}pattern = \"x\"\n"), "pattern must be set"),
            (
                format!("{target}on = [\"match\"]\npattern = \"(\"\n"),
                "pattern is not",
            ),
            (
                "page_url = \"jobs.example.com\"\n".to_owned(),
                "page_url must",
            ),
        ] {
            let mistake = config(&text).validate().unwrap();
            assert!(mistake.starts_with(expected), "{text}: {mistake}");
        }
    }
}
