//! The output of one job in NATS: its chunks, the indexes of its segments, and the list of deleted
//! output.

use std::io::{self, ErrorKind};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use async_nats::jetstream::message::PublishMessage;
use bytes::Bytes;
use futures_util::StreamExt;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::chunks::{Chunk, ChunkPosition, Chunks};
use super::connection::io_failed;
use super::output_streams::{
    AnsweringServer, ChunkMessage, NewChunk, OutputStreams, Stored, fenced,
};
use super::replicas::forgotten_subject;
use sshjobs_base::lock::lock;
use sshjobs_job::JobId;
use sshjobs_store::ReplayMark;
use sshjobs_store::{Blob, Media, News, OpenMode, SegmentPart};

/// The output of one job, which all replicas read and its owner writes.
///
/// Each append is one message, a *chunk*, with its segment and its position in the headers. An
/// *index* message has several marks, and the sequence numbers of the chunks that they point at, so
/// that a reader finds a page with one call.
pub(super) struct JobOutput(Arc<OutputInNats>);

struct OutputInNats {
    streams: Arc<OutputStreams>,
    job: JobId,
    chunks: Mutex<Chunks>,
    /// Marks that are in no index message yet. Readers find them by reading the chunks.
    new_marks: Mutex<Vec<ReplayMark>>,
    /// The newest sequence number that is known to exist. A server of NATS that lacks it is behind, so
    /// that the leader is asked instead.
    announced: Arc<AtomicU64>,
    /// Sequence number of the newest list of deleted output that was read. 0 if there is none.
    read_lists: AtomicU64,
}

/// Number of marks in an index message.
const MARKS: usize = 8;
/// Header of an index message: length and sequence number of the chunk of each mark.
const CHUNKS: &str = "Sshjobs-Chunks";

impl JobOutput {
    pub(super) fn new(streams: Arc<OutputStreams>, job: JobId) -> Self {
        Self(Arc::new(OutputInNats {
            streams,
            job,
            chunks: Mutex::default(),
            new_marks: Mutex::default(),
            announced: Arc::default(),
            read_lists: AtomicU64::default(),
        }))
    }
}

impl OutputInNats {
    fn wait<T>(&self, call: impl Future<Output = io::Result<T>>) -> io::Result<T> {
        self.streams.connection.wait(call)
    }

    fn index_subject(&self, segment: u64) -> String {
        format!("{}.index.{segment}", self.streams.subject(&self.job))
    }

    fn forgotten_subject(&self) -> String {
        format!("{}.forgotten", self.streams.subject(&self.job))
    }

    fn note(&self, message: &ChunkMessage) {
        lock(&self.chunks).note(message.chunk);
    }

    /// The chunk with the byte at a position. `None` if there is none yet, or if it was deleted.
    async fn find(&self, place: ChunkPosition) -> io::Result<Option<ChunkMessage>> {
        let known = lock(&self.chunks).around(place);
        if let Some(chunk) = known.before.filter(|chunk| chunk.contains(place)) {
            // The server that answers may lack a chunk of which an index has told.
            self.announced.fetch_max(chunk.sequence, Relaxed);
            let found = self.next(chunk.sequence).await?;
            return Ok(found.filter(|message| message.chunk.contains(place)));
        }

        // The search is for the first message in this range that has the position.
        let mut first = known.before.map_or(1, |chunk| chunk.sequence + 1);
        let mut end = match known.after {
            Some(chunk) => chunk.sequence,
            None if known.is_next(place) => u64::MAX,
            None => {
                let Some(last) = self.newest().await? else { return Ok(None) };
                self.note(&last);
                if last.chunk.contains(place) {
                    return Ok(Some(last));
                }
                if last.chunk.start < place {
                    // At the end of the output. Another chunk may have come since.
                    first = first.max(last.chunk.sequence + 1);
                    u64::MAX
                } else {
                    last.chunk.sequence
                }
            }
        };
        while first < end {
            let middle = if end == u64::MAX || known.is_next(place) {
                first
            } else {
                first + (end - first) / 2
            };
            let Some(message) = self.next(middle).await?.filter(|next| next.chunk.sequence < end)
            else {
                // No message from here to the end of the range.
                end = middle;
                continue;
            };
            self.note(&message);
            if message.chunk.contains(place) {
                return Ok(Some(message));
            }
            if message.chunk.start <= place {
                first = message.chunk.sequence + 1;
            } else {
                end = middle;
            }
        }
        Ok(None)
    }

    /// The first chunk from a sequence number on.
    async fn next(&self, sequence: u64) -> io::Result<Option<ChunkMessage>> {
        let next = self.streams.next(&self.job, sequence, AnsweringServer::Quick).await?;
        // The server that has answered may lack a chunk that was announced.
        if next.is_none() && sequence <= self.announced.load(Relaxed) {
            return self.streams.next(&self.job, sequence, AnsweringServer::Exact).await;
        }
        Ok(next)
    }

    /// The newest chunk, which is at least as new as the newest one that is known to exist.
    async fn newest(&self) -> io::Result<Option<ChunkMessage>> {
        let last = self.streams.last(&self.job, AnsweringServer::Quick).await?;
        let found = last.as_ref().map_or(0, |last| last.chunk.sequence);
        if found < self.announced.load(Relaxed) {
            return self.streams.last(&self.job, AnsweringServer::Exact).await;
        }
        Ok(last)
    }

    /// Asks the leader for the newest chunk, so that later reads find all that is stored now.
    async fn catch_up(&self) -> io::Result<()> {
        if let Some(last) = self.streams.last_since_fence(&self.job).await? {
            self.announced.fetch_max(last.chunk.sequence, Relaxed);
        }
        Ok(())
    }

    /// Number of bytes of a segment.
    async fn length(&self, segment: u64) -> io::Result<u64> {
        let next_segment = ChunkPosition {
            segment: segment + 1,
            offset: 0,
        };
        if let Some(next) = self.find(next_segment).await? {
            return Ok(next.length_before);
        }
        // The last segment.
        let last = self.streams.last(&self.job, AnsweringServer::Exact).await?;
        let last = last.filter(|last| last.chunk.start.segment == segment);
        Ok(last.map_or(0, |last| last.chunk.end().offset))
    }

    /// Segments that exist, from the first to the last.
    async fn existing_segments(&self) -> io::Result<Vec<u64>> {
        let Some(first) = self.next(1).await? else { return Ok(Vec::new()) };
        let Some(last) = self.newest().await? else { return Ok(Vec::new()) };
        self.note(&first);
        self.note(&last);
        Ok((first.chunk.start.segment..=last.chunk.start.segment).collect())
    }

    async fn has_segment(&self, segment: u64) -> io::Result<bool> {
        let start = ChunkPosition { segment, offset: 0 };
        if lock(&self.chunks).starting_at(start).is_some() {
            return Ok(true);
        }
        // The first chunk of a log may be one without bytes, so that there is nothing to find.
        let is_first = segment == 1 && self.next(1).await?.is_some();
        Ok(is_first || self.find(start).await?.is_some())
    }

    /// Marks of a segment's index, in the order in which they were written.
    async fn read_index(&self, segment: u64) -> io::Result<Vec<u8>> {
        let mut marks = Vec::new();
        let mut sequence = 1;
        let subject = self.index_subject(segment);
        while let Some(message) = self
            .streams
            .next_message(&self.job, subject.clone(), sequence, AnsweringServer::Quick)
            .await?
        {
            sequence = message.sequence + 1;
            let named = message.headers.get(CHUNKS).map(|value| value.as_str().to_owned());
            let read = ReplayMark::read_all(segment, &message.payload);
            for (mark, named) in read.iter().zip(named.unwrap_or_default().split(',')) {
                let start = ChunkPosition {
                    segment,
                    offset: mark.offset,
                };
                if let Some((length, sequence)) = named.split_once(':')
                    && let (Ok(length), Ok(sequence)) = (length.parse(), sequence.parse())
                {
                    lock(&self.chunks).note(Chunk {
                        start,
                        length,
                        sequence,
                    });
                }
            }
            marks.extend_from_slice(&message.payload);
        }
        Ok(marks)
    }

    /// Adds marks to a segment's index, once there are enough for a message.
    async fn write_index(&self, segment: u64, bytes: &[u8]) -> io::Result<()> {
        let full = {
            let mut marks = lock(&self.new_marks);
            marks.retain(|mark| mark.segment == segment);
            marks.extend(ReplayMark::read_all(segment, bytes));
            if marks.len() < MARKS {
                return Ok(());
            }
            std::mem::take(&mut *marks)
        };
        let named: Vec<String> = {
            let chunks = lock(&self.chunks);
            full.iter()
                .map(|mark| {
                    let start = ChunkPosition {
                        segment,
                        offset: mark.offset,
                    };
                    match chunks.starting_at(start) {
                        Some(chunk) => format!("{}:{}", chunk.length, chunk.sequence),
                        None => String::new(),
                    }
                })
                .collect()
        };
        let payload: Vec<u8> = full.into_iter().flat_map(ReplayMark::to_bytes).collect();
        let message =
            PublishMessage::build().payload(payload.into()).header(CHUNKS, named.join(","));
        let published = self.streams.publish(self.index_subject(segment), message);
        published.await.map(drop).map_err(io_failed)
    }

    /// All lists of deleted output, one after the other. `None` if there is none.
    async fn read_forgotten(&self) -> io::Result<Option<Bytes>> {
        let mut lists = Vec::new();
        let mut newest = 0;
        while let Some(message) = self
            .streams
            .next_message(
                &self.job,
                self.forgotten_subject(),
                newest + 1,
                AnsweringServer::Exact,
            )
            .await?
        {
            newest = message.sequence;
            lists.extend_from_slice(&message.payload);
        }
        self.read_lists.fetch_max(newest, Relaxed);
        Ok((newest > 0).then(|| lists.into()))
    }

    /// Stores a list that has everything that is in the lists read so far, and tells all replicas.
    async fn write_forgotten(&self, bytes: Bytes) -> io::Result<()> {
        let message = PublishMessage::build().payload(bytes);
        let published = self.streams.publish(self.forgotten_subject(), message);
        published.await.map_err(io_failed)?;
        let connection = &self.streams.connection;
        let job = Bytes::copy_from_slice(self.job.as_str().as_bytes());
        let published = connection.client.publish(forgotten_subject(connection), job);
        published.await.map_err(io_failed)?;
        // Not those that another replica has written since.
        match self.read_lists.load(Relaxed) {
            // NATS 2.10 takes a purge before the first message for one of all messages.
            0 => Ok(()),
            read => self.purge_before(self.forgotten_subject(), read + 1).await,
        }
    }

    /// Deletes the messages of a subject before a sequence number.
    async fn purge_before(&self, subject: String, sequence: u64) -> io::Result<()> {
        let purge = self.streams.stream(&self.job).purge().sequence(sequence).filter(subject);
        purge.await.map(drop).map_err(io_failed)
    }

    async fn purge(&self, subject: String) -> io::Result<()> {
        let purge = self.streams.stream(&self.job).purge().filter(subject);
        purge.await.map(drop).map_err(io_failed)
    }

    async fn remove_segment(&self, segment: u64) -> io::Result<()> {
        self.purge(self.index_subject(segment)).await?;
        let next = ChunkPosition {
            segment: segment + 1,
            offset: 0,
        };
        match self.find(next).await? {
            Some(next) => {
                self.purge_before(self.streams.chunks_subject(&self.job), next.chunk.sequence)
                    .await?;
            }
            // The last segment. It is deleted only with the whole job.
            None => return Ok(()),
        }
        lock(&self.chunks).forget_before(segment + 1);
        Ok(())
    }

    /// Deletes chunks that end after a position, and marks behind it. The last writer has stored
    /// them, and its successor does not continue there.
    async fn cut_off_after(&self, place: ChunkPosition) -> io::Result<()> {
        let token = self.streams.token(&self.job).ok_or_else(|| fenced(&self.job))?;
        while let Some(last) = self.streams.last(&self.job, AnsweringServer::Exact).await? {
            // Before anything is deleted: the chunks of a new owner stay.
            if last.token > token {
                return Err(fenced(&self.job));
            }
            if last.chunk.end() <= place {
                break;
            }
            let stream = self.streams.stream(&self.job);
            stream.delete_message(last.chunk.sequence).await.map_err(io_failed)?;
        }
        lock(&self.chunks).forget_after(place);
        lock(&self.new_marks).clear();
        let subject = self.index_subject(place.segment);
        let mut sequence = 1;
        while let Some(message) = self
            .streams
            .next_message(&self.job, subject.clone(), sequence, AnsweringServer::Exact)
            .await?
        {
            sequence = message.sequence + 1;
            let marks = ReplayMark::read_all(place.segment, &message.payload);
            if marks.last().is_some_and(|mark| mark.offset >= place.offset) {
                let stream = self.streams.stream(&self.job);
                stream.delete_message(message.sequence).await.map_err(io_failed)?;
            }
        }
        Ok(())
    }
}

impl Media for JobOutput {
    fn segments(&self, _job: &JobId) -> io::Result<Vec<u64>> {
        self.0.wait(self.0.existing_segments())
    }

    fn open(&self, _job: &JobId, part: SegmentPart, access: OpenMode) -> io::Result<Arc<dyn Blob>> {
        let output = Arc::clone(&self.0);
        Ok(match (part, access) {
            (SegmentPart::Frames(segment), OpenMode::Read) => {
                if !output.wait(output.has_segment(segment))? {
                    return Err(ErrorKind::NotFound.into());
                }
                Arc::new(ChunksToRead {
                    output,
                    segment,
                    current: Mutex::default(),
                })
            }
            (SegmentPart::Frames(segment), OpenMode::Write) => {
                let tail = output.wait(output.tail())?;
                Arc::new(ChunksToWrite {
                    output,
                    segment,
                    tail: Mutex::new(tail),
                    unanswered: Mutex::default(),
                    stored_after_all: Mutex::default(),
                })
            }
            (SegmentPart::Index(segment), OpenMode::Read) => {
                let marks = output.wait(output.read_index(segment))?;
                if marks.is_empty() {
                    return Err(ErrorKind::NotFound.into());
                }
                Arc::new(Small::Index {
                    output,
                    segment,
                    bytes: marks,
                })
            }
            (SegmentPart::Index(segment), OpenMode::Write) => Arc::new(Small::Index {
                output,
                segment,
                bytes: Vec::new(),
            }),
            // Not kept here: a search reads all pieces.
            (SegmentPart::Filters(_), OpenMode::Read) => return Err(ErrorKind::NotFound.into()),
            (SegmentPart::Filters(_), OpenMode::Write) => {
                return Err(ErrorKind::Unsupported.into());
            }
            (SegmentPart::Forgotten, OpenMode::Read) => {
                let Some(bytes) = output.wait(output.read_forgotten())? else {
                    return Err(ErrorKind::NotFound.into());
                };
                Arc::new(Small::Forgotten { output, bytes })
            }
            (SegmentPart::Forgotten, OpenMode::Write) => Arc::new(Small::Forgotten {
                output,
                bytes: Bytes::new(),
            }),
        })
    }

    fn catch_up(&self) -> io::Result<()> {
        self.0.wait(self.0.catch_up())
    }

    fn remove(&self, _job: &JobId, segment: u64) -> io::Result<()> {
        self.0.wait(self.0.remove_segment(segment))
    }

    fn remove_all(&self, _job: &JobId) -> io::Result<()> {
        self.0
            .wait(self.0.purge(format!("{}.>", self.0.streams.subject(&self.0.job))))?;
        lock(&self.0.chunks).clear();
        Ok(())
    }

    fn news(&self) -> News {
        let (sender, news) = watch::channel(0);
        let output = Arc::clone(&self.0);
        let mut listening = JoinSet::new();
        let handle = self.0.streams.connection.handle();
        listening.spawn_on(
            async move {
                let subject = output.streams.news_subject(&output.job);
                let Ok(mut messages) = output.streams.connection.client.subscribe(subject).await
                else {
                    return;
                };
                while let Some(message) = messages.next().await {
                    let sequence = std::str::from_utf8(&message.payload).ok();
                    let Some(sequence) = sequence.and_then(|text| text.parse().ok()) else {
                        continue;
                    };
                    output.announced.fetch_max(sequence, Relaxed);
                    sender.send_replace(sequence);
                }
            },
            handle,
        );
        News::new(news, listening)
    }
}

/// The end of a job's output, as its writer knows it.
#[derive(Clone, Copy, Debug)]
struct OutputEnd {
    end: ChunkPosition,
    /// Sequence number of the newest chunk. 0 if there is none.
    newest: u64,
}

impl OutputEnd {
    /// Where the next chunk of a segment starts.
    fn next_in(self, segment: u64) -> ChunkPosition {
        if self.end.segment == segment {
            self.end
        } else {
            ChunkPosition { segment, offset: 0 }
        }
    }
}

impl OutputInNats {
    /// The end of the output, if its last chunk is one that was sent and not confirmed.
    async fn tail_if_stored(&self, sent: &Unanswered) -> io::Result<Option<OutputEnd>> {
        let token = self.streams.token(&self.job);
        let last = self.streams.last(&self.job, AnsweringServer::Exact).await?;
        let own = last.filter(|last| {
            Some(last.token) == token && last.chunk.start == sent.start && last.bytes == sent.bytes
        });
        Ok(own.map(|own| {
            self.note(&own);
            OutputEnd {
                end: own.chunk.end(),
                newest: own.chunk.sequence,
            }
        }))
    }

    /// The end of the output, for a writer.
    ///
    /// # Errors
    /// If another replica has taken over the job.
    async fn tail(&self) -> io::Result<OutputEnd> {
        let token = self.streams.token(&self.job).ok_or_else(|| fenced(&self.job))?;
        let Some(last) = self.streams.last(&self.job, AnsweringServer::Exact).await? else {
            return Ok(OutputEnd {
                end: ChunkPosition {
                    segment: 1,
                    offset: 0,
                },
                newest: 0,
            });
        };
        if last.token > token {
            return Err(fenced(&self.job));
        }
        Ok(OutputEnd {
            end: last.chunk.end(),
            newest: last.chunk.sequence,
        })
    }

    /// Appends a chunk.
    async fn append(&self, segment: u64, tail: &Mutex<OutputEnd>, bytes: Bytes) -> io::Result<()> {
        let before = *lock(tail);
        let start = before.next_in(segment);
        let new = NewChunk {
            start,
            length_before: if start.offset == 0 {
                before.end.offset
            } else {
                0
            },
            bytes: bytes.clone(),
        };
        let Stored::At(sequence) = self.streams.store(&self.job, new, before.newest).await? else {
            return Err(fenced(&self.job));
        };
        let chunk = Chunk {
            start,
            length: bytes.len() as u64,
            sequence,
        };
        lock(&self.chunks).note(chunk);
        *lock(tail) = OutputEnd {
            end: chunk.end(),
            newest: sequence,
        };
        self.streams.announce(&self.job, sequence).await;
        Ok(())
    }

    /// Reads from a position on.
    async fn read_at(
        &self,
        current: &Mutex<Option<ChunkMessage>>,
        place: ChunkPosition,
        buffer: &mut [u8],
    ) -> io::Result<usize> {
        let held = lock(current).clone().filter(|message| message.chunk.contains(place));
        let message = match held {
            Some(message) => message,
            None => {
                let Some(found) = self.find(place).await? else { return Ok(0) };
                *lock(current) = Some(found.clone());
                found
            }
        };
        let from = usize::try_from(place.offset - message.chunk.start.offset)
            .map_err(|_| ErrorKind::InvalidInput)?;
        let rest = &message.bytes[from..];
        let length = rest.len().min(buffer.len());
        buffer[..length].copy_from_slice(&rest[..length]);
        Ok(length)
    }
}

/// The chunks of a segment, for a reader.
struct ChunksToRead {
    output: Arc<OutputInNats>,
    segment: u64,
    /// The chunk that was read last. The next read mostly continues in it.
    current: Mutex<Option<ChunkMessage>>,
}

impl Blob for ChunksToRead {
    fn append(&self, _bytes: &[u8]) -> io::Result<()> {
        Err(ErrorKind::PermissionDenied.into())
    }

    fn truncate(&self, _length: u64) -> io::Result<()> {
        Err(ErrorKind::PermissionDenied.into())
    }

    fn length(&self) -> io::Result<u64> {
        self.output.wait(self.output.length(self.segment))
    }

    fn is_local(&self) -> bool {
        false
    }

    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        let place = ChunkPosition {
            segment: self.segment,
            offset: position,
        };
        self.output.wait(self.output.read_at(&self.current, place, buffer))
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }
}

/// The chunks of a job, for the writer of a segment.
struct ChunksToWrite {
    output: Arc<OutputInNats>,
    segment: u64,
    tail: Mutex<OutputEnd>,
    /// The chunk whose append has failed. NATS may have stored it all the same, and readers may have shown it.
    unanswered: Mutex<Option<Unanswered>>,
    /// The bytes of a chunk that was stored, although its append has failed. The writer appends them again.
    stored_after_all: Mutex<Option<Unanswered>>,
}

/// A chunk that was sent and not confirmed.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Unanswered {
    start: ChunkPosition,
    bytes: Bytes,
}

impl ChunksToWrite {
    async fn append_or_find(&self, bytes: Bytes) -> io::Result<()> {
        let stored = lock(&self.stored_after_all).take();
        if let Some(stored) = stored {
            if stored.bytes == bytes {
                let sequence = lock(&self.tail).newest;
                self.output.streams.announce(&self.output.job, sequence).await;
                return Ok(());
            }
            self.cut_off_after(stored.start).await?;
        }
        let start = lock(&self.tail).next_in(self.segment);
        let appended = self.output.append(self.segment, &self.tail, bytes.clone()).await;
        *lock(&self.unanswered) = appended.is_err().then_some(Unanswered { start, bytes });
        appended
    }

    /// Deletes what was stored after a position, except a chunk that the writer will append again: its lines
    /// may have been shown, and a writer that dies before it has stored them again would lose them.
    async fn truncate_to(&self, place: ChunkPosition) -> io::Result<()> {
        let unanswered = lock(&self.unanswered).take();
        if let Some(sent) = unanswered.filter(|sent| sent.start == place)
            && let Some(tail) = self.output.tail_if_stored(&sent).await?
        {
            *lock(&self.tail) = tail;
            *lock(&self.stored_after_all) = Some(sent);
            return Ok(());
        }
        self.cut_off_after(place).await
    }

    async fn cut_off_after(&self, place: ChunkPosition) -> io::Result<()> {
        self.output.cut_off_after(place).await?;
        *lock(&self.tail) = self.output.tail().await?;
        Ok(())
    }
}

impl Blob for ChunksToWrite {
    fn append(&self, bytes: &[u8]) -> io::Result<()> {
        self.output.wait(self.append_or_find(Bytes::copy_from_slice(bytes)))
    }

    fn truncate(&self, length: u64) -> io::Result<()> {
        let place = ChunkPosition {
            segment: self.segment,
            offset: length,
        };
        self.output.wait(self.truncate_to(place))
    }

    fn length(&self) -> io::Result<u64> {
        self.output.wait(self.output.length(self.segment))
    }

    fn read_at(&self, _buffer: &mut [u8], _position: u64) -> io::Result<usize> {
        Err(ErrorKind::PermissionDenied.into())
    }

    fn sync(&self) -> io::Result<()> {
        // NATS has acknowledged every chunk.
        Ok(())
    }
}

/// A part that is read as a whole.
enum Small {
    Index {
        output: Arc<OutputInNats>,
        segment: u64,
        bytes: Vec<u8>,
    },
    Forgotten {
        output: Arc<OutputInNats>,
        bytes: Bytes,
    },
}

impl Small {
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Index { bytes, .. } => bytes,
            Self::Forgotten { bytes, .. } => bytes,
        }
    }
}

impl Blob for Small {
    fn append(&self, new: &[u8]) -> io::Result<()> {
        match self {
            Self::Index {
                output, segment, ..
            } => output.wait(output.write_index(*segment, new)),
            Self::Forgotten { output, .. } => {
                output.wait(output.write_forgotten(Bytes::copy_from_slice(new)))
            }
        }
    }

    fn truncate(&self, _length: u64) -> io::Result<()> {
        Err(ErrorKind::Unsupported.into())
    }

    fn length(&self) -> io::Result<u64> {
        Ok(self.bytes().len() as u64)
    }

    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        let bytes = self.bytes();
        let from = usize::try_from(position).unwrap_or(usize::MAX).min(bytes.len());
        let length = buffer.len().min(bytes.len() - from);
        buffer[..length].copy_from_slice(&bytes[from..from + length]);
        Ok(length)
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }
}
