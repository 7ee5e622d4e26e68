//! Streams of bytes between replicas, over core NATS.
//!
//! A stream has two subjects, one for each direction. A message is one byte that says what it is,
//! a number, and for [data](TunnelFrame::Data) the bytes. Each side sends at most [`WINDOW`] messages of
//! data that the other side has not taken, so that a slow reader holds the writer back. NATS loses
//! messages when a connection breaks; data is numbered, so that a loss ends the stream instead of
//! changing it. A side that hears nothing for [`SILENCE`] takes the other one for dead.

use std::collections::VecDeque;
use std::io;
use std::time::Duration;

use async_nats::{Client, Subscriber};
use bytes::{Buf, BufMut, Bytes, BytesMut};
use futures_util::StreamExt;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, WriteHalf, duplex, split};
use tokio::time::{Instant, MissedTickBehavior, interval};

/// Messages of data that the other side has not taken.
const WINDOW: u64 = 16;
/// Maximum bytes of a message.
const PIECE: usize = 64 << 10;
/// Interval of messages that only say that this side is alive.
const ALIVE: Duration = Duration::from_secs(2);
/// Silence after which the other side is taken for dead.
const SILENCE: Duration = Duration::from_secs(8);

/// A message of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
enum TunnelFrame {
    /// The next bytes, with their number.
    Data(u64, Bytes),
    /// The number of data messages that were acknowledged so far.
    Taken(u64),
    /// No data follows after this number of messages.
    End(u64),
    /// This side is alive.
    Alive,
    /// This side has given up.
    Broken,
}

const DATA: u8 = 0;
const TAKEN: u8 = 1;
const END: u8 = 2;
const ALIVE_KIND: u8 = 3;
const BROKEN: u8 = 4;

impl TunnelFrame {
    fn encode(&self) -> Bytes {
        let (kind, number, data): (u8, u64, &[u8]) = match self {
            Self::Data(number, data) => (DATA, *number, data),
            Self::Taken(number) => (TAKEN, *number, &[]),
            Self::End(number) => (END, *number, &[]),
            Self::Alive => (ALIVE_KIND, 0, &[]),
            Self::Broken => (BROKEN, 0, &[]),
        };
        let mut bytes = BytesMut::with_capacity(9 + data.len());
        bytes.put_u8(kind);
        bytes.put_u64(number);
        bytes.put_slice(data);
        bytes.freeze()
    }

    fn decode(bytes: &Bytes) -> Option<Self> {
        let (kind, rest) = bytes.split_first()?;
        let number = u64::from_be_bytes(*rest.first_chunk::<8>()?);
        match *kind {
            DATA => Some(Self::Data(number, bytes.slice(9..))),
            TAKEN => Some(Self::Taken(number)),
            END => Some(Self::End(number)),
            ALIVE_KIND => Some(Self::Alive),
            BROKEN => Some(Self::Broken),
            _ => None,
        }
    }
}

/// The two subjects of a stream, at one of its ends.
pub(super) struct TunnelEnds {
    pub(super) client: Client,
    /// Messages for this side.
    pub(super) incoming: Subscriber,
    /// Subject of messages for the other side.
    pub(super) outgoing: String,
}

/// A stream over two subjects, and the task that moves its bytes.
pub(super) fn stream(ends: TunnelEnds) -> (DuplexStream, impl Future<Output = ()> + Send) {
    let (ours, theirs) = duplex(2 * PIECE);
    let moving = async move {
        let outgoing = ends.outgoing.clone();
        let client = ends.client.clone();
        if let Err(error) = move_bytes(theirs, ends).await {
            tracing::debug!(%error, "a stream between replicas broke");
            client.publish(outgoing, TunnelFrame::Broken.encode()).await.ok();
        }
    };
    (ours, moving)
}

/// State of a stream at one of its ends.
struct TunnelProgress {
    client: Client,
    outgoing: String,
    /// Number of messages of data that were sent, and that the other side has taken.
    sent: u64,
    taken: u64,
    /// Number of messages of data that were received.
    received: u64,
    /// Data that arrived and is not written here yet. [`WINDOW`] bounds it.
    arrived: VecDeque<Bytes>,
    has_sent_end: bool,
    has_received_end: bool,
    has_written_end: bool,
    heard_at: Instant,
}

/// Moves bytes in both directions, until both have ended.
async fn move_bytes(local: DuplexStream, ends: TunnelEnds) -> io::Result<()> {
    let TunnelEnds {
        client,
        mut incoming,
        outgoing,
    } = ends;
    let (mut reading, mut writing) = split(local);
    let mut moving = TunnelProgress {
        client,
        outgoing,
        sent: 0,
        taken: 0,
        received: 0,
        arrived: VecDeque::new(),
        has_sent_end: false,
        has_received_end: false,
        has_written_end: false,
        heard_at: Instant::now(),
    };
    let mut tick = interval(ALIVE);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut buffer = BytesMut::with_capacity(PIECE);
    while !(moving.has_sent_end && moving.has_written_end) {
        let may_send = !moving.has_sent_end && moving.sent - moving.taken < WINDOW;
        let first = moving.arrived.front().cloned();
        // No direction waits for the other one: each may be held back by its reader.
        tokio::select! {
            read = reading.read_buf(&mut buffer), if may_send => {
                moving.send_read(read?, &mut buffer).await?;
            }
            message = incoming.next() => {
                let message = message.ok_or(io::ErrorKind::BrokenPipe)?;
                moving.receive(&message.payload)?;
            }
            written = write_some(&mut writing, first.as_deref()), if moving.has_something_to_write() => {
                moving.note_written(written?).await?;
            }
            _ = tick.tick() => {
                // Once both sides have sent their end, the other one need not be there any more.
                let is_needed = !(moving.has_received_end && moving.has_sent_end);
                if is_needed && moving.heard_at.elapsed() > SILENCE {
                    return Err(io::Error::new(
                        io::ErrorKind::TimedOut,
                        "the other replica does not answer",
                    ));
                }
                moving.send(&TunnelFrame::Alive).await?;
            }
        }
    }
    Ok(())
}

impl TunnelProgress {
    async fn send(&self, frame: &TunnelFrame) -> io::Result<()> {
        let sending = self.client.publish(self.outgoing.clone(), frame.encode());
        sending.await.map_err(io::Error::other)
    }

    /// Sends the `count` bytes in the buffer, or the end of the stream if there are none.
    async fn send_read(&mut self, count: usize, buffer: &mut BytesMut) -> io::Result<()> {
        if count == 0 {
            self.has_sent_end = true;
            return self.send(&TunnelFrame::End(self.sent)).await;
        }
        let data = buffer.split().freeze();
        buffer.reserve(PIECE);
        let frame = TunnelFrame::Data(self.sent, data);
        self.sent += 1;
        self.send(&frame).await
    }

    /// Handles a message of the other side.
    fn receive(&mut self, payload: &Bytes) -> io::Result<()> {
        self.heard_at = Instant::now();
        match TunnelFrame::decode(payload).ok_or(io::ErrorKind::InvalidData)? {
            TunnelFrame::Data(number, data) if number == self.received => {
                self.received += 1;
                self.arrived.push_back(data);
            }
            TunnelFrame::End(number) if number == self.received => self.has_received_end = true,
            TunnelFrame::Data(..) | TunnelFrame::End(_) => {
                return Err(io::Error::other("messages between replicas were lost"));
            }
            TunnelFrame::Taken(number) => self.taken = self.taken.max(number),
            TunnelFrame::Alive => {}
            TunnelFrame::Broken => return Err(io::ErrorKind::ConnectionReset.into()),
        }
        Ok(())
    }

    fn has_something_to_write(&self) -> bool {
        !self.arrived.is_empty() || (self.has_received_end && !self.has_written_end)
    }

    /// Notes that bytes were written here, or the end if there were none left.
    async fn note_written(&mut self, count: usize) -> io::Result<()> {
        let Some(first) = self.arrived.front_mut() else {
            self.has_written_end = true;
            return Ok(());
        };
        first.advance(count);
        if !first.is_empty() {
            return Ok(());
        }
        self.arrived.pop_front();
        let taken = self.received - self.arrived.len() as u64;
        self.send(&TunnelFrame::Taken(taken)).await
    }
}

/// Writes some of the bytes, or the end of the stream if there are none. Cancel safe.
async fn write_some(
    writing: &mut WriteHalf<DuplexStream>,
    bytes: Option<&[u8]>,
) -> io::Result<usize> {
    match bytes {
        Some(bytes) => writing.write(bytes).await,
        None => writing.shutdown().await.map(|()| 0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_received_as_it_was_sent() {
        for frame in [
            TunnelFrame::Data(7, Bytes::from_static(b"ab")),
            TunnelFrame::Taken(u64::MAX),
            TunnelFrame::End(0),
            TunnelFrame::Alive,
            TunnelFrame::Broken,
        ] {
            assert_eq!(TunnelFrame::decode(&frame.encode()), Some(frame));
        }
        assert_eq!(TunnelFrame::decode(&Bytes::from_static(b"\x00\x01")), None);
        assert_eq!(
            TunnelFrame::decode(&Bytes::from_static(b"\x09\0\0\0\0\0\0\0\0")),
            None
        );
    }
}
