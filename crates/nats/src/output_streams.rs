//! The streams that hold the output of all jobs, and single messages in them.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_nats::HeaderMap;
use async_nats::jetstream::context::PublishError;
use async_nats::jetstream::message::{PublishMessage, StreamMessage};
use async_nats::jetstream::stream::{
    DirectGetErrorKind, LastRawMessageErrorKind, RawMessageErrorKind, Stream,
};
use async_nats::jetstream::{Error as Refusal, ErrorCode};
use bytes::Bytes;
use tokio::time::{Instant, sleep};

use super::chunks::{Chunk, ChunkPosition};
use super::connection::{NatsConnection, io_failed};
use super::options::subject_token;
use super::race::{is_undecided, lost_race};
use sshjobs_base::lock::lock;
use sshjobs_job::JobId;
use sshjobs_store::StoreError;

/// The output of all jobs: a few streams, so that the work is divided between the servers of NATS.
/// A job's output is in one of them.
pub(super) struct OutputStreams {
    pub(super) connection: Arc<NatsConnection>,
    streams: Vec<Stream>,
    /// Fencing tokens of the jobs that this replica owns.
    tokens: Mutex<HashMap<JobId, u64>>,
    /// Sequence numbers of the chunks that fenced the last owners.
    fences: Mutex<HashMap<JobId, u64>>,
    /// Whether the answer to the next chunk is lost.
    #[cfg(test)]
    pub(super) loses_answer: std::sync::atomic::AtomicBool,
}

/// Number of streams. It can't change: it decides in which stream a job's output is.
const STREAMS: u32 = 4;
/// While NATS does not acknowledge a chunk, it is sent again for this long. Then the append fails, and
/// the writer serves other jobs before it tries the chunk again.
const STORE_TIME: Duration = Duration::from_secs(11);
/// Pause before a chunk is sent again.
const PAUSE: Duration = Duration::from_millis(100);

/// Headers of a chunk: its position, and the fencing token of its writer.
const SEGMENT: &str = "Sshjobs-Segment";
const OFFSET: &str = "Sshjobs-Offset";
const TOKEN: &str = "Sshjobs-Token";
/// Header of a segment's first chunk: the length of the segment before it.
const LENGTH_BEFORE: &str = "Sshjobs-Length-Before";

/// A chunk and its bytes.
#[derive(Clone, Debug)]
pub(super) struct ChunkMessage {
    pub(super) chunk: Chunk,
    /// Fencing token of the replica that wrote it.
    pub(super) token: u64,
    /// Number of bytes of the segment before, for a segment's first chunk.
    pub(super) length_before: u64,
    pub(super) bytes: Bytes,
}

/// A chunk that is not stored yet.
#[derive(Clone, Debug)]
pub(super) struct NewChunk {
    pub(super) start: ChunkPosition,
    /// Number of bytes of the segment before, for a segment's first chunk.
    pub(super) length_before: u64,
    pub(super) bytes: Bytes,
}

impl ChunkMessage {
    /// `None` for a message that is not a chunk.
    fn of(message: &StreamMessage) -> Option<Self> {
        let start = ChunkPosition {
            segment: number_in(message, SEGMENT)?,
            offset: number_in(message, OFFSET)?,
        };
        let chunk = Chunk {
            start,
            length: message.payload.len() as u64,
            sequence: message.sequence,
        };
        Some(Self {
            chunk,
            token: number_in(message, TOKEN)?,
            length_before: number_in(message, LENGTH_BEFORE).unwrap_or(0),
            bytes: message.payload.clone(),
        })
    }
}

/// The number in a header of a message.
fn number_in(message: &StreamMessage, header: &str) -> Option<u64> {
    message.headers.get(header)?.as_str().parse().ok()
}

/// Which server of NATS answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AnsweringServer {
    /// Any server with a copy. It may lack the newest messages.
    Quick,
    /// The leader, which has all messages.
    Exact,
}

/// Result of storing a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stored {
    /// It is stored under this sequence number.
    At(u64),
    /// Another message is the job's newest, so that the chunk was refused.
    Refused,
}

impl OutputStreams {
    /// Opens the streams. Creates missing ones.
    pub(super) async fn open(connection: Arc<NatsConnection>) -> Result<Self, StoreError> {
        let mut streams = Vec::new();
        for number in 0..STREAMS {
            let name = format!("{}_output_{number}", connection.prefix);
            let subjects = format!("{}.output.{number}.>", connection.prefix);
            streams.push(connection.stream(name, subjects).await?);
        }
        Ok(Self {
            connection,
            streams,
            tokens: Mutex::default(),
            fences: Mutex::default(),
            #[cfg(test)]
            loses_answer: std::sync::atomic::AtomicBool::default(),
        })
    }

    fn partition(job: &JobId) -> u32 {
        crc32fast::hash(job.as_str().as_bytes()) % STREAMS
    }

    /// The stream with a job's output.
    pub(super) fn stream(&self, job: &JobId) -> &Stream {
        &self.streams[Self::partition(job) as usize]
    }

    /// Prefix of the subjects of a job's output.
    pub(super) fn subject(&self, job: &JobId) -> String {
        format!(
            "{}.output.{}.{}",
            self.connection.prefix,
            Self::partition(job),
            subject_token(job.as_str())
        )
    }

    /// Subject of the chunks. There is one for all segments, so that NATS compares each new chunk
    /// with the newest one, whichever segment that is in.
    pub(super) fn chunks_subject(&self, job: &JobId) -> String {
        format!("{}.chunks", self.subject(job))
    }

    /// Sets the token with which this replica writes a job's output.
    pub(super) fn note_token(&self, job: &JobId, token: u64) {
        lock(&self.tokens).insert(job.clone(), token);
    }

    pub(super) fn forget_token(&self, job: &JobId) {
        lock(&self.tokens).remove(job);
        lock(&self.fences).remove(job);
    }

    /// Notes the chunk with which this replica has taken a job over.
    pub(super) fn note_fence(&self, job: &JobId, sequence: u64) {
        lock(&self.fences).insert(job.clone(), sequence);
    }

    /// The newest chunk, which is at least as new as the one with which this replica has taken the job
    /// over.
    ///
    /// # Errors
    /// If NATS can't be reached, or its leader has just been elected and does not have that chunk yet.
    pub(super) async fn last_since_fence(&self, job: &JobId) -> io::Result<Option<ChunkMessage>> {
        let last = self.last(job, AnsweringServer::Exact).await?;
        let fence = lock(&self.fences).get(job).copied().unwrap_or(0);
        if last.as_ref().map_or(0, |last| last.chunk.sequence) < fence {
            return Err(io_failed("the leader does not have the newest output yet"));
        }
        Ok(last)
    }

    pub(super) fn token(&self, job: &JobId) -> Option<u64> {
        lock(&self.tokens).get(job).copied()
    }

    /// The first chunk with at least this sequence number.
    pub(super) async fn next(
        &self,
        job: &JobId,
        sequence: u64,
        answer: AnsweringServer,
    ) -> io::Result<Option<ChunkMessage>> {
        let subject = self.chunks_subject(job);
        let found = self.next_message(job, subject, sequence, answer).await?;
        Ok(found.as_ref().and_then(ChunkMessage::of))
    }

    /// The first message of a subject with at least this sequence number.
    pub(super) async fn next_message(
        &self,
        job: &JobId,
        subject: String,
        sequence: u64,
        answer: AnsweringServer,
    ) -> io::Result<Option<StreamMessage>> {
        let stream = self.stream(job);
        match answer {
            AnsweringServer::Quick => {
                match stream.direct_get_next_for_subject(subject, Some(sequence)).await {
                    Ok(message) => Ok(Some(message)),
                    Err(error) if error.kind() == DirectGetErrorKind::NotFound => Ok(None),
                    Err(error) => Err(io_failed(error)),
                }
            }
            AnsweringServer::Exact => {
                let found = stream
                    .raw_message_builder()
                    .next_by_subject(subject)
                    .sequence(sequence)
                    .send()
                    .await;
                match found {
                    Ok(message) => Ok(Some(message)),
                    Err(error) if error.kind() == RawMessageErrorKind::NoMessageFound => Ok(None),
                    Err(error) => Err(io_failed(error)),
                }
            }
        }
    }

    /// The newest chunk.
    pub(super) async fn last(
        &self,
        job: &JobId,
        answer: AnsweringServer,
    ) -> io::Result<Option<ChunkMessage>> {
        let subject = self.chunks_subject(job);
        let stream = self.stream(job);
        let found = match answer {
            AnsweringServer::Quick => match stream.direct_get_last_for_subject(subject).await {
                Ok(message) => Some(message),
                Err(error) if error.kind() == DirectGetErrorKind::NotFound => None,
                Err(error) => return Err(io_failed(error)),
            },
            AnsweringServer::Exact => {
                match stream.get_last_raw_message_by_subject(&subject).await {
                    Ok(message) => Some(message),
                    Err(error) if error.kind() == LastRawMessageErrorKind::NoMessageFound => None,
                    Err(error) => return Err(io_failed(error)),
                }
            }
        };
        Ok(found.as_ref().and_then(ChunkMessage::of))
    }

    /// Stores a chunk, if the job's newest message is the one with the sequence number `newest` (0
    /// if there is none). Sends it again while NATS does not answer.
    pub(super) async fn store(
        &self,
        job: &JobId,
        chunk: NewChunk,
        newest: u64,
    ) -> io::Result<Stored> {
        let NewChunk {
            start,
            length_before,
            bytes,
        } = chunk;
        let token = self.token(job).ok_or_else(|| fenced(job))?;
        let mut headers = HeaderMap::new();
        headers.insert(SEGMENT, start.segment.to_string());
        headers.insert(OFFSET, start.offset.to_string());
        headers.insert(TOKEN, token.to_string());
        if start.offset == 0 {
            headers.insert(LENGTH_BEFORE, length_before.to_string());
        }
        let deadline = Instant::now() + STORE_TIME;
        loop {
            let message = PublishMessage::build()
                .payload(bytes.clone())
                .headers(headers.clone())
                .expected_last_subject_sequence(newest);
            match self.publish(self.chunks_subject(job), message).await {
                #[cfg(test)]
                Ok(_) if self.loses_answer.swap(false, std::sync::atomic::Ordering::Relaxed) => {
                    return Err(io_failed("the answer was lost"));
                }
                Ok(sequence) => return Ok(Stored::At(sequence)),
                Err(error) if lost_race(&error) && !is_undecided(&error) => {
                    // An earlier attempt may have stored it, although its answer was lost.
                    let last = self.last(job, AnsweringServer::Exact).await?;
                    let own = last.filter(|last| {
                        last.token == token && last.chunk.start == start && last.bytes == bytes
                    });
                    return Ok(own.map_or(Stored::Refused, |own| Stored::At(own.chunk.sequence)));
                }
                Err(error) if is_final(&error) || Instant::now() >= deadline => {
                    return Err(io_failed(error));
                }
                // Also if another write is about to be stored: it may be an earlier attempt of this one.
                Err(error) => {
                    tracing::debug!(%job, %error, "output is sent to NATS again");
                    sleep(PAUSE).await;
                }
            }
        }
    }

    /// Publishes a message and waits until it is stored. Returns its sequence number.
    pub(super) async fn publish(
        &self,
        subject: String,
        message: PublishMessage,
    ) -> Result<u64, PublishError> {
        let sent = self.connection.jetstream.send_publish(subject, message).await?;
        Ok(sent.await?.sequence)
    }

    /// Tells readers at other replicas that the output has grown.
    pub(super) async fn announce(&self, job: &JobId, sequence: u64) {
        let subject = self.news_subject(job);
        // Readers look by themselves once a second, so a lost message only delays them.
        let sent = self.connection.client.publish(subject, sequence.to_string().into()).await;
        if let Err(error) = sent {
            tracing::debug!(%job, %error, "readers were not told of new output");
        }
    }

    pub(super) fn news_subject(&self, job: &JobId) -> String {
        format!(
            "{}.news.{}",
            self.connection.prefix,
            subject_token(job.as_str())
        )
    }
}

/// Whether NATS has answered that it can't store the chunk, so that sending it again is useless.
fn is_final(error: &PublishError) -> bool {
    let answer =
        std::error::Error::source(error).and_then(|source| source.downcast_ref::<Refusal>());
    answer.is_some_and(|answer| {
        [
            ErrorCode::ACCOUNT_RESOURCES_EXCEEDED,
            ErrorCode::INSUFFICIENT_RESOURCES,
            ErrorCode::STORAGE_RESOURCES_EXCEEDED,
            ErrorCode::STREAM_STORE_FAILED,
            ErrorCode::STREAM_MESSAGE_EXCEEDS_MAXIMUM,
        ]
        .contains(&answer.error_code())
    })
}

/// This replica may not write the output of a job any more.
pub(super) fn fenced(job: &JobId) -> io::Error {
    io::Error::new(
        io::ErrorKind::PermissionDenied,
        format!("another replica has taken over the job {job}"),
    )
}
