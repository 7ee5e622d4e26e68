//! Watches running jobs for prompts, silence and matching lines.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use regex::Regex;
use tokio::task::JoinSet;

use super::jobs::Jobs;
use super::notify::{ChosenBy, Notifier, NotifyOn, NotifyRule};
use crate::jobs::{LineNo, PageQuery, Selection, Stream, Wait};
use crate::runner::{Permitted, SeenJob};
use sshjobs_job::notify::{Occasion, Receiver, shortened};
use sshjobs_job::{Caller, CursorMove, CursorName, Job, Log};
use sshjobs_store::StoreError;

/// One rule's watch of one job.
#[derive(Clone)]
struct JobWatch {
    notifier: Notifier,
    jobs: Jobs,
    job: Arc<Job>,
    targets: Vec<String>,
}

/// Time between two looks for a prompt.
const PROMPT_LOOK: Duration = Duration::from_secs(2);
/// Time after a matching line in which no other line is looked for.
const MATCH_PAUSE: Duration = Duration::from_secs(60);
/// Practically unlimited.
const FOREVER: Duration = Duration::from_secs(365 * 24 * 3600);
/// Owner of the cursors up to which lines were matched. No token can have this name.
const CURSOR_OWNER: &str = "sshjobs (notifications)";

impl Jobs {
    /// Watches the jobs of this process for what rules notify of, until it is dropped. Never returns.
    pub async fn watch(&self) -> Infallible {
        let notifier = self.notifier();
        let mut watches = JoinSet::new();
        loop {
            tokio::select! {
                job = notifier.next_begun() => {
                    for rule in notifier.config().rules_for(ChosenBy::of(&job)) {
                        let watch = JobWatch {
                            notifier: notifier.clone(),
                            jobs: self.clone(),
                            job: Arc::clone(&job),
                            targets: rule.targets.clone(),
                        };
                        watch.start(rule, &mut watches);
                    }
                }
                Some(_) = watches.join_next() => {}
            }
        }
    }
}

impl JobWatch {
    fn start(self, rule: &NotifyRule, watches: &mut JoinSet<()>) {
        for occasion in rule.occasions() {
            let watch = self.clone();
            match occasion {
                NotifyOn::End | NotifyOn::Failure => {}
                NotifyOn::Prompt => {
                    watches.spawn(watch.for_prompts());
                }
                NotifyOn::Silence => {
                    let limit = Duration::from_secs(rule.silence_s.unwrap_or_default());
                    watches.spawn(watch.for_silence(limit));
                }
                NotifyOn::Match => {
                    // The configuration was checked when it was read.
                    let pattern = rule.pattern.as_deref().map(Regex::new);
                    if let Some(Ok(pattern)) = pattern {
                        watches.spawn(watch.for_matches(pattern));
                    }
                }
            }
        }
    }

    /// Notifies of each prompt once.
    async fn for_prompts(self) {
        let mut notified_bytes = None;
        while !self.job.over_within(PROMPT_LOOK).await {
            let total_bytes = self.job.status().total_bytes;
            if notified_bytes == Some(total_bytes) || !self.awaits_input().await {
                continue;
            }
            let unfinished =
                self.job.read_log(|log| log.silent_partial(Selection::Both, Duration::ZERO));
            if let Some(text) = unfinished {
                notified_bytes = Some(total_bytes);
                let text = shortened(&text);
                self.notify(Occasion::Prompt { text });
            }
        }
    }

    /// Notifies of each silence once.
    async fn for_silence(self, limit: Duration) {
        loop {
            let status = self.job.status();
            let rest = limit.saturating_sub(status.silent);
            if self.job.over_within(rest).await {
                return;
            }
            if !rest.is_zero() {
                // It may have printed something meanwhile.
                continue;
            }
            let seconds = limit.as_secs();
            self.notify(Occasion::Silent { seconds });
            let printed_before = status.total_bytes;
            self.job
                .wait_for(FOREVER, |log| {
                    log.outcome().is_some() || total_bytes(log) != printed_before
                })
                .await;
        }
    }

    /// Notifies of the first line that matches, and of the first one after each pause.
    async fn for_matches(self, pattern: Regex) {
        let result = self.match_lines(&pattern).await;
        if let Err(error) = result {
            let job = self.job.id.as_str();
            tracing::warn!(job, %error, "lines can't be matched for notifications");
        }
    }

    async fn match_lines(&self, pattern: &Regex) -> Result<(), MatchError> {
        let runner = self.jobs.door.runner();
        let readable = Permitted::for_notifications(&self.job);
        let name = CursorName {
            caller: Caller::new(CURSOR_OWNER),
            reader: format!("{} {}", self.targets.join(","), pattern.as_str()),
        };
        // A line that was printed while no process watched is found, too.
        let mut cursor = runner.cursor(readable, &name).await?;
        loop {
            let query = PageQuery {
                max_lines: 1,
                ..PageQuery::after(cursor)
            };
            let wait = Wait {
                patience: FOREVER,
                filter: Some(pattern.clone()),
                ..Wait::default()
            };
            let tail = self.job.tail(&query, &wait).await?;
            cursor = tail.page.last_line_no;
            if let Some(line) = tail.page.lines.into_iter().next() {
                self.notify(Occasion::Matched {
                    line_no: line.line_no.value(),
                    text: shortened(&line.text),
                });
                self.job.over_within(MATCH_PAUSE).await;
                // Lines of the pause are not matched.
                cursor = cursor.max(self.newest_line());
            }
            // After the notification: of a process that ends meanwhile, the next one notifies again.
            let step = CursorMove {
                from: None,
                to: cursor,
            };
            if let Err(error) = runner.move_cursor(readable, &name, step).await {
                // Only the next process needs it. It may notify again, with the same id.
                tracing::debug!(job = self.job.id.as_str(), %error, "a cursor can't be stored");
            }
            if self.job.is_over() && cursor >= self.newest_line() {
                return Ok(());
            }
        }
    }

    async fn awaits_input(&self) -> bool {
        let job = SeenJob::new(Arc::clone(&self.job));
        self.jobs.door.runner().awaits_input(&job, Selection::Both).await
    }

    fn newest_line(&self) -> LineNo {
        LineNo::new(self.job.status().total_lines)
    }

    fn notify(&self, occasion: Occasion) {
        let receivers = self.targets.iter().cloned().map(Receiver::Target).collect();
        self.notifier.notify(receivers, occasion, &self.job);
    }
}

fn total_bytes(log: &Log) -> u64 {
    Stream::ALL.into_iter().map(|stream| log.ring().total_bytes(stream)).sum()
}

/// Why lines can't be matched.
#[derive(Debug, thiserror::Error)]
enum MatchError {
    /// The cursor can't be read or stored.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The pattern takes too long.
    #[error(transparent)]
    TooSlow(#[from] crate::jobs::TooSlow),
}
