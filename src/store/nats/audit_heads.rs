//! Heads of audit logs, in a stream from which no message can be deleted.

use async_nats::jetstream::consumer::pull::OrderedConfig;
use async_nats::jetstream::stream::{self, Stream};
use futures_util::TryStreamExt;
use tokio::time::timeout;

use super::connection::{Connection, failed};
use super::options::{subject_token, token_text};
use crate::store::{KeptHead, StoreError};

/// The stream of heads. Each log has a subject.
pub(super) struct AuditHeads<'a> {
    connection: &'a Connection,
    stream: Stream,
}

/// Heads that are kept of one log: those of 70 days at least, with one a minute. They take 15 MB.
const MOST_HEADS: i64 = 100_000;

impl<'a> AuditHeads<'a> {
    /// Opens the stream. Creates a missing one.
    pub(super) async fn open(connection: &'a Connection) -> Result<Self, StoreError> {
        let stream = connection
            .open_stream(stream::Config {
                name: format!("{}_audit", connection.prefix),
                subjects: vec![format!("{}.audit.*", connection.prefix)],
                max_messages_per_subject: MOST_HEADS,
                // NATS refuses to change these two later: whoever takes over a replica can add heads
                // and can't remove any, except with the whole stream.
                deny_delete: true,
                deny_purge: true,
                ..stream::Config::default()
            })
            .await?;
        Ok(Self { connection, stream })
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

    /// All heads of a log, or of all logs. The oldest is first.
    pub(super) async fn read(&self, log: Option<&str>) -> Result<Vec<KeptHead>, StoreError> {
        let subjects = log.map_or_else(
            || format!("{}.audit.*", self.connection.prefix),
            |log| self.subject(log),
        );
        let config = OrderedConfig {
            filter_subject: subjects,
            ..OrderedConfig::default()
        };
        let consumer = self.stream.create_consumer(config).await.map_err(failed)?;
        let mut remaining = consumer.cached_info().num_pending;
        let mut heads = Vec::new();
        if remaining == 0 {
            return Ok(heads);
        }
        let mut messages = consumer.messages().await.map_err(failed)?;
        while remaining > 0 {
            let next = timeout(NEXT, messages.try_next()).await.map_err(failed)?;
            let Some(message) = next.map_err(failed)? else { break };
            remaining -= 1;
            let log = message.subject.rsplit('.').next().and_then(token_text);
            let (Some(log), Ok(head)) = (log, std::str::from_utf8(&message.payload)) else {
                // Someone else has written into the stream.
                continue;
            };
            let info = message.info().map_err(failed)?;
            heads.push(KeptHead {
                log,
                head: head.to_owned(),
                kept_at: info.published.into(),
            });
        }
        Ok(heads)
    }
}

/// Time limit for the next head.
const NEXT: std::time::Duration = std::time::Duration::from_secs(10);
