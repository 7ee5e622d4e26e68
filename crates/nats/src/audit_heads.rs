//! Heads of audit logs, in a stream that refuses to delete messages.

use std::time::Duration;

use async_nats::jetstream::consumer::DeliverPolicy;
use async_nats::jetstream::consumer::pull::OrderedConfig;
use async_nats::jetstream::stream::{self, Stream};
use futures_util::TryStreamExt;
use tokio::time::timeout;

use super::connection::{NatsConnection, failed, is_missing};
use super::options::{subject_token, token_text};
use sshjobs_store::{KeptHead, StoreError};

/// The stream of heads. Each log has a subject.
pub(super) struct AuditHeads<'a> {
    connection: &'a NatsConnection,
    stream: Stream,
}

/// Maximum heads of one log; the oldest are replaced. With one a minute they last 70 days, and take
/// 15 MB.
const MOST_HEADS: i64 = 100_000;
/// Time limit for the next head.
const NEXT_HEAD_TIMEOUT: Duration = Duration::from_secs(10);

impl<'a> AuditHeads<'a> {
    /// Opens the stream. Creates a missing one.
    pub(super) async fn open(connection: &'a NatsConnection) -> Result<Self, StoreError> {
        let stream = connection
            .open_stream(stream::Config {
                name: name(connection),
                subjects: vec![all_subjects(connection)],
                max_messages_per_subject: MOST_HEADS,
                // NATS does not let anyone change these two later.
                deny_delete: true,
                deny_purge: true,
                ..stream::Config::default()
            })
            .await?;
        Self { connection, stream }.checked()
    }

    /// Opens the stream for reading. `None` if there is none.
    pub(super) async fn existing(
        connection: &'a NatsConnection,
    ) -> Result<Option<Self>, StoreError> {
        match connection.jetstream.get_stream(name(connection)).await {
            Ok(stream) => Self { connection, stream }.checked().map(Some),
            Err(error) if is_missing(&error) => Ok(None),
            Err(error) => Err(failed(error)),
        }
    }

    fn checked(self) -> Result<Self, StoreError> {
        let config = &self.stream.cached_info().config;
        if config.deny_delete && config.deny_purge {
            return Ok(self);
        }
        Err(failed(format!(
            "the stream {} lets checkpoints of audit logs be deleted: it was not made by sshjobs",
            config.name
        )))
    }

    fn subject(&self, log: &str) -> String {
        format!("{}.audit.{}", self.connection.prefix, subject_token(log))
    }

    /// Adds a head of a log.
    pub(super) async fn add(&self, log: &str, head: &str) -> Result<(), StoreError> {
        let payload = bytes::Bytes::copy_from_slice(head.as_bytes());
        let sent = self.connection.jetstream.publish(self.subject(log), payload).await;
        sent.map_err(failed)?.await.map(drop).map_err(failed)
    }

    /// All heads of a log, the oldest first, or without a log the newest of each.
    pub(super) async fn read(&self, log: Option<&str>) -> Result<Vec<KeptHead>, StoreError> {
        let config = match log {
            Some(log) => OrderedConfig {
                filter_subject: self.subject(log),
                ..OrderedConfig::default()
            },
            None => OrderedConfig {
                filter_subject: all_subjects(self.connection),
                deliver_policy: DeliverPolicy::LastPerSubject,
                ..OrderedConfig::default()
            },
        };
        let consumer = self.stream.create_consumer(config).await.map_err(failed)?;
        let mut remaining = consumer.cached_info().num_pending;
        let mut heads = Vec::new();
        if remaining == 0 {
            return Ok(heads);
        }
        let mut messages = consumer.messages().await.map_err(failed)?;
        while remaining > 0 {
            let next = timeout(NEXT_HEAD_TIMEOUT, messages.try_next()).await.map_err(failed)?;
            let message = next.map_err(failed)?.ok_or_else(|| failed("it sent too few heads"))?;
            remaining -= 1;
            let info = message.info().map_err(failed)?;
            let log = message.subject.rsplit('.').next().and_then(token_text);
            heads.push(KeptHead {
                log: log.unwrap_or_else(|| message.subject.to_string()),
                head: String::from_utf8_lossy(&message.payload).into_owned(),
                kept_at: info.published.into(),
            });
        }
        Ok(heads)
    }
}

fn name(connection: &NatsConnection) -> String {
    format!("{}_audit", connection.prefix)
}

fn all_subjects(connection: &NatsConnection) -> String {
    format!("{}.audit.*", connection.prefix)
}
