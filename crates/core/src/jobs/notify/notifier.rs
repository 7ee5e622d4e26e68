//! Adds notifications to the outbox, and has them sent.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::pending;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, SystemTime};

use futures_util::future::BoxFuture;
use tokio::sync::{Mutex as AsyncMutex, Notify, mpsc};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::config::{ChosenBy, NotifyConfig, NotifyOn, NotifyRule};
use crate::jobs::timestamp_of;
use sshjobs_base::lock::lock;
use sshjobs_job::notify::{
    Delivery, DeliveryAttempt, DeliveryState, Notification, NotifiedJob, Occasion, Outbox,
    Receiver, shortened,
};
use sshjobs_job::{Outcome, Phase};
use sshjobs_store::SharedValue;

/// Sends deliveries. Implemented by the part of the program that has HTTP.
pub trait Carrier: Send + Sync + 'static {
    /// Whether it can send to a receiver. Another process may have other targets.
    fn knows(&self, receiver: &Receiver) -> bool;

    /// Tries to deliver once, within a minute.
    fn attempt(&self, delivery: Delivery) -> BoxFuture<'static, DeliveryAttempt>;
}

/// Adds notifications to the outbox, and has them sent. A cheap handle.
#[derive(Clone)]
pub struct Notifier {
    config: Arc<NotifyConfig>,
    outbox: SharedValue<Outbox>,
    added: Arc<Added>,
    begun: Arc<BegunJobs>,
    /// Sends deliveries. Without one, other processes do.
    carrier: Arc<OnceLock<Arc<dyn Carrier>>>,
}

/// Notifications of this process.
#[derive(Default)]
struct Added {
    /// Those that are not in the outbox yet.
    waiting: Mutex<VecDeque<Addition>>,
    is_added: Notify,
    /// Whether there has been one.
    is_any: AtomicBool,
}

/// Jobs that have begun and that rules watch, for [`Jobs::watch`](crate::jobs::Jobs::watch).
struct BegunJobs {
    sender: mpsc::Sender<Arc<sshjobs_job::Job>>,
    receiver: AsyncMutex<mpsc::Receiver<Arc<sshjobs_job::Job>>>,
}

/// A message for one receiver.
struct Addition {
    receiver: Receiver,
    message: Notification,
}

/// Time after which the outbox is read again: other processes add deliveries, too.
const LOOK: Duration = Duration::from_secs(5);
/// Time limit for the last attempts of a process.
const FLUSH_TIME: Duration = Duration::from_secs(10);
/// Maximum attempts at the same time.
const MOST_ATTEMPTS: usize = 8;
/// Maximum messages that wait for the outbox.
const MOST_WAITING: usize = 1000;
/// Maximum jobs that wait to be watched.
const MOST_BEGUN: usize = 1000;
/// Last lines of a job in a message, and their most bytes.
const LAST_LINES: usize = 5;
const LAST_BYTES: usize = 600;

impl Notifier {
    pub(crate) fn new(config: NotifyConfig, outbox: SharedValue<Outbox>) -> Self {
        let (sender, receiver) = mpsc::channel(MOST_BEGUN);
        let begun = BegunJobs {
            sender,
            receiver: AsyncMutex::new(receiver),
        };
        Self {
            config: Arc::new(config),
            outbox,
            added: Arc::default(),
            begun: Arc::new(begun),
            carrier: Arc::default(),
        }
    }

    /// Number of deliveries in the outbox that were given up. 0 if it can't be read.
    pub(crate) async fn given_up(&self) -> usize {
        let Ok(outbox) = self.outbox.read().await else { return 0 };
        let is_given_up =
            |delivery: &&Delivery| matches!(delivery.state, DeliveryState::GivenUp(_));
        outbox.deliveries().iter().filter(is_given_up).count()
    }

    /// Makes this process send deliveries: in [`run`](Self::run), and its own ones at its end.
    pub fn send_with(&self, carrier: Arc<dyn Carrier>) {
        // It is set once, when the program starts.
        self.carrier.set(carrier).ok();
    }

    /// The table `[notify]`.
    pub(crate) fn config(&self) -> &NotifyConfig {
        &self.config
    }

    /// Has a job watched, if a rule watches it. Does not wait.
    pub(crate) fn note_begin(&self, job: &Arc<sshjobs_job::Job>) {
        if !self.config.rules_for(ChosenBy::of(job)).any(NotifyRule::watches) {
            return;
        }
        // In a process that does not serve, the queue is full after a while: no task empties it.
        if self.begun.sender.try_send(Arc::clone(job)).is_err() {
            tracing::debug!(job = job.id.as_str(), "a job is not watched");
        }
    }

    /// Waits for a job that a rule watches. Cancel safe.
    pub(crate) async fn next_begun(&self) -> Arc<sshjobs_job::Job> {
        let next = self.begun.receiver.lock().await.recv().await;
        match next {
            Some(job) => job,
            // The sender is part of this handle.
            None => pending().await,
        }
    }

    /// Notifies of the end of a job that this process has recorded. Does not wait.
    pub(crate) fn note_end(&self, job: &sshjobs_job::Job, outcome: &Outcome) {
        // The fleet notifies of its end.
        if job.spec.member_of.is_some() {
            return;
        }
        let receivers = self.receivers_at_end(job, !outcome.is_success());
        if receivers.is_empty() {
            return;
        }
        let facts = NotifiedJob {
            state: Phase::Ended(outcome.clone()).name().to_owned(),
            outcome: outcome.to_string(),
            has_failed: !outcome.is_success(),
            exit_status: outcome.exit_status(),
            ..self.facts_of(job)
        };
        self.add_for_each(receivers, Occasion::Ended, facts);
    }

    /// Announces a job's end to the receivers of its end. Does not wait.
    pub(crate) fn note_coming_end(&self, job: &sshjobs_job::Job, occasion: Occasion) {
        self.notify(self.receivers_at_end(job, true), occasion, job);
    }

    /// Adds a message for each receiver. Does not wait.
    pub(crate) fn notify(
        &self,
        receivers: Vec<Receiver>,
        occasion: Occasion,
        job: &sshjobs_job::Job,
    ) {
        if receivers.is_empty() {
            return;
        }
        self.add_for_each(receivers, occasion, self.facts_of(job));
    }

    fn add_for_each(&self, receivers: Vec<Receiver>, occasion: Occasion, job: NotifiedJob) {
        let message = Notification {
            occasion,
            at: timestamp_of(SystemTime::now()),
            job,
        };
        for receiver in receivers {
            self.add(receiver, message.clone());
        }
    }

    /// The facts of a job as it is now.
    fn facts_of(&self, job: &sshjobs_job::Job) -> NotifiedJob {
        let status = job.status();
        let last = job.last_page(LAST_LINES, LAST_BYTES);
        NotifiedJob {
            job_id: job.id.as_str().to_owned(),
            fleet_id: job.spec.member_of.as_ref().map(|fleet| fleet.as_str().to_owned()),
            host: job.spec.host.clone(),
            caller: job.caller.as_str().to_owned(),
            label: job.spec.label.clone(),
            command: shortened(&job.spec.command),
            state: status.phase.name().to_owned(),
            outcome: status.phase.name().to_owned(),
            has_failed: false,
            exit_status: None,
            started_at: timestamp_of(status.started_at),
            ended_at: status.ended_at.map(timestamp_of),
            total_lines: status.total_lines,
            last_lines: last.lines.into_iter().map(|line| shortened(&line.text)).collect(),
            url: self.page_of(job),
        }
    }

    /// The URL of a job on the live page, if a server is known.
    fn page_of(&self, job: &sshjobs_job::Job) -> Option<String> {
        let base = self.config.page_url.as_deref()?.trim_end_matches('/');
        Some(format!("{base}/?job={}", job.id.as_str()))
    }

    /// The receivers of a job's end, each once: those that its caller has named, and those of rules.
    fn receivers_at_end(&self, job: &sshjobs_job::Job, has_failed: bool) -> Vec<Receiver> {
        let of_rules = self
            .config
            .rules_for(ChosenBy::of(job))
            .filter(|rule| rule.occasions().iter().any(|occasion| is_at_end(*occasion, has_failed)))
            .flat_map(|rule| rule.targets.iter().cloned())
            .map(Receiver::Target);
        let mut receivers: Vec<Receiver> =
            job.spec.notify.iter().cloned().chain(of_rules).collect();
        receivers.sort_unstable();
        receivers.dedup();
        receivers
    }

    fn add(&self, receiver: Receiver, message: Notification) {
        let mut waiting = lock(&self.added.waiting);
        if waiting.len() >= MOST_WAITING {
            tracing::warn!(
                job = message.job.job_id,
                "a notification is dropped: too many wait"
            );
            return;
        }
        waiting.push_back(Addition { receiver, message });
        self.added.is_any.store(true, Relaxed);
        self.added.is_added.notify_one();
    }

    /// Tries once to send the notifications that are due, before this process ends. Others try again.
    pub(crate) async fn flush(&self) {
        if !self.added.is_any.load(Relaxed) {
            return;
        }
        self.move_to_outbox().await;
        let Some(carrier) = self.carrier.get() else { return };
        let sending = async {
            let mut attempts = JoinSet::new();
            self.start_attempts(carrier, &mut attempts).await;
            while attempts.join_next().await.is_some() {
                self.start_attempts(carrier, &mut attempts).await;
            }
        };
        if timeout(FLUSH_TIME, sending).await.is_err() {
            tracing::warn!("a notification is not sent yet; another process tries again");
        }
    }

    /// Sends the deliveries that are due, until it is dropped. Never returns. Without a carrier it only waits.
    pub async fn run(&self) -> Infallible {
        let Some(carrier) = self.carrier.get() else {
            return std::future::pending().await;
        };
        let mut attempts = JoinSet::new();
        loop {
            let next_at = self.start_attempts(carrier, &mut attempts).await;
            let now = timestamp_of(SystemTime::now());
            let until_next =
                next_at.map_or(LOOK, |at| Duration::from_millis(at.saturating_sub(now)));
            tokio::select! {
                // However the wait ends, the outbox is read again.
                _ = timeout(until_next.min(LOOK), self.added.is_added.notified()) => {}
                Some(_) = attempts.join_next() => {}
            }
        }
    }

    /// Starts an attempt for each delivery that is due, as far as there is room. Returns when the next one
    /// is due.
    async fn start_attempts(
        &self,
        carrier: &Arc<dyn Carrier>,
        attempts: &mut JoinSet<()>,
    ) -> Option<u64> {
        self.move_to_outbox().await;
        while attempts.len() < MOST_ATTEMPTS {
            let now = timestamp_of(SystemTime::now());
            // Read first: a claim is a write, which other processes wait for.
            let outbox = self.outbox.read().await.ok()?;
            let next_at = outbox.next_at(|receiver| carrier.knows(receiver))?;
            if next_at > now {
                return Some(next_at);
            }
            let knowing = Arc::clone(carrier);
            let claimed = self
                .outbox
                .change(move |outbox| outbox.claim(now, |receiver| knowing.knows(receiver)))
                .await;
            let delivery = match claimed {
                Ok(delivery) => delivery?,
                Err(error) => {
                    tracing::warn!(%error, "notifications can't be sent");
                    return None;
                }
            };
            attempts.spawn(self.clone().attempt(Arc::clone(carrier), delivery));
        }
        None
    }

    async fn attempt(self, carrier: Arc<dyn Carrier>, delivery: Delivery) {
        let attempt = carrier.attempt(delivery.clone()).await;
        match &attempt {
            DeliveryAttempt::Accepted => {}
            DeliveryAttempt::Failed(why) => {
                tracing::warn!(receiver = ?delivery.receiver, why, "a notification is tried again later");
            }
            DeliveryAttempt::Refused(why) => {
                tracing::warn!(receiver = ?delivery.receiver, why, "a notification is given up");
            }
        }
        let now = timestamp_of(SystemTime::now());
        let finish =
            self.outbox.change(move |outbox| outbox.finish(&delivery, attempt.clone(), now));
        if let Err(error) = finish.await {
            tracing::warn!(%error, "a notification may be sent again");
        }
    }

    /// Moves this process's messages to the outbox. A message that can't be stored is tried again.
    async fn move_to_outbox(&self) {
        loop {
            let Some(Addition { receiver, message }) = lock(&self.added.waiting).pop_front() else {
                return;
            };
            let now = timestamp_of(SystemTime::now());
            let delivery = Delivery {
                id: message.id_for(&receiver),
                receiver,
                message,
                created_at: now,
                attempts: 0,
                state: DeliveryState::Due(now),
                last_error: None,
            };
            let again = delivery.clone();
            match self.outbox.change(move |outbox| outbox.add(delivery.clone(), now)).await {
                Ok(true) => {}
                Ok(false) => tracing::warn!("a notification is dropped: the outbox is full"),
                Err(error) => {
                    tracing::warn!(%error, "a notification can't be stored yet");
                    lock(&self.added.waiting).push_front(Addition {
                        receiver: again.receiver,
                        message: again.message,
                    });
                    return;
                }
            }
        }
    }

    /// All deliveries, for a list.
    ///
    /// # Errors
    /// Why the outbox can't be read, in words.
    pub async fn deliveries(&self) -> Result<Vec<Delivery>, String> {
        let outbox = self.outbox.read().await.map_err(|error| error.to_string())?;
        Ok(outbox.deliveries().to_vec())
    }
}

/// Whether the end of a job is such an occasion.
fn is_at_end(occasion: NotifyOn, has_failed: bool) -> bool {
    match occasion {
        NotifyOn::End => true,
        NotifyOn::Failure => has_failed,
        // A watch notifies of these.
        NotifyOn::Prompt | NotifyOn::Silence | NotifyOn::Match | NotifyOn::GpuIdle => false,
    }
}
