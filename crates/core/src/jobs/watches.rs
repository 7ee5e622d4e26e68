//! Watches running jobs for prompts, silence, matching lines and idle GPUs.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use regex::Regex;
use tokio::task::JoinSet;

use super::events::{AwaitedEvents, EventCursor, EventLook, EventSource};
use super::jobs::Jobs;
use super::notify::{ChosenBy, Notifier, NotifyOn, NotifyRule};
use crate::jobs::LineNo;
use crate::runner::Permitted;
use sshjobs_job::notify::{Occasion, Receiver};
use sshjobs_job::{Caller, CursorMove, CursorName, Job};
use sshjobs_store::StoreError;

/// One rule's watch of one job.
#[derive(Clone)]
struct JobWatch {
    notifier: Notifier,
    jobs: Jobs,
    job: Arc<Job>,
    targets: Vec<String>,
}

/// Time after a matching line in which no other line is looked for.
const MATCH_PAUSE: Duration = Duration::from_secs(60);
/// Seconds without use after which GPUs count as idle.
const GPU_IDLE_S: u64 = 600;
/// How often the use of GPUs is looked at.
const GPU_LOOK: Duration = Duration::from_secs(5);
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
                    let prompts = AwaitedEvents {
                        prompt: true,
                        ..AwaitedEvents::default()
                    };
                    watches.spawn(watch.for_events(prompts));
                }
                NotifyOn::Silence => {
                    let silences = AwaitedEvents {
                        silence: rule.silence_s.map(Duration::from_secs),
                        ..AwaitedEvents::default()
                    };
                    watches.spawn(watch.for_events(silences));
                }
                NotifyOn::GpuIdle => {
                    let idle = rule.gpu_idle_s.unwrap_or(GPU_IDLE_S);
                    watches.spawn(watch.for_idle_gpus(idle));
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

    /// Notifies of each prompt, or of each silence, once.
    async fn for_events(self, awaited: AwaitedEvents) {
        let mut cursor = EventCursor::default();
        // Fails only if a pattern takes too long, and there is none.
        while let Ok(EventLook {
            event: Some(event),
            cursor: next,
        }) = self.source().next(&awaited, cursor, FOREVER).await
        {
            self.notify(event);
            cursor = next;
        }
    }

    /// Notifies once of each idle period of the job's GPUs of at least `idle_s`.
    async fn for_idle_gpus(self, idle_s: u64) {
        let mut notified = None;
        while !self.job.over_within(GPU_LOOK).await {
            let idle = self.job.status().evidence.series.idle_gpus();
            let since = idle.filter(|(_, seconds)| *seconds >= idle_s).map(|(since, _)| since);
            if let Some(since) = since
                && notified != Some(since)
            {
                self.notify(Occasion::GpuIdle { since });
                notified = Some(since);
            }
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
        let awaited = AwaitedEvents {
            pattern: Some(pattern.clone()),
            ..AwaitedEvents::default()
        };
        let mut cursor = EventCursor {
            // A line that was printed while no process watched is found, too.
            line: runner.cursor(readable, &name).await?,
            ..EventCursor::default()
        };
        loop {
            let look = self.source().next(&awaited, cursor, FOREVER).await?;
            cursor = look.cursor;
            let Some(matched) = look.event else { return Ok(()) };
            self.notify(matched);
            self.job.over_within(MATCH_PAUSE).await;
            // Lines of the pause are not matched.
            cursor.line = cursor.line.max(self.newest_line());
            // After the notification: of a process that ends meanwhile, the next one notifies again.
            let step = CursorMove {
                from: None,
                to: cursor.line,
            };
            if let Err(error) = runner.move_cursor(readable, &name, step).await {
                // Only the next process needs it. It may notify again, with the same id.
                tracing::debug!(job = self.job.id.as_str(), %error, "a cursor can't be stored");
            }
        }
    }

    fn source(&self) -> EventSource<'_> {
        EventSource {
            runner: self.jobs.door.runner(),
            job: Permitted::for_notifications(&self.job),
        }
    }

    fn newest_line(&self) -> LineNo {
        LineNo::new(self.job.status().total_lines)
    }

    fn notify(&self, occasion: Occasion) {
        let receivers = self.targets.iter().cloned().map(Receiver::Target).collect();
        self.notifier.notify(receivers, occasion, &self.job);
    }
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
